"""Declare every metric once: name, label, formula, when it is undefined; and claims about gaps.

Evaluation, comparisons, tables, pages and documentation read this list. A metric of one's own is
one more entry, by ``catalogue.register(mine)`` or an entry point of the group ``shasam.metrics``:

>>> from shasam.metrics import catalogue, counts
>>> mine = catalogue.Metric(
...     "error_gap_sum", "Error gap (sum)", "points", "low", "sum of the gaps in error",
...     catalogue.Gap(counts.right, catalogue.total, terms=True),
...     catalogue.empty_group_or_one_group, catalogue.smallest_group,
... )
>>> mine.label
'Error gap (sum)'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np

from shasam import registry
from shasam.errors import SpecError
from shasam.metrics import counts as outcomes
from shasam.metrics import scores
from shasam.metrics.counts import (
    Counts,
    Estimate,
    accuracy,
    class_recalls,
    empty_cell,
    empty_cell_or_one_group,
    empty_class,
    empty_group,
    empty_group_or_one_group,
    no_positive_rows,
    nothing_missing,
    recalls,
)
from shasam.metrics.intervals import newcombe, wilson_ends
from shasam.metrics.rates import RATES
from shasam.metrics.resampling import (
    Average,
    Gap,
    Lowest,
    Ratio,
    Statistic,
    average,
    average_range,
    compared_rates,
    largest,
    total,
)
from shasam.metrics.scores import ScoreMetric, ScoreMetricByGroup


@dataclass(frozen=True)
class Metric:
    """Define one number about a model: its name, how it is computed, when it has no value.

    Parameters
    ----------
    name
        Key in tables and files.
    label
        Name for readers.
    unit
        "%", "points" or "area".
    better
        "high" or "low".
    meaning
        What it measures, in one sentence.
    value
        How it is computed from counts or scores.
    undefined_because
        Returns the reason why there is no value, or None.
    support
        Returns the rows in the smallest denominator.
    short
        Name for narrow tables; by default the label.
    between_groups
        Whether it compares groups, so that small ones are left out of it.
    always
        Whether it is evaluated unless asked otherwise; the others are for audits.
    plain
        Name for readers of a page who are no statisticians; by default the label.

    Examples
    --------
    >>> from shasam.metrics import metrics
    >>> metrics()["accuracy"].label
    'Accuracy'
    """

    name: str
    label: str
    unit: str  # "%", "points" or "area"
    better: str  # "high" or "low"
    meaning: str
    value: Statistic | ScoreMetric | ScoreMetricByGroup
    undefined_because: Callable[[Counts, int | None], str | None]
    support: Callable[[Counts, int | None], int]
    short: str = ""  # for narrow tables; the label where it is empty
    between_groups: bool = True  # it compares groups, so small ones are left out of it
    always: bool = True  # evaluated unless asked otherwise; the others are for audits
    plain: str = ""  # for readers of a page who are no statisticians; the label where it is empty

    @property
    def title(self) -> str:
        return self.plain or self.label

    @property
    def heading(self) -> str:
        return self.short or self.label

    @property
    def of_counts(self) -> bool:
        return not isinstance(self.value, ScoreMetric | ScoreMetricByGroup)


# Which metrics each table or page shows, in its order; the full list is ``metrics()``.
SHOWN = {
    "run": ("accuracy", "eo_mean", "worst_group_accuracy"),
    "headline": ("accuracy", "eo_mean", "worst_group_accuracy", "demographic_parity"),
    "paper": ("accuracy", "eo_mean", "eo_max", "worst_group_accuracy", "demographic_parity"),
    "audit": (
        "accuracy",
        "balanced_accuracy",
        "worst_group_accuracy",
        "accuracy_gap",
        "eo_mean",
        "eo_max",
        "equal_opportunity",
        "fpr_gap",
        "demographic_parity",
        "selection_ratio",
    ),
    "screen": (
        "accuracy",
        "balanced_accuracy",
        "eo_mean",
        "equal_opportunity",
        "demographic_parity",
        "worst_group_accuracy",
    ),
}


def shown(place: str) -> dict[str, Metric]:
    """Return the metrics of a place by name."""
    return {name: named(name) for name in SHOWN[place]}


def built_in(name: str) -> bool:
    """Return whether a metric is one of shasam's own."""
    found = find(name)
    return found is not None and found.name in _OWN


