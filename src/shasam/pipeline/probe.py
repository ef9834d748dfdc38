"""How well the group can be read off the features: a linear probe."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


def linear_probe(
    fit_x: Tensor, fit_y: np.ndarray, test_x: Tensor, test_y: np.ndarray, classes: int
) -> float:
    """Accuracy of a logistic regression (L2 1e-3, L-BFGS) fitted on one split, read on another.

    It is fitted on validation features, where groups and targets are as in the test split: a probe
    fitted on biased training data would guess the group from the target.
    """
    mean, std = fit_x.double().mean(0), fit_x.double().std(0).clamp(min=1e-6)
    x, y = (fit_x.double() - mean) / std, torch.from_numpy(fit_y)
    # equal weight for every group, so that predicting the largest one gains nothing
    weight = torch.bincount(y, minlength=classes).clamp(min=1).double().reciprocal()
    w = torch.zeros(x.shape[1], classes, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w, b], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ w + b, y, weight=weight) + 1e-3 * w.pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        guess = (((test_x.double() - mean) / std) @ w + b).argmax(1).numpy()
    return float((guess == test_y).mean())
