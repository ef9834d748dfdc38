"""SHaSaM-LEARN: the conditional mutual information I_f(A; N | P) of embeddings as an objective.

``z`` holds unit-length embeddings, one row per view; ``anchors``, ``positives`` and ``negatives``
are row indices into it, both views of an image in the same set. Everything is computed in at least
float32, whatever autocast says.

Literally (``smooth="none"``, ``represented="batch"``) FLCMI is Table 1 of the paper. It does not
learn: all-equal embeddings have loss 0, and nothing in it distinguishes A from N. The mended form
(``smooth="lse"``, ``represented="anchors"``) keeps the minimum hard and smooths the maxima and the
hinge: an anchor row reads softplus((lse_N - lse_P)/τ), all-equal embeddings cost log 2, and
only anchors are represented, so that P belongs with A.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shasam.submodular.logdet import logdet

# -------------------------------------------------------------------------------------------------
# Embeddings at unit length, safely.
# -------------------------------------------------------------------------------------------------

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


Smooth = Literal["none", "lse"]
Represented = Literal["batch", "target", "anchors"]
PositiveForm = Literal["set", "each"]


def _wide(z_MD: Tensor) -> Tensor:
    return z_MD.float() if z_MD.dtype in (torch.float16, torch.bfloat16) else z_MD


def flcmi_terms(
    z_MD: Tensor,
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    smooth: Smooth = "lse",
    temperature: float = 0.7,
    represented: Represented = "anchors",
    positive_form: PositiveForm = "set",
) -> Tensor:
    """The terms of FLCMI, one per represented row (per row and positive for ``each``).

    none: max(min(a_i, n_i) - p_i, 0) with a_i = max_{a∈A} S_ia and so on (Table 1).
    lse:  softplus((min(a_i, n_i) - p_i)/τ) with every maximum τ·logsumexp(S/τ); in units of τ.
    each: p_i is the similarity to one positive, averaged over them, instead of to the set.
    """
    z_MD = _wide(z_MD)
    rows = {
        "anchors": anchors,
        "target": torch.cat([anchors, positives]),
        "batch": torch.cat([anchors, positives, negatives]),
    }[represented]
    with torch.autocast(z_MD.device.type, enabled=False):
        sim_RM = z_MD[rows] @ z_MD.T
        sets = [sim_RM[:, index] for index in (anchors, positives, negatives)]
        if smooth == "none":
            a_R, p_R, n_R = (s.amax(dim=1) for s in sets)
        else:
            a_R, p_R, n_R = (temperature * torch.logsumexp(s / temperature, dim=1) for s in sets)
        # The minimum stays hard: a smooth one rewards scattering the anchors, down to collapse.
        overlap_R = torch.minimum(a_R, n_R)
        if represented == "anchors":
            # With hard maxima min(a_i, n_i) = n_i here, because a_i = S_ii = 1. Under log-sum-exp
            # n_i > a_i does occur; the minimum is left out all the same, so that such an anchor
            # keeps its gradient away from N.
            overlap_R = n_R
        gap = overlap_R - p_R if positive_form == "set" else overlap_R[:, None] - sets[1]
        return gap.clamp_min(0) if smooth == "none" else F.softplus(gap / temperature)


def level_term(
    anchors: int,
    positives: int,
    negatives: int,
    *,
    smooth: Smooth = "lse",
    represented: Represented = "anchors",
    positive_form: PositiveForm = "set",
) -> float:
    """A term where all similarities are equal, for sets of these sizes: larger terms are on the
    wrong side, nearer to N than to P.

    A log-sum-exp over more rows is larger, so the level depends on the sizes of the sets.

    >>> round(level_term(1, 1, 1), 4), round(level_term(2, 12, 2), 4)
    (0.6931, 0.1542)
    """
    if smooth == "none":
        return 0.0
    overlap = negatives if represented == "anchors" else min(anchors, negatives)
    return math.log1p(overlap / (positives if positive_form == "set" else 1))


def flcmi(
    z_MD: Tensor,
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    smooth: Smooth = "lse",
    temperature: float = 0.7,
    represented: Represented = "anchors",
    positive_form: PositiveForm = "set",
) -> Tensor:
    """The mean of ``flcmi_terms``: for smooth="none", represented="batch" and sets of equal size
    I_f(A; N | P)/(3|A|) of facility location, the paper's loss.

    >>> z = torch.eye(3)
    >>> index = [torch.tensor([i]) for i in range(3)]
    >>> float(flcmi(z, *index, smooth="none", represented="batch"))
    0.0
    """
    return flcmi_terms(
        z_MD,
        anchors,
        positives,
        negatives,
        smooth=smooth,
        temperature=temperature,
        represented=represented,
        positive_form=positive_form,
    ).mean()


def logdetcmi(
    z_MD: Tensor,
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    ridge: float = 0.5,
    attraction: float = 0.0,
) -> Tensor:
    """LogDetCMI, [ld(A∪P) + ld(N∪P) - ld(A∪P∪N) - ld(P)]/(|A| + |P| + |N|).

    ld(X) = log det(S_X + λI). It is symmetric in A and N; ``attraction`` μ adds the companion
    -μ·I(A; P)/(|A| + |P|), which says that P belongs with A. The ridge belongs to the definition:
    S has rank ≤ D.
    """
    z_MD = _wide(z_MD)
    a, p, n = len(anchors), len(positives), len(negatives)
    with torch.autocast(z_MD.device.type, enabled=False):

        def ld(*sets: Tensor) -> Tensor:
            x_XD = z_MD[torch.cat(sets)]
            eye_XX = torch.eye(len(x_XD), dtype=x_XD.dtype, device=x_XD.device)
            return logdet(x_XD @ x_XD.T + ridge * eye_XX)

        both, private = ld(anchors, positives), ld(positives)
        value = both + ld(negatives, positives) - ld(anchors, positives, negatives) - private
        value = value / (a + p + n)
        if attraction:
            value = value - attraction * (ld(anchors) + private - both) / (a + p)
        return value


class FLCMILoss(nn.Module):
    """``flcmi`` as a module: settings once, embeddings and sets at each call."""

    def __init__(
        self,
        smooth: Smooth = "lse",
        temperature: float = 0.7,
        represented: Represented = "anchors",
        positive_form: PositiveForm = "set",
    ) -> None:
        super().__init__()
        self.smooth, self.temperature = smooth, temperature
        self.represented, self.positive_form = represented, positive_form

    def forward(
        self, z_MD: Tensor, anchors: Tensor, positives: Tensor, negatives: Tensor
    ) -> Tensor:
        return flcmi(
            unit_length(_wide(z_MD)),
            anchors,
            positives,
            negatives,
            smooth=self.smooth,
            temperature=self.temperature,
            represented=self.represented,
            positive_form=self.positive_form,
        )


class LogDetCMILoss(nn.Module):
    """``logdetcmi`` as a module."""

    def __init__(self, ridge: float = 0.5, attraction: float = 0.0) -> None:
        super().__init__()
        self.ridge, self.attraction = ridge, attraction

    def forward(
        self, z_MD: Tensor, anchors: Tensor, positives: Tensor, negatives: Tensor
    ) -> Tensor:
        return logdetcmi(
            unit_length(_wide(z_MD)),
            anchors,
            positives,
            negatives,
            ridge=self.ridge,
            attraction=self.attraction,
        )
