"""Simulate test sets, and compute averages, minima and gaps on each of them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from shasam.errors import InputError
from shasam.metrics.counts import Counts, Estimate, Table, divide, rates
from shasam.metrics.intervals import (
    STEPS,
    Norm,
    candidates,
    check_evaluation,
    directions_of,
    fold,
    from_centre,
    lowest,
    percentile,
    widest_only,
)

# -------------------------------------------------------------------------------------------------
# Simulated test sets: resampled, drawn around shrunken rates, or permuted.
#
# All work on counts, so that a thousand million rows cost no more than a thousand.
# -------------------------------------------------------------------------------------------------

STRATA = ("cell", "group", "none")
MOST_DRAWS = 1_000_000  # an end of an interval then rests on thousands of draws
MOST_EXACT = 999_999_999  # rows; numpy draws no hypergeometric variable from more


def check_draws(draws: int, seed: int) -> None:
    """Refuse what would run for days, and what no generator starts from."""
    if draws > MOST_DRAWS:
        raise InputError(f"{draws:,} draws are too many; {MOST_DRAWS:,} at most make sense")
    if seed < 0:
        raise InputError(f"the seed must be 0 or more; got {seed}")


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
        check_draws(self.draws, self.seed)
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


# -------------------------------------------------------------------------------------------------
# The kinds of metrics of counts: averages, minima and gaps, each with the interval that suits it.
#
# Each has `value(n_CPG, positive)` for a table or thousands of resampled ones at once,
# `estimate(resampling, support)` and, for two models on the same rows, `difference_ends`.
# -------------------------------------------------------------------------------------------------

Ends = tuple[float, float]


class Statistic(Protocol):
    """What the catalogue needs of a metric of counts."""

    def value(self, n_CPG: np.ndarray, positive: int | None) -> np.ndarray: ...

    def estimate(self, made: Resampling, support: int) -> Estimate: ...

    def difference_ends(self, pair: Pair, level: float) -> Ends: ...


@dataclass(frozen=True)
class Pair:
    """Two models on the same rows: their tables, and tables that could have come instead."""

    tables: tuple[np.ndarray, np.ndarray]  # (C, P, G) of a and of b
    drawn: tuple[np.ndarray, np.ndarray]  # (D, C, P, G) resampled
    expected: tuple[np.ndarray, np.ndarray]  # (C, P, G), their expectation
    swapped: tuple[np.ndarray, np.ndarray]  # (D, C, P, G), answers of a and b mixed up by chance
    positive: int | None

    def only(self, places: np.ndarray) -> Pair:
        """The same for some of the groups."""

        def some(pair: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
            return pair[0][..., places], pair[1][..., places]

        return Pair(
            some(self.tables),
            some(self.drawn),
            some(self.expected),
            some(self.swapped),
            self.positive,
        )


@dataclass(frozen=True)
class Average:
    """A mean of rates; its interval is a percentile of resampled tables."""

    of: Callable[[np.ndarray], np.ndarray]  # (..., C, P, G) -> (...)

    def value(self, n_CPG: np.ndarray, positive: int | None) -> np.ndarray:
        return self.of(n_CPG)

    def estimate(self, made: Resampling, support: int) -> Estimate:
        drawn, centre = made.bootstrap
        value = float(self.of(made.counts.n_CPG))
        # Each cell's prior pulls towards chance, and an average over cells is pulled by them all
        # (12 cells of 60 rows at 98 %: coverage 75 %); so all but one cell's share is undone.
        pull = (value - float(self.of(centre))) * (1 - 1 / made.counts.cells_CG.size)
        low, high = percentile(self.of(drawn) + pull, value, made.level)
        return Estimate(value, max(low, 0.0), min(high, 1.0), support)

    def difference_ends(self, pair: Pair, level: float) -> Ends:
        return _percentile_of_difference(self, pair, level)


@dataclass(frozen=True)
class Lowest:
    """The smallest of several rates, each the first outcome of a stratum in a group."""

    table: Table

    def value(self, n_CPG: np.ndarray, positive: int | None) -> np.ndarray:
        return self._rates(n_CPG, positive).min(-1)

    def estimate(self, made: Resampling, support: int) -> Estimate:
        n_CPG = made.counts.n_CPG
        rates_K, drawn_DK = (self._rates(n, made.positive) for n in (n_CPG, made.bootstrap[0]))
        around_DK, centre_K = (rates(n).reshape(*n.shape[:-3], -1) for n in made.noise(self.table))
        size_K = self.table(n_CPG, made.positive).sum(-2).reshape(-1)
        low, high = lowest(rates_K, drawn_DK, around_DK, centre_K, size_K, made.level)
        return Estimate(float(rates_K.min()), low, high, support)

    def difference_ends(self, pair: Pair, level: float) -> Ends:
        return _percentile_of_difference(self, pair, level)

    def _rates(self, n_CPG: np.ndarray, positive: int | None) -> np.ndarray:
        found = rates(self.table(n_CPG, positive))
        return found.reshape(*found.shape[:-2], -1)


@dataclass(frozen=True)
class Gap:
    """A norm of the differences between groups; 0 means that all groups are treated alike."""

    table: Table
    norm: Norm  # of rates (..., R, G)
    terms: bool = False  # the norm adds up differences, so that it may exceed 1

    def rates(self, n_CPG: np.ndarray, positive: int | None) -> np.ndarray:
        """The rates (..., R, G) that are compared between groups."""
        return rates(self.table(n_CPG, positive))

    def value(self, n_CPG: np.ndarray, positive: int | None) -> np.ndarray:
        return self.norm(self.rates(n_CPG, positive))

    def p(self, made: Resampling) -> float:
        """How often groups that are dealt out by chance differ as much: an exact test."""
        seen = float(self.value(made.counts.n_CPG, made.positive))
        by_chance = self.norm(made.by_chance(self.table))
        return (1 + int((by_chance >= seen - 1e-12).sum())) / (1 + made.draws)

    def estimate(self, made: Resampling, support: int) -> Estimate:
        rates_RG = self.rates(made.counts.n_CPG, made.positive)
        drawn, expected = made.noise(self.table)
        away_RG, noise_DRG = from_centre(rates_RG, rates(drawn) - rates(expected))
        seen = float(self.norm(rates_RG))
        directions = directions_of(away_RG, noise_DRG, self.norm)
        if self.norm is largest:
            directions.append(widest_only(rates_RG))
        p = self.p(made)
        # The exact test decides about 0. Where it excludes 0 and the simulated noise does not, the
        # lower end is as close to 0 as ends are found.
        chance = p > 1 - made.level + 1e-12
        low, high = fold(seen, noise_DRG, self.norm, directions, made.level, from_zero=chance)
        low = 0.0 if chance else max(low, seen / 2**STEPS)
        R, G = rates_RG.shape
        ceiling = R * G * (G - 1) / 2 if self.terms else 1.0
        return Estimate(seen, low, min(high, ceiling), support, p=p)

    def difference_ends(self, pair: Pair, level: float) -> Ends:
        """Ends for a difference of two gaps, each of which noise makes look larger than it is.

        The error of the difference is simulated around where the true gaps of both models may lie
        and taken off the difference; each end is the widest over those places. (Plain percentiles
        cover a gap of 0.1 against one of 0 in 79 of 100 test sets, because the second is never seen
        as 0.)
        """
        away, noise, seen = [], [], []
        for n_CPG, drawn, expected in zip(pair.tables, pair.drawn, pair.expected, strict=True):
            rates_RG, drawn_DRG, expected_RG = (
                self.rates(n, pair.positive) for n in (n_CPG, drawn, expected)
            )
            away_RG, noise_DRG = from_centre(rates_RG, drawn_DRG - expected_RG)
            away.append(away_RG)
            noise.append(noise_DRG)
            seen.append(float(self.norm(rates_RG)))
        ends = []
        for a_RG in candidates(away[0], noise[0]):
            for b_RG in candidates(away[1], noise[1]):
                error_D = self.norm(a_RG + noise[0]) - self.norm(b_RG + noise[1])
                error_D -= self.norm(a_RG) - self.norm(b_RG)
                ends.append(np.quantile(error_D, [(1 - level) / 2, (1 + level) / 2]))
        below, above = np.array(ends).T
        difference = seen[0] - seen[1]
        return difference - float(above.max()), difference - float(below.min())


@dataclass(frozen=True)
class Ratio:
    """The lowest rate of a group divided by the highest: 0.8 is the four-fifths rule.

    The logarithms of rates are compared like any gap, with half a row added so that they exist.
    """

    table: Table

    def value(self, n_CPG: np.ndarray, positive: int | None) -> np.ndarray:
        rates_RG = rates(self.table(n_CPG, positive))
        return divide(rates_RG.min((-2, -1)), rates_RG.max((-2, -1)))

    def estimate(self, made: Resampling, support: int) -> Estimate:
        seen = float(self.value(made.counts.n_CPG, made.positive))
        drawn, expected = made.noise(self.table)
        logs_RG = _logs(self.table(made.counts.n_CPG, made.positive))
        away_RG, noise_DRG = from_centre(logs_RG, _logs(drawn) - _logs(expected))
        directions = [*directions_of(away_RG, noise_DRG, largest), widest_only(logs_RG)]
        span = float(largest(logs_RG))
        near, far = fold(span, noise_DRG, largest, directions, made.level)
        by_chance = np.clip(made.by_chance(self.table), 0.0, 1.0)
        by_chance = divide(by_chance.min((-2, -1)), by_chance.max((-2, -1)))
        p = (1 + int((by_chance <= seen + 1e-12).sum())) / (1 + made.draws)
        if p > 1 - made.level:
            near = 0.0
        low, high = min(math.exp(-far), seen), max(math.exp(-near), seen)
        return Estimate(seen, low, high, support, p=p)

    def difference_ends(self, pair: Pair, level: float) -> Ends:
        return _percentile_of_difference(self, pair, level)


def _logs(n_SKG: np.ndarray) -> np.ndarray:
    """Logarithms of the first outcome's rate, half a row added: (..., S, G)."""
    return np.log((n_SKG[..., 0, :] + 0.5) / (n_SKG.sum(-2) + 0.5))


