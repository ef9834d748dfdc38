"""Threshold-free disparity: the area between the score distributions of two groups.

``abcc`` = ∫₀¹ |F_a(x) - F_b(x)| dx over cumulative distributions: the demographic-parity gap
averaged over all thresholds. ``abpc`` = ∫₀¹ |f_a(x) - f_b(x)| dx over densities, between 0 and 2
(both Han et al. 2023, "Retiring ΔDP"). Mean over unordered pairs of groups; for more than two
classes also over the classes, each against the rest.
"""

from __future__ import annotations

import numpy as np

from shasam.metrics.counts import tally
from shasam.metrics.estimate import Estimate
from shasam.metrics.intervals import directions_of, fold

BINS = 100
DRAWS = 500  # resampled curves; each has hundreds of points, so fewer of them than of tables


def score_areas(
    score_NK: np.ndarray,
    s: np.ndarray,
    groups: int,
    *,
    draws: int,
    seed: int,
    level: float,
    repeats: np.ndarray | None = None,
) -> dict[str, Estimate]:
    """``abcc`` and ``abpc`` of K score columns (one for two classes, C for more)."""
    sizes = tally(s, groups, repeats)
    columns = score_NK.shape[1]
    rng = np.random.default_rng([seed, 2])
    draws = min(draws, DRAWS)
    cumulative, density, exact = [], [], []
    for k in range(columns):
        score = score_NK[:, k]
        n_GB = histogram(score, s, groups, repeats)
        alpha = n_GB + 1.0 / BINS
        weight = rng.standard_gamma(np.broadcast_to(alpha, (draws, *alpha.shape)))
        share = weight / weight.sum(-1, keepdims=True)
        noise = share - alpha / alpha.sum(-1, keepdims=True)
        at = n_GB / sizes[:, None]
        smooth_GBB = _kernels(score, s, groups, repeats)
        cumulative.append((_steps(at), _steps(noise)))
        density.append((_smooth(at, smooth_GBB), _smooth(noise, smooth_GBB)))
        exact.append(_exact(score, s, groups, repeats))
    support = int(sizes.min())
    out = {}
    for name, parts in (("abcc", cumulative), ("abpc", density)):
        gaps = np.concatenate([at for at, _ in parts], -1)
        noise = np.concatenate([n for _, n in parts], -1)
        terms = gaps.shape[-1] / BINS

        def area(x: np.ndarray, terms: float = terms) -> np.ndarray:
            return np.abs(x).sum(-1) / (BINS * terms)

        value = float(area(gaps))
        low, high = fold(value, noise, area, directions_of(gaps, noise, area), level)
        if name == "abcc":  # the bins serve the interval only; the value is exact
            ratio = float(np.mean(exact)) / value if value else 1.0
            value, low, high = float(np.mean(exact)), low * ratio, high * ratio
        out[name] = Estimate(value, min(low, value), max(high, value), support)
    return out


def histogram(
    score: np.ndarray, s: np.ndarray, groups: int, repeats: np.ndarray | None = None
) -> np.ndarray:
    """Rows per group and score bin: (G, 100)."""
    b = np.clip((score * BINS).astype(np.int64), 0, BINS - 1)
    return tally(s * BINS + b, groups * BINS, repeats).reshape(groups, BINS)


def densities(
    score: np.ndarray, s: np.ndarray, groups: int, repeats: np.ndarray | None = None
) -> np.ndarray:
    """Smoothed density of each group at the middles of the bins, for pictures: (G, 100)."""
    n_GB = histogram(score, s, groups, repeats)
    at = n_GB / np.maximum(n_GB.sum(1, keepdims=True), 1)
    return np.einsum("gb,gbx->gx", at, _kernels(score, s, groups, repeats))


def _steps(share_GB: np.ndarray) -> np.ndarray:
    return _pairs(share_GB.cumsum(-1))


def _smooth(share_GB: np.ndarray, kernel_GBB: np.ndarray) -> np.ndarray:
    return _pairs(np.einsum("...gb,gbx->...gx", share_GB, kernel_GBB, optimize=True))


def _pairs(curve_GB: np.ndarray) -> np.ndarray:
    """Signed differences of all unordered pairs of groups, bin by bin: (..., pairs · B)."""
    i, j = np.triu_indices(curve_GB.shape[-2], 1)
    gaps = np.swapaxes(curve_GB[..., i, :] - curve_GB[..., j, :], -1, -2)
    return gaps.reshape(*gaps.shape[:-2], -1)


def _kernels(
    score: np.ndarray, s: np.ndarray, groups: int, repeats: np.ndarray | None
) -> np.ndarray:
    """The smoothing of each group's density: (G, BINS, BINS)."""
    out = []
    for g in range(groups):
        own = score[s == g]
        n = np.ones(len(own)) if repeats is None else repeats[s == g]
        total = max(float(n.sum()), 1.0)
        mean = float(own @ n) / total
        out.append(_kernel(float(((own - mean) ** 2) @ n / total) ** 0.5, total))
    return np.stack(out)


def _kernel(sd: float, total: float) -> np.ndarray:
    """Gaussian smoothing with Scott's bandwidth sd·n^(-1/5), reflected at 0 and 1: (BINS, BINS)."""
    width = max(sd * total**-0.2, 0.5 / BINS)
    x = (np.arange(BINS) + 0.5) / BINS
    out = np.zeros((BINS, BINS))
    for image in (x, -x, 2 - x):
        out += np.exp(-0.5 * ((x[:, None] - image[None, :]) / width) ** 2)
    return out / out.mean(1, keepdims=True)  # each bin keeps its mass


def _exact(score: np.ndarray, s: np.ndarray, groups: int, repeats: np.ndarray | None) -> float:
    """Mean over pairs of ∫|F_a - F_b|, from the sorted scores themselves."""
    order = np.argsort(score, kind="stable")
    x, g = score[order].astype(np.float64), s[order]
    n = np.ones(len(x)) if repeats is None else repeats[order].astype(np.float64)
    width = np.diff(x)
    curves = []
    for k in range(groups):
        own = np.cumsum(np.where(g == k, n, 0.0))
        curves.append(own[:-1] / max(own[-1], 1.0))
    gaps = [
        float(np.abs(curves[i] - curves[j]) @ width)
        for i in range(groups)
        for j in range(i + 1, groups)
    ]
    return float(np.mean(gaps))
