"""Losses of the rivals: SupCon and FSCL, gradient reversal, distances between distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

# -------------------------------------------------------------------------------------------------
# Contrastive objectives on L2-normalised embeddings: SupCon, FSCL and FSCL+.
#
# All take the rows of every view at once: `z_ND` with N = V*B, and labels repeated per view.
# -------------------------------------------------------------------------------------------------

BASE_TEMPERATURE = 0.07


def supcon(
    z_ND: Tensor, t_N: Tensor, *, temperature: float = 0.1, base: float = BASE_TEMPERATURE
) -> Tensor:
    """Compute the supervised contrastive loss.

    ``-(τ/base) mean_i 1/|P(i)| Σ_{p∈P(i)} [ z_i·z_p/τ - log Σ_{a≠i} exp(z_i·z_a/τ) ]``

    P(i) are the other rows of i's class; a row without positives adds 0. Khosla et al., NeurIPS
    2020, the "out" form.

    Parameters
    ----------
    z_ND
        Embeddings (N, D) of unit length.
    t_N
        Classes (N,).
    temperature
        τ.
    base
        Temperature that the loss is scaled by.

    Returns
    -------
    Tensor
        The loss, a scalar.

    Examples
    --------
    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> good, bad = supcon(z, torch.tensor([0, 0, 1, 1])), supcon(z, torch.tensor([0, 1, 0, 1]))
    >>> bool(good < bad)
    True
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
    """Compute the fair supervised contrastive loss, FSCL, or FSCL+.

    Positives P(i): same class. Negatives N(i): another class, same group. The positives are not in
    the denominator: ``l_ip = z_i·z_p/τ - log Σ_{n∈N(i)} exp(z_i·z_n/τ)``, and 0 for the logarithm
    of an empty sum.

    FSCL: ``-(τ/base) mean_i 1/|P(i)| Σ_p l_ip``. FSCL+: ``-(τ/base) mean_i N/(C·G²) 1/(g_i+1) Σ_p
    l_ip/g_p``, where g_x counts the other rows of x's (class, group) cell: each cell weighs the
    same, as anchor and as positive.

    Source: Park et al., CVPR 2022, and its code, which divides column p by g_p and has the constant
    N/8 for 2 classes and 2 groups; a row without positives adds 0.

    Parameters
    ----------
    z_ND
        Embeddings (N, D) of unit length.
    t_N
        Classes (N,).
    s_N
        Groups (N,).
    temperature
        τ.
    base
        Temperature that the loss is scaled by.
    group_normalised
        Weigh every cell the same: FSCL+.
    classes
        Number of classes C.
    groups
        Number of groups G.

    Returns
    -------
    Tensor
        The loss, a scalar.

    Examples
    --------
    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> t, s = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    >>> bool(fscl(z, t, s) < fscl(z, s, t))
    True
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
    """Divide similarities by τ, less each row's largest; mask the pairs of different rows."""
    # exp(1/τ) does not fit in half precision, so similarities are taken in full precision
    with torch.autocast(z_ND.device.type, enabled=False):
        z_ND = z_ND if z_ND.dtype == torch.float64 else z_ND.float()
        logits_NN = z_ND @ z_ND.T / temperature
    logits_NN = logits_NN - logits_NN.max(dim=1, keepdim=True).values.detach()
    other_NN = ~torch.eye(len(z_ND), dtype=torch.bool, device=z_ND.device)
    return logits_NN, other_NN


def _log_sum(logits_NN: Tensor, mask_NN: Tensor) -> Tensor:
    """Return log Σ exp over the masked columns (N, 1); 0 if a row has none."""
    # filled before the logarithm: -inf rows would give NaN gradients
    filled_NN = logits_NN.masked_fill(~mask_NN, float("-inf"))
    some_N1 = mask_NN.any(1, keepdim=True)
    filled_NN = torch.where(some_N1, filled_NN, torch.zeros_like(filled_NN))
    return filled_NN.logsumexp(1, keepdim=True) * some_N1


