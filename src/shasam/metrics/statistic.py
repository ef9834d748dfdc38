"""The kinds of metrics of counts: averages, minima and gaps, each with the interval that suits it.

Each has ``value(n_CPG, positive)`` for a table or thousands of resampled ones at once,
``estimate(resampling, support)`` and, for two models on the same rows, ``difference_ends``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shasam.metrics.counts import divide
from shasam.metrics.estimate import Estimate
from shasam.metrics.intervals import (
    STEPS,
    Norm,
    candidates,
    directions_of,
    fold,
    from_centre,
    lowest,
    percentile,
    widest_only,
)
from shasam.metrics.resampling import Resampling
from shasam.metrics.tables import Table, rates

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
