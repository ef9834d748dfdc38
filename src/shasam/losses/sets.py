"""SHaSaM-LEARN: the conditional mutual information I_f(A; N | P) of embeddings as an objective.

``z`` holds unit-length embeddings, one row per view; ``anchors``, ``positives`` and ``negatives``
are row indices into it, both views of an image in the same set. Everything is computed in at least
float32, whatever autocast says.

Literally (``smooth="none"``, ``represented="batch"``) FLCMI is Table 1 of the paper. It does not
learn: all-equal embeddings have loss 0, and nothing in it distinguishes A from N. ``exact`` is the
same measure of *soft* facility location, f(X) = Σ_i τ log Σ_{j∈X} exp(S_ij/τ), without a hinge or
a minimum of its own; it tends to the printed form as τ → 0 and all-equal embeddings cost
τ log 4/3. ``lse`` leaves the anchors' own cohesion out, softplus((lse_N - lse_P)/τ), which is an
upper bound of the exact form over τ on rows of the anchors. ``linear`` does not saturate. Only
anchors are represented by default, so that P belongs with A; docs/paper.md derives all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shasam.errors import InputError
from shasam.registry import did_you_mean
from shasam.submodular.logdet import logdet, logdet_of_products

# -------------------------------------------------------------------------------------------------
# Embeddings at unit length, safely.
# -------------------------------------------------------------------------------------------------

FLOOR = 1e-6  # projections have a length near √D; below this only rounding is left


def unit_length(x_ND: Tensor) -> Tensor:
    """Scale every row to length 1; a row shorter than ``FLOOR`` becomes zero.

    Such rows come from batches of equal images (a few black ones are enough): batch normalisation
    subtracts all they have. They get no gradient; 1/|x| would make it 10¹² times too large.
    16-bit rows are taken in float32.

    Parameters
    ----------
    x_ND
        Rows (N, D).

    Returns
    -------
    Tensor
        Rows of length 1, or of zeros, in at least float32.

    Examples
    --------
    >>> unit_length(torch.tensor([[3.0, 4.0], [0.0, 1e-9]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    if x_ND.dtype in (torch.float16, torch.bfloat16):
        x_ND = x_ND.float()
    long_N1 = x_ND.detach().norm(dim=1, keepdim=True) > FLOOR
    unit_ND = F.normalize(x_ND, dim=1)
    return torch.where(long_N1, unit_ND, torch.zeros_like(unit_ND))


Smooth = Literal["none", "lse", "exact", "linear"]
Represented = Literal["batch", "target", "anchors"]
PositiveForm = Literal["set", "each"]
# how much each row of a set belongs to it, one tensor per set: anchors, positives, negatives
Membership = tuple[Tensor, Tensor, Tensor]
BLOCK = 2**24  # similarities that are held at once; more are computed in blocks of rows, twice


def _wide(z_MD: Tensor) -> Tensor:
    return z_MD.float() if z_MD.dtype in (torch.float16, torch.bfloat16) else z_MD


def check_form(smooth: str, positive_form: str = "set", weighted: bool = False) -> None:
    """Refuse a form of FLCMI that there is not, with the nearest name."""
    known = get_args(Smooth)
    if smooth not in known:
        raise InputError(
            f"there is no smooth={smooth!r}{did_you_mean(str(smooth), known)}; "
            f"there are {', '.join(known)}"
        )
    if positive_form == "each" and smooth in ("exact", "linear"):
        raise InputError(
            f"smooth={smooth!r} is a measure of sets; positive_form='each' goes with lse or none"
        )
    if weighted and (smooth == "none" or positive_form == "each"):
        raise InputError("weights need a smooth form over sets: lse, exact or linear")


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
    conditional_gain: float = 0.0,
    weights: Membership | None = None,
) -> Tensor:
    """Return the terms of FLCMI, one per represented row (per row and positive for ``each``).

    With a_i, p_i, n_i the sums of exp(S_ij/τ) over A, P and N:

    none:   max(min(max_A S, max_N S) - max_P S, 0) (Table 1).
    exact:  τ log(1 + a n / (p (a + n + p))), row i of I_f(A; N | P) of soft facility location.
    lse:    log(1 + n/p) on anchors, softplus of the hard minimum elsewhere; in units of τ.
    linear: τ log n - mean_P S: the pull of N and the pull of P never fade.
    each:   p is the similarity to one positive, averaged over them, instead of to the set.

    ``conditional_gain`` λ adds λ H_f(A | P), whose row is τ log(1 + a/p), (max_A S - max_P S)⁺ for
    none. ``weights`` says how much each row belongs to its set, so that a = Σ w_j exp(S_ij/τ).
    """
    check_form(smooth, positive_form, weights is not None)
    z_MD = _wide(z_MD)
    rows = {
        "anchors": anchors,
        "target": torch.cat([anchors, positives]),
        "batch": torch.cat([anchors, positives, negatives]),
    }[represented]

    def terms(z_MD: Tensor, rows: Tensor) -> Tensor:
        sim_RM = z_MD[rows] @ z_MD.T
        sets = [sim_RM[:, index] for index in (anchors, positives, negatives)]
        if smooth == "none":
            a_R, p_R, n_R = (s.amax(dim=1) for s in sets)
            # With hard maxima min(a_i, n_i) = n_i on rows of the anchors, because a_i = S_ii = 1.
            overlap_R = n_R if represented == "anchors" else torch.minimum(a_R, n_R)
            gap = overlap_R - p_R if positive_form == "set" else overlap_R[:, None] - sets[1]
            return _with_gain(gap.clamp_min(0), (a_R - p_R).clamp_min(0), conditional_gain)
        given: Sequence[Tensor | None] = weights or (None, None, None)
        logs = [None if w is None else w.to(z_MD).log() for w in given]
        scaled = [
            s / temperature if log is None else s / temperature + log
            for s, log in zip(sets, logs, strict=True)
        ]
        a_R, p_R, n_R = (torch.logsumexp(s, dim=1) for s in scaled)  # log a, log p, log n
        if smooth == "exact":
            everything_R = torch.logsumexp(torch.stack([a_R, n_R, p_R]), dim=0)
            found = temperature * F.softplus(a_R + n_R - p_R - everything_R)
        elif smooth == "linear":
            if weights is None:
                mean_R = sets[1].mean(dim=1)
            else:
                mean_R = sets[1] @ weights[1].to(z_MD) / weights[1].to(z_MD).sum()
            found = temperature * n_R - mean_R
        else:
            # The minimum stays hard off the anchors: a smooth one rewards scattering them, down to
            # collapse. On the anchors it is left out, so that a row keeps its gradient away from N
            # also where n_i > a_i, which does occur under log-sum-exp.
            overlap_R = n_R if represented == "anchors" else torch.minimum(a_R, n_R)
            gap = overlap_R - p_R if positive_form == "set" else overlap_R[:, None] - scaled[1]
            found = F.softplus(gap)
        return _with_gain(found, temperature * F.softplus(a_R - p_R), conditional_gain)

    with torch.autocast(z_MD.device.type, enabled=False):
        if len(rows) * len(z_MD) <= BLOCK:
            return terms(z_MD, rows)
        # The gradient computes each block again instead of keeping all similarities.
        blocks = rows.split(max(BLOCK // len(z_MD), 1))
        return torch.cat(
            [
                checkpoint(terms, z_MD, block, use_reentrant=False, preserve_rng_state=False)
                for block in blocks
            ]
        )


def _with_gain(terms: Tensor, gain_R: Tensor, strength: float) -> Tensor:
    if not strength:
        return terms
    return terms + strength * (gain_R if terms.ndim == 1 else gain_R[:, None])


def level_term(
    anchors: float,
    positives: float,
    negatives: float,
    *,
    smooth: Smooth = "lse",
    temperature: float = 0.7,
    represented: Represented = "anchors",
    positive_form: PositiveForm = "set",
    conditional_gain: float = 0.0,
) -> float:
    """Compute a term of equal similarities, for sets of these sizes: larger terms are on the
    wrong side, nearer to N than to P.

    A log-sum-exp over more rows is larger, so the level depends on the sizes of the sets.

    >>> round(level_term(1, 1, 1), 4), round(level_term(2, 12, 2), 4)
    (0.6931, 0.1542)
    >>> round(level_term(4, 4, 4, smooth="exact", temperature=1.0), 4)  # log 4/3
    0.2877
    """
    if smooth == "none":
        return 0.0
    gain = conditional_gain * temperature * math.log1p(anchors / positives)
    if smooth == "exact":
        everything = anchors + positives + negatives
        return temperature * math.log1p(anchors * negatives / (positives * everything)) + gain
    if smooth == "linear":
        return temperature * math.log(negatives) + gain
    overlap = negatives if represented == "anchors" else min(anchors, negatives)
    return math.log1p(overlap / (positives if positive_form == "set" else 1)) + gain


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
    conditional_gain: float = 0.0,
    weights: Membership | None = None,
) -> Tensor:
    """Compute the facility-location set objective: how much anchors share with negatives.

    The mean of the terms, weighted if rows have weights. With smooth="none", represented="batch"
    and sets of equal size it is I_f(A; N | P)/(3|A|) of facility location, the paper's loss; with
    smooth="exact" the same of soft facility location.

    Parameters
    ----------
    z_MD
        Embeddings (M, D) of unit length.
    anchors
        Rows of A in ``z_MD``.
    positives
        Rows of P: same class, another group.
    negatives
        Rows of N: another class, same group.
    smooth
        "none" (hard maxima, Table 1 of the paper), "lse" (log-sum-exp), "exact" (soft facility
        location) or "linear" (does not saturate).
    temperature
        τ of the smooth forms.
    represented
        Rows that are summed over: "anchors", "target" (A and P) or "batch" (A, P and N).
    positive_form
        "set" compares with P as a set, "each" with every positive in turn.
    conditional_gain
        λ, adds λ·H_f(A | P).
    weights
        How much each row belongs to A, P and N, or None.

    Returns
    -------
    Tensor
        The loss, a scalar.

    Examples
    --------
    >>> z = torch.eye(3)
    >>> index = [torch.tensor([i]) for i in range(3)]
    >>> float(flcmi(z, *index, smooth="none", represented="batch"))
    0.0
    """
    terms = flcmi_terms(
        z_MD,
        anchors,
        positives,
        negatives,
        smooth=smooth,
        temperature=temperature,
        represented=represented,
        positive_form=positive_form,
        conditional_gain=conditional_gain,
        weights=weights,
    )
    return mean_term(terms, represented, weights)


def mean_term(terms: Tensor, represented: Represented, weights: Membership | None) -> Tensor:
    """Return the mean of terms, in which a row weighs what it belongs to its set."""
    if weights is None:
        return terms.mean()
    count = {"anchors": 1, "target": 2, "batch": 3}[represented]
    share_R = torch.cat(weights[:count]).to(terms)
    return (terms * share_R).sum() / share_R.sum()


def logdetcmi(
    z_MD: Tensor,
    anchors: Tensor,
    positives: Tensor,
    negatives: Tensor,
    *,
    ridge: float = 0.5,
    attraction: float = 0.0,
) -> Tensor:
    """Compute the log-determinant set objective.

    ``[ld(A∪P) + ld(N∪P) - ld(A∪P∪N) - ld(P)] / (|A| + |P| + |N|),  ld(X) = log det(S_X + λI)``

    It is symmetric in A and N. The ridge belongs to the definition, since S has rank ≤ D. A set
    of more than D rows is computed from its products (D, D), so that a large batch costs its rows
    times D² instead of their cube.

    Parameters
    ----------
    z_MD
        Embeddings (M, D) of unit length.
    anchors
        Rows of A in ``z_MD``.
    positives
        Rows of P: same class, another group.
    negatives
        Rows of N: another class, same group.
    ridge
        λ, added to the diagonal.
    attraction
        μ, adds -μ·I(A; P)/(|A| + |P|), which says that P belongs with A.

    Returns
    -------
    Tensor
        The loss, a scalar.

    Examples
    --------
    >>> index = [torch.tensor([i]) for i in range(3)]
    >>> abs(float(logdetcmi(torch.eye(3), *index))) < 1e-6  # orthogonal sets share nothing
    True
    """
    z_MD = _wide(z_MD)
    a, p, n = len(anchors), len(positives), len(negatives)
    with torch.autocast(z_MD.device.type, enabled=False):
        width, products = z_MD.shape[1], {}
        summed = z_MD.dtype if z_MD.device.type == "mps" else torch.float64

        def product(index: Tensor) -> Tensor:
            if id(index) not in products:  # each set is in several unions
                x_XD = z_MD[index].to(summed)
                products[id(index)] = x_XD.T @ x_XD
            return products[id(index)]

        def ld(*sets: Tensor) -> Tensor:
            rows = sum(len(index) for index in sets)
            if ridge > 0 and rows > width:
                whole = sum((product(index) for index in sets[1:]), product(sets[0]))
                return logdet_of_products(whole, rows, ridge)
            x_XD = z_MD[torch.cat(sets)]
            eye_XX = torch.eye(len(x_XD), dtype=x_XD.dtype, device=x_XD.device)
            return logdet(x_XD @ x_XD.T + ridge * eye_XX)

        both, private = ld(anchors, positives), ld(positives)
        value = both + ld(negatives, positives) - ld(anchors, positives, negatives) - private
        value = value / (a + p + n)
        if attraction:
            value = value - attraction * (ld(anchors) + private - both) / (a + p)
        return value.to(z_MD.dtype)


class FLCMILoss(nn.Module):
    """Hold the settings of ``flcmi`` as a module; a call takes embeddings and sets.

    Parameters
    ----------
    smooth
        As for ``flcmi``.
    temperature
        As for ``flcmi``.
    represented
        As for ``flcmi``.
    positive_form
        As for ``flcmi``.
    conditional_gain
        As for ``flcmi``.

    Examples
    --------
    >>> index = [torch.tensor([i]) for i in range(3)]
    >>> float(FLCMILoss(smooth="none")(torch.eye(3), *index))
    0.0
    """

    def __init__(
        self,
        smooth: Smooth = "lse",
        temperature: float = 0.7,
        represented: Represented = "anchors",
        positive_form: PositiveForm = "set",
        conditional_gain: float = 0.0,
    ) -> None:
        super().__init__()
        check_form(smooth, positive_form)
        self.smooth, self.temperature = smooth, temperature
        self.represented, self.positive_form = represented, positive_form
        self.conditional_gain = conditional_gain

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
            conditional_gain=self.conditional_gain,
        )


class LogDetCMILoss(nn.Module):
    """Hold the settings of ``logdetcmi`` as a module; a call takes embeddings and sets.

    Parameters
    ----------
    ridge
        As for ``logdetcmi``.
    attraction
        As for ``logdetcmi``.

    Examples
    --------
    >>> index = [torch.tensor([i]) for i in range(3)]
    >>> abs(float(LogDetCMILoss()(torch.eye(3), *index))) < 1e-6
    True
    """

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