def register(metric: Metric) -> Metric:
    """Make a metric known to evaluation, comparisons, tables and pages.

    docs/extending.md has an example.

    Parameters
    ----------
    metric
        The metric.

    Returns
    -------
    Metric
        The same metric.
    """
    if metric.better not in ("high", "low"):
        raise SpecError(f"metric {metric.name!r}: better must be 'high' or 'low'")
    return registry.register(metric.name, kind="metric")(metric)


def metrics() -> dict[str, Metric]:
    """List all metrics by name, in the order of tables.

    Returns
    -------
    dict[str, Metric]
        The catalogue, with the metrics of installed packages.

    Examples
    --------
    >>> metrics()["eo_mean"].better
    'low'
    """
    _look_for_plugins()
    return registry.entries("metric", look=False)


@cache
def _look_for_plugins() -> None:
    registry.entries("metric")


def find(name: str) -> Metric | None:
    """Find the metric of a name; ``ece_men`` is the metric ``ece`` of the group ``men``."""
    known = metrics()
    if name in known:
        return known[name]
    return next((m for m in known.values() if _group_of(name, m)), None)


def named(name: str) -> Metric:
    """Return the metric of a name, or raise an error with the nearest known one."""
    metric = find(name)
    if metric is None:
        known = [n for n, m in metrics().items() if not isinstance(m.value, ScoreMetricByGroup)]
        raise SpecError(f"there is no metric {name!r}{registry.did_you_mean(name, known)}")
    return metric


def label_of(name: str) -> str:
    """Return the label of a metric; that of one group names the group."""
    metric = find(name)
    if metric is None:
        return name
    group = _group_of(name, metric)
    return f"{metric.label}, {group}" if group else metric.label


def _group_of(name: str, metric: Metric) -> str:
    by_group = isinstance(metric.value, ScoreMetricByGroup) and name.startswith(f"{metric.name}_")
    return name[len(metric.name) + 1 :] if by_group else ""


def all_rows(counts: Counts, positive: int | None) -> int:
    return counts.total


def smallest_class(counts: Counts, positive: int | None) -> int:
    return int(counts.n_CPG.sum((1, 2)).min())


def smallest_cell(counts: Counts, positive: int | None) -> int:
    return int(counts.cells_CG.min())


def smallest_group(counts: Counts, positive: int | None) -> int:
    return int(counts.n_CPG.sum((0, 1)).min())


def smallest_positive_cell(counts: Counts, positive: int | None) -> int:
    return 0 if positive is None else int(counts.cells_CG[positive].min())


def _mean_class_recall(n_CPG: np.ndarray) -> np.ndarray:
    return class_recalls(n_CPG).mean(-1)


def _mean_cell_recall(n_CPG: np.ndarray) -> np.ndarray:
    return recalls(n_CPG).mean((-2, -1))


