"""Compute intervals: percentiles for averages, test inversion for gaps, tails of t and binomial."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from shasam.errors import MemoryLimitError
from shasam.memory import available_memory, readable
from shasam.metrics.counts import Estimate

# -------------------------------------------------------------------------------------------------
# Tails of Student's t and of the binomial distribution without scipy, by the incomplete beta.
# -------------------------------------------------------------------------------------------------


def two_sided_p(t: float, df: int) -> float:
    """Return P(|T| >= |t|) for ``df`` degrees of freedom: I_{df/(df+t²)}(df/2, 1/2)."""
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t))


def quantile(level: float, df: int) -> float:
    """Return the t with P(|T| <= t) = level, by bisection."""
    low, high = 0.0, 2.0
    while two_sided_p(high, df) > 1 - level:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, df) > 1 - level else (low, middle)
    return (low + high) / 2


def binomial_upper(right: float, size: float, error: float) -> float:
    """Return Clopper and Pearson's upper limit (1934) of a rate.

    P(as few as ``right``) = ``error``.
    """
    if right >= size:
        return 1.0
    low, high = right / size, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        as_few = 1.0 - _incomplete_beta(right + 1, size - right, middle)
        low, high = (middle, high) if as_few > error else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return regularised I_x(a, b), by Lentz's continued fraction (Numerical Recipes 6.4)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny = 1e-300
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1) or tiny)
    h = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + even * d or tiny)
        c = 1.0 + even / c or tiny
        h *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1.0 / (1.0 + odd * d or tiny)
        c = 1.0 + odd / c or tiny
        step = d * c
        h *= step
        if abs(step - 1) < 1e-15:
            break
    return front * h / a


# -------------------------------------------------------------------------------------------------
# What intervals cost in memory, estimated before anything is allocated.
#
# Intervals come from resampled tables. Their size grows with the square of the number of classes:
# every class can be taken for every other. Curves of scores grow with the square of the number of
# groups: two attributes of 50 groups each cross to 2,500 groups and 3.1 million pairs of curves.
# -------------------------------------------------------------------------------------------------

MOST_BYTES = 2 * 2**30  # that an evaluation takes unasked
FEWEST_DRAWS = 250  # an end of a 95 % interval then rests on 6 draws; fewer are not worth printing
_NUMBER = 8  # bytes of a float64 or int64
# arrays of one size that are alive at the same time, read off the peak with tracemalloc
_TABLES, _CELLS, _JOINT_CELLS, _CURVES = 4.1, 19.0, 18.0, 5.3
_CURVE_DRAWS, _CURVE_BINS = 500, 100  # of metrics.areas


def evaluation_bytes(classes: int, groups: int, draws: int, *, scores: bool = False) -> int:
    """Return the peak of ``evaluate`` beyond its inputs."""
    pairs = groups * (groups - 1) // 2
    tables = classes**2 * groups * draws
    cells = classes * groups * draws
    columns = 1 if classes == 2 else classes
    curves = columns * _CURVE_BINS * pairs * min(draws, _CURVE_DRAWS) if scores else 0
    return int(_NUMBER * max(_TABLES * tables, tables + _CELLS * cells, _CURVES * curves))


def comparison_bytes(classes: int, groups: int, draws: int) -> int:
    """Return the peak of ``compare`` beyond its inputs: joint tables of two models' answers."""
    joint, cells = classes**3 * groups * draws, classes * groups * draws
    return int(_NUMBER * max(_TABLES * joint, joint + _JOINT_CELLS * cells))


