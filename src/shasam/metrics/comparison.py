"""Two models on the same test rows: difference, interval and p for every metric.

Both answers to a row stay together: the unit is the joint count of (class, answer of a,
answer of b, group), so that what is hard for both does not count as a difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics.counts import Counts
from shasam.metrics.evaluation import chosen, positive_of, too_few_groups
from shasam.metrics.labels import encode
from shasam.metrics.memory import check_comparison
from shasam.metrics.resampling import STRATA
from shasam.metrics.scores import OfScores, OfScoresByGroup
from shasam.metrics.statistic import Pair, Statistic


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
    strata: str = "cell",
    min_group: int = 0,
    metrics: Sequence[str] | None = None,
) -> dict[str, Comparison]:
    """a - b for every metric of counts; rows of both models are the same, in one order.

    The interval resamples joint answers; ``strata`` says whose sizes are kept, as in ``evaluate``
    (``cell``: each (class, group), ``group``, or ``none``). Groups with fewer than ``min_group``
    rows are left out of metrics that compare groups. The p is a permutation test: if the models are
    equally good, it does not matter whose answer is whose, so the two answers to each row are
    swapped by a fair coin.
    """
    columns = {"label": label, "prediction of a": prediction_a, "prediction of b": prediction_b}
    [t, a, b], class_names = encode(columns, classes)
    [s], group_names = encode({"group": group}, groups)
    if not len(t) == len(a) == len(b) == len(s):
        raise InputError(
            f"there are {len(t)} labels, {len(a)} and {len(b)} predictions and {len(s)} groups; "
            "each row needs one of each"
        )
    C, G = len(class_names), len(group_names)
    check_comparison(C, G, draws)
    joint = ((t * C + a) * C + b) * G + s
    n_CABG = np.bincount(joint, minlength=C**3 * G).reshape(C, C, C, G)
    counts = Counts(n_CABG.sum(2), class_names, group_names)
    positive = positive_of(counts, positive)
    rng = np.random.default_rng(seed)
    drawn, expected = _resample(n_CABG, draws, rng, strata)
    swapped = _swap(n_CABG, draws, rng)
    pair = Pair(_both(n_CABG), _both(drawn), _both(expected), _both(swapped), positive)
    places = counts.large(min_group)
    some = len(places) < G
    of_large = (counts.only(places), pair.only(places)) if some else (counts, pair)
    out: dict[str, Comparison] = {}
    for metric in chosen(metrics):
        if isinstance(metric.value, OfScores | OfScoresByGroup):
            continue
        table, used = of_large if metric.between_groups else (counts, pair)
        reason = too_few_groups(counts, min_group) if metric.between_groups else None
        reason = reason or metric.undefined_because(table, positive)
        support = metric.support(table, positive) if table.groups else 0
        if reason:
            out[metric.name] = Comparison(math.nan, math.nan, math.nan, math.nan, support, reason)
        else:
            out[metric.name] = _compared(metric.value, used, level, support)
    return out


def _compared(statistic: Statistic, pair: Pair, level: float, support: int) -> Comparison:
    of_a, of_b = (float(statistic.value(n, pair.positive)) for n in pair.tables)
    chance_a, chance_b = (statistic.value(n, pair.positive) for n in pair.swapped)
    difference = of_a - of_b
    as_far = int((np.abs(chance_a - chance_b) >= abs(difference) - 1e-12).sum())
    p = (1 + as_far) / (1 + len(chance_a))
    low, high = statistic.difference_ends(pair, level)
    return Comparison(difference, min(low, difference), max(high, difference), p, support)


def _both(n_CABG: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The table of each model: summing out b's answers leaves a's, and the other way round."""
    return n_CABG.sum(-2), n_CABG.sum(-3)


def _resample(
    n_CABG: np.ndarray, draws: int, rng: np.random.Generator, strata: str
) -> tuple[np.ndarray, np.ndarray]:
    """Dirichlet shares of joint answers within each stratum (draws, C, A, B, G), and their mean."""
    if strata not in STRATA:
        raise InputError(f"strata {strata!r} is not known; there are: {', '.join(STRATA)}")
    axes = {"cell": (1, 2), "group": (0, 1, 2), "none": (0, 1, 2, 3)}[strata]
    size = n_CABG.sum(axes, keepdims=True)
    answers = n_CABG.shape[1] * n_CABG.shape[2]
    occupied = n_CABG.sum((1, 2), keepdims=True)
    alpha = np.where(occupied > 0, n_CABG + 1.0 / answers, 0.0)
    weight = rng.standard_gamma(np.broadcast_to(alpha, (draws, *alpha.shape)))
    whole = weight.sum(tuple(axis + 1 for axis in axes), keepdims=True)
    share = weight / np.where(whole > 0, whole, 1.0)
    return share * size, alpha / np.maximum(alpha.sum(axes, keepdims=True), 1e-300) * size


def _swap(n_CABG: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """Tables in which each row's two answers were swapped by a fair coin."""
    out = np.empty((draws, *n_CABG.shape), dtype=np.int64)
    both = n_CABG + np.swapaxes(n_CABG, 1, 2)
    for i in range(n_CABG.shape[1]):
        out[:, :, i, i] = n_CABG[:, i, i]
        for j in range(i + 1, n_CABG.shape[2]):
            kept = rng.binomial(both[:, i, j], 0.5, size=(draws, *both[:, i, j].shape))
            out[:, :, i, j] = kept
            out[:, :, j, i] = both[:, i, j] - kept
    return out
