"""Embeddings at unit length, safely."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

FLOOR = 1e-6  # projections have a length near √D; below this only rounding is left


def unit_length(x_ND: Tensor) -> Tensor:
    """x / |x| row by row; a row shorter than ``FLOOR`` has no direction and becomes zero.

    Such rows come from batches of equal images (a few black ones are enough): batch normalisation
    subtracts all they have. They get no gradient; 1/|x| would make it 10¹² times too large.
    16-bit rows are taken in float32.

    >>> unit_length(torch.tensor([[3.0, 4.0], [0.0, 1e-9]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    if x_ND.dtype in (torch.float16, torch.bfloat16):
        x_ND = x_ND.float()
    long_N1 = x_ND.detach().norm(dim=1, keepdim=True) > FLOOR
    unit_ND = F.normalize(x_ND, dim=1)
    return torch.where(long_N1, unit_ND, torch.zeros_like(unit_ND))
