"""What can be read off frozen features: classifiers that are fitted in a second.

A probe is fitted on one set of rows and read on another. It weighs the values of its label alike,
so that guessing the most frequent one gains nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Probe = Callable[[Tensor, Tensor, Tensor, int], Tensor]  # fit x, fit y, read x, labels -> guess
MLP_HIDDEN, MLP_STEPS = 64, 150


def linear_guess(fit_x: Tensor, fit_y: Tensor, read_x: Tensor, labels: int) -> Tensor:
    """What a logistic regression (L2 1e-3, L-BFGS) says of ``read_x``."""
    x, read = _standardised(fit_x, read_x)
    weight = _alike(fit_y, labels)
    w = torch.zeros(x.shape[1], labels, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(labels, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w, b], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ w + b, fit_y, weight=weight) + 1e-3 * w.pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        return (read @ w + b).argmax(1)


def mlp_guess(fit_x: Tensor, fit_y: Tensor, read_x: Tensor, labels: int) -> Tensor:
    """What one hidden layer of 64 (full batches, AdamW 1e-2, weight decay 1e-2) says."""
    x, read = _standardised(fit_x, read_x)
    weight = _alike(fit_y, labels)
    generator = torch.Generator().manual_seed(0)
    widths = ((x.shape[1], MLP_HIDDEN), (MLP_HIDDEN, labels))
    starts = [torch.randn(w, generator=generator) * (2 / w[0]) ** 0.5 for w in widths]
    # as (out, in): products with float64 matrices of this layout take a quarter less time
    into, out = (start.double().T.contiguous().requires_grad_() for start in starts)
    shifts = [torch.zeros(w[1], dtype=torch.float64, requires_grad=True) for w in widths]

    def scores(rows: Tensor) -> Tensor:
        return F.linear(F.relu(F.linear(rows, into, shifts[0])), out, shifts[1])

    optimizer = torch.optim.AdamW([into, out, *shifts], lr=1e-2, weight_decay=1e-2, fused=True)
    for _ in range(MLP_STEPS):
        optimizer.zero_grad()
        F.cross_entropy(scores(x), fit_y, weight=weight).backward()
        optimizer.step()
    with torch.no_grad():
        return scores(read).argmax(1)


def linear_probe(
    fit_x: Tensor, fit_y: np.ndarray, test_x: Tensor, test_y: np.ndarray, labels: int
) -> float:
    """Accuracy of a linear probe.

    For groups it is fitted on validation features, where groups and targets are as in the test
    split: a probe fitted on biased training data would guess the group from the target.
    """
    guess = linear_guess(fit_x, torch.from_numpy(fit_y), test_x, labels)
    return float((guess.numpy() == test_y).mean())


def within_class(
    probe: Probe,
    fit: tuple[Tensor, np.ndarray, np.ndarray],
    read: tuple[Tensor, np.ndarray, np.ndarray],
    groups: int,
) -> float | None:
    """How well the group is read among images of one class: recall, averaged over groups, classes.

    ``fit`` and ``read`` are features, targets and groups. Within a class the target says nothing
    about the group, so that what is read is leakage. 1/groups is chance. None where no class has
    two groups in both.
    """
    recalls = []
    for c in np.unique(fit[1]):
        (x, s), (test_x, test_s) = (
            (f[torch.from_numpy(t == c)], torch.from_numpy(g[t == c])) for f, t, g in (fit, read)
        )
        known = np.intersect1d(s.numpy(), test_s.numpy())
        if len(known) < 2:
            continue
        guess = probe(x, s, test_x, groups)
        found = [float((guess[test_s == int(g)] == int(g)).float().mean()) for g in known]
        recalls.append(sum(found) / len(found))
    return sum(recalls) / len(recalls) if recalls else None


def _standardised(fit_x: Tensor, read_x: Tensor) -> tuple[Tensor, Tensor]:
    mean, std = fit_x.double().mean(0), fit_x.double().std(0).clamp(min=1e-6)
    return (fit_x.double() - mean) / std, (read_x.double() - mean) / std


def _alike(y: Tensor, labels: int) -> Tensor:
    """Weights with which every value of the label counts the same."""
    return torch.bincount(y, minlength=labels).clamp(min=1).double().reciprocal()
