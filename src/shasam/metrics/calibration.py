"""Calibration error per group: how far the confidence is from the share of right answers.

ECE_g = Σ_b (n_gb / n_g) |accuracy_gb - confidence_gb| over 15 equal bins of the top class's score
(Naeini 2015, Guo 2017), within group g.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shasam.metrics.counts import tally

BINS = 15


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
        """Bins (b/15, (b+1)/15]; ``right`` is a column of booleans."""
        b = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
        place = s * BINS + b
        size, shape = groups * BINS, (groups, BINS)

        def sums(values: np.ndarray) -> np.ndarray:
            weights = values if repeats is None else values * repeats
            return np.bincount(place, weights=weights, minlength=size).reshape(shape)

        n_GB = tally(place, size, repeats).reshape(shape)
        return cls(n_GB, sums(right.astype(np.float64)), sums(confidence))

    def gaps_GB(self) -> np.ndarray:
        """Signed, weighted gaps whose absolute sum over bins is the ECE of the group."""
        size = np.maximum(self.n_GB.sum(1, keepdims=True), 1)
        return (self.right_GB - self.confidence_GB) / size

    def noise_DGB(self, draws: int, seed: int) -> np.ndarray:
        """Gaps of other test sets minus their expectation: rows are drawn anew within a group.

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
        """Gaps of a calibrated model whose confidences fall into the bins as these did."""
        rng = np.random.default_rng([seed, 4])
        mean_GB = self.mean_confidence_GB()
        right = rng.binomial(self.n_GB, mean_GB, size=(draws, *self.n_GB.shape))
        size = np.maximum(self.n_GB.sum(1, keepdims=True), 1)
        return (right - self.n_GB * mean_GB) / size

    def mean_confidence_GB(self) -> np.ndarray:
        """Mean confidence of each bin; its middle where it is empty."""
        middle = (np.arange(BINS) + 0.5) / BINS
        return np.where(
            self.n_GB > 0, self.confidence_GB / np.maximum(self.n_GB, 1), middle[None, :]
        ).clip(0.0, 1.0)

    def pulled_GB(self) -> np.ndarray:
        """Share of right answers of each bin, pulled towards its confidence.

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
    """The calibration error of signed, weighted gaps: their absolute sum over bins."""
    return np.abs(gaps_GB).sum(-1)
