"""Set functions with a concave rise: feature-based functions and saturated coverage."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numba import njit
from torch import Tensor

from shasam.errors import InputError
from shasam.registry import did_you_mean
from shasam.submodular import kernels, loops
from shasam.submodular.kernels import Rows, Similarities
from shasam.submodular.set_function import SetFunction, SimilarityFunction

# -------------------------------------------------------------------------------------------------
# Compiled gains of functions that add up what they pick: a concave rise of a sum.
#
# Sums run in float64, row by row, so that a gain has the same bits alone and among others.
# -------------------------------------------------------------------------------------------------

SQRT, LOG, SATURATE = 0, 1, 2  # φ(x) = √x, log(1 + x), x/(1 + x)


@njit(cache=True, nogil=True, fastmath=True)
def _rise(x_ND, v, sum_D, phi_D, weight_D, kind):
    total = 0.0
    if kind == SQRT:
        for d in range(sum_D.shape[0]):
            total += weight_D[d] * (np.sqrt(sum_D[d] + x_ND[v, d]) - phi_D[d])
    elif kind == LOG:
        for d in range(sum_D.shape[0]):
            total += weight_D[d] * (np.log1p(sum_D[d] + x_ND[v, d]) - phi_D[d])
    else:
        for d in range(sum_D.shape[0]):
            x = sum_D[d] + x_ND[v, d]
            total += weight_D[d] * (x / (1 + x) - phi_D[d])
    return total


@njit(cache=True, nogil=True)
def _concave_range(x_ND, sum_D, phi_D, weight_D, kind, candidates, gains, start, stop):
    for c in range(start, stop):
        gains[c] = _rise(x_ND, candidates[c], sum_D, phi_D, weight_D, kind)


@njit(cache=True, nogil=True, fastmath=True)
def _capped(kernel_NR, v, room_R):
    """Return Σ_r min(K_vr, room_r)."""
    total = 0.0
    for r in range(room_R.shape[0]):
        total += min(np.float64(kernel_NR[v, r]), room_R[r])
    return total


@njit(cache=True, nogil=True)
def _capped_range(kernel_NR, room_R, candidates, gains, start, stop):
    for c in range(start, stop):
        gains[c] = _capped(kernel_NR, candidates[c], room_R)


def concave_gains(x_ND, sum_D, phi_D, weight_D, kind, candidates):
    """Return Σ_d w_d (φ(sum_d + x_vd) - φ(sum_d)) for every candidate v."""
    gains = np.empty(len(candidates), np.float64)
    _split(_concave_range, (x_ND, sum_D, phi_D, weight_D, kind, candidates, gains))
    return gains


def capped_gains(kernel_NR, room_R, candidates):
    """Return Σ_r min(K_vr, room_r) for every candidate v, room being what is left below the cap."""
    gains = np.empty(len(candidates), np.float64)
    _split(_capped_range, (kernel_NR, room_R, candidates, gains))
    return gains


def _split(loop, arguments):
    matrix, gains = arguments[0], arguments[-1]
    parts = loops.count(len(gains) * matrix.shape[1])
    edges = [len(gains) * p // parts for p in range(parts + 1)]
    loops.run(loop, [(*arguments, edges[p], edges[p + 1]) for p in range(parts)])


# -------------------------------------------------------------------------------------------------
# Feature-based functions: every feature is worth less the more of it was picked.
# -------------------------------------------------------------------------------------------------

Concave = Literal["sqrt", "log", "saturate"]
_KINDS = {
    "sqrt": SQRT,
    "log": LOG,
    "saturate": SATURATE,
}


class FeatureBased(SetFunction):
    """Measure how well a set covers all features, each with diminishing worth.

    ``f(A) = Σ_d w_d φ(Σ_{a∈A} x_ad)``

    Take it for word counts, class scores or activations after a ReLU. Memory is N × D: there is no
    kernel. Monotone and submodular. √x has no finite slope at 0, so a feature that no element of A
    has gets no gradient.

    Parameters
    ----------
    features
        How much of each feature an element has (N, D), not negative.
    concave
        φ: "sqrt" √x, "log" log(1 + x) or "saturate" x/(1 + x).
    weights
        Weight w_d ≥ 0 of each feature, by default 1.

    Examples
    --------
    >>> f = FeatureBased([[4.0, 0.0], [0.0, 1.0], [5.0, 0.0]])
    >>> float(f([0])), float(f([0, 1])), float(f([0, 2]))
    (2.0, 3.0, 3.0)
    >>> from shasam.submodular import maximize
    >>> maximize(f, 2).indices.tolist()
    [2, 1]
    """

    submodular = True
    monotone = True

    def __init__(self, features: Any, concave: Concave = "sqrt", weights: Any = None) -> None:
        if concave not in _KINDS:
            known = ", ".join(_KINDS)
            raise InputError(
                f"there is no concave function {concave!r}{did_you_mean(concave, _KINDS)}; "
                f"there are {known}"
            )
        self.x_ND, self.concave = kernels.as_features(features), concave
        lowest_N = self.x_ND.detach().amin(dim=1)
        if float(lowest_N.min()) < 0:
            row = int(lowest_N.argmin())
            raise InputError(
                f"features must not be negative; row {row} holds {float(lowest_N[row]):.6g}. "
                "Shift or clip them, or use FacilityLocation or LogDet, which take any embedding"
            )
        self.n, self.device, self.dtype = len(self.x_ND), self.x_ND.device, self.x_ND.dtype
        self.weights_D = _check_weights(weights, self.x_ND)

    def _phi(self, sum_D: Tensor) -> Tensor:
        if self.concave == "log":
            return sum_D.log1p()
        if self.concave == "saturate":
            return sum_D / (1 + sum_D)
        some_D = sum_D > 0
        return torch.where(some_D, sum_D, 1.0).sqrt() * some_D

    def __call__(self, selected: Any) -> Tensor:
        return (self.weights_D * self._phi(self.x_ND[self.index(selected)].sum(dim=0))).sum()

    def start(self, given: Any = ()) -> Tensor:
        return self.x_ND.detach()[self.index(given)].sum(dim=0, dtype=self.sum_dtype)

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        phi_D, weights_D = self._phi(state), self.weights_D.detach().to(state.dtype)
        if self.device.type == "cpu":
            gains_C = concave_gains(
                np.ascontiguousarray(self.x_ND.detach().numpy()),
                state.numpy(),
                phi_D.numpy(),
                weights_D.numpy(),
                _KINDS[self.concave],
                candidates.numpy(),
            )
            return torch.from_numpy(gains_C)
        raised_CD = self._phi(state + self.x_ND.detach()[candidates].to(state.dtype))
        return (raised_CD - phi_D) @ weights_D

    def add(self, state: Tensor, v: int) -> Tensor:
        return state + self.x_ND.detach()[v].to(state.dtype)

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction:
        return FeatureBased(self.x_ND[index], self.concave, self.weights_D)


def _check_weights(weights: Any, x_ND: Tensor) -> Tensor:
    if weights is None:
        return torch.ones_like(x_ND[0].detach())
    weights_D = torch.as_tensor(weights, dtype=x_ND.dtype, device=x_ND.device)
    if weights_D.shape != x_ND.shape[1:]:
        raise InputError(
            f"weights must hold one number per feature, {x_ND.shape[1]}; "
            f"got shape {tuple(weights_D.shape)}"
        )
    if not bool((torch.isfinite(weights_D) & (weights_D >= 0)).all()):
        raise InputError("weights must be finite and not negative")
    return weights_D


# -------------------------------------------------------------------------------------------------
# Saturated coverage: every row is covered by the sum of its similarities, up to a cap.
# -------------------------------------------------------------------------------------------------


class SaturatedCoverage(SimilarityFunction):
    """Measure how well a set covers all rows, several picks counting up to a share.

    ``f(A) = Σ_{i∈R} min( Σ_{a∈A} K_ia, α Σ_{v∈V} K_iv )``

    Facility location lets the nearest pick alone stand for a row; here several picks do, until the
    row has the share α of what the whole ground set V would give it (Lin and Bilmes 2011). Small α
    favours diverse sets, α = 1 is modular. Memory is N × R. Monotone and submodular.

    Parameters
    ----------
    kernel
        Symmetric similarities (N, N) that are not negative.
    alpha
        α, the share after which a row is covered.
    represented
        Indices of the represented rows R, by default all; from features also the features (R,
        D) of another set.

    Examples
    --------
    >>> f = SaturatedCoverage([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], alpha=0.5)
    >>> float(f([1])), float(f([0, 1])), float(f([0, 2]))
    (2.0, 2.25, 2.5)
    >>> from shasam.submodular import maximize
    >>> maximize(f, 2).indices.tolist()
    [1, 0]
    """

    submodular = True
    monotone = True

    def __init__(self, kernel: Any, alpha: float = 0.25, represented: Any = None) -> None:
        if not 0 < alpha <= 1:
            raise InputError(f"alpha is a share of the whole, above 0 and at most 1; got {alpha}")
        s = Similarities.of(kernel)
        rows = Rows(s, represented)
        self._set(rows, alpha * rows.kernel_NR.sum(dim=0), s.nonnegative)

    def _set(self, rows: Rows, cap_R: Tensor, nonnegative: bool | None) -> None:
        self.rows, self.cap_R, self._nonnegative = rows, cap_R, nonnegative
        self.n, self.device, self.dtype = rows.n, rows.device, rows.dtype

    @property
    def kernel_NR(self) -> Tensor:
        """(N, R): every element against every represented row."""
        return self.rows.kernel_NR

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        if len(index) == 0:
            return torch.zeros((), dtype=self.dtype, device=self.device)
        return torch.minimum(self.kernel_NR[index].sum(dim=0), self.cap_R).sum()

    def start(self, given: Any = ()) -> Tensor:
        """Return (R,): what is left below the cap."""
        covered_R = self.kernel_NR.detach()[self.index(given)].sum(dim=0, dtype=self.sum_dtype)
        return self.cap_R.detach().to(covered_R.dtype) - covered_R

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        room_R = state.clamp_min(0)
        if self.device.type == "cpu":
            rows = np.ascontiguousarray(self.kernel_NR.detach().numpy())
            gains_C = capped_gains(rows, room_R.numpy(), candidates.numpy())
            return torch.from_numpy(gains_C)
        rows_CR = self.kernel_NR.detach()[candidates].to(room_R.dtype)
        return torch.minimum(rows_CR, room_R).sum(dim=1)

    def add(self, state: Tensor, v: int) -> Tensor:
        return state - self.kernel_NR.detach()[v].to(state.dtype)

    def check_maximizable(self) -> None:
        if self._nonnegative is None:
            self._nonnegative = bool(self.kernel_NR.detach().amin() >= 0)
        if not self._nonnegative:
            raise InputError(
                f"{type(self).__name__} is monotone and submodular only over similarities that "
                "are not negative; map cosines with (1 + K)/2 (similarity='shifted_cosine') or "
                "use rbf"
            )

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction:
        rows, columns = self.rows.part(index, represented)
        keep: Any = slice(None) if columns is None else columns
        made = SaturatedCoverage.__new__(SaturatedCoverage)
        made._set(rows, self.cap_R[keep], self._nonnegative)
        return made
