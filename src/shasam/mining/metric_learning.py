"""For users of pytorch-metric-learning: its miners return tuples of indices, so can ours."""

from __future__ import annotations

import torch
from torch import Tensor

from shasam.mining.miner import Miner
from shasam.types import Triplet


def triplet_tuple(triplet: Triplet) -> tuple[Tensor, Tensor, Tensor]:
    """(anchor, positive, negative) of every combination: k³ entries."""
    a, p, n = torch.meshgrid(triplet.anchors, triplet.positives, triplet.negatives, indexing="ij")
    return a.flatten(), p.flatten(), n.flatten()


def pair_tuple(triplet: Triplet) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(anchor, positive, anchor, negative) of every pair: k² entries each."""
    a1, p = torch.meshgrid(triplet.anchors, triplet.positives, indexing="ij")
    a2, n = torch.meshgrid(triplet.anchors, triplet.negatives, indexing="ij")
    return a1.flatten(), p.flatten(), a2.flatten(), n.flatten()


class TupleMiner:
    """A miner to call as theirs: ``miner(embeddings, targets, groups)`` -> index tuple for a loss.

    mine = TupleMiner(ShasamMiner(), k=16)
    loss = loss_function(embeddings, targets, mine(embeddings, targets, groups))
    """

    def __init__(self, miner: Miner, k: int = 16, pairs: bool = True, seed: int = 0) -> None:
        self.miner, self.k, self.pairs = miner, k, pairs
        self.generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def __call__(self, embeddings: Tensor, targets: Tensor, groups: Tensor) -> tuple[Tensor, ...]:
        mined = self.miner.mine(
            embeddings, targets, groups, self.k, self.generator, small_pool="shrink"
        )
        return pair_tuple(mined) if self.pairs else triplet_tuple(mined)