def memory_limit() -> int:
    """Return the smaller of 2 GiB and half of what is free."""
    free = available_memory()
    return MOST_BYTES if free is None else min(MOST_BYTES, free // 2)


def draws_of_runs(classes: int, groups: int, draws: int = 2000) -> tuple[int, bool]:
    """Return the draws for the intervals of a run, and whether metrics of scores are computed.

    Unlike those of an audit they do not follow from the free memory: the same run must have the
    same intervals everywhere. Scores are left out where the curves of so many groups do not fit:
    with fewer draws they take minutes, which an audit of the predictions may take, and a run not.
    """
    scored = evaluation_bytes(classes, groups, draws, scores=True) <= MOST_BYTES
    return affordable_draws(classes, groups, draws, limit=MOST_BYTES), scored


def affordable_draws(
    classes: int, groups: int, draws: int, *, scores: bool = False, limit: int | None = None
) -> int:
    """Return ``draws``, or as many as fit in memory; too few are an error with the figure."""
    limit = memory_limit() if limit is None else limit
    need = evaluation_bytes(classes, groups, draws, scores=scores)
    if need <= limit:
        return draws
    low, high = 0, draws
    while high - low > 1:
        middle = (low + high) // 2
        fits = evaluation_bytes(classes, groups, middle, scores=scores) <= limit
        low, high = (middle, high) if fits else (low, middle)
    if low < FEWEST_DRAWS:
        raise MemoryLimitError(
            f"intervals for {classes:,} classes and {groups:,} groups need {readable(need)} at "
            f"{draws:,} draws; the limit is {readable(limit)}. Merge groups or classes, or "
            "leave out an attribute"
        )
    return low


def check_evaluation(classes: int, groups: int, draws: int, *, scores: bool = False) -> None:
    """Refuse an evaluation that would not fit, with the number of draws that would."""
    fits = affordable_draws(classes, groups, draws, scores=scores)
    if fits < draws:
        need = evaluation_bytes(classes, groups, draws, scores=scores)
        raise MemoryLimitError(
            f"intervals for {classes:,} classes and {groups:,} groups need {readable(need)} at "
            f"{draws:,} draws; the limit is {readable(memory_limit())}. {fits:,} draws fit"
        )


def check_comparison(classes: int, groups: int, draws: int) -> None:
    """Refuse a comparison that would not fit."""
    need, limit = comparison_bytes(classes, groups, draws), memory_limit()
    if need > limit:
        raise MemoryLimitError(
            f"comparing two models over {classes:,} classes and {groups:,} groups needs "
            f"{readable(need)} at {draws:,} draws; the limit is {readable(limit)}. Compare "
            "fewer classes or groups, or use fewer draws"
        )


# -------------------------------------------------------------------------------------------------
# Intervals: percentiles for averages, test inversion for gaps, a cap for minima.
#
# A gap is a norm of differences, |TPR_a - TPR_b| in the simplest case. Noise folds at zero: the
# plain bootstrap of a gap lies above the truth, its lower end is never 0, and it covers a true gap
# of 0 in none of 100 test sets. So gaps are treated by inverting a test: a hypothetical gap `h`
# belongs to the interval when the observed one is no surprise among 'h plus noise'.
# -------------------------------------------------------------------------------------------------

Norm = Callable[[np.ndarray], np.ndarray]  # (..., some axes) -> (...)

CARRIES = 0.995  # share of draws in which no group's noise reaches as far
MOST_AT_ONCE = 100_000  # differences between groups that are held in memory
STEPS = 11  # bisections: an end is found to 1/4096 of the range that is searched


def percentile(draws_D: np.ndarray, value: float, level: float) -> tuple[float, float]:
    """Return equal tails of the draws, for averages; the value itself always belongs."""
    low, high = np.quantile(draws_D, [(1 - level) / 2, (1 + level) / 2])
    return min(float(low), value), max(float(high), value)


def fold(
    seen: float,
    noise_D: np.ndarray,
    norm: Norm,
    directions: Sequence[np.ndarray],
    level: float,
    *,
    from_zero: bool = False,
) -> tuple[float, float]:
    """Return interval for a norm of which ``seen`` was observed, by inverting a test over h >= 0.

    Under h the signed gaps are ``h * direction + noise``. The direction is not known, and it
    matters: noise adds more to a mean of few large gaps than of many small ones, and the other way
    round to a maximum. So several are tried, and each end is the wider one. The error probability
    is shared between the ends in proportion to the power to tell h from 0: near 0 an observation
    cannot be too small, so all of it goes to the other end (the advice of Feldman and Cousins 1998
    for a bounded mean). The interval thus starts at 0 when the test of 'no gap at all' does not
    reject; ``from_zero`` says that a better test of that did not.
    """
    alpha = 1.0 - level
    none_D = norm(noise_D)
    threshold = float(np.quantile(none_D, level))
    reach = seen + 4.0 * float(none_D.std()) + threshold
    if threshold <= 0:  # nothing varies
        return (0.0 if from_zero else seen), seen
    # Less than noise alone gives is luck, not knowledge: it must not make the interval short.
    usual = max(seen, float(np.median(none_D)))
    low, high = seen, seen
    for direction in directions:

        def too_small(h: float, direction: np.ndarray = direction) -> bool:
            under_D = norm(h * direction + noise_D)
            return _share(under_D >= seen) < alpha * (1 - _share(under_D > threshold) / 2)

        def too_large(h: float, direction: np.ndarray = direction) -> bool:
            under_D = norm(h * direction + noise_D)
            return _share(under_D <= usual) < alpha / 2 * _share(under_D > threshold)

        low = 0.0 if from_zero else min(low, _last(too_small, 0.0, seen))
        high = max(high, _last(lambda h, f=too_large: not f(h), 0.0, reach))  # type: ignore[misc]
    return low, high


def widest_only(rates_RG: np.ndarray) -> np.ndarray:
    """Return the two groups that lie farthest apart, all others half-way between them; norm 1.

    Noise adds least to a largest gap that stands alone.
    """
    row = int(np.nanargmax(np.nanmax(rates_RG, -1) - np.nanmin(rates_RG, -1)))
    out = np.where(np.isnan(rates_RG), np.nan, 0.0)
    out[row, np.nanargmax(rates_RG[row])], out[row, np.nanargmin(rates_RG[row])] = 0.5, -0.5
    return out


def directions_of(gaps: np.ndarray, noise_D: np.ndarray, norm: Norm) -> list[np.ndarray]:
    """Return where the gaps may point: ``candidates`` of norm 1.

    Where nothing but noise was seen, the gap may sit in one place only.
    """
    freed, loaded = candidates(gaps, noise_D)
    if norm(loaded) == 0:  # no gap was seen, and nothing varies
        return []
    if not norm(freed) > 0:
        freed = np.where(np.abs(loaded) < np.nanmax(np.abs(loaded)), 0.0, loaded)
    return [freed / norm(freed), loaded / norm(loaded)]


def few_carry_it(gaps_RG: np.ndarray, noise_DRG: np.ndarray, norm: Norm) -> list[np.ndarray]:
    """Return directions in which a few groups carry the whole gap, all others equal; norm 1.

    That is the usual case of harm, and the one in which noise adds most to a mean of gaps, through
    all the groups that are equal. A group carries the gap where it lies farther from the others
    than the noise of any group does in all but one of 200 draws; if none does, the farthest is
    taken. The second direction has carriers on the same side at the same distance: noise adds most
    to a range whose ends are shared by several groups.
    """
    spread = np.maximum(noise_DRG.std(0), 1e-12)
    far_RG = np.abs(gaps_RG) / spread
    beyond = float(np.quantile(np.nanmax(np.abs(noise_DRG) / spread, (1, 2)), CARRIES))
    carried = np.where(far_RG <= beyond, 0.0, gaps_RG)
    if not norm(carried) > 0:
        carried = np.where(far_RG < np.nanmax(far_RG), 0.0, gaps_RG)
    if not norm(carried) > 0:
        return []
    tied = carried.copy()
    for row in tied:
        for side in (row > 0, row < 0):
            if side.any():
                row[side] = row[side].mean()
    # of carriers that are all on one side, and no others, nothing is left once they are tied
    return [made / norm(made) for made in (carried, tied) if norm(made) > 0]


def sure_gaps(rates_RG: np.ndarray, noise_DRG: np.ndarray, level: float) -> np.ndarray:
    """Return by how much two groups differ for sure on each rate (R,), for all rates and pairs at
    once.

    Differences are studentised (Tukey 1953), so that a small group, whose rate is noisy, does not
    hide what larger ones show: |a - b| is lowered by the same number of its own standard errors in
    every pair, as many as the largest of all simulated differences stays below.
    """
    draws = len(noise_DRG)
    largest_D, pairs = np.zeros(draws), []
    for r, rate_G in enumerate(rates_RG):
        places = np.flatnonzero(~np.isnan(rate_G))
        i, j = np.triu_indices(len(places), 1)
        a, b = places[i], places[j]
        variance_G = noise_DRG[:, r].var(0)
        error = np.sqrt(np.maximum(variance_G[a] + variance_G[b], 1e-24))
        pairs.append((np.abs(rate_G[a] - rate_G[b]), error))
        step = max(1, MOST_AT_ONCE // max(len(a), 1))
        for start in range(0, draws if len(a) else 0, step):
            some = slice(start, start + step)
            apart = np.abs(noise_DRG[some, r][:, a] - noise_DRG[some, r][:, b])
            largest_D[some] = np.maximum(largest_D[some], (apart / error).max(1))
    errors = float(np.quantile(largest_D, level))
    lowered = [(gap - errors * error).max(initial=0.0) for gap, error in pairs]
    return np.array(lowered)


def candidates(gaps: np.ndarray, noise_D: np.ndarray) -> list[np.ndarray]:
    """Say where true gaps may lie: freed of what noise explains, sign(d) √(d² - se²), and loaded
    with as much again, sign(d) √(d² + se²)."""
    sign, variance = np.where(gaps < 0, -1.0, 1.0), noise_D.var(0)
    return [sign * np.sqrt(np.maximum(gaps**2 + k * variance, 0.0)) for k in (-1, 1)]


def from_centre(rates_RG: np.ndarray, noise_DRG: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rates and noise as distances from what the groups have in common, the precise ones
    first.
    """
    weight = 1.0 / np.maximum(noise_DRG.var(0), 1e-12)
    weight = np.where(np.isnan(rates_RG), 0.0, weight)
    weight /= np.maximum(weight.sum(-1, keepdims=True), 1e-300)

    def away(x: np.ndarray) -> np.ndarray:
        return x - np.where(weight > 0, x * weight, 0.0).sum(-1, keepdims=True)

    # Draws lie side by side in memory: norms run over few groups and many draws.
    noise_RGD = np.ascontiguousarray(np.moveaxis(noise_DRG, 0, -1))
    return away(rates_RG), away(np.moveaxis(noise_RGD, -1, 0))


def _share(true_D: np.ndarray) -> float:
    """Return the share that is true; ``np.mean`` makes numbers of booleans first."""
    return np.count_nonzero(true_D) / true_D.size


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Return the largest h in [low, high] up to which ``holds``, by bisection.

    It is ``low`` where it never does.
    """
    if not holds(low):
        return low
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


TIES = 2.0  # distances below √2 standard errors count as ties: at 1, eight ties missed 7.5 %


def lowest(
    rates_K: np.ndarray,
    drawn_DK: np.ndarray,
    around_DK: np.ndarray,
    centre_K: np.ndarray,
    size_K: np.ndarray,
    level: float,
) -> tuple[float, float]:
    """Return the interval for the smallest of several rates.

    The smallest of noisy rates lies below the smallest rate, and the more so the closer the rates
    are. Upper end: that error is simulated, with noise around shrunken rates (``around_DK``,
    ``centre_K``), and taken off. How close the rates are is not known, so two distances are tried:
    those of the shrunken rates, and the observed ones freed of what noise explains. But the
    smallest rate is not above any single one, so no rate's own upper end, for K of them at once, is
    exceeded. Lower end: the lowest of the rates' own lower ends (percentiles of ``drawn_DK``),
    because a small group whose observed rate is good may still be the worst.
    """
    error = (1 - level) / 2
    seen, worst = float(rates_K.min()), int(rates_K.argmin())
    noise_DK = around_DK - centre_K
    variance_K = noise_DK.var(0)
    above_K = (rates_K - seen) ** 2 - TIES * (variance_K + variance_K[worst])
    high = seen
    for distance_K in (centre_K - centre_K.min(), np.sqrt(np.maximum(above_K, 0.0))):
        high = max(high, seen - float(np.quantile((distance_K + noise_DK).min(1), error)))
    high = min(high, _lowest_upper(rates_K, size_K, error / len(rates_K)))
    low = float(np.quantile(drawn_DK, error, axis=0).min())
    return max(min(low, seen), 0.0), min(max(high, seen), 1.0)


def _lowest_upper(rates_K: np.ndarray, size_K: np.ndarray, error: float) -> float:
    """Return the lowest of the exact upper limits.

    Wilson's lie below them and say where to look.
    """
    about_K = wilson_ends(rates_K, size_K, 1 - 2 * error)[1]
    best = 1.0
    for k in np.argsort(about_K):
        if about_K[k] >= best:
            break
        best = min(best, binomial_upper(rates_K[k] * size_K[k], float(size_K[k]), error))
    return best


def wilson_ends(
    rate: np.ndarray, size: np.ndarray, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of Wilson's score interval (1927) of rates out of ``size`` rows."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    w = z * z / np.asarray(size, dtype=np.float64)
    middle = (rate + w / 2) / (1 + w)
    half = z / (1 + w) * np.sqrt(rate * (1 - rate) / size + w / (4 * size))
    low = np.where(rate <= 0, 0.0, np.maximum(middle - half, 0.0))
    high = np.where(rate >= 1, 1.0, np.minimum(middle + half, 1.0))
    return low, high


def newcombe(
    a: float, size_a: float, b: float, size_b: float, level: float = 0.95
) -> tuple[float, float]:
    """Return interval of a difference of two rates from their Wilson intervals (Newcombe 1998, no.
    10).
    """
    (low_a, low_b), (high_a, high_b) = wilson_ends(
        np.array([a, b]), np.array([size_a, size_b]), level
    )
    low = (a - b) - math.hypot(a - low_a, high_b - b)
    high = (a - b) + math.hypot(high_a - a, b - low_b)
    return max(low, -1.0), min(high, 1.0)


# -------------------------------------------------------------------------------------------------
# What must be so between metrics by their definitions, and intervals that respect it.
#
# EO's mean is never above its maximum, so neither end of its interval may be. Where two intervals
# disagree, the one of a gap is widened, because both may be right; the upper end of a lowest rate
# or of a ratio is lowered to what others allow.
# -------------------------------------------------------------------------------------------------

PARTS = ("equal_opportunity", "tpr_gap", "fnr_gap")  # of equalized odds, in the positive class
OTHER_PARTS = ("fpr_gap", "tnr_gap")  # in the other one of two classes
RATES = ("selection", "tpr", "fnr", "fpr", "tnr", "ppv")


@dataclass(frozen=True)
class AtMost:
    """``lower`` is never above ``times`` × ``upper``."""

    lower: str
    upper: str
    times: float = 1.0


def gap_orderings(classes: int, groups: int, positive: int | None) -> list[AtMost]:
    """Return orderings of gaps, whichever cells are compared.

    ``groups`` is the most of any class.
    """
    out = [
        AtMost("eo_mean", "eo_mean_range"),
        AtMost("eo_mean_range", "eo_max"),
        AtMost("eo_max", "eo_sum"),
        AtMost("eo_max", "eo_mean_range", classes),
        AtMost("eo_mean_range", "eo_mean", groups / 2),
        AtMost("selection_gap", "demographic_parity"),
    ]
    if positive is not None:
        parts = [*PARTS, *(OTHER_PARTS if classes == 2 else ())]
        out += [AtMost(part, "eo_max") for part in parts]
        out += [AtMost(part, "eo_mean_range", classes) for part in parts]
    return out


def average_orderings() -> list[AtMost]:
    """Return orderings of averages and minima; they hold where every cell is compared."""
    return [
        AtMost("worst_group_accuracy", "min_group_accuracy"),
        AtMost("worst_group_accuracy", "balanced_accuracy"),
        AtMost("worst_group_accuracy", "cell_balanced_accuracy"),
        AtMost("min_group_accuracy", "accuracy"),
        AtMost("worst_group_accuracy", "accuracy"),
    ]


def relatives(names: Iterable[str]) -> set[str]:
    """Return the metrics whose intervals may change those of ``names``, and these themselves."""
    wanted = set(names)
    equalized = {"eo_mean", "eo_max", "eo_sum", "eo_mean_range", *PARTS, *OTHER_PARTS}
    averages = {x for o in average_orderings() for x in (o.lower, o.upper)}
    lowest = {"worst_group_accuracy", "min_group_accuracy"}
    if wanted & lowest:
        wanted |= averages | {"eo_max"}
    wanted |= {f"{rate}_gap" for rate in RATES if f"{rate}_ratio" in wanted}
    if wanted & equalized:
        wanted |= equalized
    if wanted & {"demographic_parity", "selection_gap"}:
        wanted |= {"demographic_parity", "selection_gap"}
    return wanted


def in_order(
    found: Mapping[str, Estimate],
    *,
    classes: int,
    groups: int,
    positive: int | None,
    complete: bool,
) -> dict[str, Estimate]:
    """Return the estimates with ends in order; ``complete`` says that every cell is compared."""
    out = dict(found)
    gaps = gap_orderings(classes, groups, positive)
    for _ in range(len(gaps)):  # a widened end may widen the next
        before = dict(out)
        for o in gaps:
            _widen(out, o)
        if out == before:
            break
    if complete:
        _same_scale(out, "eo_mean", "eo_sum")
        for o in reversed(average_orderings()):
            _cap(out, o.lower, o.upper)
    _under(out, "worst_group_accuracy", "eo_max")
    for rate in RATES:
        _under(out, f"{rate}_ratio", f"{rate}_gap")
    return out


def _both(found: Mapping[str, Estimate], a: str, b: str) -> tuple[Estimate, Estimate] | None:
    x, y = found.get(a), found.get(b)
    return (x, y) if x is not None and y is not None and x.defined and y.defined else None


def _widen(found: dict[str, Estimate], o: AtMost) -> None:
    """Widen two gaps: the lower one downwards, the upper one upwards."""
    both = _both(found, o.lower, o.upper)
    if both is None:
        return
    lower, upper = both
    found[o.lower] = replace(lower, low=min(lower.low, o.times * upper.low))
    found[o.upper] = replace(upper, high=max(upper.high, lower.high / o.times))


def _cap(found: dict[str, Estimate], lower: str, upper: str) -> None:
    """Lower both ends of a lowest rate to those of an average that it cannot exceed."""
    both = _both(found, lower, upper)
    if both is not None:
        a, b = both
        found[lower] = replace(a, low=min(a.low, b.low), high=min(a.high, b.high))


def _under(found: dict[str, Estimate], rate: str, gap: str) -> None:
    """Lower both ends of a rate or ratio that is at most 1 minus a gap."""
    both = _both(found, rate, gap)
    if both is not None:
        a, b = both
        found[rate] = replace(a, low=min(a.low, 1 - b.high), high=min(a.high, 1 - b.low))


def _same_scale(found: dict[str, Estimate], mean: str, total: str) -> None:
    """Give a sum the ends of the mean of the same terms."""
    both = _both(found, mean, total)
    if both is not None and both[0].value > 0:
        a, b = both
        times = b.value / a.value
        found[total] = replace(b, low=times * a.low, high=times * a.high)
