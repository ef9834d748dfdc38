"""Impact ratios: how often each category is selected against the most selected one.

People whose category is unknown could change every ratio. Its bounds are the lowest and highest
values over all that the unknown could be, with sampling error added at both ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shasam.errors import InputError
from shasam.metrics.counts import Estimate
from shasam.metrics.rates import ratio_of_rates

LEAST_SHARE = 0.02  # categories with a smaller share may be left out of the ratios
FOUR_FIFTHS = 0.8


@dataclass(frozen=True)
class Category:
    """One line of the table."""

    name: str
    assessed: int
    selected: int
    small: bool  # below two per cent of those whose category is known
    ratio: Estimate  # against the most selected category, with its sampling interval
    bounds: tuple[float, float]  # of the ratio, whatever the unknown are
    both: tuple[float, float]  # the bounds with sampling error
    shortfall: int  # how many more selections give it the rate of the most selected
    deviations: float  # standard deviations between the two rates; NaN for the most selected
    fisher: float  # two-sided p of Fisher's exact test

    @property
    def rate(self) -> float:
        return self.selected / self.assessed if self.assessed else math.nan

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON, numbers rounded so that every machine writes the same."""
        return {
            "category": self.name,
            "assessed": self.assessed,
            "selected": self.selected,
            "rate": _rounded(self.rate),
            "under_two_per_cent": self.small,
            "impact_ratio": _rounded(self.ratio.value),
            "interval": [_rounded(self.ratio.low), _rounded(self.ratio.high)],
            "bounds_over_unknown": [_rounded(x) for x in self.bounds],
            "bounds_and_sampling_error": [_rounded(x) for x in self.both],
            "shortfall": self.shortfall,
            "standard_deviations": _rounded(self.deviations),
            "fisher_p": _rounded(self.fisher),
        }


@dataclass(frozen=True)
class Impact:
    """The table of one attribute: categories, the most selected, and who is unknown."""

    attribute: str
    categories: tuple[Category, ...]
    most_selected: str
    unknown: int
    unknown_selected: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "attribute": self.attribute,
            "most_selected": self.most_selected,
            "unknown": self.unknown,
            "unknown_selected": self.unknown_selected,
            "categories": [c.as_dict() for c in self.categories],
        }


def impact_ratios(
    attribute: str,
    names: Sequence[str],
    assessed: Sequence[int],
    selected: Sequence[int],
    *,
    unknown: int = 0,
    unknown_selected: int = 0,
    level: float = 0.95,
) -> Impact:
    """Return the impact ratio of every category, with what the unknown and chance could make of it.

    The lowest value gives all unknown who were not selected to the category, and all who were to
    the one that it is compared with; the highest does the opposite. A ratio against the most
    selected category is the lowest over all others, and 1 at most.

    >>> found = impact_ratios("sex", ["f", "m"], [100, 100], [30, 50], unknown=20)
    >>> f = found.categories[0]
    >>> round(f.ratio.value, 2), [round(x, 2) for x in f.bounds], f.shortfall
    (0.6, [0.5, 0.72], 20)
    """
    total = sum(assessed)
    if not total or not sum(selected):
        raise InputError(f"nobody with a known {attribute} was selected, so there is no ratio")
    small = [n < LEAST_SHARE * total for n in assessed]
    compared = [g for g in range(len(names)) if assessed[g] and not small[g]]
    if not compared:
        raise InputError(f"no category of {attribute} has two per cent of the people")
    most = max(compared, key=lambda g: selected[g] / assessed[g])
    if not selected[most]:
        raise InputError(f"nobody in a category of {attribute} of two per cent was selected")
    left = unknown - unknown_selected
    out = []
    for g, name in enumerate(names):
        k, n = selected[g], assessed[g]
        own = ratio_of_rates(k, n, selected[most], assessed[most], level)
        if small[g] or not n:
            own = Estimate.undefined("it has too few people to be compared", n)
            nothing = (math.nan, math.nan)
            out.append(Category(name, n, k, True, own, nothing, nothing, 0, math.nan, math.nan))
            continue
        if g == most:
            own = Estimate(1.0, math.nan, math.nan, n)
        worst, best, ends = 1.0, 1.0, [1.0, 1.0]
        for h in compared:
            if h == g:
                continue
            # All who were not selected join g, all who were join h; then the other way round.
            low = ratio_of_rates(
                k, n + left, selected[h] + unknown_selected, assessed[h] + unknown_selected, level
            )
            high = ratio_of_rates(
                k + unknown_selected, n + unknown_selected, selected[h], assessed[h] + left, level
            )
            worst, ends[0] = min(worst, low.value), min(ends[0], low.low)
            if high.defined:
                best, ends[1] = min(best, high.value), min(ends[1], high.high)
        base = selected[most] / assessed[most]
        apart = g == most
        out.append(
            Category(
                name,
                n,
                k,
                False,
                own,
                (worst, best),
                (ends[0], ends[1]),
                0 if apart else max(0, math.ceil(n * base - k - 1e-9)),
                math.nan if apart else deviations(k, n, selected[most], assessed[most]),
                math.nan if apart else fisher(k, n, selected[most], assessed[most]),
            )
        )
    return Impact(attribute, tuple(out), names[most], unknown, unknown_selected)


def deviations(k: int, n: int, other_k: int, other_n: int) -> float:
    """Return standard deviations between two rates, from their pooled rate.

    >>> round(deviations(30, 100, 50, 100), 2)
    -2.89
    """
    pooled = (k + other_k) / (n + other_n)
    spread = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / other_n))
    return (k / n - other_k / other_n) / spread if spread else 0.0


def fisher(k: int, n: int, other_k: int, other_n: int) -> float:
    """Return two-sided p of Fisher's exact test: all tables that are no likelier than this one.

    >>> round(fisher(30, 100, 50, 100), 4)
    0.0059
    """
    hits = k + other_k

    def log_chance(x: int) -> float:
        return _log_choose(n, x) + _log_choose(other_n, hits - x)

    lowest, highest = max(0, hits - other_n), min(n, hits)
    whole = _log_choose(n + other_n, hits)
    seen = log_chance(k) + 1e-7
    p = math.fsum(
        math.exp(c - whole) for x in range(lowest, highest + 1) if (c := log_chance(x)) <= seen
    )
    return min(1.0, p)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _rounded(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None
