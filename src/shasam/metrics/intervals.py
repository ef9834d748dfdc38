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

GRID = 49  # hypothetical gaps that are tried; the ends are interpolated between them
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
    """Interval for ``norm(gaps)`` by inverting a test over hypothetical gaps h = 0, ...

    Under h the signed gaps are ``h * direction + noise``, where the direction is that of the
    observed gaps after the part that noise explains is taken out of each (d² - se²). The error
    probability is shared between the two ends in proportion to the power to tell h from 0: near 0
    an observation cannot be too small, so all of it goes to the other end (Feldman and Cousins
    1998 give the same advice for a bounded mean).
    """
    alpha = 1.0 - level
    seen = float(norm(gaps_K))
    se_K = noise_DK.std(0)
    none = norm(noise_DK)
    reach = seen + 4.0 * float(none.std()) + float(np.quantile(none, level))
    if reach <= seen:  # nothing varies
        return seen, seen
    direction = _direction(gaps_K, se_K, norm)
    threshold = np.quantile(none, level)
    above, below, power = [], [], []
    hypotheses = np.linspace(0.0, reach, GRID)
    for h in hypotheses:
        under = norm(h * direction + noise_DK)
        above.append(np.mean(under >= seen))
        below.append(np.mean(under <= seen))
        power.append(np.mean(under > threshold))
    to_the_left = alpha / 2 * np.asarray(power)
    too_small = np.asarray(above) - (alpha - to_the_left)  # < 0: h is too small for what was seen
    too_large = np.asarray(below) - to_the_left
    inside = np.flatnonzero((too_small >= 0) & (too_large >= 0))
    if not len(inside):
        return seen, seen
    first, last = int(inside[0]), int(inside[-1])
    low = _crossing(hypotheses, too_small, first - 1) if first else 0.0
    high = _crossing(hypotheses, too_large, last) if last + 1 < GRID else reach
    return min(low, seen), max(high, seen)


def _direction(gaps_K: np.ndarray, se_K: np.ndarray, norm: Norm) -> np.ndarray:
    rest_K = np.sign(gaps_K) * np.sqrt(np.maximum(gaps_K**2 - se_K**2, 0.0))
    for candidate in (rest_K, gaps_K, se_K):
        size = float(norm(candidate))
        if size > 0:
            return candidate / size
    return np.zeros_like(gaps_K)


def _crossing(x: np.ndarray, y: np.ndarray, i: int) -> float:
    """Where the line between grid points i and i+1 passes 0."""
    if y[i] == y[i + 1]:
        return float(x[i])
    return float(x[i] + (x[i + 1] - x[i]) * np.clip(y[i] / (y[i] - y[i + 1]), 0.0, 1.0))


def lowest(rates_K: np.ndarray, noise_DK: np.ndarray, level: float) -> tuple[float, float]:
    """Interval for the smallest of several rates.

    The smallest of noisy rates lies below the smallest rate. Its error is simulated around the
    observed distances to the minimum, each freed of the part that noise explains, and taken off.
    """
    seen = float(rates_K.min())
    se_K = noise_DK.std(0)
    above_K = rates_K - seen
    worst = int(rates_K.argmin())
    above_K = np.sqrt(np.maximum(above_K**2 - se_K**2 - se_K[worst] ** 2, 0.0))
    error_D = (above_K + noise_DK).min(1)
    low, high = np.quantile(error_D, [(1 - level) / 2, (1 + level) / 2])
    return max(min(seen - float(high), seen), 0.0), min(max(seen - float(low), seen), 1.0)


def _positive(whole: np.ndarray) -> np.ndarray:
    return np.where(whole > 0, whole, 1.0)
