"""Mine without training: from files of embeddings, and on the paper's two-cluster scenes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from shasam.data import DataSpec
from shasam.data.sources.clusters import SCENES, Clusters
from shasam.data.vector_files import open_features
from shasam.errors import InputError, SpecError
from shasam.files import write_named
from shasam.mining.pools import Miner, RandomMiner, feasible_pairs, pools_of
from shasam.mining.shasam_miner import ShasamMiner
from shasam.output import Cell, Screen, csv_text, say
from shasam.registry import did_you_mean
from shasam.tables import open_table
from shasam.types import Triplet

# -------------------------------------------------------------------------------------------------
# Mining for people with their own pipeline: embeddings and labels from files, picks to a CSV.
# -------------------------------------------------------------------------------------------------

# why candidates are left out, as a reader is told
_REASONS = {
    "trim": "least typical of their cell (trim)",
    "scores": "similarity outside of the range (scores)",
    "ranks": "rank outside of the range (ranks)",
    "margin": "too similar beside the positives (margin)",
    "vote": "neighbours have the anchors' class (vote)",
    "put back": "put back: fewer than k were left",
}


def read_embeddings(path: Path) -> Tensor:
    """Read a file of vectors as (N, D) float32, as ``--features`` of ``shasam train`` does."""
    array = open_features(path).take(slice(None))
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def read_labels(path: Path, columns: list[str]) -> dict[str, list[str]]:
    """Label columns of a table, as text."""
    source = open_table(path)
    known = source.column_names
    for name in columns:
        if name not in known:
            raise InputError(f"{path} has no column {name!r}{did_you_mean(name, known)}")
    table = source.read(columns, text=columns)
    return {
        name: ["" if v is None else str(v) for v in table.column(name).to_pylist()]
        for name in columns
    }


def mine_table(
    embeddings: Path,
    labels: Path,
    *,
    target: str,
    sensitive: str,
    k: int,
    triplets: int,
    miner: str,
    chosen: Miner,
    seed: int,
    out: Path,
    profile: bool,
) -> None:
    """Mine triplets and write (triplet, set, row, target, sensitive), one line per pick."""
    z_ND = read_embeddings(embeddings)
    text = read_labels(labels, [target, sensitive])
    if len(text[target]) != len(z_ND):
        raise InputError(
            f"{labels} has {len(text[target])} rows and {embeddings} has {len(z_ND)}; "
            "they must match"
        )
    t_N = torch.from_numpy(np.unique(text[target], return_inverse=True)[1].astype(np.int64))
    s_N = torch.from_numpy(np.unique(text[sensitive], return_inverse=True)[1].astype(np.int64))
    pairs = feasible_pairs(t_N, s_N, k)
    generator = torch.Generator().manual_seed(seed)
    seconds, skipped, candidates = 0.0, dict[str, int](), 0
    picks: list[list[Cell]] = [["triplet", "set", "row", target, sensitive]]
    count = triplets or len(pairs)
    for number in range(count):
        start = time.perf_counter()
        triplet, mined = chosen.explained(
            z_ND, t_N, s_N, k, generator, pair=pairs[number % len(pairs)], step=number
        )
        seconds += time.perf_counter() - start
        pools = pools_of(t_N, s_N, triplet.target, triplet.sensitive)
        candidates += sum(map(len, (pools.anchors, pools.positives, pools.negatives)))
        for reason, many in mined.skipped.items():
            skipped[reason] = skipped.get(reason, 0) + many
        for name in ("anchors", "positives", "negatives"):
            for row in getattr(triplet, name).tolist():
                picks.append([number, name, row, text[target][row], text[sensitive][row]])
    write_named(out, csv_text(picks))
    say(f"{count} triplets of {k} + {k} + {k} from {len(z_ND):,} rows, miner {miner}: {out}")
    if skipped:
        _say_skipped(skipped, candidates)
    if profile:
        say(f"{1000 * seconds / count:.1f} ms per triplet")


def _say_skipped(skipped: Mapping[str, int], candidates: int) -> None:
    """Print a table of what was left out of the candidates and why."""
    table = Table("left out", "candidates", "share")
    for reason, many in skipped.items():
        table.add_row(_REASONS.get(reason, reason), f"{many:,}", f"{many / candidates:.1%}")
    Screen().print(table)


# -------------------------------------------------------------------------------------------------
# The paper's two-cluster scenes (Fig. 4 and its appendix), random beside SHaSaM-MINE.
# -------------------------------------------------------------------------------------------------


class _Plane(ShasamMiner):
    """In raw 2-D a direction means nothing: points are compared by distance, never normalised."""

    def comparable(self, z_ND: Tensor) -> Tensor:
        return z_ND


def scene_points(name: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return points (N, 2), cluster (0 is the target) and sensitive coin of a scene."""
    if name not in SCENES:
        raise SpecError(f"there is no scene {name!r}{did_you_mean(name, SCENES)}")
    table = Clusters(DataSpec(name="clusters", setting=name, seed=seed)).list_images().table
    z_N2 = torch.stack([torch.tensor(table.column(c).to_numpy()) for c in ("x", "y")], dim=1)
    labels = [torch.tensor(table.column(c).to_numpy()) for c in ("cluster", "coin")]
    return z_N2.float(), labels[0], labels[1]


def mine_scene(name: str, k: int, seed: int) -> tuple[Tensor, Tensor, dict[str, Triplet]]:
    """Return the same points and seed for both miners.

    The target is cluster A, the group is heads.
    """
    z_N2, t_N, s_N = scene_points(name, seed)
    miners: dict[str, Miner] = {
        "random": RandomMiner(),
        "MINE (FL)": _Plane(similarity="rbf", gamma=0.5),
        "MINE (LD)": _Plane.ld(similarity="rbf", gamma=0.5),
    }
    mined = {
        label: miner.mine(z_N2, t_N, s_N, k, torch.Generator().manual_seed(seed), pair=(0, 0))
        for label, miner in miners.items()
    }
    return z_N2, t_N, mined