_BUILT_IN = (
    Metric(
        "accuracy", "Accuracy", "%", "high",
        "share of all rows that are classified correctly",
        Average(accuracy), nothing_missing, all_rows, "acc", between_groups=False,
    ),
    Metric(
        "balanced_accuracy", "Balanced accuracy", "%", "high",
        "mean over classes of their accuracy",
        Average(_mean_class_recall), empty_class, smallest_class, "BA", between_groups=False,
    ),
    Metric(
        "cell_balanced_accuracy", "Cell-balanced accuracy", "%", "high",
        "mean over (class, group) cells of their accuracy: FairViT's BA",
        Average(_mean_cell_recall), empty_cell, smallest_cell,
    ),
    Metric(
        "worst_group_accuracy", "Worst cell accuracy", "%", "high",
        "accuracy of the worst (class, group) cell",
        Lowest(outcomes.right_by_class), empty_cell_or_one_group, smallest_cell, "worst",
        plain="Worst-served group",
    ),
    Metric(
        "min_group_accuracy", "Lowest group accuracy", "%", "high",
        "accuracy of the worst group",
        Lowest(outcomes.right), empty_group_or_one_group, smallest_group,
    ),
    Metric(
        "eo_mean", "EO (mean)", "points", "low",
        "equalized odds: gap in accuracy between two groups, averaged over classes and pairs",
        Gap(outcomes.right_by_class, average), empty_cell_or_one_group, smallest_cell, "EO",
        plain="Average gap between groups (EO)",
    ),
    Metric(
        "eo_max", "EO (max)", "points", "low",
        "the largest of those gaps",
        Gap(outcomes.right_by_class, largest), empty_cell_or_one_group, smallest_cell,
    ),
    Metric(
        "eo_sum", "EO (sum)", "points", "low",
        "the sum of those gaps",
        Gap(outcomes.right_by_class, total, terms=True), empty_cell_or_one_group, smallest_cell,
    ),
    Metric(
        "eo_mean_range", "EO (mean of ranges)", "points", "low",
        "mean over classes of best minus worst group: fairlearn's mean",
        Gap(outcomes.right_by_class, average_range), empty_cell_or_one_group, smallest_cell,
    ),
    Metric(
        "equal_opportunity", "Equal opportunity", "points", "low",
        "largest gap in accuracy on the positive class",
        Gap(outcomes.right_of_positive, largest), no_positive_rows, smallest_positive_cell, "EOpp",
    ),
    Metric(
        "demographic_parity", "Demographic parity", "points", "low",
        "largest gap in how often a class is predicted",
        Gap(outcomes.predicted, largest), empty_group_or_one_group, smallest_group, "DP",
    ),
    Metric(
        "accuracy_gap", "Accuracy gap", "points", "low",
        "best minus worst group accuracy",
        Gap(outcomes.right, largest), empty_group_or_one_group, smallest_group,
    ),
    Metric(
        "ece", "Calibration error", "points", "low",
        "expected calibration error of a group",
        ScoreMetricByGroup(scores.calibration_error), nothing_missing, smallest_group,
        between_groups=False,
    ),
    Metric(
        "ece_max", "Calibration error (max)", "points", "low",
        "largest expected calibration error of a group",
        ScoreMetric(scores.largest_calibration_error), empty_group, smallest_group,
    ),
    Metric(
        "auc", "AUC", "%", "high",
        "chance that a positive of the group scores above a negative of it",
        ScoreMetricByGroup(scores.auc), nothing_missing, smallest_group,
        between_groups=False, always=False,
    ),
    Metric(
        "auc_gap", "AUC gap", "points", "low",
        "largest difference in AUC between groups",
        ScoreMetric(scores.auc_gap, by_class=True), empty_group_or_one_group, smallest_group,
        always=False,
    ),
    Metric(
        "abcc", "Score gap (ABCC)", "points", "low",
        "demographic-parity gap averaged over all thresholds",
        ScoreMetric(scores.abcc), empty_group_or_one_group, smallest_group,
    ),
    Metric(
        "abpc", "Score gap (ABPC)", "area", "low",
        "area between score densities in hundredths, 0 to 200",
        ScoreMetric(scores.abpc), empty_group_or_one_group, smallest_group,
    ),
)  # fmt: skip
for _metric in _BUILT_IN:
    register(_metric)
for _rate in RATES:
    register(
        Metric(
            f"{_rate.name}_gap", f"{_rate.label}, gap", "points", "low",
            f"largest difference between groups in the {_rate.meaning}",
            Gap(_rate.table, largest), _rate.undefined_because, _rate.support, always=False,
        )
    )  # fmt: skip
    register(
        Metric(
            f"{_rate.name}_ratio", f"{_rate.label}, ratio", "%", "high",
            f"lowest by highest group in the {_rate.meaning}",
            Ratio(_rate.table), _rate.ratio_undefined_because, _rate.support, always=False,
        )
    )  # fmt: skip
    if _rate.better == "high":  # the highest false rate is 1 minus the lowest true one
        register(
            Metric(
                f"{_rate.name}_min", f"{_rate.label}, lowest", "%", "high",
                f"lowest group in the {_rate.meaning}",
                Lowest(_rate.table), _rate.undefined_because, _rate.support, always=False,
            )
        )  # fmt: skip
