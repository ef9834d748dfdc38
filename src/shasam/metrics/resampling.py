"""Simulate test sets, and compute averages, minima and gaps on each of them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from shasam.errors import InputError
from shasam.metrics.counts import Counts, Estimate, Table, divide, predicted, rates, right_by_class
from shasam.metrics.intervals import (
    STEPS,
    Norm,
    candidates,
    check_evaluation,
    directions_of,
    few_carry_it,
    fold,
    from_centre,
    lowest,
    percentile,
    sure_gaps,
    widest_only,
)

# -------------------------------------------------------------------------------------------------
# Simulated test sets: resampled, drawn around shrunken rates, or permuted.
#
# All work on counts, so that a thousand million rows cost no more than a thousand. Draws are
# seeded by the counts that they stand for: metrics of the same rates, such as the gaps in TPR and
# in FNR, have the same draws and therefore the same intervals.
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
    least: int = 0  # rates of fewer rows are not compared
    made: dict[Any, Any] = field(default_factory=dict, repr=False)  # what was computed before

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
        """Return tables of outcomes (D, S, K, G) drawn around shrunken rates, and their
        expectation.
        """
        if self.strata == "cell":  # the mix of classes in a group is kept: cells are drawn
            drawn_CPG, expected_CPG = self._cells
            return table(drawn_CPG, self.positive), table(expected_CPG, self.positive)
        n_SKG = self.counts.outcomes(table, self.positive)
        pairs = [self._of_stratum("noise", n_KG, multinomial) for n_KG in n_SKG]
        drawn, expected = zip(*pairs, strict=True)
        return np.concatenate(drawn, 1), np.concatenate(expected, 0)

    def around(self, table: Table) -> np.ndarray:
        """Return tables of outcomes (D, S, K, G) from the Bayesian bootstrap of every rate by
        itself.
        """
        n_SKG = self.counts.outcomes(table, self.positive)
        return np.concatenate([self._of_stratum("rate", n_KG, _dirichlet)[0] for n_KG in n_SKG], 1)

    def by_chance(self, table: Table) -> tuple[np.ndarray, np.ndarray]:
        """Deal out groups by chance within each stratum: rates (D, R, G), and their mean."""
        if self.strata != "cell":
            n_SKG = self.counts.outcomes(table, self.positive)
            drawn = [self._of_stratum("permuted", n_KG, _shuffled_pair)[0] for n_KG in n_SKG]
            tables = np.concatenate(drawn, 1)
            return rates(tables), rates(tables[0].sum(-1, keepdims=True))
        # The mix of classes in a group is no accident, so groups are dealt out within each class.
        # What that mix alone explains is taken off.
        n_CPG = self.counts.n_CPG
        drawn_DRG = rates(table(self._dealt, self.positive))
        pooled_CP = n_CPG.sum(2, keepdims=True) / _positive(n_CPG.sum((1, 2), keepdims=True))
        expected = table(pooled_CP * n_CPG.sum(1, keepdims=True), self.positive)
        together_R1 = rates(table(n_CPG.sum(2, keepdims=True), self.positive))
        return drawn_DRG - rates(expected) + together_R1, together_R1

    @cached_property
    def _cells(self) -> tuple[np.ndarray, np.ndarray]:
        """Tables (D, C, P, G) with every cell drawn anew, and their expectation."""
        rng = np.random.default_rng([self.seed, zlib.crc32(b"noise")])
        drawn, expected = multinomial(self._worth_CPG, self.draws, rng)
        return self._weighed(drawn), self._weighed(expected)

    @cached_property
    def _dealt(self) -> np.ndarray:
        """Tables (D, C, P, G) whose groups were dealt out by chance within each class."""
        rng = np.random.default_rng([self.seed, zlib.crc32(b"permuted")])
        return self._weighed(shuffled(self._worth_CPG, self.draws, rng))

    @property
    def _worth_CPG(self) -> np.ndarray:
        """The counts with every cell as large as its weighted rows are worth."""
        share = divide(self.counts.n_CPG, self.counts.n_CPG.sum(1, keepdims=True), nothing=0.0)
        weighted = self.counts.squares_CPG is not None
        return share * self.counts.cells_CG[:, None] if weighted else self.counts.n_CPG

    def _weighed(self, drawn_CPG: np.ndarray) -> np.ndarray:
        """Give the rows of every cell what they weigh in rates over several cells."""
        if self.counts.squares_CPG is None:
            return drawn_CPG
        whole_CG = _whole(self.counts.cells_CG)
        return drawn_CPG * divide(self.counts.n_CPG.sum(1), whole_CG, nothing=0.0)[:, None]

    def _of_stratum(
        self,
        kind: str,
        n_KG: np.ndarray,
        draw: Callable[[np.ndarray, int, np.random.Generator], tuple[np.ndarray, np.ndarray]],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw one stratum; the same counts give the same draws, whichever outcome is first.

        Groups that are not compared here are left out, as if they were not in the table.
        """
        places = np.flatnonzero(n_KG.sum(0) >= max(self.least, 1e-9))
        if not len(places):
            return np.zeros((self.draws, 1, *n_KG.shape)), np.zeros((1, *n_KG.shape))
        flipped = len(n_KG) == 2 and n_KG[0, places].tolist() > n_KG[1, places].tolist()
        ordered = np.asarray(n_KG[:, places], dtype=np.float64)[:: -1 if flipped else 1]
        content = zlib.crc32(np.ascontiguousarray(np.round(ordered, 6)).tobytes())
        rng = np.random.default_rng([self.seed, zlib.crc32(kind.encode()), content])
        drawn, expected = draw(ordered[None], self.draws, rng)
        all_drawn = np.zeros((*drawn.shape[:3], n_KG.shape[1]), drawn.dtype)
        all_expected = np.zeros((1, *n_KG.shape))
        all_drawn[..., places] = drawn[:, :, ::-1] if flipped else drawn
        all_expected[..., places] = expected[:, ::-1] if flipped else expected
        return all_drawn, all_expected


