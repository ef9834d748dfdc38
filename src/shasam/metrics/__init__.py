"""Fairness metrics from predictions: numpy only, every number with its interval and support."""

from __future__ import annotations

from shasam.metrics.catalogue import Metric, metrics, register
from shasam.metrics.claims import Claim, Contrast, adjusted, claim_of, holm, widest
from shasam.metrics.comparison import Comparison, compare
from shasam.metrics.counts import Counts
from shasam.metrics.estimate import Estimate, as_json
from shasam.metrics.evaluation import evaluate, evaluate_counts, values
from shasam.metrics.labels import intersect
from shasam.metrics.rates import Rate, cell_rates, group_rates, wilson
from shasam.metrics.seeds import Spread, compare_seeds, over_seeds

__all__ = [
    "Claim",
    "Comparison",
    "Contrast",
    "Counts",
    "Estimate",
    "Metric",
    "Rate",
    "Spread",
    "adjusted",
    "as_json",
    "cell_rates",
    "claim_of",
    "compare",
    "compare_seeds",
    "evaluate",
    "evaluate_counts",
    "group_rates",
    "holm",
    "intersect",
    "metrics",
    "over_seeds",
    "register",
    "values",
    "widest",
    "wilson",
]
