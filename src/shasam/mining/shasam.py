"""SHaSaM-MINE: diverse anchors, hard positives and hard negatives by submodular maximisation.

A = argmax f(A) over T_i∩S_j (LogDet), P = argmax H_f(P | A) over T_i∩¬S_j (conditional gain),
N = argmax I_f(N ; A) over ¬T_i∩S_j (mutual information); paper, Alg. 1, lines 19-21.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from shasam.mining.miner import Mined, Miner
from shasam.registry import register
from shasam.submodular import (
    FL1MI,
    FLCG,
    FLQMI,
    FacilityLocation,
    LogDet,
    LogDetCG,
    LogDetMI,
    SetFunction,
    maximize,
)
from shasam.submodular.kernels import Similarity, similarity_matrix

AnchorRule = Literal["logdet", "fl", "random"]
PositiveRule = Literal["flcg", "logdetcg", "random"]
NegativeRule = Literal["flqmi", "fl1mi", "logdetmi", "semihard", "random"]
SEMIHARD = (0.5, 0.9)  # quantiles of a pool by nearness to the anchors, between which are drawn


@register("shasam", kind="miner")
@dataclass(frozen=True)
class ShasamMiner(Miner):
    """The default mines with facility location (``fl``); ``ShasamMiner.ld()`` with LogDet.

    paper: hard negatives maximise the FL mutual information; here FLQMI, because FL1MI is flat
    after one or two picks and then says nothing (``negatives="fl1mi"`` is the literal one).
    ``negatives="semihard"`` draws among the half that is nearer to the anchors, without its nearest
    tenth of the pool, where wrong labels and look-alikes are.
    """

    anchors: AnchorRule = "logdet"
    positives: PositiveRule = "flcg"
    negatives: NegativeRule = "flqmi"
    ridge: float = 1.0  # of LogDet; 1 makes it monotone
    nu: float = 1.0  # hardness of the positives
    eta: float = 1.0
    trim: float = 0.0  # share of each pool left out first: what is farthest from its own centre
    similarity: Literal["cosine", "rbf"] = "cosine"
    gamma: float | None = None  # of rbf

    @classmethod
    def ld(cls, **settings: float) -> ShasamMiner:
        """LogDet anchors, LogDetCG positives, LogDetMI negatives."""
        return cls(positives="logdetcg", negatives="logdetmi", **settings)  # type: ignore[arg-type]

    def pick(
        self, z_A: Tensor, z_P: Tensor, z_N: Tensor, k: int, generator: torch.Generator
    ) -> Mined:
        gains: dict[str, Tensor] = {}
        # The order of a pool decides ties: typical anchors, far positives, near negatives first.
        # Index order would mean the order of files on a disk.
        order_A = self._typical_first(z_A, k)
        anchors = self._select("anchors", self.anchors, z_A[order_A], None, k, generator, gains)
        anchors = order_A[anchors]
        z_sel = z_A[anchors]
        order_P = self._by_nearness(z_P, z_sel, k, nearest_first=False)
        positives = self._select(
            "positives", self.positives, z_P[order_P], z_sel, k, generator, gains
        )
        order_N = self._by_nearness(z_N, z_sel, k, nearest_first=True)
        if self.negatives == "semihard":
            order_N = _band(order_N, k)
        rule = "random" if self.negatives == "semihard" else self.negatives
        negatives = self._select("negatives", rule, z_N[order_N], z_sel, k, generator, gains)
        return Mined(anchors, order_P[positives], order_N[negatives], gains)

    def _function(self, rule: str, z: Tensor, given: Tensor | None) -> SetFunction:
        flat: Similarity = "rbf" if self.similarity == "rbf" else "shifted_cosine"
        gram: Similarity = "rbf" if self.similarity == "rbf" else "cosine"
        if rule == "logdet":
            return LogDet.from_features(z, self.ridge, similarity=gram, gamma=self.gamma)
        if rule == "fl":
            return FacilityLocation.from_features(z, similarity=flat, gamma=self.gamma)
        if rule == "flcg":
            return FLCG.from_features(z, given, self.nu, similarity=flat, gamma=self.gamma)
        if rule == "flqmi":
            return FLQMI.from_features(z, given, self.eta, similarity=flat, gamma=self.gamma)
        if rule == "fl1mi":
            return FL1MI.from_features(z, given, self.eta, similarity=flat, gamma=self.gamma)
        measure = LogDetCG if rule == "logdetcg" else LogDetMI
        scale = self.nu if rule == "logdetcg" else self.eta
        return measure.from_features(z, given, self.ridge, scale, similarity=gram, gamma=self.gamma)

    def _select(
        self,
        name: str,
        rule: str,
        z: Tensor,
        given: Tensor | None,
        k: int,
        generator: torch.Generator,
        gains: dict[str, Tensor],
    ) -> Tensor:
        if rule == "random":
            return torch.randperm(len(z), generator=generator)[:k].to(z.device)
        selection = maximize(self._function(rule, z, given), k)
        gains[name] = selection.gains
        return selection.indices

    def _kept(self, n: int, k: int) -> int:
        return max(k, n - int(self.trim * n))

    def _typical_first(self, z: Tensor, k: int) -> Tensor:
        """The pool by similarity to its own centre, without its farthest ``trim``."""
        near = (z @ z.mean(dim=0)).argsort(descending=True, stable=True)
        return near[: self._kept(len(z), k)]

    def _by_nearness(self, z: Tensor, z_sel: Tensor, k: int, *, nearest_first: bool) -> Tensor:
        kind: Similarity = "rbf" if self.similarity == "rbf" else "cosine"
        nearest = similarity_matrix(z, z_sel, kind, self.gamma).amax(dim=1)
        kept = self._typical_first(z, k)
        order = nearest[kept].argsort(descending=nearest_first, stable=True)
        return kept[order]


def _band(order: Tensor, k: int) -> Tensor:
    """Of rows from near to far those between the quantiles, at least k, from the near end."""
    low, high = (round((1 - q) * len(order)) for q in reversed(SEMIHARD))
    low = max(0, min(low, len(order) - k))
    return order[low : max(high, low + k)]


register("shasam-ld", kind="miner")(ShasamMiner.ld)
