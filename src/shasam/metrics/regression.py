"""Groups compared by numbers instead of classes: errors of a regression, or scores alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shasam.errors import InputError
from shasam.metrics.counts import Estimate, encode
from shasam.metrics.intervals import quantile
from shasam.metrics.scores import gap_of_means, score_areas


@dataclass(frozen=True)
class ByGroup:
    """Hold one number of every group, and the largest difference between two of them.

    Parameters
    ----------
    groups
        Names of the groups.
    values
        One estimate for each group.
    gap
        The largest difference.

    Examples
    --------
    >>> found = evaluate_regression([1, 2, 3, 4], [1, 3, 3, 6], ["a", "a", "b", "b"])
    >>> found["bias"].groups
    ('a', 'b')
    """

    groups: tuple[str, ...]
    values: tuple[Estimate, ...]
    gap: Estimate


def evaluate_regression(
    target: Any,
    prediction: Any,
    group: Any,
    *,
    groups: Sequence[str] | None = None,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    min_group: int = 0,
) -> dict[str, ByGroup]:
    """Compute mean absolute error, root mean squared error and bias of each group.

    Bias is the mean of prediction minus target: above 0, the group is overestimated. Numbers are in
    the units of the target.

    Parameters
    ----------
    target
        True numbers (n,).
    prediction
        Predicted numbers (n,).
    group
        Sensitive groups (n,).
    groups
        Names of the groups, if groups are codes.
    draws
        Resampled samples for intervals.
    seed
        Seed of the resampling.
    level
        Confidence of the intervals.
    min_group
        Groups with fewer rows are left out of the gap.

    Returns
    -------
    dict[str, ByGroup]
        "mae", "rmse" and "bias", each by group with the largest gap.

    Examples
    --------
    >>> found = evaluate_regression([1, 2, 3, 4], [1, 3, 3, 6], ["a", "a", "b", "b"])
    >>> [e.value for e in found["bias"].values], found["mae"].gap.value
    ([0.5, 1.0], 0.5)
    """
    y, f = _numbers(target, "target"), _numbers(prediction, "prediction")
    [s], names = encode({"group": group}, groups)
    _same_length(y, f, s)
    error = f - y
    how = _Settings(draws, seed, level, min_group)
    return {
        "mae": _means(np.abs(error), s, names, how),
        "rmse": _means(error**2, s, names, how, root=True),
        "bias": _means(error, s, names, how),
    }


def evaluate_scores(
    score: Any,
    group: Any,
    *,
    groups: Sequence[str] | None = None,
    draws: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    min_group: int = 0,
) -> tuple[ByGroup, dict[str, Estimate]]:
    """Compare scores without labels: the mean of each group, and the score gaps.

    Score gaps are computed for scores in 0..1.

    Parameters
    ----------
    score
        Scores (n,).
    group
        Sensitive groups (n,).
    groups
        Names of the groups, if groups are codes.
    draws
        Resampled samples for intervals.
    seed
        Seed of the resampling.
    level
        Confidence of the intervals.
    min_group
        Groups with fewer rows are left out of the gap.

    Returns
    -------
    tuple[ByGroup, dict[str, Estimate]]
        Means by group with their gap, and the score gaps by name.

    Examples
    --------
    >>> means, gaps = evaluate_scores([0.1, 0.3, 0.5, 0.7], ["a", "a", "b", "b"])
    >>> round(means.gap.value, 2)
    0.4
    """
    x = _numbers(score, "score")
    [s], names = encode({"group": group}, groups)
    _same_length(x, x, s)
    means = _means(x, s, names, _Settings(draws, seed, level, min_group))
    large = np.flatnonzero(np.bincount(s, minlength=len(names)) >= max(min_group, 1))
    if x.min() < 0 or x.max() > 1 or len(large) < 2:
        return means, {}
    code_G = np.full(len(names), -1)
    code_G[large] = np.arange(len(large))
    kept = code_G[s] >= 0
    areas = score_areas(
        x[kept][:, None], code_G[s][kept], len(large), draws=draws, seed=seed, level=level
    )
    return means, areas


@dataclass(frozen=True)
class _Settings:
    draws: int
    seed: int
    level: float
    min_group: int


def _means(
    x: np.ndarray,
    s: np.ndarray,
    names: tuple[str, ...],
    how: _Settings,
    *,
    root: bool = False,
) -> ByGroup:
    """Return the mean of each group with Student's interval, and the gap.

    It is the root of both where asked.
    """
    G = len(names)
    n_G = np.bincount(s, minlength=G)
    mean_G = np.bincount(s, x, G) / np.maximum(n_G, 1)
    square_G = np.bincount(s, (x - mean_G[s]) ** 2, G)
    error_G = np.sqrt(square_G / np.maximum(n_G - 1, 1) / np.maximum(n_G, 1))
    values = []
    for g, name in enumerate(names):
        n = int(n_G[g])
        if not n:
            values.append(Estimate.undefined(f"no row of group {name!r}"))
            continue
        half = quantile(how.level, n - 1) * error_G[g] if n > 1 else math.inf  # one row
        ends = [float(mean_G[g] + k * half) for k in (0, -1, 1)]
        value, low, high = [math.sqrt(max(v, 0.0)) for v in ends] if root else ends
        values.append(Estimate(value, low, high, n))
    large = np.flatnonzero(n_G >= max(how.min_group, 2))
    if len(large) < 2:
        reason = f"fewer than two groups have {max(how.min_group, 2)} rows"
        return ByGroup(names, tuple(values), Estimate.undefined(reason))
    centre, spread = mean_G[large], error_G[large]
    if root:  # by the delta method
        centre = np.sqrt(centre)
        spread = spread / np.maximum(2 * centre, 1e-12)
    gap = gap_of_means(centre, spread, how.draws, how.seed, how.level, int(n_G[large].min()))
    return ByGroup(names, tuple(values), gap)


def _numbers(column: Any, what: str) -> np.ndarray:
    try:
        x = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"the {what} does not hold numbers") from None
    if x.ndim != 1:
        raise InputError(f"the {what} must be one column, not an array of shape {x.shape}")
    bad = ~np.isfinite(x)
    if bad.any():
        raise InputError(
            f"{int(bad.sum())} of {len(x)} rows have no finite {what}, the first is row "
            f"{int(bad.argmax())}; leave those rows out or repair them"
        )
    return x


def _same_length(x: np.ndarray, y: np.ndarray, s: np.ndarray) -> None:
    if not len(x) == len(y) == len(s):
        raise InputError(
            f"there are {len(x)}, {len(y)} and {len(s)} values in the columns; each row needs one "
            "of each"
        )
    if not len(x):
        raise InputError("there are no rows to measure")
