"""Thresholds per group: rules that decide by scores and group, and what they could do for a model.

Equal odds after Hardt, Price and Srebro (NeurIPS 2016), exactly or up to a tolerance. numpy only.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from shasam.errors import InputError, ShasamWarning
from shasam.keyed import keyed
from shasam.metrics.counts import Estimate
from shasam.metrics.evaluation import evaluate
from shasam.metrics.paired import Comparison, compare
from shasam.metrics.resampling import average
from shasam.types import Predictions

Array = np.ndarray

# -------------------------------------------------------------------------------------------------
# Rules with equal error rates in every group, or with rates that differ by a tolerance at most.
# -------------------------------------------------------------------------------------------------


def uniform_by_id(ids: Array, seed: int) -> Array:
    """Return a number in [0, 1) for each id.

    It is the same for the same id and seed, on every machine.
    """
    digests = [hashlib.blake2b(f"{seed}:{i}".encode(), digest_size=8).digest() for i in ids]
    return np.array([int.from_bytes(d, "big") >> 11 for d in digests], dtype=np.float64) * 2.0**-53


def fit_binary(
    scores: Array, target: Array, group: Array, groups: int, *, grid: int, tolerance: float = 0.0
) -> tuple[Array, Array]:
    """Return rules (G, 6) of ``p_ignore, constant, p0, threshold0, p1, threshold1``, and who has
    one.

    P(1) = p_ignore · constant + (1 - p_ignore) · (p0 [score > threshold0] + p1 [score >
    threshold1]). The common point is the one of the groups' lowest ROC hull with the highest
    accuracy; a group above it is drawn down towards the diagonal. With a ``tolerance``, both rates
    of two groups may differ by so much: each group has the best point of its own in a common box.
    """
    rules, fitted = np.zeros((groups, 6)), _has_all_classes(target, group, groups, classes=2)
    if not fitted.any():
        return rules, fitted
    x = np.linspace(0.0, 1.0, grid + 1)
    hulls = {
        g: _hull(scores[group == g, 1], target[group == g]) for g in np.flatnonzero(fitted).tolist()
    }
    heights = {g: np.interp(x, hull[:, 0], hull[:, 1]) for g, hull in hulls.items()}
    lowest = np.min(list(heights.values()), axis=0)
    used = fitted[group]
    positives, negatives = (target[used] == 1).sum(), (target[used] == 0).sum()
    best = int(np.argmax(positives * lowest + negatives * (1 - x)))
    aims = {g: (best, float(lowest[best])) for g in hulls}
    if tolerance > 0:
        weights = {
            g: ((target[group == g] == 1).sum(), (target[group == g] == 0).sum()) for g in hulls
        }
        aims = _relaxed(x, heights, weights, tolerance)
    for g, hull in hulls.items():
        at, height = aims[g]
        # the piece of the hull above x: its two ends, and how far along it x is
        right = min(max(int(np.searchsorted(hull[:, 0], x[at], side="right")), 1), len(hull) - 1)
        (x0, _, threshold0), (x1, _, threshold1) = hull[right - 1], hull[right]
        p1 = 1.0 if x1 == x0 else float(np.clip((x[at] - x0) / (x1 - x0), 0.0, 1.0))
        above = heights[g][at] - x[at]
        p_ignore = 0.0 if above <= 0 else (heights[g][at] - height) / above
        rules[g] = p_ignore, x[at], 1 - p1, threshold0, p1, threshold1
    return rules, fitted


BOXES = 50  # corners of boxes that are tried, along each axis


def _relaxed(
    x: Array,
    heights: dict[int, Array],
    weights: dict[int, tuple[int, int]],
    tolerance: float,
) -> dict[int, tuple[int, float]]:
    """Return for each group the place on x and the true-positive rate, all within a box of that
    width.

    Every box [u, u + tolerance] x [v, v + tolerance] of a grid is tried. In it a group takes the
    point of its region (below its hull, not below the diagonal) with the fewest errors. A tolerance
    of 1 is one box, which holds everything.
    """
    corners = np.linspace(0.0, 1.0, BOXES + 1) if tolerance < 1 else np.zeros(1)
    best = -np.inf
    out: dict[int, tuple[int, float]] = {}
    for u in corners:
        inside = np.flatnonzero((x >= u - 1e-12) & (x <= u + tolerance + 1e-12))
        right_gKN = {
            g: _right_within(x[inside], height[inside], weights[g], corners[:, None], tolerance)
            for g, height in heights.items()
        }
        total_K = np.add.reduce([right_KN.max(1) for right_KN in right_gKN.values()])
        k = int(total_K.argmax())
        if total_K[k] > best + 1e-9:
            best, out = float(total_K[k]), {}
            for g, right_KN in right_gKN.items():
                at = int(inside[right_KN[k].argmax()])
                out[g] = at, float(min(heights[g][at], corners[k] + tolerance))
    return out


def _right_within(
    x_N: Array, height_N: Array, weights: tuple[int, int], v_K1: Array, tolerance: float
) -> Array:
    """Return how many rows (K, N) of a group are right at its best point above x in every box.

    It is -inf where the region of the group is not in the box.
    """
    positives, negatives = weights
    reach_KN = np.minimum(height_N, v_K1 + tolerance)
    out_KN = positives * reach_KN
    out_KN += negatives * (1 - x_N)
    out_KN[(height_N < v_K1) | (reach_KN < x_N - 1e-12)] = -np.inf
    return out_KN


def _hull(score: Array, target: Array) -> Array:
    """Return the upper convex hull of the ROC as rows (false-positive rate, true-positive rate,
    threshold).
    """
    order = np.argsort(-score, kind="stable")
    score, target = score[order].astype(np.float64), target[order]
    ends = np.append(np.flatnonzero(np.diff(score)), len(score) - 1)  # last of each equal score
    true = np.cumsum(target == 1)[ends] / (target == 1).sum()
    false = np.cumsum(target == 0)[ends] / (target == 0).sum()
    between = np.append((score[ends[:-1]] + score[ends[:-1] + 1]) / 2, -np.inf)
    points = [(0.0, 0.0, np.inf), *zip(false, true, between, strict=True)]
    hull: list[tuple[float, float, float]] = []
    for point in points:
        while hull and hull[-1][0] == point[0]:
            hull.pop()  # straight up: only the highest point of an abscissa counts
        while len(hull) > 1 and _not_above(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return np.array(hull)


def _not_above(a: tuple, b: tuple, c: tuple) -> bool:
    """Return whether b lies on or below the line from a to c."""
    return bool((b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0]))


def fit_classes(
    scores: Array, target: Array, group: Array, groups: int, *, tolerance: float = 0.0
) -> tuple[Array, Array]:
    """Return stochastic matrices P(new | old, group) (G, C, C) that give every group one confusion.

    With A_g = P(old | target, g), the common confusion T = α B + (1 - α) 1 rᵀ is reached by
    A_g⁻¹ T; α is the largest for which that has no negative entry. B runs over the groups'
    confusions and their mean, r over class shares; the most accurate is kept. It is feasible, not
    the optimum of Hardt's linear programme. With a ``tolerance`` a decision is replaced only so
    often that no rate of two groups differs by more: what is left of A_g - A_h is a share of it.
    """
    classes = scores.shape[1]
    old = scores.argmax(1)
    swaps, fitted = np.tile(np.eye(classes), (groups, 1, 1)), np.zeros(groups, dtype=bool)
    fitted = _has_all_classes(target, group, groups, classes)
    if not fitted.any():
        return swaps, fitted
    used = fitted[group]
    prior = np.bincount(target[used], minlength=classes) / used.sum()
    confusions = {}
    for g in np.flatnonzero(fitted):
        counts = np.zeros((classes, classes))
        np.add.at(counts, (target[group == g], old[group == g]), 1)
        confusions[g] = counts / counts.sum(1, keepdims=True)
    mean = np.mean(list(confusions.values()), axis=0)
    best = -1.0
    for base in [*confusions.values(), mean]:
        try:
            solved = {g: np.linalg.solve(a, base) for g, a in confusions.items()}
        except np.linalg.LinAlgError:
            solved = {}  # a group in which two classes look alike: only r itself is reachable
        for r in (prior, np.full(classes, 1 / classes), prior @ mean):
            alpha = 1.0 if solved else 0.0
            for matrix in solved.values():
                bad = matrix < 0
                limit = np.broadcast_to(r, matrix.shape)[bad]
                alpha = min(alpha, *(limit / (limit - matrix[bad])), 1.0)
            accuracy = float(alpha * prior @ np.diag(base) + (1 - alpha) * prior @ r)
            if accuracy > best:
                best = accuracy
                for g in confusions:
                    mixed = (1 - alpha) * np.tile(r, (classes, 1))
                    swaps[g] = mixed + (alpha * solved[g] if solved else 0.0)
    swaps = np.clip(swaps, 0.0, None)
    swaps /= swaps.sum(2, keepdims=True)
    widest = float(np.ptp(list(confusions.values()), axis=0).max())
    kept = min(1.0, tolerance / widest) if widest > 0 else 1.0
    swaps[fitted] = kept * np.eye(classes) + (1 - kept) * swaps[fitted]
    return swaps, fitted


def _has_all_classes(target: Array, group: Array, groups: int, classes: int) -> Array:
    """Return which groups have every class in validation; a warning names the others."""
    counts = np.zeros((groups, classes), dtype=np.int64)
    np.add.at(counts, (group, target), 1)
    complete: Array = np.all(counts > 0, axis=1)
    if not complete.all():
        warnings.warn(
            f"groups {np.flatnonzero(~complete).tolist()} lack a class in the validation split: "
            "their decisions stay the arg max and their odds are not equalised",
            ShasamWarning,
            stacklevel=3,
        )
    return complete


# -------------------------------------------------------------------------------------------------
# The front of given scores: what each tolerance costs, every row decided by a rule that it was not
# fitted on.
# -------------------------------------------------------------------------------------------------

TOLERANCES = (0.0, 0.02, 0.05, 0.1, 0.2, 1.0)  # the last one: the most accurate thresholds
FOLDS = 5
GRID = 1000  # false-positive rates that are tried


@dataclass(frozen=True)
class GroupRule:
    """Decide by score and group: thresholds for two classes, replaced predictions for more.

    Rules of groups that lack a class where they were fitted are the arg max.
    """

    classes: int
    table: Array  # (G, 6) or (G, C, C)
    fitted_G: Array

    @classmethod
    def fit(
        cls,
        scores: Array,
        target: Array,
        group: Array,
        groups: int,
        tolerance: float,
        *,
        grid: int = GRID,
    ) -> GroupRule:
        """Fit on rows with scores (N, C), targets and groups."""
        if scores.shape[1] == 2:
            found = fit_binary(scores, target, group, groups, grid=grid, tolerance=tolerance)
        else:
            found = fit_classes(scores, target, group, groups, tolerance=tolerance)
        return cls(scores.shape[1], *found)

    def probabilities(self, scores: Array, group: Array) -> Array:
        """Return the probability (N, C) with which each class is decided."""
        own = np.eye(self.classes)[scores.argmax(1)]
        if self.classes == 2:
            p_ignore, constant, p0, threshold0, p1, threshold1 = self.table[group].T
            share = p0 * (scores[:, 1] > threshold0) + p1 * (scores[:, 1] > threshold1)
            positive = p_ignore * constant + (1 - p_ignore) * share
            found = np.stack([1 - positive, positive], axis=1)
        else:
            found = self.table[group, scores.argmax(1)]
        return np.where(self.fitted_G[group][:, None], found, own)

    def decide(self, scores: Array, group: Array, uniform: Array) -> Array:
        """Return classes (N,); ``uniform`` are the coins, numbers in [0, 1)."""
        chance = self.probabilities(scores, group)
        if self.classes == 2:
            return (uniform < chance[:, 1]).astype(np.int64)
        upto: Array = chance.cumsum(1)[:, :-1]
        return (uniform[:, None] >= upto).sum(1)


def folds_of(rows: Predictions, folds: int = FOLDS, seed: int = 0) -> Array:
    """Return a fold (N,) for each row; folds have equal shares of every (class, group) cell."""
    fold_N = np.zeros(len(rows), dtype=np.int64)
    cell_N = rows.target * len(rows.groups) + rows.sensitive
    for cell in np.unique(cell_N).tolist():
        (members,) = np.where(cell_N == cell)
        fold_N[members] = keyed(seed, cell).permutation(len(members)) % folds
    return fold_N


def cross_fitted(
    rows: Predictions, tolerance: float, *, folds: int = FOLDS, seed: int = 0
) -> Array:
    """Return decisions (N,) of rules that were fitted on the other folds.

    A row's fold and coin follow from the seed and its place.
    """
    groups, number = len(rows.groups), len(rows)
    fold_N = folds_of(rows, folds, seed)
    uniform_N = keyed(seed).random(number)
    decided_N = np.zeros(number, dtype=np.int64)
    for k in range(folds):
        own, other = fold_N == k, fold_N != k
        rule = GroupRule.fit(
            rows.scores[other], rows.target[other], rows.sensitive[other], groups, tolerance
        )
        decided_N[own] = rule.decide(rows.scores[own], rows.sensitive[own], uniform_N[own])
    return decided_N


@dataclass(frozen=True)
class FrontPoint:
    """A tolerance, and what decisions with it reach; ``price`` is the model minus it."""

    tolerance: float
    accuracy: Estimate
    gap: Estimate
    price: Comparison  # of accuracy, paired over rows
    relief: Comparison  # of the gap, paired over rows


@dataclass(frozen=True)
class ScoreFront:
    """What thresholds per group could do for a model whose scores are known."""

    accuracy: Estimate  # of the model as it decides
    gap: Estimate
    points: tuple[FrontPoint, ...]
    level: float  # all intervals of the points hold at once with this probability


def front_of_scores(
    rows: Predictions,
    *,
    tolerances: tuple[float, ...] = TOLERANCES,
    metric: str = "eo_mean",
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
    strata: str = "none",
    min_group: int = 30,
) -> ScoreFront:
    """Measure decisions with every tolerance, each row decided by a rule of other rows.

    Intervals of the points allow for their number (Bonferroni), so that they are a simultaneous
    band. They are those of the rows, for the rules as fitted.
    """
    if why := front_reason(rows):
        raise InputError(f"thresholds per group cannot be tried: {why}")
    keywords: dict[str, Any] = {
        "classes": rows.classes, "groups": rows.groups, "draws": draws, "seed": seed,
        "strata": strata, "min_group": min_group,
    }  # fmt: skip
    shown = ["accuracy", metric]
    codes = rows.target, rows.sensitive
    own = evaluate(codes[0], rows.prediction, codes[1], metrics=shown, level=level, **keywords)
    each = 1 - (1 - level) / (2 * len(tolerances))
    points = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShasamWarning)  # told once, by front_reason or the audit
        decided = [cross_fitted(rows, tolerance, seed=seed) for tolerance in tolerances]
    for tolerance, made in zip(tolerances, decided, strict=True):
        found = evaluate(codes[0], made, codes[1], metrics=shown, level=each, **keywords)
        against = compare(
            codes[0], made, rows.prediction, codes[1], metrics=shown, level=each, **keywords
        )
        points.append(
            FrontPoint(tolerance, found["accuracy"], found[metric], against["accuracy"],
                       against[metric])
        )  # fmt: skip
    return ScoreFront(own["accuracy"], own[metric], tuple(points), level)


def front_reason(rows: Predictions) -> str:
    """Return why thresholds cannot be tried on rows; empty where they can."""
    if not rows.scored:
        return "the table has no scores"
    if not rows.row_by_row or rows.context.weights is not None:
        return "the rows are counted or weighted"
    if len(rows.groups) < 2:
        return "there is one group"
    counts = np.zeros((len(rows.groups), len(rows.classes)), dtype=np.int64)
    np.add.at(counts, (rows.sensitive, rows.target), 1)
    able = int((counts >= FOLDS).all(1).sum())
    if able < 2:
        return f"fewer than two groups have {FOLDS} rows of every class"
    return ""


# -------------------------------------------------------------------------------------------------
# The fronts of several models: thresholds for each, with a band that holds for all of them at once.
# -------------------------------------------------------------------------------------------------

WIDEST = 0.2  # the area is the mean accuracy of a front over gaps from 0 to this
Reach = tuple[float, float]  # gap, accuracy


def reach(points: Sequence[Reach], gap: float) -> float:
    """Return the best accuracy with a gap of at most that; 0 if no point has it."""
    return max((accuracy for found, accuracy in points if found <= gap), default=0.0)


def area(points: Sequence[Reach]) -> float:
    """Return the mean height of the front over gaps from 0 to ``WIDEST``.

    It is exact: the front is a staircase.
    """
    steps = sorted({0.0, WIDEST, *(gap for gap, _ in points if 0 < gap < WIDEST)})
    widths = ((right - left) * reach(points, left) for left, right in pairwise(steps))
    return sum(widths) / WIDEST


@dataclass(frozen=True)
class MeanPoint:
    """What decisions reach, as a mean over runs; the ends hold for all points of all models."""

    gap: float
    accuracy: float
    gap_ends: tuple[float, float]
    accuracy_ends: tuple[float, float]

    @property
    def best(self) -> Reach:
        """The smallest gap and the highest accuracy that the ends allow."""
        return self.gap_ends[0], self.accuracy_ends[1]

    @property
    def worst(self) -> Reach:
        """The largest gap and the lowest accuracy that the ends allow."""
        return self.gap_ends[1], self.accuracy_ends[0]


@dataclass(frozen=True)
class ModelFront:
    """A model as it decides, with thresholds per group, and a constant answer, whose gap is 0."""

    own: MeanPoint
    constant: MeanPoint
    thresholds: tuple[MeanPoint, ...]  # in the order of TOLERANCES
    reason: str = ""  # why there are no thresholds

    @property
    def area(self) -> tuple[float, float, float]:
        """The area under the front, and the ends that the band gives it."""
        points = (self.own, self.constant, *self.thresholds)
        return (
            area([(p.gap, p.accuracy) for p in points]),
            area([p.worst for p in points]),
            area([p.best for p in points]),
        )


def fronts_of(
    models: Mapping[str, Sequence[Predictions]],
    *,
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> dict[str, ModelFront]:
    """Return what thresholds per group could do for models, each with the predictions of its runs.

    Every row is decided by a rule of other rows of its run. The band is simultaneous: with
    probability ``level`` the gaps and accuracies of all points lie between their ends. Rows are
    resampled within the (class, group) cells of a run, for the rules as fitted, and runs are
    resampled too; rows count as shared by the runs, which is the wider reading. A model that has
    rows of a class in fewer than two groups is left out.
    """
    found: dict[str, tuple[Array, Array, str]] = {}
    for i, (name, runs) in enumerate(models.items()):
        if not all(_has_gaps(rows) for rows in runs):
            continue
        reason = next((why for rows in runs if (why := front_reason(rows))), "")
        made = [
            _resampled(rows, () if reason else TOLERANCES, draws, keyed(seed, i, j))
            for j, rows in enumerate(runs)
        ]
        of_runs = np.stack([values for values, _ in made])
        centre_K2 = of_runs.mean(0)
        number = len(runs)
        picked = keyed(seed, i).integers(number, size=(draws, number))
        # the rows of one run, not of all: runs may share their test rows
        away_DK2 = np.stack([noise for _, noise in made])[picked[:, 0], np.arange(draws)]
        if number > 1:  # a mean of resampled runs varies by (n - 1) / n too little
            moved_DK2 = of_runs[picked].mean(1) - centre_K2
            away_DK2 = away_DK2 + moved_DK2 * np.sqrt(number / (number - 1))
        found[name] = centre_K2, away_DK2, reason
    if not found:
        return {}
    sd = {name: away.std(0) for name, (_, away, _) in found.items()}
    farthest_D = np.max(
        [
            np.divide(abs(away), sd[name], out=np.zeros_like(away), where=sd[name] > 1e-12).max(
                (1, 2)
            )
            for name, (_, away, _) in found.items()
        ],
        axis=0,
    )
    wide = float(np.quantile(farthest_D, level))
    out = {}
    for name, (centre_K2, _, reason) in found.items():
        low, high = (np.clip(centre_K2 + k * wide * sd[name], 0, 1) for k in (-1, 1))
        both = zip(centre_K2.tolist(), low.tolist(), high.tolist(), strict=True)
        own, constant, *rest = (
            MeanPoint(c[0], c[1], (a[0], b[0]), (a[1], b[1])) for c, a, b in both
        )
        out[name] = ModelFront(own, constant, tuple(rest), reason)
    return out


def _has_gaps(rows: Predictions) -> bool:
    """Return whether rows are single ones, and every class has some in two groups."""
    if not rows.row_by_row or rows.context.weights is not None:
        return False
    seen = np.zeros((len(rows.classes), len(rows.groups)), dtype=bool)
    seen[rows.target, rows.sensitive] = True
    return bool((seen.sum(1) >= 2).all())


def _resampled(
    rows: Predictions, tolerances: Sequence[float], draws: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return gap and accuracy (K, 2) of a run's decisions, and by how much draws of rows move them.

    The decisions are the model's own, a constant, and thresholds with each tolerance. Rows that
    are right and wrong under the same of them are drawn together, so all K move as one.
    """
    constant = int(np.bincount(rows.target).argmax())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShasamWarning)  # the reason is told in the front
        decided = [cross_fitted(rows, tolerance) for tolerance in tolerances]
    constants = np.full(len(rows), constant)
    right_NK = np.stack([d == rows.target for d in (rows.prediction, constants, *decided)], 1)
    classes, groups, kinds = len(rows.classes), len(rows.groups), right_NK.shape[1]
    rate_KCG = np.full((kinds, classes, groups), np.nan)
    rate_DKCG = np.full((draws, kinds, classes, groups), np.nan)
    size_CG = np.zeros((classes, groups))
    cell_N = rows.target * groups + rows.sensitive
    for cell in np.unique(cell_N).tolist():
        patterns, counted = np.unique(right_NK[cell_N == cell], axis=0, return_counts=True)
        size, at = int(counted.sum()), divmod(cell, groups)
        size_CG[at] = size
        rate_KCG[:, at[0], at[1]] = counted @ patterns / size
        drawn = rng.multinomial(size, counted / size, draws)
        rate_DKCG[:, :, at[0], at[1]] = drawn @ patterns / size

    def both(rate: Array) -> Array:
        right = np.nansum(rate * size_CG, axis=(-2, -1)) / size_CG.sum()
        return np.stack([average(rate), right], axis=-1)

    drawn_DK2 = both(rate_DKCG)
    return both(rate_KCG), drawn_DK2 - drawn_DK2.mean(0)
