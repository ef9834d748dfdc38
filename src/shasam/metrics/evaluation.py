"""All metrics of one model on one test set, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shasam.metrics import catalogue
from shasam.metrics.catalogue import Metric
from shasam.metrics.counts import Counts, encode_rows
from shasam.metrics.estimate import Estimate
from shasam.metrics.memory import check_evaluation
from shasam.metrics.resampling import Resampling
from shasam.metrics.scores import OfScores, OfScoresByGroup, Scored, checked_scores


def evaluate(
    label: Any,
    prediction: Any,
    group: Any,
    scores: Any = None,
    *,
    classes: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    positive: int | None = None,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    strata: str = "cell",
) -> dict[str, Estimate]:
    """Every metric with its interval; values are fractions 0..1.

    ``label``, ``prediction`` and ``group`` are columns of codes or names; ``scores`` are class
    probabilities (n, C), or for two classes the probability of the second (n,). ``positive`` is the
    favourable class, by default the second of two. The formulas stand in ``docs/metrics.md``.

    >>> e = evaluate([0, 0, 1, 1] * 50, [0, 1, 1, 1] * 50, [0, 1, 0, 1] * 50)
    >>> e["accuracy"].value, e["eo_mean"].value
    (0.75, 0.5)
    """
    t, p, s, class_names, group_names = encode_rows(label, prediction, group, classes, groups)
    counts = Counts.from_codes(t, p, s, class_names, group_names)
    check_evaluation(len(class_names), len(group_names), draws, scores=scores is not None)
    made = Resampling(counts, positive_of(counts, positive), draws, seed, level, strata)
    if scores is None:
        return _of_counts(made)
    scores_NC = checked_scores(scores, len(t), len(class_names))
    return _of_counts(made) | _of_scores(Scored(made, t, p, s, scores_NC))


def evaluate_counts(
    counts: Counts,
    *,
    positive: int | None = None,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    strata: str = "cell",
) -> dict[str, Estimate]:
    """The metrics that need no scores, from the table of counts alone."""
    return _of_counts(Resampling(counts, positive_of(counts, positive), draws, seed, level, strata))


def values(
    counts: Counts, names: Sequence[str] | None = None, *, positive: int | None = None
) -> dict[str, float]:
    """Values without intervals (all metrics of counts, or those named), NaN where undefined."""
    positive = positive_of(counts, positive)
    chosen = (
        [m for m in catalogue.metrics().values() if m.of_counts]
        if names is None
        else [catalogue.named(name) for name in names]
    )
    return {
        m.name: math.nan
        if m.undefined_because(counts, positive)
        else float(m.value.value(counts.n_CPG, positive))  # type: ignore[union-attr]
        for m in chosen
    }


def positive_of(counts: Counts, positive: int | None) -> int | None:
    """The favourable class: the one that is given, or the second of two."""
    return 1 if positive is None and len(counts.classes) == 2 else positive


def _of_counts(made: Resampling) -> dict[str, Estimate]:
    out = {}
    for metric in catalogue.metrics().values():
        if not isinstance(metric.value, OfScores | OfScoresByGroup):
            support = metric.support(made.counts, made.positive)
            out[metric.name] = _undefined(metric, made) or metric.value.estimate(made, support)
    return out


def _of_scores(rows: Scored) -> dict[str, Estimate]:
    out = {}
    for metric in catalogue.metrics().values():
        if isinstance(metric.value, OfScoresByGroup):
            for g, group in enumerate(rows.counts.groups):
                out[f"{metric.name}_{group}"] = metric.value.estimate(rows, g)
        elif isinstance(metric.value, OfScores):
            out[metric.name] = _undefined(metric, rows.made) or metric.value.estimate(rows)
    return out


def _undefined(metric: Metric, made: Resampling) -> Estimate | None:
    reason = metric.undefined_because(made.counts, made.positive)
    if reason is None:
        return None
    return Estimate.undefined(reason, metric.support(made.counts, made.positive))
