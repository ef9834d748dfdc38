"""Compare models on the same rows, methods over seeds, and groups: differences and claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics import catalogue
from shasam.metrics.counts import Counts, Estimate, Table, encode
from shasam.metrics.evaluation import chosen, not_comparable, positive_of, whole_groups
from shasam.metrics.intervals import check_comparison, newcombe, quantile, two_sided_p, wilson_ends
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
    """Which rates have enough rows in both models; predicted positives differ between them."""
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


# -------------------------------------------------------------------------------------------------
# Whether a gap is significant, which groups it is between, and how large it could be.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contrast:
    """Hold the two groups that surely lie farthest apart on one rate.

    Parameters
    ----------
    rate
        The class or prediction whose rate it is; empty if there is one rate only.
    low_group
        The group with the lower rate.
    high_group
        The group with the higher rate.
    low
        Rate of the first with Wilson's interval.
    high
        Rate of the second.
    gap
        Their difference; its interval holds for all pairs at once.

    Examples
    --------
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> widest(Counts(n, ("no", "yes"), ("a", "b"))).high_group
    'a'
    """

    rate: str  # the class or prediction whose rate it is; empty where there is one rate only
    low_group: str
    high_group: str
    low: Estimate  # rate of each group with Wilson's interval
    high: Estimate
    gap: Estimate  # its interval holds for all pairs at once, so it may be read of the widest one


def widest(
    counts: Counts,
    metric: str = "eo_mean",
    *,
    positive: int | None = None,
    level: float = 0.95,
    least: int = 0,
    row: int | None = None,
) -> Contrast | None:
    """Find the pair of groups and the class that differ most for sure.

    It is the pair whose interval (Newcombe 1998) has the highest lower end, or, if none lies above
    0, the one with the largest gap. The error probability is divided by the number of pairs and
    rates that it was chosen from.

    Parameters
    ----------
    counts
        Rows by class, prediction and group.
    metric
        The metric whose rates are compared.
    positive
        The favourable class, by default the second of two.
    level
        Confidence over all pairs together.
    least
        Rates of fewer rows are not compared.
    row
        Number of one rate to look at, by default all.

    Returns
    -------
    Contrast | None
        The pair, or None if no two groups can be compared.

    Examples
    --------
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> found = widest(Counts(n, ("no", "yes"), ("a", "b")))
    >>> found.rate, found.low_group, found.high_group, round(found.gap.value, 2)
    ('no', 'b', 'a', 0.2)
    """
    statistic = catalogue.named(metric).value
    if not isinstance(statistic, Gap) or len(counts.groups) < 2:
        return None
    rates_RG, size_RG = compared_rates(counts, statistic.table, positive, least)
    R = len(rates_RG)
    compared = [np.flatnonzero(~np.isnan(rate_G)).tolist() for rate_G in rates_RG]
    pairs = [(r, a, b) for r in range(R) for a, b in permutations(compared[r], 2)
             if rates_RG[r, a] >= rates_RG[r, b]]  # fmt: skip
    if not pairs or min(map(len, compared)) < 2:
        return None
    each = 1 - (1 - level) / sum(len(x) * (len(x) - 1) / 2 for x in compared)
    best: tuple[tuple[float, float], int, int, int, tuple[float, float]] | None = None
    for r, high, low in pairs:
        if row is not None and r != row:
            continue
        gap = float(rates_RG[r, high] - rates_RG[r, low])
        ends = newcombe(
            float(rates_RG[r, high]), float(size_RG[r, high]),
            float(rates_RG[r, low]), float(size_RG[r, low]), each,
        )  # fmt: skip
        rank = (max(ends[0], 0.0), gap)
        if best is None or rank > best[0]:
            best = rank, r, low, high, ends
    if best is None:
        return None
    _, r, low, high, ends = best
    rates = []
    for g in (low, high):
        below, above = wilson_ends(rates_RG[r, [g]], size_RG[r, [g]], level)
        size = int(size_RG[r, g])
        rates.append(Estimate(float(rates_RG[r, g]), float(below[0]), float(above[0]), size))
    smaller = int(size_RG[r, [low, high]].min())
    gap_of = Estimate(rates[1].value - rates[0].value, max(ends[0], 0.0), ends[1], smaller)
    name = counts.classes[r] if len(counts.classes) == R else ""
    return Contrast(name, counts.groups[low], counts.groups[high], rates[0], rates[1], gap_of)


def holm(p: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm (1979): claims over several attributes err at the level of one.

    Parameters
    ----------
    p
        P-values.

    Returns
    -------
    list[float]
        Adjusted p-values, in the same order.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    adjusted, least = [1.0] * len(p), 0.0
    for rank, i in enumerate(order):
        least = max(least, min(1.0, (len(p) - rank) * p[i]))
        adjusted[i] = least
    return adjusted


@dataclass(frozen=True)
class Claim:
    """Hold a gap and what may be said of it, at a stated error rate.

    Parameters
    ----------
    metric
        Name of the metric.
    estimate
        The gap.
    p
        P-value, adjusted for the number of attributes that were looked at.
    level
        1 minus the error rate.
    contrast
        The widest pair of groups.
    attributes
        How many attributes were looked at.

    Examples
    --------
    >>> from shasam.metrics import Estimate
    >>> Claim("eo_mean", Estimate(0.2, 0.1, 0.3, 50), 0.01, 0.95, None).real
    True
    """

    metric: str
    estimate: Estimate
    p: float  # adjusted for the number of attributes that were looked at
    level: float
    contrast: Contrast | None
    attributes: int = 1  # how many were looked at

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        found = {"metric": self.metric, "real": self.real, "p": self.p}
        found |= {"attributes": self.attributes, "level": self.level, "widest": None}
        if self.contrast is not None:
            found["widest"] = {
                "rate": self.contrast.rate,
                "low_group": self.contrast.low_group,
                "high_group": self.contrast.high_group,
                "gap": self.contrast.gap.as_dict(),
            }
        return found

    @property
    def real(self) -> bool:
        """Chance alone would rarely give as much, and the interval does not reach 0."""
        return self.p <= 1 - self.level + 1e-12 and self.estimate.low > 0


def claim_of(
    counts: Counts,
    estimates: Mapping[str, Estimate],
    *,
    positive: int | None = None,
    level: float = 0.95,
    least: int = 0,
) -> Claim | None:
    """State whether the gap in equalized odds, or else in accuracy, is real.

    Parameters
    ----------
    counts
        Rows by class, prediction and group.
    estimates
        What ``evaluate`` has returned for these rows.
    positive
        The favourable class, by default the second of two.
    level
        1 minus the error rate of the claim.
    least
        Rates of fewer rows are not compared.

    Returns
    -------
    Claim | None
        The claim, or None if neither gap has a value.

    Examples
    --------
    >>> from shasam.metrics import evaluate_counts
    >>> n = np.array([[[80, 60], [20, 40]], [[10, 10], [90, 90]]])
    >>> counts = Counts(n, ("no", "yes"), ("a", "b"))
    >>> claim = claim_of(counts, evaluate_counts(counts))
    >>> claim.metric, claim.real
    ('eo_mean', True)
    """
    for metric in ("eo_mean", "accuracy_gap"):
        e = estimates.get(metric)
        if e is not None and e.defined and e.p is not None:
            contrast = widest(counts, metric, positive=positive, level=level, least=least)
            return Claim(metric, e, e.p, level, contrast)
    return None


def adjusted(
    estimates: Sequence[Mapping[str, Estimate]], level: float = 0.95
) -> list[dict[str, Estimate]]:
    """Adjust the p-values of several attributes of one model by Holm.

    An interval starts at 0 (that of a ratio ends at 1) if the adjusted p does not exclude it, so
    that interval, p and claim say the same.

    Parameters
    ----------
    estimates
        Estimates by metric, one mapping for each attribute.
    level
        Confidence of the intervals.

    Returns
    -------
    list[dict[str, Estimate]]
        The adjusted estimates.

    Examples
    --------
    >>> from shasam.metrics import Estimate
    >>> both = [{"eo_mean": Estimate(0.2, 0.1, 0.3, 50, p=p)} for p in (0.01, 0.04)]
    >>> [e["eo_mean"].p for e in adjusted(both)]
    [0.02, 0.04]
    """
    out = [dict(of_attribute) for of_attribute in estimates]
    for name in dict.fromkeys(name for e in out for name in e):
        metric = catalogue.find(name)
        if metric is None or not isinstance(metric.value, Gap | Ratio):
            continue
        places = [i for i, e in enumerate(out) if name in e and e[name].p is not None]
        for i, p in zip(places, holm([out[i][name].p or 0.0 for i in places]), strict=True):
            e = replace(out[i][name], p=p)
            if p > 1 - level + 1e-12:
                e = replace(e, low=0.0) if isinstance(metric.value, Gap) else replace(e, high=1.0)
            out[i][name] = e
    return out