def dirichlet(
    n_CPG: np.ndarray, draws: int, seed: int, strata: str = "cell"
) -> tuple[np.ndarray, np.ndarray]:
    """Return resampled tables (draws, C, P, G) and their expectation, with the sizes of strata
    kept.

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
    """Draw outcomes anew within each (stratum, group): (D, S, K, G), and their expectation."""
    share_SKG = shrunken(n_SKG)
    size_SG = _whole(n_SKG.sum(1))
    p_SGK = np.moveaxis(share_SKG, 1, 2)
    drawn = rng.multinomial(size_SG, p_SGK, size=(draws, *size_SG.shape))
    return np.moveaxis(drawn, -1, 2), share_SKG * size_SG[:, None, :]


def shrunken(n_SKG: np.ndarray) -> np.ndarray:
    """Return shares of outcomes (S, K, G), pulled towards those of all groups together.

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
    """Return tables with the same margins, as if groups were dealt out by chance within each
    stratum.

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


def _dirichlet(
    n_SKG: np.ndarray, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    K = n_SKG.shape[1]
    weight = rng.standard_gamma(np.broadcast_to(n_SKG + 1.0 / K, (draws, *n_SKG.shape)))
    return weight, n_SKG


def _shuffled_pair(
    n_SKG: np.ndarray, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    return shuffled(n_SKG, draws, rng), n_SKG


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
    """Make sizes integers, which sample weights need not be; what is occupied stays so."""
    return np.where(size > 0, np.maximum(np.rint(size), 1), 0).astype(np.int64)


def _positive(whole: np.ndarray) -> np.ndarray:
    return np.where(whole > 0, whole, 1.0)


# -------------------------------------------------------------------------------------------------
# Rates that are compared between groups, with one test and one set of draws for all their metrics.
#
# Equalized odds, equal opportunity and the gaps in TPR and FPR look at the same rates. They are
# tested as one family: by a permutation test of every rate, adjusted for the number of rates
# (Westfall and Young 1993). So the largest gap is shown wherever one of its parts is, and a part
# only where the largest is.
# -------------------------------------------------------------------------------------------------

FAMILIES: tuple[Table, ...] = (right_by_class, predicted)  # looked through in this order


@dataclass(frozen=True, eq=False)
class RateTests:
    """Rates (R, G) with their noise, p and sure gaps; NaN if a rate has too few rows."""

    rates_RG: np.ndarray
    noise_DRG: np.ndarray  # around the true rates
    p_R: np.ndarray  # of 'all groups have the same rate', adjusted for all rates of the family
    sure_R: np.ndarray  # by how much two groups differ at least, for all rates at once
    keys: tuple[Any, ...]  # which counts the rates are made of, the outcomes in either order

    @property
    def p(self) -> float:
        """Of 'all rates are alike in all groups'."""
        return float(self.p_R.min())

    def only(self, rows: Sequence[int]) -> RateTests:
        """Return some of the rates, still adjusted for all."""
        return RateTests(
            self.rates_RG[rows],
            self.noise_DRG[:, rows],
            self.p_R[rows],
            self.sure_R[rows],
            tuple(self.keys[r] for r in rows),
        )


def compared_rates(
    counts: Counts, table: Table, positive: int | None, least: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return compared rates (R, G), NaN if they have fewer than ``least`` rows, and the rows."""
    n_SKG = counts.outcomes(table, positive)
    rates_RG = rates(n_SKG)
    size_SG = n_SKG.sum(-2)
    size_RG = np.repeat(size_SG, len(rates_RG) // len(size_SG), axis=0)
    return np.where(size_RG >= max(least, 1e-9), rates_RG, np.nan), size_RG


def tested(made: Resampling, table: Table) -> RateTests:
    """Return the rates of a table, tested with those of the family that they belong to."""
    if ("tested", table) not in made.made:
        made.made["tested", table] = _of_a_family(made, table) or _tested(made, table)
    return made.made["tested", table]


def _of_a_family(made: Resampling, table: Table) -> RateTests | None:
    if table in FAMILIES:
        return None
    wanted = _keys(made, table)
    for other in FAMILIES:
        family = tested(made, other)
        if set(wanted) <= set(family.keys):
            return family.only([family.keys.index(key) for key in wanted])
    return None


def _tested(made: Resampling, table: Table) -> RateTests:
    rates_RG, _ = compared_rates(made.counts, table, made.positive, made.least)
    drawn, expected = made.noise(table)
    noise_DRG = rates(drawn) - rates(expected)
    # a draw in which a small group has no row that is predicted positive has no such rate: it says
    # nothing of how far that rate may be off
    noise_DRG = np.where(np.isnan(noise_DRG), 0.0, noise_DRG)
    noise_DRG = np.where(np.isnan(rates_RG), np.nan, noise_DRG)
    return RateTests(
        rates_RG,
        noise_DRG,
        permutation_p(rates_RG, *made.by_chance(table)),
        sure_gaps(rates_RG, noise_DRG, made.level),
        _keys(made, table),
    )


def _keys(made: Resampling, table: Table) -> tuple[Any, ...]:
    """Return what each rate is made of.

    They are counts of its outcome and of all others, the smaller list first.

    The false positive rate and the true negative rate have the same key: their gaps are equal.
    """
    n_SKG = np.round(made.counts.outcomes(table, made.positive), 6)
    out = []
    for n_KG in n_SKG:
        for n_G in n_KG[:1] if len(n_KG) == 2 else n_KG:
            both = (tuple(n_G.tolist()), tuple(np.round(n_KG.sum(0) - n_G, 6).tolist()))
            out.append((min(both), max(both)))
    return tuple(out)


def permutation_p(
    rates_RG: np.ndarray, by_chance_DRG: np.ndarray, mean_R1: np.ndarray
) -> np.ndarray:
    """Return how often groups dealt out by chance differ as much on each rate, adjusted for all
    rates.

    Two statistics of every rate share the error: the sum of squares of the groups' standardised
    distances from the mean finds gaps that are spread over groups, their largest finds one group
    that stands apart.
    """
    kept_RG = ~np.isnan(rates_RG)
    spread_RG = by_chance_DRG.std(0)
    whole = np.concatenate([rates_RG[None], by_chance_DRG])
    away = divide(whole - mean_R1, np.broadcast_to(spread_RG, whole.shape), nothing=0.0)
    away = np.where(kept_RG & (spread_RG > 1e-12), away, 0.0)
    found = np.stack([(away**2).sum(-1), np.abs(away).max(-1)], -1)  # (1 + D, R, 2)
    return smallest_p(found)


def smallest_p(found: np.ndarray) -> np.ndarray:
    """Return p of every rate (R,) from statistics (1 + D, R, Q), the observed ones first.

    The smallest of the Q single p-values is taken, adjusted for all R x Q of them: p is the share
    of permutations whose smallest single p, over all rates and statistics, is as small.
    """
    tests = found.reshape(len(found), -1)
    single = np.empty_like(tests)
    for column, out in zip(tests.T, single.T, strict=True):
        reached = np.searchsorted(np.sort(column), column - 1e-9 * (1 + np.abs(column)))
        out[:] = (len(column) - reached) / len(column)
    smallest = np.sort(single.min(1))
    own_R = single[0].reshape(found.shape[1:]).min(1)
    return np.searchsorted(smallest, own_R + 1e-12, side="right") / len(smallest)


# -------------------------------------------------------------------------------------------------
# The kinds of metrics of counts: averages, minima and gaps, each with the interval that suits it.
#
# Each has `value(n_CPG, positive)` for a table or thousands of resampled ones at once,
# `estimate(resampling, support)` and, for two models on the same rows, `difference_ends`.
# -------------------------------------------------------------------------------------------------

Ends = tuple[float, float]
Kept = Callable[[Table], np.ndarray]  # table -> (R, G), True where a rate has enough rows


class Statistic(Protocol):
    """What the catalogue needs of a metric of counts."""

    def value(
        self, n_CPG: np.ndarray, positive: int | None, kept: Kept | None = None
    ) -> np.ndarray: ...

    def estimate(self, made: Resampling, support: int) -> Estimate: ...

    def difference_ends(self, pair: Pair, level: float) -> Ends: ...


@dataclass(frozen=True)
class Pair:
    """Hold the counts of two models on the same rows, with bootstrap and permutation replicates."""

    tables: tuple[np.ndarray, np.ndarray]  # (C, P, G) of a and of b
    drawn: tuple[np.ndarray, np.ndarray]  # (D, C, P, G) resampled
    expected: tuple[np.ndarray, np.ndarray]  # (C, P, G), their expectation
    swapped: tuple[np.ndarray, np.ndarray]  # (D, C, P, G), answers of a and b mixed up by chance
    positive: int | None
    kept: Kept | None = None  # which rates are compared; None stands for all

    def only(self, places: np.ndarray) -> Pair:
        """Return the same for some of the groups."""

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

    def value(
        self, n_CPG: np.ndarray, positive: int | None, kept: Kept | None = None
    ) -> np.ndarray:
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

    def value(
        self, n_CPG: np.ndarray, positive: int | None, kept: Kept | None = None
    ) -> np.ndarray:
        return np.nanmin(_masked(rates(self.table(n_CPG, positive)), self.table, kept), (-2, -1))

    def estimate(self, made: Resampling, support: int) -> Estimate:
        rates_RG, size_RG = compared_rates(made.counts, self.table, made.positive, made.least)
        kept_RG = ~np.isnan(rates_RG)
        around, centre = made.noise(self.table)
        low, high = lowest(
            rates_RG[kept_RG],
            rates(made.around(self.table))[:, kept_RG],
            rates(around)[:, kept_RG],
            rates(centre)[kept_RG],
            size_RG[kept_RG],
            made.level,
        )
        return Estimate(float(np.nanmin(rates_RG)), low, high, support)

    def difference_ends(self, pair: Pair, level: float) -> Ends:
        return _percentile_of_difference(self, pair, level)


@dataclass(frozen=True)
class Gap:
    """A norm of the differences between groups; 0 means that all groups are treated alike."""

    table: Table
    norm: Norm  # of rates (..., R, G)
    terms: bool = False  # the norm adds up differences, so that it may exceed 1

    def rates(
        self, n_CPG: np.ndarray, positive: int | None, kept: Kept | None = None
    ) -> np.ndarray:
        """Return the rates (..., R, G) that are compared between groups, NaN if they are not."""
        return _masked(rates(self.table(n_CPG, positive)), self.table, kept)

    def value(
        self, n_CPG: np.ndarray, positive: int | None, kept: Kept | None = None
    ) -> np.ndarray:
        return self.norm(self.rates(n_CPG, positive, kept))

    def estimate(self, made: Resampling, support: int) -> Estimate:
        """Estimate the gap; the interval starts at 0 exactly where the permutation test allows 0.

        The lower end is the larger of two: that of the inverted test, and the gap that follows if
        two groups differ by no more than they surely do. A largest gap has the second, because the
        first is as wide as the smallest group is noisy; where no pair differs for sure, it is at
        least the average gap.
        """
        of = tested(made, self.table)
        known = ("ends", of.keys, self.norm)
        if known not in made.made:
            made.made[known] = self._ends(made)
        seen = float(self.norm(of.rates_RG))
        low, high = made.made[known]
        R, G = of.rates_RG.shape
        ceiling = R * G * (G - 1) / 2 if self.terms else 1.0
        low, high = min(low, seen), min(max(high, seen), ceiling)
        return Estimate(seen, low, high, support, p=of.p)

    def _ends(self, made: Resampling) -> Ends:
        of = tested(made, self.table)
        away_RG, noise_DRG = from_centre(of.rates_RG, of.noise_DRG)
        seen = float(self.norm(of.rates_RG))
        by_chance = of.p > 1 - made.level + 1e-12
        directions = directions_of(away_RG, noise_DRG, self.norm)
        directions += few_carry_it(away_RG, noise_DRG, self.norm)
        if self.norm is largest:
            directions.append(widest_only(of.rates_RG))
        low, high = fold(seen, noise_DRG, self.norm, directions, made.level, from_zero=by_chance)
        if by_chance:
            return 0.0, high
        surely = float(self.norm(_two_apart(of.rates_RG, of.sure_R)))
        if self.norm is largest:
            low = surely or Gap(self.table, average).estimate(made, 0).low
        return max(low, surely, seen / 2**STEPS), high

    def difference_ends(self, pair: Pair, level: float) -> Ends:
        """Bound a difference of two gaps, each of which noise makes look larger than it is.

        The error of the difference is simulated around where the true gaps of both models may lie
        and taken off the difference; each end is the widest over those places. (Plain percentiles
        cover a gap of 0.1 against one of 0 in 79 of 100 test sets, because the second is never seen
        as 0.)
        """
        away, noise, seen = [], [], []
        for n_CPG, drawn, expected in zip(pair.tables, pair.drawn, pair.expected, strict=True):
            rates_RG, drawn_DRG, expected_RG = (
                self.rates(n, pair.positive, pair.kept) for n in (n_CPG, drawn, expected)
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

    def value(
        self, n_CPG: np.ndarray, positive: int | None, kept: Kept | None = None
    ) -> np.ndarray:
        rates_RG = _masked(rates(self.table(n_CPG, positive)), self.table, kept)
        return divide(np.nanmin(rates_RG, (-2, -1)), np.nanmax(rates_RG, (-2, -1)))

    def estimate(self, made: Resampling, support: int) -> Estimate:
        of = tested(made, self.table)
        own_RG, _ = compared_rates(made.counts, self.table, made.positive, made.least)
        seen = float(divide(np.nanmin(own_RG), np.nanmax(own_RG)))
        kept_RG = ~np.isnan(own_RG)
        drawn, expected = made.noise(self.table)
        n_SKG = made.counts.outcomes(self.table, made.positive)
        logs_RG = np.where(kept_RG, _logs(n_SKG), np.nan)
        noise_DRG = np.where(kept_RG, _logs(drawn) - _logs(expected), np.nan)
        away_RG, centred_DRG = from_centre(logs_RG, noise_DRG)
        directions = [*directions_of(away_RG, centred_DRG, largest), widest_only(logs_RG)]
        span = float(largest(logs_RG))
        _, far = fold(span, centred_DRG, largest, directions, made.level)
        low, high = min(math.exp(-far), seen), 1.0
        if of.p <= 1 - made.level + 1e-12:
            near = float(sure_gaps(logs_RG, noise_DRG, made.level).max())
            high = max(math.exp(-max(near, span / 2**STEPS)), seen)
        return Estimate(seen, low, high, support, p=of.p)

    def difference_ends(self, pair: Pair, level: float) -> Ends:
        return _percentile_of_difference(self, pair, level)


def _masked(rates_RG: np.ndarray, table: Table, kept: Kept | None) -> np.ndarray:
    return rates_RG if kept is None else np.where(kept(table), rates_RG, np.nan)


def _two_apart(rates_RG: np.ndarray, apart_R: np.ndarray) -> np.ndarray:
    """Return the rates (R, G) that differ least if two groups are so far apart.

    All others lie between.
    """
    out = np.where(np.isnan(rates_RG), np.nan, 0.0)
    for row, apart in zip(out, apart_R.tolist(), strict=True):
        compared = np.flatnonzero(~np.isnan(row))
        if len(compared) >= 2:
            row[compared[0]], row[compared[1]] = apart / 2, -apart / 2
    return out


def _logs(n_SKG: np.ndarray) -> np.ndarray:
    """Return logarithms of the first outcome's rate, half a row added: (..., S, G)."""
    return np.log((n_SKG[..., 0, :] + 0.5) / (n_SKG.sum(-2) + 0.5))


def average(rates_RG: np.ndarray) -> np.ndarray:
    """Return the mean over rates of the mean absolute difference of two groups.

    (..., R, G) -> (...).
    """
    return _row_by_row(rates_RG, _mean_difference).mean(-1)


def total(rates_RG: np.ndarray) -> np.ndarray:
    """Return the sum of the differences over rates and pairs of groups."""
    groups_R = (~np.isnan(_one(rates_RG))).sum(-1)
    return _row_by_row(rates_RG, _mean_difference) @ (groups_R * (groups_R - 1) / 2)


def largest(rates_RG: np.ndarray) -> np.ndarray:
    """Return the largest of the differences."""
    return _row_by_row(rates_RG, _range).max(-1)


def average_range(rates_RG: np.ndarray) -> np.ndarray:
    """Return the mean over rates of the largest difference between groups."""
    return _row_by_row(rates_RG, _range).mean(-1)


def _row_by_row(rates_RG: np.ndarray, spread: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return how far the groups of each rate are spread (..., R), over those that have the rate."""
    kept_RG = ~np.isnan(_one(rates_RG))
    if kept_RG.all():
        return spread(rates_RG)
    rows = [spread(rates_RG[..., r, kept_RG[r]]) for r in range(len(kept_RG))]
    return np.stack(rows, -1)


def _one(rates_RG: np.ndarray) -> np.ndarray:
    """Return the first of several tables; all have rates in the same places."""
    return rates_RG[(0,) * (rates_RG.ndim - 2)]


def _mean_difference(rates_G: np.ndarray) -> np.ndarray:
    """Average the differences of sorted values: the i-th of G counts i - (G - 1 - i) times."""
    G = rates_G.shape[-1]
    sign_G = 2.0 * np.arange(G) - (G - 1)
    return np.sort(rates_G, -1) @ sign_G / (G * (G - 1) / 2)


def _range(rates_G: np.ndarray) -> np.ndarray:
    return rates_G.max(-1) - rates_G.min(-1)


def _percentile_of_difference(statistic: Statistic, pair: Pair, level: float) -> Ends:
    a, b = (statistic.value(drawn, pair.positive, pair.kept) for drawn in pair.drawn)
    low, high = np.quantile(a - b, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
