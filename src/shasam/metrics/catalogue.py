"""Every metric is declared here once: name, label, meaning, formula, and when it is undefined.

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

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from shasam import registry
from shasam.errors import SpecError
from shasam.metrics import counts as outcomes
from shasam.metrics import scores
from shasam.metrics.counts import (
    Counts,
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
from shasam.metrics.rates import RATES
from shasam.metrics.resampling import (
    Average,
    Gap,
    Lowest,
    Ratio,
    Statistic,
    average,
    average_range,
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
    """The metrics of a place by name."""
    return {name: named(name) for name in SHOWN[place]}


def built_in(name: str) -> bool:
    """Whether a metric is one of shasam's own."""
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
    """The metric of a name; ``ece_men`` is the metric ``ece`` of the group ``men``."""
    known = metrics()
    if name in known:
        return known[name]
    return next((m for m in known.values() if _group_of(name, m)), None)


def named(name: str) -> Metric:
    """The metric of a name, or an error with the nearest known one."""
    metric = find(name)
    if metric is None:
        known = [n for n, m in metrics().items() if not isinstance(m.value, ScoreMetricByGroup)]
        raise SpecError(f"there is no metric {name!r}{registry.did_you_mean(name, known)}")
    return metric


def label_of(name: str) -> str:
    """The label of a metric; that of one group names the group."""
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
