"""Kernels to test on: random ones, and those on which formulas break."""

from __future__ import annotations

import torch
from torch import Tensor

N = 14


def features(n: int = N, d: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gram(z_ND: Tensor) -> Tensor:
    unit = z_ND / z_ND.norm(dim=1, keepdim=True).clamp_min(1e-300)
    kernel = unit @ unit.T
    return (kernel + kernel.T) / 2


def kernels() -> dict[str, Tensor]:
    """Symmetric positive semi-definite kernels (N, N) in float64, by name."""
    z = features()
    doubled = torch.cat([z[: N // 2], z[: N // 2]])
    near = z[:1] + 1e-7 * features(seed=1)
    zeros = z.clone()
    zeros[3:5] = 0
    blocks = torch.block_diag(*[torch.full((7, 7), 0.9) + 0.1 * torch.eye(7)] * 2).double()
    distance = torch.cdist(z, z)
    return {
        "shifted cosine": (1 + gram(z)) / 2,
        "signed cosine": gram(z),
        "rbf": torch.exp(-distance.square() / 6),
        "duplicates": (1 + gram(doubled)) / 2,
        "signed duplicates": gram(doubled),
        "near-singular": (1 + gram(near)) / 2,
        "zero vectors": gram(zeros),
        "rank 1": torch.outer(z[:, 0].abs(), z[:, 0].abs()),
        "constant": torch.full((N, N), 0.5, dtype=torch.float64),
        "identity": torch.eye(N, dtype=torch.float64),
        "blocks": blocks,
        "large": 1e6 * (1 + gram(z)) / 2,
        "small": 1e-6 * (1 + gram(z)) / 2,
    }


NAMES = list(kernels())
NONNEGATIVE = [name for name, kernel in kernels().items() if float(kernel.min()) >= 0]
