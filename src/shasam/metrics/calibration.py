"""Calibration error per group: how far the confidence is from the share of right answers.

ECE_g = Σ_b (n_gb / n_g) |accuracy_gb - confidence_gb| over 15 equal bins of the top class's score
(Naeini 2015, Guo 2017), within group g.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shasam.metrics.estimate import Estimate
from shasam.metrics.intervals import fold

BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Images, right answers and summed confidence for each group and confidence bin."""

    n_GB: np.ndarray
    right_GB: np.ndarray
    confidence_GB: np.ndarray  # sums
    right_confidence_GB: np.ndarray  # sums over the right answers

    @classmethod
    def of(
        cls, right: np.ndarray, confidence: np.ndarray, s: np.ndarray, groups: int
    ) -> Reliability:
        """Bins (b/15, (b+1)/15]; ``right`` is a column of booleans."""
        b = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
        place = s * BINS + b
        size, shape = groups * BINS, (groups, BINS)

        def sums(weights: np.ndarray | None) -> np.ndarray:
            return np.bincount(place, weights=weights, minlength=size).reshape(shape)

        return cls(
            sums(None),
            sums(right.astype(np.float64)),
            sums(confidence),
            sums(np.where(right, confidence, 0.0)),
        )

    def gaps_GB(self) -> np.ndarray:
        """Signed, weighted gaps whose absolute sum over bins is the ECE of the group."""
        size = np.maximum(self.n_GB.sum(1, keepdims=True), 1)
        return (self.right_GB - self.confidence_GB) / size

    def noise_DGB(self, draws: int, seed: int) -> np.ndarray:
        """Resampled gaps minus their expectation: (bin, right or not) are drawn within a group."""
        n = np.stack([self.n_GB - self.right_GB, self.right_GB], -1)
        occupied = self.n_GB[..., None] > 0
        conf = np.stack(
            [self.confidence_GB - self.right_confidence_GB, self.right_confidence_GB], -1
        )
        middle = (np.arange(BINS) + 0.5) / BINS
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(n > 0, conf / n, middle[None, :, None])
        residual = np.array([0.0, 1.0]) - mean  # right minus confidence of an image in the atom
        alpha = np.where(occupied, n + 0.5, 0.0)
        rng = np.random.default_rng([seed, 1])
        weight = rng.standard_gamma(np.broadcast_to(alpha, (draws, *alpha.shape)))
        share = weight / np.maximum(weight.sum((2, 3), keepdims=True), 1e-300)
        centre = alpha / np.maximum(alpha.sum((1, 2), keepdims=True), 1e-300)
        return ((share - centre) * residual).sum(-1)


def calibration_errors(
    right: np.ndarray,
    confidence: np.ndarray,
    s: np.ndarray,
    groups: Sequence[str],
    *,
    draws: int,
    seed: int,
    level: float,
) -> dict[str, Estimate]:
    """``ece_<group>`` for each group, and ``ece_max``, the largest of them."""
    bins = Reliability.of(right, confidence, s, len(groups))
    gaps_GB, noise_DGB = bins.gaps_GB(), bins.noise_DGB(draws, seed)
    sizes = bins.n_GB.sum(1)
    out: dict[str, Estimate] = {}
    for g, name in enumerate(groups):
        if not sizes[g]:
            out[f"ece_{name}"] = Estimate.undefined(f"no image of group {name!r}")
            continue
        low, high = fold(gaps_GB[g], noise_DGB[:, g], _absolute_sum, level)
        value = float(_absolute_sum(gaps_GB[g]))
        out[f"ece_{name}"] = Estimate(value, low, min(high, 1.0), int(sizes[g]))
    if not sizes.all():
        out["ece_max"] = Estimate.undefined("a group has no image")
        return out

    def worst(flat: np.ndarray) -> np.ndarray:
        return np.abs(flat.reshape(*flat.shape[:-1], len(groups), BINS)).sum(-1).max(-1)

    flat = gaps_GB.reshape(-1)
    low, high = fold(flat, noise_DGB.reshape(draws, -1), worst, level)
    out["ece_max"] = Estimate(float(worst(flat)), low, min(high, 1.0), int(sizes.min()))
    return out


def _absolute_sum(gaps: np.ndarray) -> np.ndarray:
    return np.abs(gaps).sum(-1)