# -------------------------------------------------------------------------------------------------
# Pieces of adversarial objectives: gradient reversal, its ramp, and the entropy of a predictor.
# -------------------------------------------------------------------------------------------------


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * grad, None


def reverse_gradient(x: Tensor, factor: float = 1.0) -> Tensor:
    """Return x and multiply its gradient by -factor (Ganin et al., JMLR 2016).

    Parameters
    ----------
    x
        Any tensor.
    factor
        What the reversed gradient is multiplied by.

    Returns
    -------
    Tensor
        The same values as x.

    Examples
    --------
    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> reverse_gradient(x, 0.5).backward()
    >>> float(x.grad)
    -0.5
    """
    return _Reverse.apply(x, factor)


def dann_ramp(progress: float, slope: float = 10.0) -> float:
    """Return DANN's weight, from 0 at the start of training to nearly 1 at its end.

    ``2 / (1 + exp(-slope·progress)) - 1``

    Parameters
    ----------
    progress
        Share of training that is done, 0..1.
    slope
        How fast it rises.

    Returns
    -------
    float
        The weight.

    Examples
    --------
    >>> dann_ramp(0.0), round(dann_ramp(1.0), 4)
    (0.0, 0.9999)
    """
    return 2.0 / (1.0 + math.exp(-slope * progress)) - 1.0


def negative_entropy(logits: Tensor) -> Tensor:
    """Compute the negative entropy of predictions.

    ``mean of Σ_g q_g log q_g over rows and pixels, q = softmax over dimension 1``

    Smallest, -log G, if the predictor knows nothing (Kim et al., CVPR 2019, their eq. 5).

    Parameters
    ----------
    logits
        Scores (B, G) or (B, G, H, W).

    Returns
    -------
    Tensor
        The mean, a scalar.

    Examples
    --------
    >>> round(float(negative_entropy(torch.zeros(3, 2))), 4)
    -0.6931
    """
    log_q = F.log_softmax(logits.float() if logits.dtype != torch.float64 else logits, dim=1)
    return (log_q.exp() * log_q).sum(1).mean()


# -------------------------------------------------------------------------------------------------
# Distances between distributions of features: MMD, mean alignment, Gaussian KL, latent blocks.
# -------------------------------------------------------------------------------------------------


def squared_distances(x_ND: Tensor, y_MD: Tensor, *, floor: float = 1e-12) -> Tensor:
    """Return ‖x_i - y_j‖² as (N, M), in full precision, at least ``floor``."""
    with torch.autocast(x_ND.device.type, enabled=False):
        if x_ND.dtype != torch.float64:
            x_ND, y_MD = x_ND.float(), y_MD.float()
        # distances do not depend on the origin; near the data the squares below do not cancel
        origin_D = y_MD.detach().mean(0)
        x_ND, y_MD = x_ND - origin_D, y_MD - origin_D
        square = x_ND.pow(2).sum(1)[:, None] + y_MD.pow(2).sum(1)[None, :] - 2 * x_ND @ y_MD.T
    return square.clamp(min=floor)


def mmd(x_ND: Tensor, y_MD: Tensor, scale: Tensor | float) -> Tensor:
    """Compute the squared maximum mean discrepancy of two samples.

    ``MMD²(x, y) = mean K_xx + mean K_yy - 2 mean K_xy,  K = exp(-d²/(2·scale))``

    Parameters
    ----------
    x_ND
        First sample (N, D).
    y_MD
        Second sample (M, D).
    scale
        Scale of the Gaussian kernel, a variance.

    Returns
    -------
    Tensor
        MMD², a scalar.

    Examples
    --------
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> float(mmd(x, x, 1.0)), bool(mmd(x, x + 5, 1.0) > 1)
    (0.0, True)
    """

    def kernel_mean(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-squared_distances(a, b) / (2 * scale)).mean()

    return kernel_mean(x_ND, x_ND) + kernel_mean(y_MD, y_MD) - 2 * kernel_mean(x_ND, y_MD)


