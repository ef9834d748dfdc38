"""Fairness metrics from predictions: numpy only, every number with its interval and support."""

from __future__ import annotations

from shasam.metrics.catalogue import (
    Claim,
    Contrast,
    Metric,
    adjusted,
    claim_of,
    holm,
    metrics,
    register,
    widest,
)
from shasam.metrics.counts import Counts, Estimate, as_json, intersect
from shasam.metrics.curves import Curves, RateCurve, evaluate_curves
from shasam.metrics.evaluation import Period, evaluate, evaluate_counts, names_of, over_time, values
from shasam.metrics.paired import Comparison, Spread, compare, compare_seeds, over_seeds
from shasam.metrics.rates import (
    GroupContrast,
    GroupRate,
    Rate,
    against,
    by_group,
    cell_rates,
    group_rates,
    wilson,
)
from shasam.metrics.regression import ByGroup, evaluate_regression, evaluate_scores
from shasam.metrics.scores import (
    Abstention,
    abstention,
    fit_temperature,
    roc_curve,
    threshold_curves,
)
from shasam.metrics.slices import Slice, Slices, worst_slices

__all__ = [
    "Abstention",
    "ByGroup",
    "Claim",
    "Comparison",
    "Contrast",
    "Counts",
    "Curves",
    "Estimate",
    "GroupContrast",
    "GroupRate",
    "Metric",
    "Period",
    "Rate",
    "RateCurve",
    "Slice",
    "Slices",
    "Spread",
    "abstention",
    "adjusted",
    "against",
    "as_json",
    "by_group",
    "cell_rates",
    "claim_of",
    "compare",
    "compare_seeds",
    "evaluate",
    "evaluate_counts",
    "evaluate_curves",
    "evaluate_regression",
    "evaluate_scores",
    "fit_temperature",
    "group_rates",
    "holm",
    "intersect",
    "metrics",
    "names_of",
    "over_seeds",
    "over_time",
    "register",
    "roc_curve",
    "threshold_curves",
    "values",
    "widest",
    "wilson",
    "worst_slices",
]
