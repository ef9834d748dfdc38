"""Compare models on the same rows, methods over seeds, and groups: differences and claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics.counts import Counts, Estimate, Table, encode
from shasam.metrics.evaluation import chosen, not_comparable, positive_of, whole_groups
from shasam.metrics.intervals import check_comparison, quantile, two_sided_p
from shasam.metrics.resampling import STRATA, Gap, Lowest, Pair, Ratio, Statistic, compared_rates
from shasam.metrics.scores import ScoreMetric, ScoreMetricByGroup

# -------------------------------------------------------------------------------------------------
# Two models on the same test rows: difference, interval and p for every metric.
#
# Both answers to a row stay together: the unit is the joint count of (class, answer of a,
# answer of b, group), so that what is hard for both does not count as a difference.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Hold the difference of two models in one metric, a minus b.

    Parameters
    ----------
    difference
        Metric of a minus metric of b.
    low
        Lower end of the interval.
    high
        Upper end of the interval.
    p
        Two-sided p-value of "they are equally good".
    support
        Rows in the smallest denominator.
    reason
        Why there is no value.

    Examples
    --------
    >>> Comparison(0.1, 0.02, 0.18, p=0.01, support=200).as_dict()["difference"]
    0.1
    """

    difference: float
    low: float
    high: float
    p: float
    support: int
    reason: str | None = None

    @property
    def shown(self) -> bool:
        """Whether they differ for sure: p and interval both say so, so that neither contradicts."""
        return self.p < 0.05 and (self.low > 0 or self.high < 0)

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
    """Compare two models on the same rows: a - b for every metric of counts.

    The interval resamples joint answers. The p is a permutation test: if the models are equally
    good, it does not matter whose answer is whose, so the two answers to each row are swapped by a
    fair coin.

    Parameters
    ----------
    label
        True classes (n,).
    prediction_a
        Predictions (n,) of model a.
    prediction_b
        Predictions (n,) of model b, in the same order of rows.
    group
        Sensitive groups (n,).
    classes
        Names of the classes, if labels are codes.
    groups
        Names of the groups, if groups are codes.
    positive
        The favourable class, by default the second of two.
    draws
        Resampled tables for intervals and tests.
    seed
        Seed of the resampling.
    level
        Confidence of the intervals.
    strata
        Whose sizes resampling keeps: "cell", "group" or "none".
    min_group
        A group is left out of a comparison if the rate in question has fewer rows in it.
    metrics
        Names of the metrics; by default without error rates by name.

    Returns
    -------
    dict[str, Comparison]
        Differences by the name of the metric.

    Examples
    --------
    >>> label, group = [0, 0, 1, 1] * 50, [0, 1, 0, 1] * 50
    >>> found = compare(label, label, [0, 1, 1, 1] * 50, group)
    >>> found["accuracy"].difference, found["eo_mean"].difference
    (0.25, -0.5)
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
    other = Counts(n_CABG.sum(1), class_names, group_names)
    if min_group > 0:
        pair = replace(pair, kept=lambda table: _kept(counts, other, table, positive, min_group))
    whole = whole_groups(counts, min_group)
    out: dict[str, Comparison] = {}
    for metric in chosen(metrics):
        if isinstance(metric.value, ScoreMetric | ScoreMetricByGroup):
            continue
        table, used = counts, pair
        if metric.between_groups and isinstance(metric.value, Gap | Lowest | Ratio):
            found = [not_comparable(metric, c, positive, min_group) for c in (counts, other)]
            reason = found[0][0] or found[1][0]
            support = min(found[0][1], found[1][1])
        else:
            if metric.between_groups and min_group > 0 and len(whole) < G:
                table, used = counts.only(whole), pair.only(whole)
            reason = metric.undefined_because(table, positive) if table.groups else _NO_GROUPS
            support = metric.support(table, positive) if table.groups else 0
        if reason:
            out[metric.name] = Comparison(math.nan, math.nan, math.nan, math.nan, support, reason)
        else:
            out[metric.name] = _compared(metric.value, used, level, support)
    return out


_NO_GROUPS = "no group has enough rows of every class"


def _kept(a: Counts, b: Counts, table: Table, positive: int | None, least: int) -> np.ndarray:
    """Return which rates have enough rows in both models.

    Predicted positives differ between them.
    """
    kept = [~np.isnan(compared_rates(c, table, positive, least)[0]) for c in (a, b)]
    return kept[0] & kept[1]


def _compared(statistic: Statistic, pair: Pair, level: float, support: int) -> Comparison:
    of_a, of_b = (float(statistic.value(n, pair.positive, pair.kept)) for n in pair.tables)
    chance_a, chance_b = (statistic.value(n, pair.positive, pair.kept) for n in pair.swapped)
    difference = of_a - of_b
    as_far = int((np.abs(chance_a - chance_b) >= abs(difference) - 1e-12).sum())
    p = (1 + as_far) / (1 + len(chance_a))
    low, high = statistic.difference_ends(pair, level)
    return Comparison(difference, min(low, difference), max(high, difference), p, support)


def _both(n_CABG: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sum out b's answers for the table of a, and a's for that of b."""
    return n_CABG.sum(-2), n_CABG.sum(-3)