def distillation_mmd(
    student_BD: Tensor, teacher_BD: Tensor, t_B: Tensor, s_B: Tensor, *, sigma: float = 1.0
) -> Tensor:
    """Compute MFD's distance of a student's groups to its teacher's classes.

    ``Σ_y Σ_a MMD²(teacher | y ; student | y, a)``

    Cells that the batch lacks are left out. The kernel's scale is σ times the mean squared distance
    of all teacher-student pairs, a constant; no gradient reaches the teacher (Jung et al., CVPR
    2021, and its code).

    Parameters
    ----------
    student_BD
        Features (B, D) of the student.
    teacher_BD
        Features (B, D) of the teacher.
    t_B
        Classes (B,).
    s_B
        Groups (B,).
    sigma
        σ.

    Returns
    -------
    Tensor
        The distance, a scalar.

    Examples
    --------
    >>> x, t = torch.tensor([[0.0], [1.0], [0.0], [1.0]]), torch.zeros(4, dtype=torch.long)
    >>> round(float(distillation_mmd(x, x, t, torch.tensor([0, 0, 1, 1]))), 6)
    0.0
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


def window_pairs(near_nn: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of rows in the windows of rows, and those of pairs of windows.

    ``near_nn`` is symmetric with ones on its diagonal. A window's weights sum to 1; a pair of
    windows weighs (1 - near_ij) / (n_i n_j), n_i the rows in a window, so that values and not rows
    count alike. Of few values windows are groups, and every two groups weigh the same.

    >>> near = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> [found.tolist() for found in window_pairs(near)]  # doctest: +NORMALIZE_WHITESPACE
    [[[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]],
     [[0.0, 0.0, 0.5], [0.0, 0.0, 0.5], [0.5, 0.5, 0.0]]]
    """
    each_n = near_nn.sum(1).reciprocal()
    return near_nn * each_n[:, None], (1 - near_nn) * each_n[:, None] * each_n


def _over_pairs(gaps: list[Tensor], weights: list[Tensor], nothing: Tensor) -> Tensor:
    """Average over the pairs of windows of all classes, weighted; 0 where there is none."""
    total = torch.stack([w_nn.sum() for w_nn in weights]).sum() if weights else nothing * 0.0
    if not float(total) > 0:
        return nothing * 0.0
    of_all = [(g_nn * w_nn).sum() for g_nn, w_nn in zip(gaps, weights, strict=True)]
    return torch.stack(of_all).sum() / total


def soft_gap(q_BC: Tensor, t_B: Tensor, s_B: Tensor, *, alike_BB: Tensor | None = None) -> Tensor:
    """Compute the mean gap between groups in the probability of the right class.

    The mean over classes y and pairs of groups a < b of |mean q_y (y, a) - mean q_y (y, b)|: a
    differentiable EO. Cells that the batch lacks are left out; 0 if no pair is left.

    Parameters
    ----------
    q_BC
        Probabilities (B, C).
    t_B
        Classes (B,).
    s_B
        Groups (B,).
    alike_BB
        How near two rows are along a number (B, B), which then stands in the place of the groups:
        every row is the middle of a window.

    Returns
    -------
    Tensor
        The mean, a scalar.

    Examples
    --------
    >>> q = torch.tensor([[0.9, 0.1], [0.5, 0.5]])
    >>> t, s = torch.tensor([0, 0]), torch.tensor([0, 1])
    >>> round(float(soft_gap(q, t, s)), 4)
    0.4
    """
    gaps, weights = [], []
    if alike_BB is not None:
        for t in t_B.unique():
            own = t_B == t
            window_nn, pair_nn = window_pairs(alike_BB[own][:, own].to(q_BC))
            mean_n = window_nn @ q_BC[own, t]
            gaps.append((mean_n[:, None] - mean_n).abs())
            weights.append(pair_nn)
        return _over_pairs(gaps, weights, q_BC.sum())
    for t in t_B.unique():
        means = [q_BC[(t_B == t) & (s_B == s), t].mean() for s in s_B[t_B == t].unique()]
        gaps += [(a - b).abs() for a, b in combinations(means, 2)]
    return torch.stack(gaps).mean() if gaps else q_BC.sum() * 0.0


