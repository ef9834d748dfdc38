"""Contrastive objectives on L2-normalised embeddings: SupCon, FSCL and FSCL+.

All take the rows of every view at once: ``z_ND`` with N = V*B, and labels repeated per view.
"""

from __future__ import annotations

import torch
from torch import Tensor

BASE_TEMPERATURE = 0.07


def supcon(
    z_ND: Tensor, t_N: Tensor, *, temperature: float = 0.1, base: float = BASE_TEMPERATURE
) -> Tensor:
    """Supervised contrastive loss (Khosla et al., NeurIPS 2020, "out" form).

    -(τ/base) mean_i 1/|P(i)| Σ_{p∈P(i)} [ z_i·z_p/τ - log Σ_{a≠i} exp(z_i·z_a/τ) ], with P(i) the
    other rows of i's target class. A row without positives adds 0.
    """
    logits_NN, other_NN = _logits(z_ND, temperature)
    positive_NN = (t_N[:, None] == t_N[None, :]) & other_NN
    log_prob_NN = logits_NN - _log_sum(logits_NN, other_NN)
    row_N = (log_prob_NN * positive_NN).sum(1) / positive_NN.sum(1).clamp(min=1)
    return -(temperature / base) * row_N.mean()


def fscl(
    z_ND: Tensor,
    t_N: Tensor,
    s_N: Tensor,
    *,
    temperature: float = 0.1,
    base: float = BASE_TEMPERATURE,
    group_normalised: bool = False,
    classes: int = 2,
    groups: int = 2,
) -> Tensor:
    """Fair supervised contrastive loss, FSCL, and FSCL+ where ``group_normalised``.

    Positives P(i): same target. Negatives N(i): other target, same sensitive group. The positives
    are not in the denominator:
    l_ip = z_i·z_p/τ - log Σ_{n∈N(i)} exp(z_i·z_n/τ), and 0 for the logarithm of an empty sum.
    FSCL: -(τ/base) mean_i 1/|P(i)| Σ_p l_ip.
    FSCL+: -(τ/base) mean_i N/(C·G²) 1/(g_i+1) Σ_p l_ip/g_p, where g_x counts the other rows of x's
    (target, group) cell: each cell weighs the same, as anchor and as positive.
    Source: Park et al., CVPR 2022, and its code, which divides column p by g_p and has the
    constant N/8 for 2 classes and 2 groups; a row without positives adds 0.
    """
    logits_NN, other_NN = _logits(z_ND, temperature)
    same_t_NN = t_N[:, None] == t_N[None, :]
    same_s_NN = s_N[:, None] == s_N[None, :]
    positive_NN = same_t_NN & other_NN
    log_prob_NN = (logits_NN - _log_sum(logits_NN, ~same_t_NN & same_s_NN)) * positive_NN
    if group_normalised:
        others_N = (positive_NN & same_s_NN).sum(1)  # g
        column_N = others_N.clamp(min=1)  # a lone row of a cell has g = 0; the paper has two views
        scale = len(z_ND) / (classes * groups**2)
        row_N = scale * (log_prob_NN / column_N[None, :]).sum(1) / (others_N + 1)
    else:
        row_N = log_prob_NN.sum(1) / positive_NN.sum(1).clamp(min=1)
    return -(temperature / base) * row_N.mean()


def _logits(z_ND: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Similarities over τ less each row's largest, and the mask of pairs of different rows."""
    # exp(1/τ) does not fit in half precision, so similarities are taken in full precision
    with torch.autocast(z_ND.device.type, enabled=False):
        z_ND = z_ND if z_ND.dtype == torch.float64 else z_ND.float()
        logits_NN = z_ND @ z_ND.T / temperature
    logits_NN = logits_NN - logits_NN.max(dim=1, keepdim=True).values.detach()
    other_NN = ~torch.eye(len(z_ND), dtype=torch.bool, device=z_ND.device)
    return logits_NN, other_NN


def _log_sum(logits_NN: Tensor, mask_NN: Tensor) -> Tensor:
    """log Σ exp over the masked columns (N, 1); 0 where a row has none."""
    # filled before the logarithm: -inf rows would give NaN gradients
    filled_NN = logits_NN.masked_fill(~mask_NN, float("-inf"))
    some_N1 = mask_NN.any(1, keepdim=True)
    filled_NN = torch.where(some_N1, filled_NN, torch.zeros_like(filled_NN))
    return filled_NN.logsumexp(1, keepdim=True) * some_N1
