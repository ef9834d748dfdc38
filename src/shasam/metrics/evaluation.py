"""All metrics of one model on one test set, each with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics import catalogue
from shasam.metrics.catalogue import Metric
from shasam.metrics.counts import Counts, checked_repeats, encode_rows, weighted
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
    min_group: int = 0,
    repeats: Any = None,
    metrics: Sequence[str] | None = None,
    weights: Any = None,
) -> dict[str, Estimate]:
    """Every metric with its interval; values are fractions 0..1.

    ``label``, ``prediction`` and ``group`` are columns of codes or names; ``scores`` are class
    probabilities (n, C), or for two classes the probability of the second (n,). ``positive`` is the
    favourable class, by default the second of two. Groups with fewer than ``min_group`` rows are
    left out of metrics that compare groups. ``metrics`` names those wanted, ``["all"]`` for every
    one; without it, error rates by name are left out. ``repeats`` says how many rows each entry
    stands for, where they were counted by a database. ``weights`` are sample weights, one for each
    row; metrics of scores do not take them. The formulas stand in ``docs/metrics.md``.

    >>> e = evaluate([0, 0, 1, 1] * 50, [0, 1, 1, 1] * 50, [0, 1, 0, 1] * 50)
    >>> e["accuracy"].value, e["eo_mean"].value
    (0.75, 0.5)
    """
    t, p, s, class_names, group_names = encode_rows(label, prediction, group, classes, groups)
    repeated = None if repeats is None else checked_repeats(repeats, len(t))
    check_evaluation(len(class_names), len(group_names), draws, scores=scores is not None)
    if weights is None:
        counts = of_groups = Counts.from_codes(t, p, s, class_names, group_names, repeated)
    else:
        if repeats is not None:
            raise InputError("give weights or repeats, not both")
        counts, of_groups = weighted(t, p, s, weights, class_names, group_names)
    made = Resampling(counts, positive_of(counts, positive), draws, seed, level, strata)
    large, wanted = _large_groups(made, of_groups, min_group), chosen(metrics)
    out = _of_counts(made, large, wanted)
    if scores is None or weights is not None:
        return out
    scores_NC = checked_scores(scores, len(t), len(class_names))
    return out | _of_scores(Scored(made, t, p, s, scores_NC, repeated), large, wanted)


def evaluate_counts(
    counts: Counts,
    *,
    positive: int | None = None,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    strata: str = "cell",
    min_group: int = 0,
    metrics: Sequence[str] | None = None,
) -> dict[str, Estimate]:
    """The metrics that need no scores, from the table of counts alone."""
    made = Resampling(counts, positive_of(counts, positive), draws, seed, level, strata)
    return _of_counts(made, _large_groups(made, counts, min_group), chosen(metrics))


def chosen(names: Sequence[str] | None) -> list[Metric]:
    """The metrics of these names; ``["all"]`` is every one, None those that are always given."""
    known = catalogue.metrics().values()
    if names is None:
        return [m for m in known if m.always]
    return list(known) if list(names) == ["all"] else [catalogue.named(name) for name in names]


def names_of(groups: Sequence[str], *, scores: bool) -> list[str]:
    """The names of what ``evaluate`` gives without ``metrics``, for these groups."""
    out = [m.name for m in chosen(None) if not isinstance(m.value, OfScores | OfScoresByGroup)]
    for metric in chosen(None) if scores else ():
        if isinstance(metric.value, OfScoresByGroup):
            out += [f"{metric.name}_{group}" for group in groups]
        elif isinstance(metric.value, OfScores):
            out.append(metric.name)
    return out


def values(
    counts: Counts, names: Sequence[str] | None = None, *, positive: int | None = None
) -> dict[str, float]:
    """Values without intervals (all metrics of counts, or those named), NaN where undefined."""
    positive = positive_of(counts, positive)
    return {
        m.name: math.nan
        if m.undefined_because(counts, positive)
        else float(m.value.value(counts.n_CPG, positive))  # type: ignore[union-attr]
        for m in chosen(names)
        if m.of_counts
    }


def positive_of(counts: Counts, positive: int | None) -> int | None:
    """The favourable class: the one that is given, or the second of two."""
    return 1 if positive is None and len(counts.classes) == 2 else positive


@dataclass(frozen=True)
class _Large:
    """The groups that are large enough to be compared."""

    made: Resampling
    places: np.ndarray
    reason: str | None  # why nothing can be compared


def too_few_groups(counts: Counts, min_group: int) -> str | None:
    """Why nothing can be compared, where small groups are left out."""
    if len(counts.large(min_group)) >= 2 or min_group <= 0:
        return None
    return f"fewer than two groups have {min_group} rows, so there is nothing to compare"


def _large_groups(made: Resampling, of_groups: Counts, min_group: int) -> _Large:
    """``of_groups`` is the table for comparisons; it is another one where rows have weights."""
    places = of_groups.large(min_group)
    reason = too_few_groups(of_groups, min_group)
    if reason or (of_groups is made.counts and len(places) == len(of_groups.groups)):
        return _Large(made, places, reason)
    return _Large(replace(made, counts=of_groups.only(places), _made={}), places, None)


def _of_counts(made: Resampling, large: _Large, wanted: Sequence[Metric]) -> dict[str, Estimate]:
    out = {}
    for metric in wanted:
        if not isinstance(metric.value, OfScores | OfScoresByGroup):
            used = large.made if metric.between_groups else made
            support = metric.support(used.counts, made.positive)
            out[metric.name] = _undefined(metric, used, large) or metric.value.estimate(
                used, support
            )
    return out


def _of_scores(rows: Scored, large: _Large, wanted: Sequence[Metric]) -> dict[str, Estimate]:
    of_large = rows if large.made is rows.made else rows.only(large.places, large.made)
    out = {}
    for metric in wanted:
        if isinstance(metric.value, OfScoresByGroup):
            for g, group in enumerate(rows.counts.groups):
                out[f"{metric.name}_{group}"] = metric.value.estimate(rows, g)
        elif isinstance(metric.value, OfScores):
            used = of_large if metric.between_groups else rows
            out[metric.name] = _undefined(metric, used.made, large) or metric.value.estimate(used)
    return out


def _undefined(metric: Metric, made: Resampling, large: _Large) -> Estimate | None:
    reason = metric.undefined_because(made.counts, made.positive)
    if reason is None and metric.between_groups:
        reason = large.reason
    if reason is None:
        return None
    return Estimate.undefined(reason, metric.support(made.counts, made.positive))