def conditional_hsic(
    x_BD: Tensor,
    t_B: Tensor,
    s_B: Tensor,
    *,
    sigma: float = 1.0,
    alike_BB: Tensor | None = None,
) -> Tensor:
    """Compute the mean HSIC of features and groups within each class.

    The mean over classes y of tr(K H L H) / (n - 1)², with K = exp(-d²/(2·scale)) of the features,
    L_ij = [s_i = s_j], and H that centres. The scale is σ times the mean squared distance of the
    batch, a constant. Classes with fewer than two rows are left out.

    Parameters
    ----------
    x_BD
        Features (B, D).
    t_B
        Classes (B,).
    s_B
        Groups (B,).
    sigma
        σ.
    alike_BB
        L (B, B), where the sensitive attribute is a number: how near two rows are along it.

    Returns
    -------
    Tensor
        The mean, a scalar; 0 if features do not depend on groups.

    Examples
    --------
    >>> x, t = torch.tensor([[0.0], [1.0], [0.0], [1.0]]), torch.zeros(4, dtype=torch.long)
    >>> round(float(conditional_hsic(x, t, torch.tensor([0, 0, 1, 1]))), 6)
    0.0
    >>> float(conditional_hsic(x, t, torch.tensor([0, 1, 0, 1]))) > 0.05
    True
    """
    with torch.no_grad():
        scale = sigma * squared_distances(x_BD, x_BD).mean()
    found = []
    for t in t_B.unique():
        x_nD, s_n = x_BD[t_B == t], s_B[t_B == t]
        n = len(s_n)
        if n < 2:
            continue
        k_nn = torch.exp(-squared_distances(x_nD, x_nD) / (2 * scale))
        l_nn = s_n[:, None] == s_n[None, :]
        if alike_BB is not None:
            l_nn = alike_BB[t_B == t][:, t_B == t]
        l_nn = l_nn.to(k_nn)
        centred_nn = k_nn - k_nn.mean(0) - k_nn.mean(1, keepdim=True) + k_nn.mean()
        found.append((centred_nn * l_nn).sum() / (n - 1) ** 2)
    return torch.stack(found).mean() if found else x_BD.sum() * 0.0


def conditional_group_mmd(
    x_BD: Tensor,
    t_B: Tensor,
    s_B: Tensor,
    *,
    sigma: float = 1.0,
    alike_BB: Tensor | None = None,
) -> Tensor:
    """Compute the mean MMD² between groups within each class.

    The mean over classes y and pairs of groups a < b of MMD²(x | y, a ; x | y, b); 0 if there is no
    pair. The kernel's scale is σ times the mean squared distance of the batch, a constant.

    Parameters
    ----------
    x_BD
        Features (B, D).
    t_B
        Classes (B,).
    s_B
        Groups (B,).
    sigma
        σ.
    alike_BB
        How near two rows are along a number (B, B), which then stands in the place of the groups:
        every row is the middle of a window.

    Returns
    -------
    Tensor
        The mean, a scalar.

    Examples
    --------
    >>> x, t = torch.tensor([[0.0], [1.0], [0.0], [1.0]]), torch.zeros(4, dtype=torch.long)
    >>> float(conditional_group_mmd(x, t, torch.tensor([0, 0, 1, 1])))
    0.0
    """
    with torch.no_grad():
        scale = sigma * squared_distances(x_BD, x_BD).mean()
    terms, weights = [], []
    if alike_BB is not None:
        for t in t_B.unique():
            own = t_B == t
            window_nn, pair_nn = window_pairs(alike_BB[own][:, own].to(x_BD))
            k_nn = torch.exp(-squared_distances(x_BD[own], x_BD[own]) / (2 * scale))
            mean_nn = window_nn @ k_nn @ window_nn.T
            terms.append(mean_nn.diag()[:, None] + mean_nn.diag() - 2 * mean_nn)
            weights.append(pair_nn)
        return _over_pairs(terms, weights, x_BD.sum())
    for t in t_B.unique():
        for a, b in combinations(s_B.unique(), 2):
            x, y = x_BD[(t_B == t) & (s_B == a)], x_BD[(t_B == t) & (s_B == b)]
            if len(x) and len(y):
                terms.append(mmd(x, y, scale))
    return torch.stack(terms).mean() if terms else x_BD.sum() * 0.0


