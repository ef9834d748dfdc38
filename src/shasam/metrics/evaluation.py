"""All metrics of one model on one test set, each with its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics.areas import score_areas
from shasam.metrics.calibration import calibration_errors
from shasam.metrics.counts import (
    Counts,
    accuracy,
    class_recalls,
    encode_rows,
    group_accuracies,
    recalls,
)
from shasam.metrics.disparity import (
    cell_hole,
    disparities,
    group_hole,
    smallest_cell,
    smallest_group,
)
from shasam.metrics.estimate import Estimate
from shasam.metrics.intervals import STRATA, fold, lowest, percentile, resample

AVERAGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "accuracy": accuracy,
    "balanced_accuracy": lambda n: class_recalls(n).mean(-1),
    "cell_balanced_accuracy": lambda n: recalls(n).mean((-2, -1)),
}
LOWEST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "worst_group_accuracy": lambda n: recalls(n).reshape(*n.shape[:-3], -1),
    "min_group_accuracy": group_accuracies,
}


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
    out = evaluate_counts(
        counts, positive=positive, draws=draws, seed=seed, level=level, strata=strata
    )
    if scores is None:
        return out
    probabilities = checked_scores(scores, len(t), len(class_names))
    confidence = np.take_along_axis(probabilities, p[:, None], 1)[:, 0]
    out |= calibration_errors(
        p == t, confidence, s, group_names, draws=draws, seed=seed, level=level
    )
    hole = group_hole(counts)
    if hole:
        return out | dict.fromkeys(("abcc", "abpc"), Estimate.undefined(hole))
    columns = probabilities[:, 1:] if len(class_names) == 2 else probabilities
    return out | score_areas(columns, s, len(group_names), draws=draws, seed=seed, level=level)


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
    if strata not in STRATA:
        raise InputError(f"strata {strata!r} is not known; there are: {', '.join(STRATA)}")
    if not 0 < level < 1 or draws < 100:
        raise InputError("an interval needs a level between 0 and 1 and at least 100 draws")
    if positive is None and len(counts.classes) == 2:
        positive = 1
    n_CPG = counts.n_CPG
    drawn, centre = resample(n_CPG, draws, seed, strata)
    out: dict[str, Estimate] = {}
    for name, average in AVERAGES.items():
        hole, support = _average_hole(name, counts)
        if hole:
            out[name] = Estimate.undefined(hole, support)
            continue
        value = float(average(n_CPG))
        # Each cell's prior pulls towards chance, and an average over cells is pulled by them all
        # (12 cells of 60 images at 98 %: coverage 75 %); so all but one cell's share is undone.
        pull = (value - float(average(centre))) * (1 - 1 / counts.cells_CG.size)
        low, high = percentile(average(drawn) + pull, value, level)
        out[name] = Estimate(value, max(low, 0.0), min(high, 1.0), support)
    for name, rates in LOWEST.items():
        cells = name == "worst_group_accuracy"
        hole = cell_hole(counts) if cells else group_hole(counts)
        support = smallest_cell(counts) if cells else smallest_group(counts)
        if hole:
            out[name] = Estimate.undefined(hole, support)
            continue
        rates_K = rates(n_CPG)
        low, high = lowest(rates_K, rates(drawn), rates(centre), level)
        out[name] = Estimate(float(rates_K.min()), low, high, support)
    for name, metric in disparities(len(counts.classes), len(counts.groups), positive).items():
        hole, support = metric.hole(counts), metric.support(counts)
        if hole:
            out[name] = Estimate.undefined(hole, support)
            continue
        gaps_K = metric.gaps(n_CPG)
        noise_DK = metric.gaps(drawn) - metric.gaps(centre)
        low, high = fold(gaps_K, noise_DK, metric.norm, level)
        ceiling = len(gaps_K) if name == "eo_sum" else 1.0
        out[name] = Estimate(float(metric.norm(gaps_K)), low, min(high, ceiling), support)
    return out


def checked_scores(scores: Any, rows: int, classes: int) -> np.ndarray:
    """Class probabilities (rows, C) as float64, or a sentence about what is wrong with them."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim == 1 and classes == 2:
        values = np.stack([1.0 - values, values], 1)
    if values.shape != (rows, classes):
        raise InputError(
            f"the scores have shape {values.shape}; {rows} rows of {classes} classes need "
            f"({rows}, {classes})"
        )
    bad = ~np.isfinite(values).all(1)
    if bad.any():
        raise InputError(
            f"{int(bad.sum())} of {rows} rows have a score that is NaN or infinite, the first is "
            f"row {int(bad.argmax())}; leave those rows out or repair the scores"
        )
    if values.min() < -1e-6 or values.max() > 1 + 1e-6:
        raise InputError(
            f"the scores reach from {values.min():.4g} to {values.max():.4g}; they must be "
            "probabilities between 0 and 1 (apply softmax or a sigmoid first)"
        )
    return np.clip(values, 0.0, 1.0)


def _average_hole(name: str, counts: Counts) -> tuple[str | None, int]:
    if name == "accuracy":
        return None, counts.total
    if name == "balanced_accuracy":
        sizes = counts.n_CPG.sum((1, 2))
        empty = [repr(counts.classes[c]) for c in np.flatnonzero(sizes == 0)]
        return (f"no image of class {', '.join(empty)}" if empty else None), int(sizes.min())
    empty = counts.empty_cells()
    return (f"no image of {', '.join(empty[:3])}" if empty else None), smallest_cell(counts)
