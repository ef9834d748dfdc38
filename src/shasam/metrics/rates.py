"""Compute error rates of groups and cells, with intervals, and the rows that show a gap."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

import numpy as np

from shasam.errors import Argument, InputError
from shasam.metrics.counts import (
    Counts,
    Estimate,
    divide,
    empty_in_groups,
    no_positive_class,
    one_group,
    predicted,
    right,
    right_by_class,
)
from shasam.metrics.intervals import newcombe, wilson_ends
from shasam.metrics.resampling import compared_rates
from shasam.registry import did_you_mean

# -------------------------------------------------------------------------------------------------
# Error rates by name: false positive rate, selection rate and others, by group.
#
# Each is a share of rows within a group, seen from the positive class: flagged, hired, diagnosed.
# With more than two classes the positive one stands against all others.
# -------------------------------------------------------------------------------------------------

LARGEST = "largest"  # the reference group with the most rows


@dataclass(frozen=True)
class GroupRate:
    """Define one rate: ``part`` of ``whole`` rows, both counted from a table (..., C, P, G).

    Parameters
    ----------
    name
        Key, such as "tpr".
    label
        Name for readers.
    meaning
        What it measures.
    rows
        What the denominator counts, for reasons.
    part
        Returns the numerator (..., G).
    whole
        Returns the denominator (..., G).
    better
        Which direction is good for the people in question.

    Examples
    --------
    >>> RATES[0].name
    'selection'
    """

    name: str
    label: str
    meaning: str
    rows: str  # what the denominator counts, for reasons
    part: Callable[[np.ndarray, int], np.ndarray]  # -> (..., G)
    whole: Callable[[np.ndarray, int], np.ndarray]
    better: str = "low"  # which direction is good for the people in question

    def table(self, n_CPG: np.ndarray, positive: int | None) -> np.ndarray:
        """Return outcomes (..., 1, 2, G): counted or not."""
        part = self.part(n_CPG, positive or 0)
        whole = self.whole(n_CPG, positive or 0)
        return np.stack([part, whole - part], -2)[..., None, :, :]

    def counted(self, counts: Counts, positive: int) -> tuple[np.ndarray, np.ndarray]:
        """Return part and whole of each group, or what weighted rows are worth."""
        n_KG = counts.outcomes(self.table, positive)[0]
        return n_KG[0], n_KG.sum(0)

    def undefined_because(self, counts: Counts, positive: int | None) -> str | None:
        if positive is None:
            return no_positive_class(counts, positive)
        whole_G = self.whole(counts.n_CPG, positive)
        return one_group(counts) or empty_in_groups(counts, whole_G, self.rows)

    def ratio_undefined_because(self, counts: Counts, positive: int | None) -> str | None:
        reason = self.undefined_because(counts, positive)
        if reason is None and not self.part(counts.n_CPG, positive or 0).any():
            reason = f"the {self.label.lower()} is 0 in every group, so there is no ratio"
        return reason

    def support(self, counts: Counts, positive: int | None) -> int:
        return 0 if positive is None else int(self.whole(counts.n_CPG, positive).min())


def _selected(n_CPG: np.ndarray, positive: int) -> np.ndarray:
    return n_CPG.sum(-3)[..., positive, :]


def _everyone(n_CPG: np.ndarray, positive: int) -> np.ndarray:
    return n_CPG.sum((-3, -2))


def _positives(n_CPG: np.ndarray, positive: int) -> np.ndarray:
    return n_CPG[..., positive, :, :].sum(-2)


def _negatives(n_CPG: np.ndarray, positive: int) -> np.ndarray:
    return _everyone(n_CPG, positive) - _positives(n_CPG, positive)


def _hits(n_CPG: np.ndarray, positive: int) -> np.ndarray:
    return n_CPG[..., positive, positive, :]


def _misses(n_CPG: np.ndarray, positive: int) -> np.ndarray:
    return _positives(n_CPG, positive) - _hits(n_CPG, positive)


def _false_alarms(n_CPG: np.ndarray, positive: int) -> np.ndarray:
    return _selected(n_CPG, positive) - _hits(n_CPG, positive)


def _left_alone(n_CPG: np.ndarray, positive: int) -> np.ndarray:
    return _negatives(n_CPG, positive) - _false_alarms(n_CPG, positive)


RATES = (
    GroupRate(
        "selection", "Selection rate", "share that is predicted positive",
        "row", _selected, _everyone, "high",
    ),
    GroupRate(
        "tpr", "True positive rate", "share of the positives that is predicted positive",
        "positive row", _hits, _positives, "high",
    ),
    GroupRate(
        "fnr", "False negative rate", "share of the positives that is missed",
        "positive row", _misses, _positives,
    ),
    GroupRate(
        "fpr", "False positive rate", "share of the negatives that is predicted positive",
        "negative row", _false_alarms, _negatives,
    ),
    GroupRate(
        "tnr", "True negative rate", "share of the negatives that is predicted negative",
        "negative row", _left_alone, _negatives, "high",
    ),
    GroupRate(
        "ppv", "Positive predictive value", "share of the predicted positives that is positive",
        "row predicted positive", _hits, _selected, "high",
    ),
)  # fmt: skip


def rate_named(name: str) -> GroupRate:
    """Return the rate of a name, or raise an error with the nearest one."""
    known = {rate.name: rate for rate in RATES}
    if name not in known:
        raise InputError(f"there is no rate {name!r}{did_you_mean(name, known)}")
    return known[name]


def by_group(
    counts: Counts, *, positive: int | None = None, level: float = 0.95
) -> dict[str, list[Estimate]]:
    """Compute every rate of every group with Wilson's interval.

    As fairlearn's ``MetricFrame.by_group``.

    Parameters
    ----------
    counts
        Rows by class, prediction and group.
    positive
        The favourable class, by default the second of two.
    level
        Confidence of the intervals.

    Returns
    -------
    dict[str, list[Estimate]]
        By the name of the rate, one estimate for each group.

    Examples
    --------
    >>> n = np.array([[[990, 1139], [805, 349]], [[532, 461], [1369, 505]]])
    >>> found = by_group(Counts(n, ("stayed", "reoffended"), ("black", "white")))
    >>> [round(100 * e.value, 2) for e in found["fpr"]]  # ProPublica on COMPAS
    [44.85, 23.45]
    """
    if positive is None and len(counts.classes) == 2:
        positive = 1
    if positive is None:
        return {}
    out = {}
    for rate in RATES:
        part_G, whole_G = rate.counted(counts, positive)
        share_G = divide(part_G, whole_G)
        low_G, high_G = wilson_ends(share_G, np.maximum(whole_G, 1), level)
        out[rate.name] = [
            Estimate(float(v), float(a), float(b), int(n))
            if n
            else Estimate.undefined(f"no {rate.rows} of group {group!r}")
            for v, a, b, n, group in zip(
                share_G, low_G, high_G, whole_G, counts.groups, strict=True
            )
        ]
    return out


@dataclass(frozen=True)
class GroupContrast:
    """Hold a group's rate against the reference group's.

    Parameters
    ----------
    group
        The group.
    reference
        The reference group.
    difference
        Its rate minus the reference's.
    ratio
        Its rate divided by the reference's.

    Examples
    --------
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> [c.reference for c in against(Counts(n, ("no", "yes"), ("a", "b")), "fpr", "a")]
    ['a']
    """

    group: str
    reference: str
    difference: Estimate
    ratio: Estimate


def against(
    counts: Counts,
    rate: str,
    reference: str = LARGEST,
    *,
    positive: int | None = None,
    level: float = 0.95,
) -> list[GroupContrast]:
    """Compare every group with one: the difference and the ratio of a rate.

    Intervals are of single comparisons: Newcombe's for the difference; for the ratio, the
    logarithm's normal interval with half a row added (Walter 1975).

    Parameters
    ----------
    counts
        Rows by class, prediction and group.
    rate
        Name of the rate, such as "tpr".
    reference
        A group, or "largest" for the one with the most rows.
    positive
        The favourable class, by default the second of two.
    level
        Confidence of the intervals.

    Returns
    -------
    list[GroupContrast]
        One entry for each other group.

    Examples
    --------
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> found = against(Counts(n, ("no", "yes"), ("a", "b")), "fpr", "a")
    >>> found[0].group, round(found[0].difference.value, 2), round(found[0].ratio.value, 2)
    ('b', 0.2, 2.0)
    """
    chosen = rate_named(rate)
    if positive is None and len(counts.classes) == 2:
        positive = 1
    if positive is None:
        raise InputError(f"the {chosen.label.lower()} needs a positive class")
    if reference != LARGEST and reference not in counts.groups:
        raise InputError(
            f"there is no group {reference!r}{did_you_mean(reference, [LARGEST, *counts.groups])}"
        )
    base = (
        int(counts.sizes_G.argmax())
        if reference == LARGEST and LARGEST not in counts.groups
        else counts.groups.index(reference)
    )
    part_G, whole_G = chosen.counted(counts, positive)
    out = []
    for g, group in enumerate(counts.groups):
        if g == base:
            continue
        sizes = float(whole_G[g]), float(whole_G[base])
        if not all(sizes):
            reason = (
                f"no {chosen.rows} of group {(group if not sizes[0] else counts.groups[base])!r}"
            )
            difference = ratio = Estimate.undefined(reason)
        else:
            a, b = part_G[g] / sizes[0], part_G[base] / sizes[1]
            low, high = newcombe(float(a), sizes[0], float(b), sizes[1], level)
            difference = Estimate(float(a - b), low, high, round(min(sizes)))
            parts = float(part_G[g]), float(part_G[base])
            ratio = ratio_of_rates(parts[0], sizes[0], parts[1], sizes[1], level)
        out.append(GroupContrast(group, counts.groups[base], difference, ratio))
    return out


def ratio_of_rates(
    part_a: float, whole_a: float, part_b: float, whole_b: float, level: float
) -> Estimate:
    """Return one rate divided by another, with the logarithm's normal interval (Walter 1975)."""
    if not part_b:
        reason = "the rate of the reference group is 0"
        return Estimate.undefined(reason, round(min(whole_a, whole_b)))
    value = (part_a / whole_a) / (part_b / whole_b)
    a, b = part_a + 0.5, part_b + 0.5
    middle = math.log(a / (whole_a + 0.5)) - math.log(b / (whole_b + 0.5))
    variance = 1 / a - 1 / (whole_a + 0.5) + 1 / b - 1 / (whole_b + 0.5)
    half = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(max(variance, 0.0))
    low, high = math.exp(middle - half), math.exp(middle + half)
    return Estimate(value, min(low, value), max(high, value), round(min(whole_a, whole_b)))


