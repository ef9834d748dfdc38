"""How far a model's confidence can be trusted: a temperature, and what abstaining costs each group.

A model that answers only where it is sure may answer one group far less often than another. So
abstention is always read by group: the share of rows that are answered, and how many of those
answers are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shasam.errors import InputError
from shasam.metrics.counts import Estimate
from shasam.metrics.rates import wilson
from shasam.metrics.scores import checked_scores
from shasam.types import Predictions

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
class Answered:
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
    >>> Answered(0.8, 0.7, {"f": wilson(9, 10), "m": wilson(5, 10)}, {}).gap
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
) -> list[Answered]:
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
        out.append(Answered(from_, whole, coverage, accuracy))
    return out
