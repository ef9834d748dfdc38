"""How many rows show a gap, and which gap a table could show: power before and after the data.

Rates of two groups are compared by a normal test of their difference, with the error probability
divided by the number of pairs of groups, as an audit of several groups has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from shasam.errors import Argument, InputError
from shasam.metrics.counts import Counts, right_by_class
from shasam.metrics.resampling import compared_rates

POWER = 0.8  # the probability with which a gap is to be shown


@dataclass(frozen=True)
class Detectable:
    """The smallest gap that is shown with the usual power, and between whom."""

    gap: float
    name: str  # the class
    low_group: str
    high_group: str


def smallest_gap(
    counts: Counts, least: int = 0, level: float = 0.95, power: float = POWER
) -> Detectable | None:
    """The smallest gap in accuracy within a class that these counts show with that probability.

    It is that of the two groups that are known best; gaps of smaller groups must be larger.
    """
    rates_RG, size_RG = compared_rates(counts, right_by_class, None, least)
    pairs = [
        (r, a, b)
        for r in range(len(rates_RG))
        for a, b in combinations(np.flatnonzero(~np.isnan(rates_RG[r])).tolist(), 2)
    ]
    if not pairs:
        return None
    errors = critical_values(len(pairs), level, power)
    best = None
    for r, a, b in pairs:
        sizes = size_RG[r, [a, b]]
        pooled = float((rates_RG[r, [a, b]] * sizes).sum() / sizes.sum())
        pooled = (pooled * sizes.sum() + 0.5) / (sizes.sum() + 1)
        gap = errors * math.sqrt(pooled * (1 - pooled) * float((1 / sizes).sum()))
        if best is None or gap < best.gap:
            best = Detectable(min(gap, 1.0), counts.classes[r], counts.groups[a], counts.groups[b])
    return best


def cell_rows(
    counts: Counts, gap: float, least: int = 0, level: float = 0.95, power: float = POWER
) -> int:
    """Rows in each (class, group) cell that would show such a gap, at the accuracy seen here."""
    rates_RG, size_RG = compared_rates(counts, right_by_class, None, least)
    known_RG = ~np.isnan(rates_RG)
    pairs = sum(int(n * (n - 1) // 2) for n in known_RG.sum(1))
    if not pairs or not 0 < gap < 1:
        raise InputError("two groups of a class must be comparable, and the gap between 0 and 1")
    rate = float((rates_RG[known_RG] * size_RG[known_RG]).sum() / size_RG[known_RG].sum())
    total = float(size_RG[known_RG].sum())
    rate = (rate * total + 0.5) / (total + 1)
    return math.ceil(2 * rate * (1 - rate) * (critical_values(pairs, level, power) / gap) ** 2)


def critical_values(pairs: int, level: float = 0.95, power: float = POWER) -> float:
    """How many standard errors a gap must have to be shown with that probability."""
    normal = NormalDist()
    return normal.inv_cdf(1 - (1 - level) / (2 * pairs)) + normal.inv_cdf(power)


def rows_needed(
    shares: Sequence[float],
    gap: float,
    *,
    rate: float = 0.8,
    positives: float = 0.5,
    level: float = 0.95,
    power: float = POWER,
) -> list[tuple[int, int, int]]:
    """Rows in all that show a gap between two groups, for each pair: (group, group, rows).

    ``shares`` are those of the groups, ``rate`` the accuracy around which they differ, and
    ``positives`` the share of the class in which they do. Pairs come in order of need, the largest
    last: the last row is what an audit of all groups needs.

    >>> rows_needed([0.5, 0.5], 0.1)[0][2]
    1198
    """
    p = np.asarray(shares, dtype=np.float64)
    if len(p) < 2 or not (p > 0).all() or p.sum() > 1 + 1e-6:
        raise InputError(
            Argument("groups"), " needs two or more shares above 0 that add up to 1 at most"
        )
    if not 0 < gap < 1 or not 0 < rate < 1 or not 0 < positives <= 1 or not 0 < power < 1:
        raise InputError(
            "the gap, the rate, the share of the class and the power lie between 0 and 1"
        )
    pairs = list(combinations(range(len(p)), 2))
    errors = critical_values(len(pairs) * 2, level, power)  # two classes are looked at
    low, high = max(rate - gap / 2, 0.0), min(rate + gap / 2, 1.0)
    spread = (low * (1 - low) + high * (1 - high)) / 2
    out = []
    for a, b in pairs:
        rows = (errors / gap) ** 2 * spread * (1 / p[a] + 1 / p[b]) / positives
        out.append((a, b, math.ceil(rows)))
    return sorted(out, key=lambda x: x[2])
