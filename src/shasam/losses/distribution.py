"""Distances between distributions of features: MMD, mean alignment, Gaussian KL, latent blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor


def squared_distances(x_ND: Tensor, y_MD: Tensor, *, floor: float = 1e-12) -> Tensor:
    """‖x_i - y_j‖² as (N, M), in full precision, at least ``floor``."""
    with torch.autocast(x_ND.device.type, enabled=False):
        if x_ND.dtype != torch.float64:
            x_ND, y_MD = x_ND.float(), y_MD.float()
        # distances do not depend on the origin; near the data the squares below do not cancel
        origin_D = y_MD.detach().mean(0)
        x_ND, y_MD = x_ND - origin_D, y_MD - origin_D
        square = x_ND.pow(2).sum(1)[:, None] + y_MD.pow(2).sum(1)[None, :] - 2 * x_ND @ y_MD.T
    return square.clamp(min=floor)


def mmd(x_ND: Tensor, y_MD: Tensor, scale: Tensor | float) -> Tensor:
    """MMD²(x, y) = mean K_xx + mean K_yy - 2 mean K_xy with K = exp(-d²/(2·scale))."""

    def kernel_mean(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-squared_distances(a, b) / (2 * scale)).mean()

    return kernel_mean(x_ND, x_ND) + kernel_mean(y_MD, y_MD) - 2 * kernel_mean(x_ND, y_MD)


def distillation_mmd(
    student_BD: Tensor, teacher_BD: Tensor, t_B: Tensor, s_B: Tensor, *, sigma: float = 1.0
) -> Tensor:
    """Σ_y Σ_a MMD²(teacher | y ; student | y, a), cells that the batch lacks left out.

    The kernel's scale is σ times the mean squared distance of all teacher-student pairs, a
    constant; no gradient reaches the teacher (Jung et al., CVPR 2021, and its code).
    """
    teacher_BD = teacher_BD.detach()
    with torch.no_grad():
        scale = sigma * squared_distances(teacher_BD, student_BD).mean()
    total = student_BD.sum() * 0.0
    for t in t_B.unique():
        for s in s_B.unique():
            cell_B = (t_B == t) & (s_B == s)
            if cell_B.any():
                total = total + mmd(teacher_BD[t_B == t], student_BD[cell_B], scale)
    return total


def conditional_group_mmd(x_BD: Tensor, t_B: Tensor, s_B: Tensor, *, sigma: float = 1.0) -> Tensor:
    """Mean over classes y and pairs of groups a < b of MMD²(x | y, a ; x | y, b); 0 if no pair.

    The kernel's scale is σ times the mean squared distance of the batch, a constant.
    """
    with torch.no_grad():
        scale = sigma * squared_distances(x_BD, x_BD).mean()
    terms = []
    for t in t_B.unique():
        for a, b in combinations(s_B.unique(), 2):
            x, y = x_BD[(t_B == t) & (s_B == a)], x_BD[(t_B == t) & (s_B == b)]
            if len(x) and len(y):
                terms.append(mmd(x, y, scale))
    return torch.stack(terms).mean() if terms else x_BD.sum() * 0.0


def mean_alignment(x_BD: Tensor, s_B: Tensor) -> Tensor:
    """Mean over pairs of groups of MSE(mean x | a, mean x | b); 0 for a batch of one group."""
    means = [x_BD[s_B == s].mean(0) for s in s_B.unique()]
    terms = [(a - b).pow(2).mean() for a, b in combinations(means, 2)]
    return torch.stack(terms).mean() if terms else x_BD.sum() * 0.0


def standard_normal_kl(mean_BD: Tensor, log_variance_BD: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(0, 1)) = -½ Σ_d (1 + log σ² - μ² - σ²), mean over the batch."""
    terms_BD = 1 + log_variance_BD - mean_BD.pow(2) - log_variance_BD.exp()
    return -0.5 * terms_BD.sum(1).mean()


def total_correlation(real_vs_permuted_B2: Tensor) -> Tensor:
    """mean(D(z)_0 - D(z)_1): the density ratio read off the discriminator's two logits."""
    return (real_vs_permuted_B2[:, 0] - real_vs_permuted_B2[:, 1]).mean()


def permute_blocks(z_BD: Tensor, sizes: Sequence[int]) -> Tensor:
    """Shuffle every block of columns but the first over the batch, each with its own order.

    It breaks the dependence between blocks and keeps that within each of them.
    """
    first, *others = z_BD.split(list(sizes), dim=1)
    # drawn on the CPU, so that a seed means the same on every device
    shuffled = [block[torch.randperm(len(block)).to(block.device)] for block in others]
    return torch.cat([first, *shuffled], dim=1)
