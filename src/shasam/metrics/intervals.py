"""Intervals: resampled counts, percentiles for averages, test inversion for gaps.

A gap is a norm of signed differences, |TPR_a - TPR_b| in the simplest case. Noise folds at zero:
the plain bootstrap of a gap lies above the truth, its lower end is never 0, and it covers a true
gap of 0 in none of 100 test sets. So gaps are treated by inverting a test: a hypothetical gap
``h`` belongs to the interval when the observed one is no surprise among 'h plus resampled noise'.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Norm = Callable[[np.ndarray], np.ndarray]  # (..., K) signed differences -> (...)

STEPS = 11  # bisections: an end is found to 1/4096 of the range that is searched
STRATA = ("cell", "group", "none")


def resample(
    n_CPG: np.ndarray, draws: int, seed: int, strata: str = "cell"
) -> tuple[np.ndarray, np.ndarray]:
    """Resampled tables (draws, C, P, G) and their expectation, with the sizes of strata kept.

    Within a stratum of N images with counts n the shares are Dirichlet(n + a): the Bayesian
    bootstrap with a prior of one image in all (Jeffreys' in the binary case), so that a cell
    without an error still has an interval. ``strata``: ``cell`` keeps the number of images of each
    (class, group), ``group`` of each group, ``none`` of the whole.
    """
    C, P, G = n_CPG.shape
    axes = {"cell": (1,), "group": (0, 1), "none": (0, 1, 2)}[strata]
    size = n_CPG.sum(axes, keepdims=True)
    # One image for each (class, group), spread evenly over what could have been predicted.
    alpha = np.where(n_CPG.sum(1, keepdims=True) > 0, n_CPG + 1.0 / P, 0.0)
    rng = np.random.default_rng(seed)
    weight = rng.standard_gamma(np.broadcast_to(alpha, (draws, C, P, G)))
    share = weight / _positive(weight.sum(tuple(a + 1 for a in axes), keepdims=True))
    centre = alpha / _positive(alpha.sum(axes, keepdims=True))
    return share * size, centre * size


def percentile(draws_D: np.ndarray, value: float, level: float) -> tuple[float, float]:
    """Equal tails of the draws, for averages; the value itself always belongs."""
    low, high = np.quantile(draws_D, [(1 - level) / 2, (1 + level) / 2])
    return min(float(low), value), max(float(high), value)


def fold(gaps_K: np.ndarray, noise_DK: np.ndarray, norm: Norm, level: float) -> tuple[float, float]:
    """Interval for ``norm(gaps)`` by inverting a test over hypothetical gaps h >= 0.

    Under h the signed gaps are ``h * direction + noise``. The direction is not known, and it
    matters: noise adds more to a mean of few large gaps than of many small ones, and the other way
    round to a maximum. So two are tried, the observed gaps freed of what noise explains,
    sign(d) √(d² - se²), and with as much put on, sign(d) √(d² + se²); each end is the wider one.
    The error probability is shared between the ends in proportion to the power to tell h from 0:
    near 0 an observation cannot be too small, so all of it goes to the other end (the advice of
    Feldman and Cousins 1998 for a bounded mean). The interval thus starts at 0 when the test of
    'no gap at all' does not reject.
    """
    alpha = 1.0 - level
    seen = float(norm(gaps_K))
    none_D = norm(noise_DK)
    threshold = float(np.quantile(none_D, level))
    reach = seen + 4.0 * float(none_D.std()) + threshold
    if threshold <= 0:  # nothing varies
        return seen, seen
    # Less than noise alone gives is luck, not knowledge: it must not make the interval short.
    usual = max(seen, float(np.median(none_D)))
    low, high = seen, seen
    for direction_K in directions(gaps_K, noise_DK.std(0), norm):

        def too_small(h: float, direction_K: np.ndarray = direction_K) -> bool:
            under_D = norm(h * direction_K + noise_DK)
            return np.mean(under_D >= seen) < alpha * (1 - np.mean(under_D > threshold) / 2)

        def too_large(h: float, direction_K: np.ndarray = direction_K) -> bool:
            under_D = norm(h * direction_K + noise_DK)
            return np.mean(under_D <= usual) < alpha / 2 * np.mean(under_D > threshold)

        low = min(low, _last(too_small, 0.0, seen))
        high = max(high, _last(lambda h, f=too_large: not f(h), 0.0, reach))  # type: ignore[misc]
    return low, high


def directions(gaps_K: np.ndarray, se_K: np.ndarray, norm: Norm) -> list[np.ndarray]:
    """The observed gaps freed of noise, and loaded with as much again, both of norm 1."""
    sign_K = np.where(gaps_K < 0, -1.0, 1.0)
    freed_K = sign_K * np.sqrt(np.maximum(gaps_K**2 - se_K**2, 0.0))
    loaded_K = sign_K * np.sqrt(gaps_K**2 + se_K**2)
    if not norm(freed_K) > 0:  # nothing but noise was seen: the gap may sit in one place only
        freed_K = np.where(np.arange(len(gaps_K)) == np.abs(loaded_K).argmax(), loaded_K, 0.0)
    return [freed_K / norm(freed_K), loaded_K / norm(loaded_K)]


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest h in [low, high] up to which ``holds``, by bisection; low where it never does."""
    if not holds(low):
        return low
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def candidates(gaps_K: np.ndarray, noise_DK: np.ndarray) -> list[np.ndarray]:
    """Where the true gaps may lie: freed of what noise explains, and loaded with as much again."""
    sign_K, var_K = np.where(gaps_K < 0, -1.0, 1.0), noise_DK.var(0)
    return [sign_K * np.sqrt(np.maximum(gaps_K**2 + k * var_K, 0.0)) for k in (-1, 1)]


TIES = 2.0  # distances below √2 standard errors count as ties: at 1, eight ties missed 7.5 %


def lowest(
    rates_K: np.ndarray, drawn_DK: np.ndarray, centre_K: np.ndarray, level: float
) -> tuple[float, float]:
    """Interval for the smallest of several rates.

    The smallest of noisy rates lies below the smallest rate, and the more so the closer the rates
    are. Upper end: that error is simulated around the observed distances to the minimum, freed of
    what noise explains, and taken off. Lower end: the percentile of the lowest rate by itself,
    which holds without knowing the distances, because the smallest observed rate is never above
    the observed rate of the truly smallest one.
    """
    seen, worst = float(rates_K.min()), int(rates_K.argmin())
    noise_DK = drawn_DK - centre_K
    variance_K = noise_DK.var(0)
    above_K = (rates_K - seen) ** 2 - TIES * (variance_K + variance_K[worst])
    error_D = (np.sqrt(np.maximum(above_K, 0.0)) + noise_DK).min(1)
    high = seen - float(np.quantile(error_D, (1 - level) / 2))
    low = float(np.quantile(drawn_DK[:, worst], (1 - level) / 2))
    return max(min(low, seen), 0.0), min(max(high, seen), 1.0)


def _positive(whole: np.ndarray) -> np.ndarray:
    return np.where(whole > 0, whole, 1.0)
