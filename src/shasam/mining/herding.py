"""Representative rows of a cell: kernel herding, which is greedy minimisation of the MMD.

The squared MMD between k picks S and a cell C is mean K_CC - 2 mean K_SC + mean K_SS. With K_vv the
same for all rows, the v that makes it smallest for S + v, of m + 1 picks, is the one with the
largest mean_{c∈C} K_vc - Σ_{s∈S} K_vs / (m + 1): the rule of kernel herding (Chen, Welling and
Smola 2010). Under conditions on the kernel the gain is submodular (Kim, Khanna and Koyejo 2016).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shasam.submodular.kernels import similarity_matrix


def herd(
    z_CD: Tensor,
    k: int,
    gamma: float | None = None,
    *,
    epsilon: float | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """k rows of a cell whose distribution is nearest to the cell's, and the score of each pick.

    ``gamma`` is that of the rbf kernel; None: 1 over the mean squared distance of the cell. With
    ``epsilon`` each pick is the best of a random n/k · log(1/ε) of the rows. Ties go to the first.

    >>> rows, _ = herd(torch.tensor([[0.0], [0.1], [0.2], [9.0]]), 2, gamma=1.0)
    >>> rows.tolist()
    [1, 3]
    """
    if gamma is None:
        gamma = 1 / max(
            float(2 * (z_CD.square().sum(1).mean() - z_CD.mean(0).square().sum())), 1e-12
        )
    kernel_CC = similarity_matrix(z_CD, z_CD, "rbf", gamma).double()
    mean_C, covered_C = kernel_CC.mean(dim=1), torch.zeros(len(z_CD), dtype=torch.float64)
    free_C = torch.ones(len(z_CD), dtype=torch.bool)
    picks, scores = [], []
    for number in range(k):
        score_C = mean_C - covered_C / (number + 1)
        looked = free_C.nonzero().flatten()
        if epsilon is not None:
            size = math.ceil(len(z_CD) / k * math.log(1 / epsilon))
            looked = looked[torch.randperm(len(looked), generator=generator)[:size]].sort().values
        best = score_C[looked].max()
        # what differs by rounding alone is a tie
        first = int((score_C[looked] >= best - 1e-10).to(torch.uint8).argmax())
        pick = int(looked[first])
        picks.append(pick)
        scores.append(float(score_C[pick]))
        free_C[pick] = False
        covered_C += kernel_CC[pick]
    return torch.tensor(picks), torch.tensor(scores)
