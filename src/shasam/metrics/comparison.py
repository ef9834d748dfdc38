"""Two models on the same test images: difference, interval and p for every metric.

Both answers to an image travel together: the unit is the joint count of (class, answer of a,
answer of b, group), so that what is hard for both does not count as a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shasam.metrics.counts import Counts, encode_rows
from shasam.metrics.disparity import Disparity, cell_hole, disparities, group_hole
from shasam.metrics.evaluation import AVERAGES, LOWEST
from shasam.metrics.intervals import candidates


@dataclass(frozen=True)
class Comparison:
    """Metric of a minus metric of b; ``p`` is two-sided for 'they are equally good'."""

    difference: float
    low: float
    high: float
    p: float
    support: int
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        number = {k: getattr(self, k) for k in ("difference", "low", "high", "p")}
        plain = {k: (v if math.isfinite(v) else None) for k, v in number.items()}
        return plain | {"support": self.support, "reason": self.reason}


def compare(
    label: Any,
    prediction_a: Any,
    prediction_b: Any,
    group: Any,
    *,
    classes: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    positive: int | None = None,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, Comparison]:
    """a - b for every metric of counts; rows of both models are the same images in one order.

    The interval resamples joint answers within each (class, group) cell. The p is a permutation
    test: if the models are equally good, it does not matter whose answer is whose, so the two
    answers to each image are swapped by a fair coin.
    """
    if classes is None:
        seen = np.concatenate(
            [np.asarray(c).astype(str) for c in (label, prediction_a, prediction_b)]
        )
        classes = sorted(set(seen.tolist()))
        label, prediction_a, prediction_b = (
            np.asarray(c).astype(str) for c in (label, prediction_a, prediction_b)
        )
    t, a, s, class_names, group_names = encode_rows(label, prediction_a, group, classes, groups)
    _, b, _, _, _ = encode_rows(label, prediction_b, group, classes, groups)
    C, G = len(class_names), len(group_names)
    joint = ((t * C + a) * C + b) * G + s
    n_CABG = np.bincount(joint, minlength=C**3 * G).reshape(C, C, C, G)
    if positive is None and C == 2:
        positive = 1
    counts = Counts(n_CABG.sum(2), class_names, group_names)
    rng = np.random.default_rng(seed)
    drawn, centre = _resample(n_CABG, draws, rng)
    gap_metrics = disparities(C, G, positive)
    swapped = _swap(n_CABG, draws, rng)
    out: dict[str, Comparison] = {}
    for name, (value, hole, support) in _metrics(counts, positive).items():
        if hole:
            out[name] = Comparison(math.nan, math.nan, math.nan, math.nan, support, hole)
            continue
        difference = float(value(n_CABG.sum(2)) - value(n_CABG.sum(1)))
        if name in gap_metrics:
            low, high = _gap_ends(gap_metrics[name], n_CABG, drawn, centre, level)
        else:
            spread = value(drawn.sum(3)) - value(drawn.sum(2))
            low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2])
        chance = value(swapped.sum(3)) - value(swapped.sum(2))
        as_far = int((np.abs(chance) >= abs(difference) - 1e-12).sum())
        out[name] = Comparison(
            difference,
            min(float(low), difference),
            max(float(high), difference),
            (1 + as_far) / (1 + draws),
            support,
        )
    return out


Metric = tuple[Callable[[np.ndarray], np.ndarray], str | None, int]


def _metrics(counts: Counts, positive: int | None) -> dict[str, Metric]:
    smallest = int(counts.cells_CG.min())
    empty = counts.empty_cells()
    hole = f"no image of {empty[0]}" if empty else None
    out: dict[str, Metric] = {}
    for name, value in AVERAGES.items():
        out[name] = (value, None if name == "accuracy" else hole, counts.total)
    for name, rates in LOWEST.items():
        why = cell_hole(counts) if name == "worst_group_accuracy" else group_hole(counts)
        out[name] = (_lowest_of(rates), why, smallest)
    for name, metric in disparities(len(counts.classes), len(counts.groups), positive).items():
        out[name] = (metric.value, metric.hole(counts), metric.support(counts))
    return out


def _lowest_of(rates: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda n_CPG: rates(n_CPG).min(-1)


def _gap_ends(
    metric: Disparity, n_CABG: np.ndarray, drawn: np.ndarray, centre: np.ndarray, level: float
) -> tuple[float, float]:
    """Ends for a difference of two gaps, each of which noise makes look larger than it is.

    The error of the difference is simulated around where the true gaps of both models may lie and
    taken off the difference; each end is the widest over those places. (Plain percentiles cover a
    gap of 0.1 against one of 0 in 79 of 100 test sets, because the second is never seen as 0.)
    """
    gaps, noise = [], []
    for axis in (2, 1):  # summing out b leaves a, and the other way round
        gaps.append(metric.gaps(n_CABG.sum(axis)))
        noise.append(metric.gaps(drawn.sum(axis + 1)) - metric.gaps(centre.sum(axis)))
    difference = float(metric.norm(gaps[0]) - metric.norm(gaps[1]))
    ends = []
    for a_K in candidates(gaps[0], noise[0]):
        for b_K in candidates(gaps[1], noise[1]):
            error_D = metric.norm(a_K + noise[0]) - metric.norm(b_K + noise[1])
            error_D -= metric.norm(a_K) - metric.norm(b_K)
            ends.append(np.quantile(error_D, [(1 - level) / 2, (1 + level) / 2]))
    below, above = np.array(ends).T
    return difference - float(above.max()), difference - float(below.min())


def _resample(
    n_CABG: np.ndarray, draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Dirichlet shares of joint answers within each cell (draws, C, A, B, G), and their mean."""
    answers = n_CABG.shape[1] * n_CABG.shape[2]
    occupied = n_CABG.sum((1, 2), keepdims=True)
    alpha = np.where(occupied > 0, n_CABG + 1.0 / answers, 0.0)
    weight = rng.standard_gamma(np.broadcast_to(alpha, (draws, *alpha.shape)))
    whole = weight.sum((2, 3), keepdims=True)
    share = weight / np.where(whole > 0, whole, 1.0)
    return share * occupied, alpha / np.maximum(alpha.sum((1, 2), keepdims=True), 1e-300) * occupied


def _swap(n_CABG: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Tables in which each image's two answers were swapped by a fair coin."""
    out = np.empty((draws, *n_CABG.shape), dtype=np.int64)
    both = n_CABG + np.swapaxes(n_CABG, 1, 2)
    for i in range(n_CABG.shape[1]):
        out[:, :, i, i] = n_CABG[:, i, i]
        for j in range(i + 1, n_CABG.shape[2]):
            kept = rng.binomial(both[:, i, j], 0.5, size=(draws, *both[:, i, j].shape))
            out[:, :, i, j] = kept
            out[:, :, j, i] = both[:, i, j] - kept
    return out
