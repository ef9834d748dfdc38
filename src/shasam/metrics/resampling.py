"""Simulated test sets: resampled, drawn around shrunken rates, or permuted.

All work on counts, so that a thousand million rows cost no more than a thousand.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics.counts import Counts
from shasam.metrics.memory import check_evaluation
from shasam.metrics.tables import Table, rates

STRATA = ("cell", "group", "none")
MOST_EXACT = 999_999_999  # rows; numpy draws no hypergeometric variable from more


@dataclass(frozen=True, eq=False)
class Resampling:
    """The draws behind all intervals of one table; each kind is made once, when first needed."""

    counts: Counts
    positive: int | None = None
    draws: int = 2000
    seed: int = 0
    level: float = 0.95
    strata: str = "cell"
    _made: dict[tuple[str, Table], Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.strata not in STRATA:
            raise InputError(f"strata {self.strata!r} is not known; there are: {', '.join(STRATA)}")
        if not 0 < self.level < 1 or self.draws < 100:
            raise InputError("an interval needs a level between 0 and 1 and at least 100 draws")
        check_evaluation(len(self.counts.classes), len(self.counts.groups), self.draws)

    @cached_property
    def bootstrap(self) -> tuple[np.ndarray, np.ndarray]:
        """Resampled tables (D, C, P, G) and their expectation, for averages and minima."""
        return dirichlet(self.counts.n_CPG, self.draws, self.seed, self.strata)

    def noise(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """Tables of outcomes (D, S, K, G) drawn around shrunken rates, and their expectation."""
        if ("noise", table) not in self._made:
            self._made["noise", table] = self._noise(table)
        return self._made["noise", table]

    def by_chance(self, table: Table) -> np.ndarray:
        """Rates (D, R, G) of groups that were dealt out by chance within each stratum."""
        if ("by chance", table) not in self._made:
            self._made["by chance", table] = self._by_chance(table)
        return self._made["by chance", table]

    @cached_property
    def dealt(self) -> np.ndarray:
        """Tables (D, C, P, G) whose groups were dealt out by chance within each class."""
        rng = np.random.default_rng([self.seed, zlib.crc32(b"permuted")])
        return shuffled(self.counts.n_CPG, self.draws, rng)

    def _by_chance(self, table: Table) -> np.ndarray:
        n_SKG = table(self.counts.n_CPG, self.positive)
        if self.strata != "cell" or n_SKG.shape[0] > 1:
            return rates(shuffled(n_SKG, self.draws, self._rng("permuted", table)))
        # The mix of classes in a group is no accident, so groups are dealt out within each class.
        # What that mix alone explains is taken off.
        n_CPG = self.counts.n_CPG
        drawn = rates(table(self.dealt, self.positive))
        pooled_CP = n_CPG.sum(2, keepdims=True) / _positive(n_CPG.sum((1, 2), keepdims=True))
        expected = table(pooled_CP * n_CPG.sum(1, keepdims=True), self.positive)
        together = table(n_CPG.sum(2, keepdims=True), self.positive)
        return drawn - rates(expected) + rates(together)

    def _noise(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        rng = self._rng("noise", table)
        n_SKG = table(self.counts.n_CPG, self.positive)
        if self.strata == "cell" and n_SKG.shape[0] == 1:
            # The mix of classes in a group is kept, so the cells are drawn one by one.
            cells_CPG, expected_CPG = multinomial(self.counts.n_CPG, self.draws, rng)
            return table(cells_CPG, self.positive), table(expected_CPG, self.positive)
        return multinomial(n_SKG, self.draws, rng)

    def _rng(self, kind: str, table: Table) -> np.random.Generator:
        name = f"{kind} {table.__module__}.{table.__qualname__}"
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])


def dirichlet(
    n_CPG: np.ndarray, draws: int, seed: int, strata: str = "cell"
) -> tuple[np.ndarray, np.ndarray]:
    """Resampled tables (draws, C, P, G) and their expectation, with the sizes of strata kept.

    Within a stratum of N rows with counts n the shares are Dirichlet(n + a): the Bayesian bootstrap
    with a prior of one row in all (Jeffreys' in the binary case), so that a cell without an error
    still has an interval. ``strata``: ``cell`` keeps the number of rows of each (class, group),
    ``group`` of each group, ``none`` of the whole.
    """
    C, P, G = n_CPG.shape
    axes = {"cell": (1,), "group": (0, 1), "none": (0, 1, 2)}[strata]
    size = n_CPG.sum(axes, keepdims=True)
    # One row for each (class, group), spread evenly over what could have been predicted.
    alpha = np.where(n_CPG.sum(1, keepdims=True) > 0, n_CPG + 1.0 / P, 0.0)
    rng = np.random.default_rng(seed)
    weight = rng.standard_gamma(np.broadcast_to(alpha, (draws, C, P, G)))
    share = weight / _positive(weight.sum(tuple(a + 1 for a in axes), keepdims=True))
    centre = alpha / _positive(alpha.sum(axes, keepdims=True))
    return share * size, centre * size


def multinomial(
    n_SKG: np.ndarray, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes drawn anew within each (stratum, group): (D, S, K, G), and their expectation."""
    share_SKG = shrunken(n_SKG)
    size_SG = _whole(n_SKG.sum(1))
    p_SGK = np.moveaxis(share_SKG, 1, 2)
    drawn = rng.multinomial(size_SG, p_SGK, size=(draws, *size_SG.shape))
    return np.moveaxis(drawn, -1, 2), share_SKG * size_SG[:, None, :]


def shrunken(n_SKG: np.ndarray) -> np.ndarray:
    """Shares of outcomes (S, K, G), pulled towards those of all groups together.

    Three right answers of three say little about a group: noise that is drawn around 100 % would be
    none at all. The pull is that of a Dirichlet prior whose strength m is estimated from how far
    the groups differ beyond chance (DerSimonian and Laird 1986): weight m / (m + n), without a
    limit where they do not differ, at least one row.
    """
    K = n_SKG.shape[1]
    size_SG, whole_SK = n_SKG.sum(1), n_SKG.sum(2)
    total_S = _positive(whole_SK.sum(1))
    pooled_SK = (whole_SK + 1.0 / K) / (whole_SK.sum(1, keepdims=True) + 1.0)
    expected = pooled_SK[:, :, None] * size_SG[:, None, :]
    chi2_S = ((n_SKG - expected) ** 2 / _positive(expected)).sum((1, 2))
    degrees_S = ((size_SG > 0).sum(1) - 1) * (K - 1)
    spare_S = total_S - (size_SG**2.0).sum(1) / total_S
    beyond_S = np.maximum(chi2_S - degrees_S, 0.0) / _positive((K - 1) * spare_S)
    strength_S = 1.0 / np.clip(beyond_S, 1e-12, 1.0)
    weight = (strength_S[:, None] / (strength_S[:, None] + size_SG))[:, None, :]
    own = n_SKG / _positive(size_SG)[:, None, :]
    share = weight * pooled_SK[:, :, None] + (1 - weight) * own
    return share / share.sum(1, keepdims=True)


def shuffled(n_SKG: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Tables with the same margins, as if groups were dealt out by chance within each stratum.

    Equal in law to permuting the rows. Outcomes and group sizes of a stratum stay, so the number of
    each outcome in a group is hypergeometric given what earlier groups took.
    """
    S, K, G = n_SKG.shape
    n_SKG = np.rint(n_SKG).astype(np.int64)  # sample weights leave fractions
    out = np.empty((draws, S, K, G), dtype=np.int64)
    left_DSK = np.broadcast_to(n_SKG.sum(2), (draws, S, K)).copy()
    for g in range(G - 1):
        need_DS = np.broadcast_to(n_SKG[:, :, g].sum(1), (draws, S))
        rest_DS = left_DSK.sum(-1)
        for k in range(K - 1):
            good_DS = left_DSK[..., k]
            rest_DS = rest_DS - good_DS
            taken_DS = _hypergeometric(good_DS, rest_DS, need_DS, rng)
            out[..., k, g] = taken_DS
            need_DS = need_DS - taken_DS
        out[..., K - 1, g] = need_DS
        left_DSK -= out[..., g]
    out[..., G - 1] = left_DSK
    return out


def _hypergeometric(
    good: np.ndarray, bad: np.ndarray, sample: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    total = good + bad
    if total.max(initial=0) <= MOST_EXACT:
        return rng.hypergeometric(good, bad, sample)
    whole = np.maximum(total, 1).astype(np.float64)
    share = good / whole
    spread = np.sqrt(sample * share * (1 - share) * (total - sample) / np.maximum(whole - 1, 1.0))
    about = np.rint(sample * share + spread * rng.standard_normal(total.shape)).astype(np.int64)
    return np.clip(about, np.maximum(sample - bad, 0), np.minimum(good, sample))


def _whole(size: np.ndarray) -> np.ndarray:
    """Sizes as integers, which sample weights need not be; what is occupied stays so."""
    return np.where(size > 0, np.maximum(np.rint(size), 1), 0).astype(np.int64)


def _positive(whole: np.ndarray) -> np.ndarray:
    return np.where(whole > 0, whole, 1.0)
