"""Feature-based functions: every feature is worth less the more of it was picked."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.registry import did_you_mean
from shasam.submodular import concave_loops, kernels
from shasam.submodular.set_function import SetFunction

Concave = Literal["sqrt", "log", "saturate"]
_KINDS = {
    "sqrt": concave_loops.SQRT,
    "log": concave_loops.LOG,
    "saturate": concave_loops.SATURATE,
}


class FeatureBased(SetFunction):
    """f(A) = Σ_d w_d φ(Σ_{a∈A} x_ad): how well A covers all features, each with falling worth.

    ``features`` (N, D) say how much of each feature an element has, such as word counts, class
    scores or activations after a ReLU; they must not be negative. ``concave`` is φ: "sqrt" √x,
    "log" log(1 + x) or "saturate" x/(1 + x). ``weights`` w_d ≥ 0 are 1 by default. Memory is
    N × D: there is no kernel. Monotone and submodular. √x has no finite slope at 0, so a feature
    that no element of A has gets no gradient.

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
            gains_C = concave_loops.concave_gains(
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
