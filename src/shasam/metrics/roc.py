"""Ranking by group: ROC curves, the area under them, and rates against the threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from shasam.errors import InputError
from shasam.metrics.confusion import RATES
from shasam.metrics.counts import divide
from shasam.metrics.estimate import Estimate
from shasam.metrics.intervals import directions_of, fold, from_centre, wilson_ends
from shasam.metrics.reasons import no_positive_class
from shasam.metrics.scores import Scored
from shasam.metrics.statistic import largest


@dataclass(frozen=True)
class Roc:
    """The curve of one group; the first point is (0, 0), the last (1, 1)."""

    fpr: np.ndarray
    tpr: np.ndarray
    threshold: np.ndarray  # rows with at least this score are positive


def roc_curve(positive: np.ndarray, score: np.ndarray, repeats: np.ndarray | None = None) -> Roc:
    """The points where the curve moves, from the highest threshold down.

    ``repeats`` says how many rows each entry stands for.

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
    """Area under the curve, P(positive ranks above negative), and DeLong's error (1988).

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


def auc(rows: Scored, g: int) -> Estimate:
    """AUC of one group with an interval on the logit scale, so that it stays below 1."""
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


def auc_gap(rows: Scored) -> Estimate:
    """The largest difference between groups; noise is normal with DeLong's errors."""
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
    """Largest difference between groups of numbers with normal errors, like a gap of rates."""
    rng = np.random.default_rng([seed, 5])
    noise_DRG = rng.standard_normal((draws, 1, len(mean_G))) * error_G
    away_RG, noise_DRG = from_centre(mean_G[None], noise_DRG)
    seen = float(largest(mean_G[None]))
    low, high = fold(seen, noise_DRG, largest, directions_of(away_RG, noise_DRG, largest), level)
    p = (1 + int((largest(noise_DRG) >= seen - 1e-12).sum())) / (1 + draws)
    return Estimate(seen, 0.0 if p > 1 - level else low, high, support, p=p)


def _of_group(rows: Scored, g: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
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
    value: dict[str, np.ndarray]  # rate -> (T, G), NaN where it has no rows
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
    """Selection rate, TPR, FPR and the others of each group, for thresholds 0, 1/steps, ..., 1.

    A row is predicted positive where its score is at least the threshold. ``positive`` tells which
    rows are positive, ``s`` holds the codes of their groups, ``repeats`` how many rows each entry
    stands for.
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