_OWN = frozenset(
    (
        *(m.name for m in _BUILT_IN),
        *(f"{r.name}_{kind}" for r in RATES for kind in ("gap", "ratio", "min")),
    )
)

# -------------------------------------------------------------------------------------------------
# Whether a gap is significant, which groups it is between, and how large it could be.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contrast:
    """Hold the two groups that surely lie farthest apart on one rate.

    Parameters
    ----------
    rate
        The class or prediction whose rate it is; empty if there is one rate only.
    low_group
        The group with the lower rate.
    high_group
        The group with the higher rate.
    low
        Rate of the first with Wilson's interval.
    high
        Rate of the second.
    gap
        Their difference; its interval holds for all pairs at once.

    Examples
    --------
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> widest(Counts(n, ("no", "yes"), ("a", "b"))).high_group
    'a'
    """

    rate: str  # the class or prediction whose rate it is; empty where there is one rate only
    low_group: str
    high_group: str
    low: Estimate  # rate of each group with Wilson's interval
    high: Estimate
    gap: Estimate  # its interval holds for all pairs at once, so it may be read of the widest one


def widest(
    counts: Counts,
    metric: str = "eo_mean",
    *,
    positive: int | None = None,
    level: float = 0.95,
    least: int = 0,
    row: int | None = None,
) -> Contrast | None:
    """Find the pair of groups and the class that differ most for sure.

    It is the pair whose interval (Newcombe 1998) has the highest lower end, or, if none lies above
    0, the one with the largest gap. The error probability is divided by the number of pairs and
    rates that it was chosen from.

    Parameters
    ----------
    counts
        Rows by class, prediction and group.
    metric
        The metric whose rates are compared.
    positive
        The favourable class, by default the second of two.
    level
        Confidence over all pairs together.
    least
        Rates of fewer rows are not compared.
    row
        Number of one rate to look at, by default all.

    Returns
    -------
    Contrast | None
        The pair, or None if no two groups can be compared.

    Examples
    --------
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> found = widest(Counts(n, ("no", "yes"), ("a", "b")))
    >>> found.rate, found.low_group, found.high_group, round(found.gap.value, 2)
    ('no', 'b', 'a', 0.2)
    """
    statistic = named(metric).value
    if not isinstance(statistic, Gap) or len(counts.groups) < 2:
        return None
    rates_RG, size_RG = compared_rates(counts, statistic.table, positive, least)
    R = len(rates_RG)
    compared = [np.flatnonzero(~np.isnan(rate_G)).tolist() for rate_G in rates_RG]
    pairs = [(r, a, b) for r in range(R) for a, b in permutations(compared[r], 2)
             if rates_RG[r, a] >= rates_RG[r, b]]  # fmt: skip
    if not pairs or min(map(len, compared)) < 2:
        return None
    each = 1 - (1 - level) / sum(len(x) * (len(x) - 1) / 2 for x in compared)
    best: tuple[tuple[float, float], int, int, int, tuple[float, float]] | None = None
    for r, high, low in pairs:
        if row is not None and r != row:
            continue
        gap = float(rates_RG[r, high] - rates_RG[r, low])
        ends = newcombe(
            float(rates_RG[r, high]), float(size_RG[r, high]),
            float(rates_RG[r, low]), float(size_RG[r, low]), each,
        )  # fmt: skip
        rank = (max(ends[0], 0.0), gap)
        if best is None or rank > best[0]:
            best = rank, r, low, high, ends
    if best is None:
        return None
    _, r, low, high, ends = best
    rates = []
    for g in (low, high):
        below, above = wilson_ends(rates_RG[r, [g]], size_RG[r, [g]], level)
        size = int(size_RG[r, g])
        rates.append(Estimate(float(rates_RG[r, g]), float(below[0]), float(above[0]), size))
    smaller = int(size_RG[r, [low, high]].min())
    gap_of = Estimate(rates[1].value - rates[0].value, max(ends[0], 0.0), ends[1], smaller)
    name = counts.classes[r] if len(counts.classes) == R else ""
    return Contrast(name, counts.groups[low], counts.groups[high], rates[0], rates[1], gap_of)


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm (1979): claims over several attributes err at the level of one.

    Parameters
    ----------
    p
        P-values.

    Returns
    -------
    list[float]
        Adjusted p-values, in the same order.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, least = [1.0] * len(p), 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = least
    return adjusted


