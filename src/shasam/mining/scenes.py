"""The paper's two-cluster scenes (Fig. 4 and its appendix), random beside SHaSaM-MINE."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from shasam.data import DataSpec
from shasam.data.sources.clusters import SCENES, Clusters
from shasam.errors import SpecError
from shasam.files import atomic_file
from shasam.mining.miner import Miner
from shasam.mining.random import RandomMiner
from shasam.mining.shasam import ShasamMiner
from shasam.registry import did_you_mean
from shasam.types import Triplet

_BASE, _OTHER = "#9fb4c7", "#d9c3a5"
_SETS = (
    ("anchors", "diverse anchors", "#0b5394", "o"),
    ("positives", "hard positives", "#2e7d32", "^"),
    ("negatives", "hard negatives", "#b71c1c", "s"),
)


class _Plane(ShasamMiner):
    """In raw 2-D a direction means nothing: points are compared by distance, never normalised."""

    def comparable(self, z_ND: Tensor) -> Tensor:
        return z_ND


def scene_points(name: str, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Points (N, 2), cluster (0 is the target) and sensitive coin of a scene."""
    if name not in SCENES:
        raise SpecError(f"there is no scene {name!r}{did_you_mean(name, SCENES)}")
    table = Clusters(DataSpec(name="clusters", setting=name, seed=seed)).list_images().table
    z_N2 = torch.stack([torch.tensor(table.column(c).to_numpy()) for c in ("x", "y")], dim=1)
    labels = [torch.tensor(table.column(c).to_numpy()) for c in ("cluster", "coin")]
    return z_N2.float(), labels[0], labels[1]


def mine_scene(name: str, k: int, seed: int) -> tuple[Tensor, Tensor, dict[str, Triplet]]:
    """The same points and seed for both miners; the target is cluster A, the group is heads."""
    z_N2, t_N, s_N = scene_points(name, seed)
    miners: dict[str, Miner] = {
        "random": RandomMiner(),
        "MINE (FL)": _Plane(similarity="rbf", gamma=0.5),
        "MINE (LD)": _Plane(
            similarity="rbf", gamma=0.5, positives="logdetcg", negatives="logdetmi"
        ),
    }
    mined = {
        label: miner.mine(z_N2, t_N, s_N, k, torch.Generator().manual_seed(seed), pair=(0, 0))
        for label, miner in miners.items()
    }
    return z_N2, t_N, mined


def draw_scenes(folder: Path, which: str, *, k: int, seed: int) -> list[Path]:
    """One picture per scene: a row for each miner, a column for each of the three sets."""
    chosen = list(SCENES) if which == "all" else [which]
    return [_draw(name, folder / f"{name}.png", k, seed) for name in chosen]


def _draw(name: str, path: Path, k: int, seed: int) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    z_N2, t_N, mined = mine_scene(name, k, seed)
    figure = Figure(figsize=(11, 10), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(3, 3, sharex=True, sharey=True)
    for row, (label, triplet) in zip(grid, mined.items(), strict=True):
        for axis, (field, title, colour, marker) in zip(row, _SETS, strict=True):
            for cluster, tint in ((0, _BASE), (1, _OTHER)):
                points = z_N2[t_N == cluster]
                axis.scatter(points[:, 0], points[:, 1], s=8, color=tint, linewidths=0)
            if field != "anchors":  # positives and negatives are hard with respect to these
                points = z_N2[triplet.anchors]
                axis.scatter(
                    points[:, 0], points[:, 1], s=26, facecolors="none", edgecolors=_SETS[0][2]
                )
            points = z_N2[getattr(triplet, field)]
            axis.scatter(
                points[:, 0], points[:, 1], s=54, color=colour, marker=marker, edgecolors="white"
            )
            axis.set_title(f"{label}: {title if label != 'random' else field}", fontsize=11)
            axis.set_aspect("equal")
            axis.tick_params(labelsize=8)
    figure.suptitle(
        f"{name}: cluster A (blue, target) {int((t_N == 0).sum())} points, "
        f"cluster B {int((t_N == 1).sum())}; budget {k}, seed {seed}",
        fontsize=12,
    )
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=110)
    return path
