"""Compute what needs scores: calibration, ranking, areas, a temperature, abstention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics.counts import Counts, Estimate, divide, no_positive_class, tally
from shasam.metrics.intervals import directions_of, fold, from_centre, wilson_ends
from shasam.metrics.rates import RATES, wilson
from shasam.metrics.resampling import Resampling, largest
from shasam.types import Predictions

# -------------------------------------------------------------------------------------------------
# Threshold-free disparity: the area between the score distributions of two groups.
#
# `abcc` = ∫₀¹ |F_a(x) - F_b(x)| dx over cumulative distributions: the demographic-parity gap
# averaged over all thresholds. `abpc` = ∫₀¹ |f_a(x) - f_b(x)| dx over densities, between 0 and 2
# (both Han et al. 2023, "Retiring ΔDP"). Mean over unordered pairs of groups; for more than two
# classes also over the classes, each against the rest.
# -------------------------------------------------------------------------------------------------

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
    """Return ``abcc`` and ``abpc`` of K score columns (one for two classes, C for more)."""
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
    """Return rows per group and score bin: (G, 100)."""
    b = np.clip((score * BINS).astype(np.int64), 0, BINS - 1)
    return tally(s * BINS + b, groups * BINS, repeats).reshape(groups, BINS)


def densities(
    score: np.ndarray, s: np.ndarray, groups: int, repeats: np.ndarray | None = None
) -> np.ndarray:
    """Return smoothed density of each group at the middles of the bins, for pictures: (G, 100)."""
    n_GB = histogram(score, s, groups, repeats)
    at = n_GB / np.maximum(n_GB.sum(1, keepdims=True), 1)
    return np.einsum("gb,gbx->gx", at, _kernels(score, s, groups, repeats))


def _steps(share_GB: np.ndarray) -> np.ndarray:
    return _pairs(share_GB.cumsum(-1))


def _smooth(share_GB: np.ndarray, kernel_GBB: np.ndarray) -> np.ndarray:
    return _pairs(np.einsum("...gb,gbx->...gx", share_GB, kernel_GBB, optimize=True))


def _pairs(curve_GB: np.ndarray) -> np.ndarray:
    """Return signed differences of all unordered pairs of groups, bin by bin: (..., pairs · B)."""
    i, j = np.triu_indices(curve_GB.shape[-2], 1)
    gaps = np.swapaxes(curve_GB[..., i, :] - curve_GB[..., j, :], -1, -2)
    return gaps.reshape(*gaps.shape[:-2], -1)


def _kernels(
    score: np.ndarray, s: np.ndarray, groups: int, repeats: np.ndarray | None
) -> np.ndarray:
    """Return the smoothing of each group's density: (G, BINS, BINS)."""
    out = []
    for g in range(groups):
        own = score[s == g]
        n = np.ones(len(own)) if repeats is None else repeats[s == g]
        total = max(float(n.sum()), 1.0)
        mean = float(own @ n) / total
        out.append(_kernel(float(((own - mean) ** 2) @ n / total) ** 0.5, total))
    return np.stack(out)


def _bandwidth(sd: float, total: float) -> float:
    return max(sd * total**-0.2, 0.5 / BINS)


def _kernel(sd: float, total: float) -> np.ndarray:
    """Return Gaussian smoothing with Scott's bandwidth sd·n^(-1/5), reflected at 0 and 1.

    (BINS, BINS).
    """
    width = _bandwidth(sd, total)
    x = (np.arange(BINS) + 0.5) / BINS
    out = np.zeros((BINS, BINS))
    for image in (x, -x, 2 - x):
        out += np.exp(-0.5 * ((x[:, None] - image[None, :]) / width) ** 2)
    return out / out.mean(1, keepdims=True)  # each bin keeps its mass


def _exact(score: np.ndarray, s: np.ndarray, groups: int, repeats: np.ndarray | None) -> float:
    """Return the mean over pairs of ∫|F_a - F_b|, from the sorted scores themselves."""
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