# -------------------------------------------------------------------------------------------------
# Rates of single cells and groups, each with its own Wilson interval.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rate:
    """Hold one rate of a class and group.

    Parameters
    ----------
    kind
        "recall" P(right | class, group), "selection" P(prediction | group) or "accuracy".
    name
        The class, or None if the rate is over all classes.
    group
        The group.
    estimate
        The rate.

    Examples
    --------
    >>> Rate("accuracy", None, "a", wilson(9, 10)).estimate.value
    0.9
    """

    kind: str  # "recall": P(right | class, group); "selection": P(prediction | group); "accuracy"
    name: str | None  # the class, or None if the rate is over all classes
    group: str
    estimate: Estimate


def wilson(part: float, whole: float, level: float = 0.95) -> Estimate:
    """Compute part / whole with Wilson's score interval (1927).

    Both are counts, or what weighted rows are worth. NaN with a reason if whole is 0.

    Parameters
    ----------
    part
        Rows that count.
    whole
        All rows.
    level
        Confidence of the interval.

    Returns
    -------
    Estimate
        The rate.

    Examples
    --------
    >>> found = wilson(8, 10)
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.8, 0.49, 0.943)
    """
    if whole == 0:
        return Estimate.undefined("no rows")
    low, high = wilson_ends(np.array([part / whole]), np.array([whole]), level)
    return Estimate(float(part / whole), float(low[0]), float(high[0]), round(whole))


