"""The paper's two-cluster scenes (Fig. 4 and its appendix), random beside SHaSaM-MINE."""

from __future__ import annotations

import torch
from torch import Tensor

from shasam.data import DataSpec
from shasam.data.sources.clusters import SCENES, Clusters
from shasam.errors import SpecError
from shasam.mining.miner import Miner
from shasam.mining.random import RandomMiner
from shasam.mining.shasam import ShasamMiner
from shasam.registry import did_you_mean
from shasam.types import Triplet


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