# -------------------------------------------------------------------------------------------------
# Calibration error per group: how far the confidence is from the share of right answers.
#
# ECE_g = Σ_b (n_gb / n_g) |accuracy_gb - confidence_gb| over 15 equal bins of the top class's
# score (Naeini 2015, Guo 2017), within group g.
# -------------------------------------------------------------------------------------------------

CALIBRATION_BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Rows, right answers and summed confidence for each group and confidence bin."""

    n_GB: np.ndarray
    right_GB: np.ndarray
    confidence_GB: np.ndarray  # sums

    @classmethod
    def of(
        cls,
        right: np.ndarray,
        confidence: np.ndarray,
        s: np.ndarray,
        groups: int,
        repeats: np.ndarray | None = None,
    ) -> Reliability:
        """Return bins (b/15, (b+1)/15]; ``right`` is a column of booleans."""
        b = np.clip(
            np.ceil(confidence * CALIBRATION_BINS).astype(np.int64) - 1, 0, CALIBRATION_BINS - 1
        )
        place = s * CALIBRATION_BINS + b
        size, shape = groups * CALIBRATION_BINS, (groups, CALIBRATION_BINS)

        def sums(values: np.ndarray) -> np.ndarray:
            weights = values if repeats is None else values * repeats
            return np.bincount(place, weights=weights, minlength=size).reshape(shape)

        n_GB = tally(place, size, repeats).reshape(shape)
        return cls(n_GB, sums(right.astype(np.float64)), sums(confidence))

    def gaps_GB(self) -> np.ndarray:
        """Return signed, weighted gaps whose absolute sum over bins is the ECE of the group."""
        size = np.maximum(self.n_GB.sum(1, keepdims=True), 1)
        return (self.right_GB - self.confidence_GB) / size

    def noise_DGB(self, draws: int, seed: int) -> np.ndarray:
        """Return gaps of other test sets minus their expectation.

        Rows are drawn anew within a group.

        The bin of a row is drawn from the observed shares, and whether it is right from the bin's
        share of right answers, pulled towards its confidence (see ``pulled_GB``).
        """
        rng = np.random.default_rng([seed, 1])
        size_G = self.n_GB.sum(1)
        share_GB = self.n_GB / np.maximum(size_G, 1)[:, None]
        right_GB, mean_GB = self.pulled_GB(), self.mean_confidence_GB()
        atoms_GBA = np.stack([share_GB * right_GB, share_GB * (1 - right_GB)], -1)
        flat = atoms_GBA.reshape(len(size_G), -1)
        flat = flat / np.maximum(flat.sum(1, keepdims=True), 1e-300)
        flat[size_G == 0, 0] = 1.0
        drawn = rng.multinomial(size_G, flat, size=(draws, len(size_G)))
        n_DGBA = drawn.reshape(draws, *atoms_GBA.shape)
        residual_GBA = np.stack([1 - mean_GB, -mean_GB], -1)
        noise_DGBA = n_DGBA / np.maximum(size_G, 1)[:, None, None] - atoms_GBA
        return (noise_DGBA * residual_GBA).sum(-1)

    def by_chance_DGB(self, draws: int, seed: int) -> np.ndarray:
        """Return gaps of a calibrated model whose confidences fall into the bins as these did."""
        rng = np.random.default_rng([seed, 4])
        mean_GB = self.mean_confidence_GB()
        right = rng.binomial(self.n_GB, mean_GB, size=(draws, *self.n_GB.shape))
        size = np.maximum(self.n_GB.sum(1, keepdims=True), 1)
        return (right - self.n_GB * mean_GB) / size

    def mean_confidence_GB(self) -> np.ndarray:
        """Return the mean confidence of each bin; its middle where it is empty."""
        middle = (np.arange(CALIBRATION_BINS) + 0.5) / CALIBRATION_BINS
        return np.where(
            self.n_GB > 0, self.confidence_GB / np.maximum(self.n_GB, 1), middle[None, :]
        ).clip(0.0, 1.0)

    def pulled_GB(self) -> np.ndarray:
        """Return the share of right answers of each bin, pulled towards its confidence.

        A bin with one right answer does not show that its answers are always right. The pull is
        that of a beta prior of strength m (at least one row) around the confidence; m comes from
        how far the bins of a group are from their confidence beyond what chance gives.
        """
        mean_GB = self.mean_confidence_GB()
        variance_GB = np.maximum(self.n_GB * mean_GB * (1 - mean_GB), 1e-9)
        chi2_GB = (
            np.where(self.n_GB > 0, (self.right_GB - self.confidence_GB) ** 2, 0.0) / variance_GB
        )
        beyond_G = (np.minimum(chi2_GB, 50.0) - (self.n_GB > 0)).sum(1)
        spare_G = np.maximum(self.n_GB - 1, 0).sum(1)
        alike_G = np.clip(beyond_G / np.maximum(spare_G, 1), 1e-9, 0.5)
        strength_GB = (1 / alike_G - 1)[:, None]
        return (self.right_GB + strength_GB * mean_GB) / (self.n_GB + strength_GB)


def error_of(gaps_GB: np.ndarray) -> np.ndarray:
    """Return the calibration error of signed, weighted gaps: their absolute sum over bins."""
    return np.abs(gaps_GB).sum(-1)


# -------------------------------------------------------------------------------------------------
# What binned scores can change. Rows of one label, prediction and group whose scores lie in the
# same bin of width h all get their mean, so a score moves by less than h, and |x - mean| is at most
# h/2 on average. Scores on an edge do not move.
#
# ece   exact: bins of calibration are unions of these, and sums of scores are kept
# abcc  h: a cumulative distribution moves by an area of at most h/2, and each pair has two
# abpc  histograms are exact, but the bandwidth follows the standard deviation, whose square falls
#       by at most h²/4; a kernel moves by at most 1.4 of the logarithm of its bandwidth
# auc   the share of pairs of a positive and a negative in one bin, whose order may be lost
# -------------------------------------------------------------------------------------------------

SCORE_BINS = 3000  # a multiple of the 15 of calibration and of the 100 of densities
_MOVES = 1.4  # L1 distance of ``_kernel`` for each unit of the bandwidth's logarithm, at most


def binning_errors(
    bin_NK: np.ndarray,
    scores_NC: np.ndarray,
    hit: np.ndarray | None,
    s: np.ndarray,
    groups: int,
    repeats: np.ndarray,
) -> dict[str, float]:
    """Return how far each metric of binned scores can be from that of the scores.

    ``hit`` are the positives.

    ``bin_NK`` is 2e for a score on the edge e of 3,000 bins, and 2e + 1 between e and e + 1, for
    each score column. Metrics of a single group have the largest bound of all groups.
    """
    h = 1 / SCORE_BINS
    moves = [_kernel_moves(scores_NC[s == g], repeats[s == g], h) for g in range(groups)]
    found = {"ece": 0.0, "abcc": h, "abpc": 2 * max(moves)}
    if hit is None:
        return found
    lost = sorted(
        max(_same_bin(bin_N[s == g], hit[s == g], repeats[s == g]) for bin_N in bin_NK.T)
        for g in range(groups)
    )
    return found | {"auc": lost[-1], "auc_gap": sum(lost[-2:])}


def _kernel_moves(scores_NC: np.ndarray, n: np.ndarray, h: float) -> float:
    total = max(float(n.sum()), 1.0)
    moves = []
    for x in scores_NC.T:
        variance = float(((x - float(x @ n) / total) ** 2) @ n / total)
        low, high = (_bandwidth(v**0.5, total) for v in (variance, variance + h * h / 4))
        moves.append(_MOVES * math.log(high / low))
    return max(moves)


def _same_bin(bin_n: np.ndarray, hit: np.ndarray, n: np.ndarray) -> float:
    """Return the share of pairs of a positive and a negative whose scores lie between the same
    edges.
    """
    between = bin_n % 2 == 1
    size = int(bin_n.max(initial=0)) + 1
    shares = []
    for of in (hit, ~hit):
        whole = float(n[of].sum())
        inside = np.bincount(bin_n[of & between], n[of & between], size)
        shares.append(inside / max(whole, 1.0))
    return float(shares[0] @ shares[1])


# -------------------------------------------------------------------------------------------------
# Metrics that need class probabilities: calibration errors and areas between score curves.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScoreRows:
    """Rows with class probabilities, and the settings of intervals."""

    made: Resampling
    t: np.ndarray
    p: np.ndarray
    s: np.ndarray
    scores_NC: np.ndarray
    repeats: np.ndarray | None = None  # how many rows each entry stands for

    @property
    def counts(self) -> Counts:
        return self.made.counts

    def only(self, places: np.ndarray, made: Resampling) -> ScoreRows:
        """Return the rows of these groups alone."""
        code_G = np.full(len(self.counts.groups), -1)
        code_G[places] = np.arange(len(places))
        s = code_G[self.s]
        kept = s >= 0
        repeats = None if self.repeats is None else self.repeats[kept]
        return ScoreRows(made, self.t[kept], self.p[kept], s[kept], self.scores_NC[kept], repeats)

    @cached_property
    def reliability(self) -> Reliability:
        confidence = np.take_along_axis(self.scores_NC, self.p[:, None], 1)[:, 0]
        groups = len(self.counts.groups)
        return Reliability.of(self.p == self.t, confidence, self.s, groups, self.repeats)

    @cached_property
    def calibration_noise_DGB(self) -> np.ndarray:
        return self.reliability.noise_DGB(self.made.draws, self.made.seed)

    @cached_property
    def calibrated_DGB(self) -> np.ndarray:
        return self.reliability.by_chance_DGB(self.made.draws, self.made.seed)

    @cached_property
    def areas(self) -> dict[str, Estimate]:
        two = len(self.counts.classes) == 2
        columns_NK = self.scores_NC[:, 1:] if two else self.scores_NC
        made = self.made
        return score_areas(
            columns_NK, self.s, len(self.counts.groups),
            draws=made.draws, seed=made.seed, level=made.level, repeats=self.repeats,
        )  # fmt: skip


@dataclass(frozen=True)
class ScoreMetric:
    """A metric of rows with scores."""

    estimate: Callable[[ScoreRows], Estimate]
    by_class: bool = False  # every class of a group needs rows enough


@dataclass(frozen=True)
class ScoreMetricByGroup:
    """A metric that every group g has; its name is ``<metric>_<group>``."""

    estimate: Callable[[ScoreRows, int], Estimate]


def calibration_error(rows: ScoreRows, g: int) -> Estimate:
    """Return ECE of one group."""
    size = int(rows.reliability.n_GB[g].sum())
    if not size:
        return Estimate.undefined(f"no row of group {rows.counts.groups[g]!r}")
    noise_DB, chance_DB = rows.calibration_noise_DGB[:, g], rows.calibrated_DGB[:, g]
    return _gated(rows.reliability.gaps_GB()[g], noise_DB, chance_DB, error_of, size, rows.made)


def largest_calibration_error(rows: ScoreRows) -> Estimate:
    """Return the largest ECE of a group."""
    G = len(rows.counts.groups)
    draws = rows.made.draws

    def worst(flat: np.ndarray) -> np.ndarray:
        return error_of(flat.reshape(*flat.shape[:-1], G, CALIBRATION_BINS)).max(-1)

    noise, chance = (
        x.reshape(draws, -1) for x in (rows.calibration_noise_DGB, rows.calibrated_DGB)
    )
    smallest = int(rows.reliability.n_GB.sum(1).min())
    return _gated(rows.reliability.gaps_GB().reshape(-1), noise, chance, worst, smallest, rows.made)


def abcc(rows: ScoreRows) -> Estimate:
    return rows.areas["abcc"]


def abpc(rows: ScoreRows) -> Estimate:
    return rows.areas["abpc"]


def _gated(
    gaps_K: np.ndarray,
    noise_DK: np.ndarray,
    chance_DK: np.ndarray,
    norm: Callable[[np.ndarray], np.ndarray],
    support: int,
    made: Resampling,
) -> Estimate:
    """Compute a calibration error with its interval.

    The interval includes 0 if a perfectly calibrated model could show an error this large.
    """
    value = float(norm(gaps_K))
    low, high = fold(value, noise_DK, norm, directions_of(gaps_K, noise_DK, norm), made.level)
    p = (1 + int((norm(chance_DK) >= value - 1e-12).sum())) / (1 + made.draws)
    low = 0.0 if p > 1 - made.level else low
    return Estimate(value, min(low, value), min(max(high, value), 1.0), support, p=p)


def checked_scores(scores: Any, rows: int, classes: int) -> np.ndarray:
    """Return class probabilities (rows, C) as float64, or raise an error."""
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


# -------------------------------------------------------------------------------------------------
# Ranking by group: ROC curves, the area under them, and rates against the threshold.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roc:
    """The curve of one group; the first point is (0, 0), the last (1, 1)."""

    fpr: np.ndarray
    tpr: np.ndarray
    threshold: np.ndarray  # rows with at least this score are positive


def roc_curve(positive: np.ndarray, score: np.ndarray, repeats: np.ndarray | None = None) -> Roc:
    """Compute the points at which the ROC curve moves, from the highest threshold down.

    Parameters
    ----------
    positive
        Which rows are positive (n,).
    score
        Scores (n,).
    repeats
        How many rows each entry stands for.

    Returns
    -------
    Roc
        ``fpr``, ``tpr`` and ``threshold``; the first point is (0, 0), the last (1, 1).

    Examples
    --------
    >>> curve = roc_curve(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> curve.fpr.tolist(), curve.tpr.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """
    order = np.argsort(-score, kind="stable")
    ranked, hit = score[order], np.asarray(positive, dtype=bool)[order]
    times = np.ones(len(score)) if repeats is None else np.asarray(repeats, np.float64)[order]
    last = (
        np.flatnonzero(np.append(np.diff(ranked) != 0, True)) if len(score) else np.array([], int)
    )
    tp_V, fp_V = (np.append(0.0, np.cumsum(times * of)[last]) for of in (hit, ~hit))
    return Roc(
        fp_V / max(float(fp_V[-1]), 1.0),
        tp_V / max(float(tp_V[-1]), 1.0),
        np.append(np.inf, ranked[last]),
    )


def auc_and_error(
    positive: np.ndarray, score: np.ndarray, repeats: np.ndarray | None = None
) -> tuple[float, float]:
    """Return the area under the curve, P(positive ranks above negative), and DeLong's error (1988).

    Ties count half. ``repeats`` says how many rows each entry stands for.
    """
    hit = np.asarray(positive, dtype=bool)
    times = np.ones(len(hit)) if repeats is None else np.asarray(repeats, dtype=np.float64)
    _, place = np.unique(score, return_inverse=True)
    hits_V, rest_V = (
        np.bincount(place, times * of, place.max(initial=-1) + 1) for of in (hit, ~hit)
    )
    m, n = float(hits_V.sum()), float(rest_V.sum())
    if not m or not n:
        return math.nan, math.nan
    below_V = (np.cumsum(rest_V) - rest_V / 2) / n  # share of negatives below a positive of score v
    above_V = 1 - (np.cumsum(hits_V) - hits_V / 2) / m  # of positives above a negative
    area = float((hits_V * below_V).sum() / m)
    spread = [
        float((of_V * (share_V - area) ** 2).sum() / (size - 1) / size) if size > 1 else 0.0
        for of_V, share_V, size in ((hits_V, below_V, m), (rest_V, above_V, n))
    ]
    return area, math.sqrt(sum(spread))


def auc(rows: ScoreRows, g: int) -> Estimate:
    """Return AUC of one group with an interval on the logit scale, so that it stays below 1."""
    reason = no_positive_class(rows.counts, rows.made.positive)
    if reason:
        return Estimate.undefined(reason)
    hit, score, times = _of_group(rows, g)
    m, n = (int(hit.sum()), int((~hit).sum())) if times is None else _sums(hit, times)
    area, error = auc_and_error(hit, score, times)
    if math.isnan(area):
        return Estimate.undefined(f"group {rows.counts.groups[g]!r} has one class only", min(m, n))
    if area in (0.0, 1.0):  # no error was seen; as if each row of the smaller class were one try
        low_G, high_G = wilson_ends(np.array([area]), np.array([min(m, n)]), rows.made.level)
        return Estimate(area, float(low_G[0]), float(high_G[0]), min(m, n))
    half = NormalDist().inv_cdf((1 + rows.made.level) / 2) * error / (area * (1 - area))
    logit = math.log(area / (1 - area))
    low, high = (1 / (1 + math.exp(-min(max(logit + k * half, -700), 700))) for k in (-1, 1))
    return Estimate(area, low, high, min(m, n))


def auc_gap(rows: ScoreRows) -> Estimate:
    """Return the largest difference between groups; noise is normal with DeLong's errors."""
    reason = no_positive_class(rows.counts, rows.made.positive)
    if reason:
        return Estimate.undefined(reason)
    found = [auc_and_error(*_of_group(rows, g)) for g in range(len(rows.counts.groups))]
    support = min(auc(rows, g).support for g in range(len(found)))
    area_RG, error_G = np.array([[a for a, _ in found]]), np.array([e for _, e in found])
    if np.isnan(area_RG).any():
        one = rows.counts.groups[int(np.isnan(area_RG[0]).argmax())]
        return Estimate.undefined(f"group {one!r} has one class only", support)
    return gap_of_means(
        area_RG[0], error_G, rows.made.draws, rows.made.seed, rows.made.level, support
    )


def gap_of_means(
    mean_G: np.ndarray, error_G: np.ndarray, draws: int, seed: int, level: float, support: int
) -> Estimate:
    """Compare groups of numbers with normal errors: the largest difference, like a gap of rates."""
    rng = np.random.default_rng([seed, 5])
    noise_DRG = rng.standard_normal((draws, 1, len(mean_G))) * error_G
    away_RG, noise_DRG = from_centre(mean_G[None], noise_DRG)
    seen = float(largest(mean_G[None]))
    low, high = fold(seen, noise_DRG, largest, directions_of(away_RG, noise_DRG, largest), level)
    p = (1 + int((largest(noise_DRG) >= seen - 1e-12).sum())) / (1 + draws)
    return Estimate(seen, 0.0 if p > 1 - level else low, high, support, p=p)


def _of_group(rows: ScoreRows, g: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    mine = rows.s == g
    positive = rows.made.positive or 0
    times = None if rows.repeats is None else rows.repeats[mine]
    return rows.t[mine] == positive, rows.scores_NC[mine, positive], times


def _sums(hit: np.ndarray, times: np.ndarray) -> tuple[int, int]:
    return int(times[hit].sum()), int(times[~hit].sum())


@dataclass(frozen=True)
class ThresholdCurves:
    """Rates of every group at every threshold, with Wilson's intervals."""

    thresholds: np.ndarray  # (T,)
    groups: tuple[str, ...]
    value: dict[str, np.ndarray]  # rate -> (T, G), NaN if it has no rows
    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]
    chosen: float | None = None  # the threshold that is in use


def threshold_curves(
    positive: np.ndarray,
    score: np.ndarray,
    s: np.ndarray,
    groups: tuple[str, ...],
    *,
    steps: int = 100,
    chosen: float | None = None,
    level: float = 0.95,
    repeats: np.ndarray | None = None,
) -> ThresholdCurves:
    """Compute rates of each group for thresholds 0, 1/steps, ..., 1.

    The rates are selection rate, TPR, FPR and the other error rates. A row is predicted positive if
    its score is at least the threshold.

    Parameters
    ----------
    positive
        Which rows are positive (n,).
    score
        Scores (n,) between 0 and 1.
    s
        Codes of the groups (n,).
    groups
        Names of the groups.
    steps
        Number of steps from 0 to 1.
    chosen
        The threshold in use, if there is one.
    level
        Confidence of the intervals.
    repeats
        How many rows each entry stands for.

    Returns
    -------
    ThresholdCurves
        The rates by threshold and group.

    Examples
    --------
    >>> truth, score = np.array([0, 1, 0, 1]), np.array([0.2, 0.6, 0.4, 0.9])
    >>> found = threshold_curves(truth, score, np.array([0, 0, 1, 1]), ("a", "b"), steps=2)
    >>> len(found.thresholds)
    3
    """
    if steps < 1:
        raise InputError("a curve needs at least one step between thresholds")
    thresholds, G = np.linspace(0.0, 1.0, steps + 1), len(groups)
    hit = np.asarray(positive, dtype=bool)
    times = np.ones(len(hit)) if repeats is None else np.asarray(repeats, np.float64)
    n_TCPG = np.zeros((len(thresholds), 2, 2, G))
    for c, of_class in enumerate((~hit, hit)):
        for g in range(G):
            own = of_class & (s == g)
            order = np.argsort(score[own], kind="stable")
            below = np.append(0.0, np.cumsum(times[own][order]))
            below_T = below[np.searchsorted(score[own][order], thresholds, side="left")]
            n_TCPG[:, c, 1, g], n_TCPG[:, c, 0, g] = below[-1] - below_T, below_T
    value, low, high = {}, {}, {}
    for rate in RATES:
        part, whole = rate.part(n_TCPG, 1), rate.whole(n_TCPG, 1)
        share = divide(part, whole)
        value[rate.name] = share
        low[rate.name], high[rate.name] = wilson_ends(share, np.maximum(whole, 1), level)
    return ThresholdCurves(thresholds, tuple(groups), value, low, high, chosen)


# -------------------------------------------------------------------------------------------------
# How far a model's confidence can be trusted: a temperature, and what abstaining costs each group.
#
# A model that answers only where it is sure may answer one group far less often than another. So
# abstention is always read by group: the share of rows that are answered, and how many of those
# answers are right.
# -------------------------------------------------------------------------------------------------

SHARES = (1.0, 0.95, 0.9, 0.8, 0.5)  # of all rows, that are answered
LOWEST, HIGHEST = 0.05, 20.0  # temperatures
_FLOOR = 1e-12


def fit_temperature(scores_nC: np.ndarray, target_n: np.ndarray) -> float:
    """Find the T whose softmax(log q / T) has the smallest log loss (Guo et al., ICML 2017).

    The log loss is convex in 1/T: its slope is bisected. T lies between 0.05 and 20, also where
    every row is right and 0 would be best.

    Parameters
    ----------
    scores_nC
        Probabilities of the classes, such as those of the validation split.
    target_n
        Codes of the true classes.

    Returns
    -------
    float
        The temperature; above 1 the model was too sure of itself.

    Examples
    --------
    >>> sure = np.array([[0.99, 0.01]] * 3 + [[0.01, 0.99]])
    >>> round(fit_temperature(sure, np.array([0, 0, 1, 1])), 2)   # 3 of 4 are right
    4.18
    """
    scores_nC = np.asarray(scores_nC, dtype=np.float64)
    if scores_nC.ndim != 2 or scores_nC.shape[1] < 2 or not len(scores_nC):
        raise InputError("a temperature is fitted to probabilities (n, C) of at least one row")
    log_nC = np.log(np.clip(scores_nC, _FLOOR, None))
    own_n = log_nC[np.arange(len(log_nC)), target_n]

    def slope(beta: float) -> float:
        """Compute the slope of the mean log loss of softmax(beta · log q)."""
        raised_nC = np.exp(beta * (log_nC - log_nC.max(1, keepdims=True)))
        q_nC = raised_nC / raised_nC.sum(1, keepdims=True)
        return float(((q_nC * log_nC).sum(1) - own_n).mean())

    low, high = 1 / HIGHEST, 1 / LOWEST
    if slope(low) >= 0:
        return HIGHEST
    if slope(high) <= 0:
        return LOWEST
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return 2 / (low + high)


@dataclass(frozen=True)
class Abstention:
    """Hold what is answered from one confidence on: of all rows and of each group.

    Parameters
    ----------
    confidence
        The smallest that is answered.
    share
        Share of all rows that are answered.
    coverage
        Share of each group's rows that are answered.
    accuracy
        Share of right ones among the answers of each group.

    Examples
    --------
    >>> Abstention(0.8, 0.7, {"f": wilson(9, 10), "m": wilson(5, 10)}, {}).gap
    0.4
    """

    confidence: float
    share: float
    coverage: dict[str, Estimate]
    accuracy: dict[str, Estimate]

    @property
    def gap(self) -> float:
        """The largest difference of coverage between two groups."""
        shares = [e.value for e in self.coverage.values() if e.defined]
        return max(shares) - min(shares) if shares else math.nan


def abstention(
    rows: Predictions, shares: Sequence[float] = SHARES, level: float = 0.95
) -> list[Abstention]:
    """Read coverage and accuracy by group where the least sure answers are left out.

    Parameters
    ----------
    rows
        Predictions with probabilities; the confidence is that of the predicted class.
    shares
        Shares of all rows that are answered, such as 0.9; equal confidences stay together.
    level
        Confidence of the intervals (Wilson's).

    Returns
    -------
    list
        One entry for each share; empty where there are no probabilities.

    Examples
    --------
    >>> sure = np.array([0.9, 0.9, 0.9, 0.6])
    >>> code = np.array([1, 1, 1, 1])
    >>> group = np.array([0, 0, 1, 1])
    >>> scores = np.stack([1 - sure, sure], 1)
    >>> rows = Predictions(code, code, code, group, scores, ("no", "yes"), ("f", "m"))
    >>> (half,) = abstention(rows, shares=[0.75])
    >>> {name: e.value for name, e in half.coverage.items()}
    {'f': 1.0, 'm': 0.5}
    """
    if rows.scores.shape[1] == 0 or rows.span is not None or not len(rows):
        return []
    scores_nC = checked_scores(rows.scores, len(rows), len(rows.classes))
    sure_n = scores_nC[np.arange(len(rows)), rows.prediction].astype(np.float64)
    weight_n = np.ones(len(rows)) if rows.repeats is None else rows.repeats.astype(np.float64)
    order = np.argsort(-sure_n, kind="stable")
    reached = np.cumsum(weight_n[order]) / weight_n.sum()
    right_n = rows.prediction == rows.target
    out = []
    for share in shares:
        last = min(int(np.searchsorted(reached, share - 1e-12)), len(order) - 1)
        from_ = float(sure_n[order[last]])
        kept_n = sure_n >= from_
        coverage, accuracy = {}, {}
        for g, name in enumerate(rows.groups):
            own_n = rows.sensitive == g
            answered = float(weight_n[own_n & kept_n].sum())
            coverage[name] = wilson(answered, float(weight_n[own_n].sum()), level)
            accuracy[name] = wilson(
                float(weight_n[own_n & kept_n & right_n].sum()), answered, level
            )
        whole = float(weight_n[kept_n].sum() / weight_n.sum())
        out.append(Abstention(from_, whole, coverage, accuracy))
    return out