def mean_alignment(x_BD: Tensor, s_B: Tensor) -> Tensor:
    """Compute the mean squared difference between the groups' mean features.

    The mean over pairs of groups; 0 for a batch of one group.

    Parameters
    ----------
    x_BD
        Features (B, D).
    s_B
        Groups (B,).

    Returns
    -------
    Tensor
        The mean, a scalar.

    Examples
    --------
    >>> float(mean_alignment(torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1])))
    4.0
    """
    means = [x_BD[s_B == s].mean(0) for s in s_B.unique()]
    terms = [(a - b).pow(2).mean() for a, b in combinations(means, 2)]
    return torch.stack(terms).mean() if terms else x_BD.sum() * 0.0


def standard_normal_kl(mean_BD: Tensor, log_variance_BD: Tensor) -> Tensor:
    """Compute the divergence of diagonal normal distributions from the standard normal.

    ``KL(N(μ, σ²) ‖ N(0, 1)) = -½ Σ_d (1 + log σ² - μ² - σ²), mean over the batch``

    Parameters
    ----------
    mean_BD
        Means μ (B, D).
    log_variance_BD
        log σ² (B, D).

    Returns
    -------
    Tensor
        The mean, a scalar.

    Examples
    --------
    >>> float(standard_normal_kl(torch.ones(2, 3), torch.zeros(2, 3)))
    1.5
    """
    terms_BD = 1 + log_variance_BD - mean_BD.pow(2) - log_variance_BD.exp()
    return -0.5 * terms_BD.sum(1).mean()


def total_correlation(real_vs_permuted_B2: Tensor) -> Tensor:
    """Estimate total correlation from a discriminator of real and permuted codes.

    ``mean(D(z)_0 - D(z)_1): the density ratio``

    Parameters
    ----------
    real_vs_permuted_B2
        Scores (B, 2) of the discriminator.

    Returns
    -------
    Tensor
        The mean, a scalar.

    Examples
    --------
    >>> float(total_correlation(torch.tensor([[2.0, 1.0], [0.0, 1.0]])))
    0.0
    """
    return (real_vs_permuted_B2[:, 0] - real_vs_permuted_B2[:, 1]).mean()


def permute_blocks(z_BD: Tensor, sizes: Sequence[int]) -> Tensor:
    """Shuffle every block of columns but the first over the batch, each with its own order.

    It breaks the dependence between blocks and keeps that within each of them.

    Parameters
    ----------
    z_BD
        Latent codes (B, D).
    sizes
        Columns of each block.

    Returns
    -------
    Tensor
        Codes (B, D) whose blocks are independent of each other.

    Examples
    --------
    >>> z = torch.arange(8.0).reshape(4, 2)
    >>> permuted = permute_blocks(z, [1, 1])
    >>> bool((permuted[:, 0] == z[:, 0]).all()), permuted[:, 1].sort().values.tolist()
    (True, [1.0, 3.0, 5.0, 7.0])
    """
    first, *others = z_BD.split(list(sizes), dim=1)
    # drawn on the CPU, so that a seed means the same on every device
    shuffled = [block[torch.randperm(len(block)).to(block.device)] for block in others]
    return torch.cat([first, *shuffled], dim=1)