def cell_rates(counts: Counts, level: float = 0.95) -> list[Rate]:
    """Compute the accuracy of every (class, group) cell, which equalized odds compares.

    Parameters
    ----------
    counts
        Rows by class, prediction and group.
    level
        Confidence of the intervals.

    Returns
    -------
    list[Rate]
        One rate for each cell.

    Examples
    --------
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> found = cell_rates(Counts(n, ("no", "yes"), ("a", "b")))
    >>> [(r.name, r.group, r.estimate.value) for r in found]
    [('no', 'a', 0.8), ('no', 'b', 0.6), ('yes', 'a', 0.9), ('yes', 'b', 0.9)]
    """
    n_SKG = counts.outcomes(right_by_class, None)
    return [
        Rate("recall", name, group, wilson(n_SKG[c, 0, g], n_SKG[c, :, g].sum(), level))
        for c, name in enumerate(counts.classes)
        for g, group in enumerate(counts.groups)
    ]


def group_rates(counts: Counts, level: float = 0.95) -> list[Rate]:
    """Compute the accuracy of every group, and how often each class is predicted for it.

    Parameters
    ----------
    counts
        Rows by class, prediction and group.
    level
        Confidence of the intervals.

    Returns
    -------
    list[Rate]
        Rates of the kinds "accuracy" and "selection".

    Examples
    --------
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> found = group_rates(Counts(n, ("no", "yes"), ("a", "b")))
    >>> [(r.group, r.estimate.value) for r in found if r.kind == "accuracy"]
    [('a', 0.85), ('b', 0.75)]
    """
    right_KG, called_PG = (counts.outcomes(table, None)[0] for table in (right, predicted))
    out = []
    for g, group in enumerate(counts.groups):
        whole = right_KG[:, g].sum()
        out.append(Rate("accuracy", None, group, wilson(right_KG[0, g], whole, level)))
        for p, name in enumerate(counts.classes):
            out.append(Rate("selection", name, group, wilson(called_PG[p, g], whole, level)))
    return out


# -------------------------------------------------------------------------------------------------
# How many rows show a gap, and which gap a table could show: power before and after the data.
#
# Rates of two groups are compared by a normal test of their difference, with the error probability
# divided by the number of pairs of groups, as an audit of several groups has it.
# -------------------------------------------------------------------------------------------------

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
    """Return the smallest gap in accuracy within a class that these counts show with that
    probability.

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


def critical_values(pairs: int, level: float = 0.95, power: float = POWER) -> float:
    """Return how many standard errors a gap must have to be shown with that probability."""
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
    """Return rows in all that show a gap between two groups, for each pair: (group, group, rows).

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