def average(rates_RG: np.ndarray) -> np.ndarray:
    """Mean over rates and pairs of groups of their absolute difference: (..., R, G) -> (...).

    Of sorted values, the i-th of G is added i times and taken off G - 1 - i times.
    """
    G = rates_RG.shape[-1]
    sign_G = 2.0 * np.arange(G) - (G - 1)
    return (np.sort(rates_RG, -1) @ sign_G / (G * (G - 1) / 2)).mean(-1)


def total(rates_RG: np.ndarray) -> np.ndarray:
    """The sum of the same terms."""
    R, G = rates_RG.shape[-2:]
    return average(rates_RG) * (R * G * (G - 1) / 2)


def largest(rates_RG: np.ndarray) -> np.ndarray:
    """The largest of the same terms."""
    return _ranges(rates_RG).max(-1)


def average_range(rates_RG: np.ndarray) -> np.ndarray:
    """Mean over rates of the largest difference between groups."""
    return _ranges(rates_RG).mean(-1)


def _ranges(rates_RG: np.ndarray) -> np.ndarray:
    return rates_RG.max(-1) - rates_RG.min(-1)


def _percentile_of_difference(statistic: Statistic, pair: Pair, level: float) -> Ends:
    a, b = (statistic.value(drawn, pair.positive) for drawn in pair.drawn)
    low, high = np.quantile(a - b, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
