"""Fairness metrics from predictions: numpy only, every number with its interval and support."""

from __future__ import annotations

from shasam.metrics.catalogue import Metric, metrics, register
from shasam.metrics.claims import Claim, Contrast, adjusted, claim_of, holm, widest
from shasam.metrics.comparison import Comparison, compare
from shasam.metrics.confusion import Against, GroupRate, against, by_group
from shasam.metrics.continuous import ByGroup, evaluate_regression, evaluate_scores
from shasam.metrics.counts import Counts
from shasam.metrics.estimate import Estimate, as_json
from shasam.metrics.evaluation import evaluate, evaluate_counts, names_of, values
from shasam.metrics.labels import intersect
from shasam.metrics.periods import Period, over_time
from shasam.metrics.rates import Rate, cell_rates, group_rates, wilson
from shasam.metrics.roc import roc_curve, threshold_curves
from shasam.metrics.seeds import Spread, compare_seeds, over_seeds
from shasam.metrics.slices import Slice, Slices, worst_slices

__all__ = [
    "Against",
    "ByGroup",
    "Claim",
    "Comparison",
    "Contrast",
    "Counts",
    "Estimate",
    "GroupRate",
    "Metric",
    "Period",
    "Rate",
    "Slice",
    "Slices",
    "Spread",
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
    "evaluate_regression",
    "evaluate_scores",
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
