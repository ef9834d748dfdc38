"""Post-process cross-entropy's scores to equal error rates in every group (Hardt et al., 2016)."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pydantic import Field, model_serializer
from torch import Tensor

from shasam.errors import ShasamWarning
from shasam.methods.base import Dial
from shasam.methods.baselines import CE, CEConfig
from shasam.models import Encoder
from shasam.registry import register
from shasam.types import Predictions

# -------------------------------------------------------------------------------------------------
# Decision rules with equal error rates in every group (Hardt et al., NeurIPS 2016); numpy only.
# -------------------------------------------------------------------------------------------------

Array = np.ndarray


def uniform_by_id(ids: Array, seed: int) -> Array:
    """A number in [0, 1) for each id: the same for the same id and seed, on every machine."""
    digests = [hashlib.blake2b(f"{seed}:{i}".encode(), digest_size=8).digest() for i in ids]
    return np.array([int.from_bytes(d, "big") >> 11 for d in digests], dtype=np.float64) * 2.0**-53


def fit_binary(
    scores: Array, target: Array, group: Array, groups: int, *, grid: int, tolerance: float = 0.0
) -> tuple[Array, Array]:
    """Rules (G, 6) of ``p_ignore, constant, p0, threshold0, p1, threshold1``, and who has one.

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
    """For each group the place on x and the true-positive rate, all within a box of that width.

    Every box [u, u + tolerance] x [v, v + tolerance] of a grid is tried. In it a group takes the
    point of its region (below its hull, not below the diagonal) with the fewest errors.
    """
    best, out = -np.inf, {}
    for u in np.linspace(0.0, 1.0, BOXES + 1):
        inside = np.flatnonzero((x >= u - 1e-12) & (x <= u + tolerance + 1e-12))
        for v in np.linspace(0.0, 1.0, BOXES + 1):
            total, found = 0.0, {}
            for g, height in heights.items():
                reach = np.minimum(height[inside], v + tolerance)
                feasible = (height[inside] >= v) & (reach >= x[inside] - 1e-12)
                if not feasible.any():
                    break
                positives, negatives = weights[g]
                right = positives * reach + negatives * (1 - x[inside])
                place = int(np.argmax(np.where(feasible, right, -np.inf)))
                total += float(right[place])
                found[g] = int(inside[place]), float(reach[place])
            if len(found) == len(heights) and total > best + 1e-9:
                best, out = total, found
    return out


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


# -------------------------------------------------------------------------------------------------
# Equalised-odds post-processing of cross-entropy's scores.
# -------------------------------------------------------------------------------------------------


@register("posthoc", kind="method")
class PostHoc(CE):
    """Cross-entropy, then per-group randomised decisions with equal error rates on validation.

    Two classes: the point of the groups' common ROC hull with the fewest errors, reached in each
    group by mixing two thresholds and a coin (Hardt et al., sec. 3.2, as in fairlearn); with
    ``tolerance`` the rates of two groups may differ by so much, for fewer errors. More
    classes: a prediction of a group is replaced by a random one, P(new | old, group), so that
    P(new | target, group) is the same in every group. The randomness of an image is a function
    of its id and ``seed``. It needs the group of every image at test.
    """

    summary = "cross-entropy, then group thresholds for equal odds, fitted on validation"
    reference = "Hardt, Price and Srebro, NeurIPS 2016"
    decides_by_group = True
    dial = Dial("tolerance", (0.1, 0.05, 0.0))

    class Config(CEConfig):
        grid: int = Field(1000, ge=10)  # false-positive rates that are tried
        tolerance: float = Field(
            0.0, ge=0, lt=1, description="Difference of rates between groups that is allowed."
        )

        @model_serializer(mode="wrap")
        def _dump(self, dump: Any) -> dict[str, Any]:
            """Without a tolerance of 0: runs from before there was one keep their names."""
            body: dict[str, Any] = dump(self)
            if self.tolerance == 0:
                body.pop("tolerance", None)
            return body

        seed: int = 0  # of the randomised decisions

    config: Config
    rule_G6: Tensor
    swap_GCC: Tensor
    fitted_G: Tensor

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        # per group: p_ignore, constant, p0, threshold0, p1, threshold1
        self.register_buffer("rule_G6", torch.zeros(groups, 6, dtype=torch.float64))
        eye = torch.eye(classes, dtype=torch.float64)
        self.register_buffer("swap_GCC", eye.repeat(groups, 1, 1))
        self.register_buffer("fitted_G", torch.zeros(groups, dtype=torch.bool))

    def after_training(self, validation: Predictions) -> None:
        """Fit on validation; groups that lack a class there keep the arg max, with a warning."""
        args = (validation.scores, validation.target, validation.sensitive, self.groups)
        if self.classes == 2:
            rule, fitted = fit_binary(*args, grid=self.config.grid, tolerance=self.config.tolerance)
            # thresholds of probabilities: -1 and 2 do what -inf and inf do, and weights are finite
            self.rule_G6.copy_(torch.from_numpy(np.clip(rule, -1.0, 2.0)))
        else:
            swap, fitted = fit_classes(*args)
            self.swap_GCC.copy_(torch.from_numpy(swap))
        self.fitted_G.copy_(torch.from_numpy(fitted))

    def decision(self, scores_BC: Tensor, group_B: Tensor, uniform_B: Tensor) -> Tensor:
        """The randomised rule of each image's group, in float64; ``uniform_B`` is its coin."""
        scores_BC, uniform_B = scores_BC.double(), uniform_B.double()
        if self.classes == 2:
            rule = self.rule_G6[group_B].unbind(1)
            p_ignore, constant, p0, threshold0, p1, threshold1 = rule
            score = scores_BC[:, 1]
            share = p0 * (score > threshold0) + p1 * (score > threshold1)
            positive = p_ignore * constant + (1 - p_ignore) * share
            decided = (uniform_B < positive).long()
        else:
            upto = self.swap_GCC[group_B, scores_BC.argmax(dim=1)].cumsum(dim=1)
            decided = (uniform_B[:, None] >= upto[:, :-1]).sum(dim=1)
        return torch.where(self.fitted_G[group_B], decided, scores_BC.argmax(dim=1))

    def decide(self, predictions: Predictions) -> Predictions:
        device = self.rule_G6.device
        u = uniform_by_id(predictions.ids, self.config.seed)
        given = (predictions.scores, predictions.sensitive.astype(np.int64), u)
        decided = self.decision(*(torch.from_numpy(array).to(device) for array in given))
        kind = predictions.prediction.dtype
        return replace(predictions, prediction=decided.cpu().numpy().astype(kind))
