"""Pieces of adversarial objectives: gradient reversal, its ramp, and the entropy of a predictor."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * grad, None


def reverse_gradient(x: Tensor, factor: float = 1.0) -> Tensor:
    """The identity whose gradient is multiplied by -factor (Ganin et al., JMLR 2016)."""
    return _Reverse.apply(x, factor)


def dann_ramp(progress: float, slope: float = 10.0) -> float:
    """2 / (1 + exp(-slope·p)) - 1: from 0 at the start of training to nearly 1 at its end."""
    return 2.0 / (1.0 + math.exp(-slope * progress)) - 1.0


def negative_entropy(logits: Tensor) -> Tensor:
    """Mean of Σ_g q_g log q_g over rows and pixels, q = softmax over dimension 1.

    Smallest, -log G, where the predictor knows nothing (Kim et al., CVPR 2019, their eq. 5).
    """
    log_q = F.log_softmax(logits.float() if logits.dtype != torch.float64 else logits, dim=1)
    return (log_q.exp() * log_q).sum(1).mean()
