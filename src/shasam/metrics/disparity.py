"""Every disparity is a norm of signed gaps between groups; its name says which norm.

``eo_mean`` is the number that FSCL's code and the SHaSaM paper call EO. Gaps are absolute before
they are averaged, so opposite ones never cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shasam.metrics.counts import Counts, group_accuracies, prediction_rates, recalls
from shasam.metrics.intervals import Norm


@dataclass(frozen=True)
class Disparity:
    """A metric of counts: ``norm(gaps(n))``, undefined where ``hole`` finds a reason."""

    gaps: Callable[[np.ndarray], np.ndarray]  # (..., C, P, G) -> (..., K) signed differences
    norm: Norm
    hole: Callable[[Counts], str | None]
    support: Callable[[Counts], int]

    def value(self, n_CPG: np.ndarray) -> np.ndarray:
        return self.norm(self.gaps(n_CPG))


def between_groups(rates_G: np.ndarray) -> np.ndarray:
    """Signed differences of all unordered pairs of groups: (..., G) -> (..., G(G-1)/2)."""
    i, j = np.triu_indices(rates_G.shape[-1], 1)
    return rates_G[..., i] - rates_G[..., j]


def disparities(classes: int, groups: int, positive: int | None) -> dict[str, Disparity]:
    """All disparities of counts for C classes and G groups."""
    pairs = groups * (groups - 1) // 2

    def recall_gaps(n_CPG: np.ndarray) -> np.ndarray:
        gaps = between_groups(recalls(n_CPG))
        return gaps.reshape(*gaps.shape[:-2], classes * pairs)

    def rate_gaps(n_CPG: np.ndarray) -> np.ndarray:
        gaps = between_groups(prediction_rates(n_CPG))
        return gaps.reshape(*gaps.shape[:-2], classes * pairs)

    def positive_gaps(n_CPG: np.ndarray) -> np.ndarray:
        return between_groups(recalls(n_CPG)[..., positive or 0, :])

    def accuracy_gaps(n_CPG: np.ndarray) -> np.ndarray:
        return between_groups(group_accuracies(n_CPG))

    def mean_of_largest(gaps_K: np.ndarray) -> np.ndarray:
        return largest(gaps_K.reshape(*gaps_K.shape[:-1], classes, pairs)).mean(-1)

    def positive_hole(counts: Counts) -> str | None:
        if positive is None:
            return (
                f"equal opportunity needs a positive class; there are {classes} classes: say "
                "which one is the favourable outcome"
            )
        if groups < 2:
            return _one_group(counts)
        empty = np.flatnonzero(counts.cells_CG[positive] == 0)
        return _no_images(
            [f"class {counts.classes[positive]!r} in group {counts.groups[g]!r}" for g in empty]
        )

    return {
        "eo_mean": Disparity(recall_gaps, average, cell_hole, smallest_cell),
        "eo_max": Disparity(recall_gaps, largest, cell_hole, smallest_cell),
        "eo_sum": Disparity(recall_gaps, total, cell_hole, smallest_cell),
        "eo_mean_range": Disparity(recall_gaps, mean_of_largest, cell_hole, smallest_cell),
        "equal_opportunity": Disparity(
            positive_gaps,
            largest,
            positive_hole,
            lambda counts: 0 if positive is None else int(counts.cells_CG[positive].min()),
        ),
        "demographic_parity": Disparity(rate_gaps, largest, group_hole, smallest_group),
        "accuracy_gap": Disparity(accuracy_gaps, largest, group_hole, smallest_group),
    }


def average(gaps_K: np.ndarray) -> np.ndarray:
    return np.abs(gaps_K).mean(-1)


def largest(gaps_K: np.ndarray) -> np.ndarray:
    return np.abs(gaps_K).max(-1)


def total(gaps_K: np.ndarray) -> np.ndarray:
    return np.abs(gaps_K).sum(-1)


def cell_hole(counts: Counts) -> str | None:
    """Why a metric over (class, group) cells is undefined, or None."""
    return _one_group(counts) or _no_images(counts.empty_cells())


def group_hole(counts: Counts) -> str | None:
    """Why a metric over groups is undefined, or None."""
    return _one_group(counts) or _no_images([f"group {name}" for name in counts.empty_groups()])


def smallest_cell(counts: Counts) -> int:
    return int(counts.cells_CG.min())


def smallest_group(counts: Counts) -> int:
    return int(counts.n_CPG.sum((0, 1)).min())


def _one_group(counts: Counts) -> str | None:
    if len(counts.groups) >= 2:
        return None
    return f"there is one group only ({counts.groups[0]!r}); a gap needs two"


def _no_images(where: list[str]) -> str | None:
    if not where:
        return None
    more = f" and {len(where) - 3} more" if len(where) > 3 else ""
    return f"no image of {', '.join(where[:3])}{more}"
