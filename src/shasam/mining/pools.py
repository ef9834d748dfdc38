"""Pools: T_i∩S_j for anchors, T_i∩¬S_j for positives, ¬T_i∩S_j for negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from shasam.errors import InputError

PairSampling = Literal["uniform", "proportional", "round_robin"]


@dataclass(frozen=True)
class Pools:
    """The rows that each of the three sets of a pair (i, j) may be drawn from."""

    target: int
    sensitive: int
    anchors: Tensor
    positives: Tensor
    negatives: Tensor

    @property
    def smallest(self) -> int:
        return min(len(self.anchors), len(self.positives), len(self.negatives))


def cells_of(rows: Tensor, t_n: Tensor, s_n: Tensor) -> dict[tuple[int, int], Tensor]:
    """The rows of every (target, group) cell that has any, ordered by (target, group)."""
    pairs = sorted(set(zip(t_n.tolist(), s_n.tolist(), strict=True)))
    return {(i, j): rows[(t_n == i) & (s_n == j)] for i, j in pairs}


def pools_of(t_N: Tensor, s_N: Tensor, target: int, sensitive: int) -> Pools:
    """Labels of any cardinality: "other" means any other class, any other group."""
    same_t, same_s = t_N == target, s_N == sensitive
    return Pools(
        target,
        sensitive,
        (same_t & same_s).nonzero().flatten(),
        (same_t & ~same_s).nonzero().flatten(),
        (~same_t & same_s).nonzero().flatten(),
    )


def feasible_pairs(t_N: Tensor, s_N: Tensor, k: int = 1) -> list[tuple[int, int]]:
    """All (target, group) pairs whose three pools hold at least k rows each."""
    pairs = [
        (int(i), int(j))
        for i in t_N.unique()
        for j in s_N.unique()
        if pools_of(t_N, s_N, int(i), int(j)).smallest >= k
    ]
    if pairs:
        return pairs
    sizes = ", ".join(
        f"target {int(i)} × group {int(j)}: {int(((t_N == i) & (s_N == j)).sum())}"
        for i in t_N.unique()
        for j in s_N.unique()
    )
    raise InputError(
        f"no pair of target and group has {k} anchors, positives and negatives; rows per cell are "
        f"{sizes}. Lower k, or give labels with at least two classes and two groups"
    )


def draw_pair(
    t_N: Tensor,
    s_N: Tensor,
    k: int,
    how: PairSampling,
    step: int,
    generator: torch.Generator,
) -> tuple[int, int]:
    """One (i, j) for an iteration (Alg. 1, lines 16-18), among the feasible ones.

    paper: i and j are drawn from 1..|V| and only T_i∩S_j must not be empty; here all three pools
    must hold k rows, because otherwise there is nothing to mine.
    """
    pairs = feasible_pairs(t_N, s_N, k)
    if how == "round_robin":
        return pairs[step % len(pairs)]
    weights = torch.ones(len(pairs))
    if how == "proportional":
        weights = torch.tensor([float(((t_N == i) & (s_N == j)).sum()) for i, j in pairs])
    return pairs[int(torch.multinomial(weights, 1, generator=generator))]
