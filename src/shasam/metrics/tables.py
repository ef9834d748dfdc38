"""Tables of outcomes: what a gap between groups is computed from.

A table has the shape (..., S, K, G): within each of S strata, every row of group g has one of K
outcomes. Equalized odds has a stratum for each class and the outcomes right and wrong; demographic
parity has one stratum and an outcome for each prediction. That is all that values, resampling and
permutations need to know of a metric.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shasam.metrics.counts import divide

Table = Callable[
    [np.ndarray, "int | None"], np.ndarray
]  # (..., C, P, G), positive -> (..., S, K, G)


def right_by_class(n_CPG: np.ndarray, positive: int | None = None) -> np.ndarray:
    """Right and wrong within each class: (..., C, 2, G)."""
    right = np.einsum("...ccg->...cg", n_CPG)
    return np.stack([right, n_CPG.sum(-2) - right], -2)


def right_of_positive(n_CPG: np.ndarray, positive: int | None) -> np.ndarray:
    """Right and wrong within the positive class: (..., 1, 2, G)."""
    return right_by_class(n_CPG)[..., [positive or 0], :, :]


def right(n_CPG: np.ndarray, positive: int | None = None) -> np.ndarray:
    """Right and wrong over all classes: (..., 1, 2, G)."""
    return right_by_class(n_CPG).sum(-3, keepdims=True)


def predicted(n_CPG: np.ndarray, positive: int | None = None) -> np.ndarray:
    """How often each class is predicted: (..., 1, P, G)."""
    return n_CPG.sum(-3)[..., None, :, :]


def rates(n_SKG: np.ndarray) -> np.ndarray:
    """Rates that groups are compared by, (..., R, G): all outcomes, or the first of two."""
    share = divide(n_SKG, n_SKG.sum(-2, keepdims=True))
    shown = share[..., :1, :] if n_SKG.shape[-2] == 2 else share
    return shown.reshape(*n_SKG.shape[:-3], -1, n_SKG.shape[-1])
