"""How the embeddings are spread: the numbers that tell learning from collapse."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def mean_cosine(z: Tensor) -> float:
    """Mean cosine over pairs of different rows: (|sum of unit rows|^2 - n) / (n (n - 1))."""
    z = F.normalize(z.double(), dim=1)
    n = len(z)
    total = z.sum(0)
    return float((total @ total - (z * z).sum()) / (n * (n - 1))) if n > 1 else float("nan")


def effective_rank(z: Tensor) -> float:
    """exp(entropy) of the normalised singular values of the unit rows (Roy and Vetterli, 2007)."""
    singular = torch.linalg.svdvals(F.normalize(z.double(), dim=1))
    share = singular / singular.sum().clamp(min=1e-12)
    return float(torch.exp(-(share * torch.log(share.clamp(min=1e-12))).sum()))
