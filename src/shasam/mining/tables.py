"""Mining for people with their own pipeline: embeddings and labels from files, picks to a CSV."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shasam.arrays import read_npy, read_npz
from shasam.errors import InputError
from shasam.files import write_atomic
from shasam.mining.miner import Miner
from shasam.mining.pools import feasible_pairs
from shasam.output.csv_text import Cell, csv_text
from shasam.output.terminal import say
from shasam.parquet import read_parquet
from shasam.registry import did_you_mean, lookup
from shasam.tables import open_table


def read_embeddings(path: Path) -> Tensor:
    """(N, D) float32 from .npy, .npz or .parquet; nothing in them is ever unpickled."""
    if path.suffix == ".npy":
        array = read_npy(path)
    elif path.suffix == ".npz":
        array = read_npz(path, "embeddings")
    elif path.suffix == ".parquet":
        table = read_parquet(path)
        if "embedding" in table.column_names:
            array = np.stack(table.column("embedding").to_pylist())
        else:
            array = np.stack([column.to_numpy() for column in table.columns], axis=1)
    else:
        raise InputError(f"{path} is not a .npy, .npz or .parquet file of embeddings")
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.number):
        raise InputError(
            f"{path} must hold one row of numbers per image; it has shape {array.shape} and "
            f"type {array.dtype}"
        )
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


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
    seed: int,
    out: Path,
    profile: bool,
) -> None:
    """Mine triplets and write (triplet, set, row, target, sensitive), one line per pick."""
    chosen: Miner = lookup("miner", miner)()
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
    seconds = 0.0
    picks: list[list[Cell]] = [["triplet", "set", "row", target, sensitive]]
    count = triplets or len(pairs)
    for number in range(count):
        start = time.perf_counter()
        triplet = chosen.mine(
            z_ND, t_N, s_N, k, generator, pair=pairs[number % len(pairs)], step=number
        )
        seconds += time.perf_counter() - start
        for name in ("anchors", "positives", "negatives"):
            for row in getattr(triplet, name).tolist():
                picks.append([number, name, row, text[target][row], text[sensitive][row]])
    write_atomic(out, csv_text(picks))
    say(f"{count} triplets of {k} + {k} + {k} from {len(z_ND):,} rows, miner {miner}: {out}")
    if profile:
        say(f"{1000 * seconds / count:.1f} ms per triplet")
