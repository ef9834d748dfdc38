"""Decision rules with equal error rates in every group (Hardt et al., NeurIPS 2016); numpy only."""

from __future__ import annotations

import hashlib
import warnings

import numpy as np

from shasam.errors import ShasamWarning

Array = np.ndarray


def uniform_by_id(ids: Array, seed: int) -> Array:
    """A number in [0, 1) for each id: the same for the same id and seed, on every machine."""
    digests = [hashlib.blake2b(f"{seed}:{i}".encode(), digest_size=8).digest() for i in ids]
    return np.array([int.from_bytes(d, "big") >> 11 for d in digests], dtype=np.float64) * 2.0**-53


def fit_binary(
    scores: Array, target: Array, group: Array, groups: int, *, grid: int
) -> tuple[Array, Array]:
    """Rules (G, 6) of ``p_ignore, constant, p0, threshold0, p1, threshold1``, and who has one.

    P(1) = p_ignore · constant + (1 - p_ignore) · (p0 [score > threshold0] + p1 [score >
    threshold1]). The common point is the one of the groups' lowest ROC hull with the highest
    accuracy; a group above it is drawn down towards the diagonal.
    """
    rules, fitted = np.zeros((groups, 6)), _has_all_classes(target, group, groups, classes=2)
    if not fitted.any():
        return rules, fitted
    x = np.linspace(0.0, 1.0, grid + 1)
    hulls = {g: _hull(scores[group == g, 1], target[group == g]) for g in np.flatnonzero(fitted)}
    heights = {g: np.interp(x, hull[:, 0], hull[:, 1]) for g, hull in hulls.items()}
    lowest = np.min(list(heights.values()), axis=0)
    used = fitted[group]
    positives, negatives = (target[used] == 1).sum(), (target[used] == 0).sum()
    best = int(np.argmax(positives * lowest + negatives * (1 - x)))
    for g, hull in hulls.items():
        # the piece of the hull above x: its two ends, and how far along it x is
        right = min(max(int(np.searchsorted(hull[:, 0], x[best], side="right")), 1), len(hull) - 1)
        (x0, _, threshold0), (x1, _, threshold1) = hull[right - 1], hull[right]
        p1 = 1.0 if x1 == x0 else float(np.clip((x[best] - x0) / (x1 - x0), 0.0, 1.0))
        above = heights[g][best] - x[best]
        p_ignore = 0.0 if above <= 0 else (heights[g][best] - lowest[best]) / above
        rules[g] = p_ignore, x[best], 1 - p1, threshold0, p1, threshold1
    return rules, fitted


def _hull(score: Array, target: Array) -> Array:
    """Upper convex hull of the ROC as rows (false-positive rate, true-positive rate, threshold)."""
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
    """Whether b lies on or below the line from a to c."""
    return bool((b[1] - a[1]) * (c[0] - a[0]) <= (c[1] - a[1]) * (b[0] - a[0]))


def fit_classes(scores: Array, target: Array, group: Array, groups: int) -> tuple[Array, Array]:
    """Stochastic matrices P(new | old, group) (G, C, C) that give every group one confusion.

    With A_g = P(old | target, g), the common confusion T = α B + (1 - α) 1 rᵀ is reached by
    A_g⁻¹ T; α is the largest for which that has no negative entry. B runs over the groups'
    confusions and their mean, r over class shares; the most accurate is kept. It is feasible, not
    the optimum of Hardt's linear programme.
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
    return swaps / swaps.sum(2, keepdims=True), fitted


def _has_all_classes(target: Array, group: Array, groups: int, classes: int) -> Array:
    """Which groups have every class in validation; a warning names the others."""
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