@dataclass(frozen=True)
class Claim:
    """Hold a gap and what may be said of it, at a stated error rate.

    Parameters
    ----------
    metric
        Name of the metric.
    estimate
        The gap.
    p
        P-value, adjusted for the number of attributes that were looked at.
    level
        1 minus the error rate.
    contrast
        The widest pair of groups.
    attributes
        How many attributes were looked at.

    Examples
    --------
    >>> from shasam.metrics import Estimate
    >>> Claim("eo_mean", Estimate(0.2, 0.1, 0.3, 50), 0.01, 0.95, None).real
    True
    """

    metric: str
    estimate: Estimate
    p: float  # adjusted for the number of attributes that were looked at
    level: float
    contrast: Contrast | None
    attributes: int = 1  # how many were looked at

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        found = {"metric": self.metric, "real": self.real, "p": self.p}
        found |= {"attributes": self.attributes, "level": self.level, "widest": None}
        if self.contrast is not None:
            found["widest"] = {
                "rate": self.contrast.rate,
                "low_group": self.contrast.low_group,
                "high_group": self.contrast.high_group,
                "gap": self.contrast.gap.as_dict(),
            }
        return found

    @property
    def real(self) -> bool:
        """Chance alone would rarely give as much, and the interval does not reach 0."""
        return self.p <= 1 - self.level + 1e-12 and self.estimate.low > 0


def claim_of(
    counts: Counts,
    estimates: Mapping[str, Estimate],
    *,
    positive: int | None = None,
    level: float = 0.95,
    least: int = 0,
) -> Claim | None:
    """State whether the gap in equalized odds, or else in accuracy, is real.

    Parameters
    ----------
    counts
        Rows by class, prediction and group.
    estimates
        What ``evaluate`` has returned for these rows.
    positive
        The favourable class, by default the second of two.
    level
        1 minus the error rate of the claim.
    least
        Rates of fewer rows are not compared.

    Returns
    -------
    Claim | None
        The claim, or None if neither gap has a value.

    Examples
    --------
    >>> from shasam.metrics import evaluate_counts
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> counts = Counts(n, ("no", "yes"), ("a", "b"))
    >>> claim = claim_of(counts, evaluate_counts(counts))
    >>> claim.metric, claim.real
    ('eo_mean', True)
    """
    for metric in ("eo_mean", "accuracy_gap"):
        e = estimates.get(metric)
        if e is not None and e.defined and e.p is not None:
            contrast = widest(counts, metric, positive=positive, level=level, least=least)
            return Claim(metric, e, e.p, level, contrast)
    return None


def adjusted(
    estimates: Sequence[Mapping[str, Estimate]], level: float = 0.95
) -> list[dict[str, Estimate]]:
    """Adjust the p-values of several attributes of one model by Holm.

    An interval starts at 0 (that of a ratio ends at 1) if the adjusted p does not exclude it, so
    that interval, p and claim say the same.

    Parameters
    ----------
    estimates
        Estimates by metric, one mapping for each attribute.
    level
        Confidence of the intervals.

    Returns
    -------
    list[dict[str, Estimate]]
        The adjusted estimates.

    Examples
    --------
    >>> from shasam.metrics import Estimate
    >>> both = [{"eo_mean": Estimate(0.2, 0.1, 0.3, 50, p=p)} for p in (0.01, 0.04)]
    >>> [e["eo_mean"].p for e in adjusted(both)]
    [0.02, 0.04]
    """
    out = [dict(of_attribute) for of_attribute in estimates]
    for name in dict.fromkeys(name for e in out for name in e):
        metric = find(name)
        if metric is None or not isinstance(metric.value, Gap | Ratio):
            continue
        places = [i for i, e in enumerate(out) if name in e and e[name].p is not None]
        for i, p in zip(places, holm([out[i][name].p or 0.0 for i in places]), strict=True):
            e = replace(out[i][name], p=p)
            if p > 1 - level + 1e-12:
                e = replace(e, low=0.0) if isinstance(metric.value, Gap) else replace(e, high=1.0)
            out[i][name] = e
    return out