def _resample(
    n_CABG: np.ndarray, draws: int, rng: np.random.Generator, strata: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return Dirichlet shares of joint answers within each stratum (draws, C, A, B, G), and their
    mean.
    """
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
    """Return tables in which each row's two answers were swapped by a fair coin."""
    out = np.empty((draws, *n_CABG.shape), dtype=np.int64)
    both = n_CABG + np.swapaxes(n_CABG, 1, 2)
    for i in range(n_CABG.shape[1]):
        out[:, :, i, i] = n_CABG[:, i, i]
        for j in range(i + 1, n_CABG.shape[2]):
            kept = rng.binomial(both[:, i, j], 0.5, size=(draws, *both[:, i, j].shape))
            out[:, :, i, j] = kept
            out[:, :, j, i] = both[:, i, j] - kept
    return out


# -------------------------------------------------------------------------------------------------
# The same experiment with several seeds: mean, spread, and a paired comparison.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """Hold the mean of a metric over seeds with Student's interval.

    Parameters
    ----------
    mean
        The mean.
    sd
        Sample standard deviation.
    low
        Lower end of the interval of the mean.
    high
        Upper end of the interval of the mean.
    seeds
        Number of seeds.
    reason
        Why there is no interval.

    Examples
    --------
    >>> Spread(0.82, 0.02, 0.77, 0.87, seeds=3).as_dict()["seeds"]
    3
    """

    mean: float
    sd: float
    low: float
    high: float
    seeds: int
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        number = {k: getattr(self, k) for k in ("mean", "sd", "low", "high")}
        plain = {k: (v if math.isfinite(v) else None) for k, v in number.items()}
        return plain | {"seeds": self.seeds, "reason": self.reason}


def over_seeds(values: Sequence[float | Estimate], level: float = 0.95) -> Spread:
    """Summarise a metric over seeds: mean ± t(n-1) sd / √n.

    With one seed there is no spread, and the result says so.

    Parameters
    ----------
    values
        The metric, one value per seed.
    level
        Confidence of the interval.

    Returns
    -------
    Spread
        Mean, standard deviation and interval.

    Examples
    --------
    >>> found = over_seeds([0.80, 0.82, 0.84])
    >>> round(found.mean, 2), round(found.sd, 2), found.seeds
    (0.82, 0.02, 3)
    """
    x = _numbers(values)
    if not len(x):
        return Spread(math.nan, math.nan, math.nan, math.nan, 0, "no seeds")
    if np.isnan(x).any():
        bad = int(np.isnan(x).sum())
        reason = f"{bad} of {len(x)} seeds have no value"
        return Spread(math.nan, math.nan, math.nan, math.nan, len(x), reason)
    if len(x) == 1:
        return Spread(float(x[0]), math.nan, math.nan, math.nan, 1, "one seed has no spread")
    sd = float(x.std(ddof=1))
    half = quantile(level, len(x) - 1) * sd / math.sqrt(len(x))
    mean = float(x.mean())
    return Spread(mean, sd, mean - half, mean + half, len(x))


def compare_seeds(
    a: Sequence[float | Estimate],
    b: Sequence[float | Estimate],
    level: float = 0.95,
    *,
    comparisons: int = 1,
) -> Comparison:
    """Compare two methods over seeds: Student's interval and p of the mean of a - b.

    Parameters
    ----------
    a
        Values of method a, one per seed.
    b
        Values of method b, for the same seeds in the same order.
    level
        Confidence of the interval.
    comparisons
        How many comparisons are made and looked at together: the intervals then hold for all at
        once, and p is multiplied by it (Bonferroni).

    Returns
    -------
    Comparison
        The mean difference; its interval excludes 0 exactly where p < 1 - level.

    Examples
    --------
    >>> found = compare_seeds([0.81, 0.83, 0.82], [0.80, 0.81, 0.81])
    >>> round(found.difference, 4), found.p < 0.1
    (0.0133, True)
    """
    x, y = _numbers(a), _numbers(b)
    if len(x) != len(y):
        raise InputError(
            f"there are {len(x)} seeds on one side and {len(y)} on the other; a paired comparison "
            "needs the same seeds in the same order"
        )
    spread = over_seeds(list(x - y), 1 - (1 - level) / comparisons)
    if math.isnan(spread.mean) or len(x) < 2:
        return Comparison(spread.mean, math.nan, math.nan, math.nan, len(x), spread.reason)
    if spread.sd == 0:
        p = 1.0 if spread.mean == 0 else 0.0
    else:
        p = two_sided_p(spread.mean / (spread.sd / math.sqrt(len(x))), len(x) - 1)
    return Comparison(spread.mean, spread.low, spread.high, min(1.0, p * comparisons), len(x))


def _numbers(values: Sequence[float | Estimate]) -> np.ndarray:
    return np.array([v.value if isinstance(v, Estimate) else float(v) for v in values])
