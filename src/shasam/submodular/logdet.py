"""The log-determinant: f(A) = log det(K_A + λI), over a kernel or over features alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import logdet_loops
from shasam.submodular.kernels import Similarity
from shasam.submodular.set_function import SetFunction, SimilarityFunction
from shasam.submodular.similarities import Similarities

FLOOR = 1e-12  # of the conditional variance: what is left of an exact duplicate without ridge
_INDEFINITE = 1e-6  # of the largest variance: what is this far below 0 is not rounding


def logdet(matrix: Tensor) -> Tensor:
    """log det of a symmetric positive definite matrix (M, M), in float64 where the device has it.

    -inf for a singular one; an indefinite one is refused, since it is no similarity of anything.

    >>> round(float(logdet(torch.tensor([[2.0, 0.0], [0.0, 3.0]]))), 4)
    1.7918
    """
    if matrix.shape[-1] == 0:
        return matrix.new_zeros(())
    wide = matrix if matrix.device.type == "mps" else matrix.double()
    factor, info = torch.linalg.cholesky_ex(wide)
    if int(info) == 0:
        return 2 * factor.diagonal().log().sum().to(matrix.dtype)
    lowest = float(torch.linalg.eigvalsh(wide.detach())[0])
    largest = float(wide.detach().diagonal().amax())
    if lowest < -_INDEFINITE * max(largest, 1e-300):
        raise InputError(
            f"the kernel is not positive semi-definite (smallest eigenvalue {lowest:.3g}); "
            f"use a Gram matrix or rbf, or a ridge above {-lowest:.3g}"
        )
    return matrix.new_full((), -torch.inf)


@dataclass(frozen=True)
class LogDetState:
    """d_v = K_vv + λ - (what the given and the picked explain), and what is needed to go on."""

    d_N: Tensor  # below 0 by more than rounding only where the kernel is indefinite
    metric_DD: Tensor | None  # features: residual metric P
    rows_KN: Tensor | None  # kernel: rows of the Cholesky factor
    given: Tensor  # the set that was conditioned on, its similarities to others times ``factor``
    factor: Tensor
    picked: tuple[int, ...] = ()


class LogDet(SimilarityFunction):
    """f(A) = log det(K_A + λI). Diverse sets have a large volume.

    The ridge λ belongs to the definition: with unit diagonal and λ = 0 every gain is ≤ 0, with
    λ ≥ 1 the function is monotone. ``kernel`` (N, N) is symmetric and positive semi-definite.
    From cosine features z (N, D) no N×N matrix is made: with P = I - Z_A'(K_A + λI)⁻¹Z_A,
    d_v = λ + z_v'P z_v and the gain of v is log d_v.

    >>> f = LogDet([[1.0, 0.5], [0.5, 1.0]], ridge=1.0)
    >>> round(float(f([0])), 4), round(float(f([0, 1])), 4)
    (0.6931, 1.3218)
    >>> from shasam.submodular import maximize
    >>> maximize(LogDet.from_features([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), 2).indices.tolist()
    [0, 2]
    """

    compared_by: ClassVar[Similarity] = "cosine"
    submodular = True
    gain_unit = 1.0

    def __init__(self, kernel: Any, ridge: float = 1.0) -> None:
        gram, _ = Similarities.of(kernel).gram()
        if not ridge >= 0:
            raise InputError(f"ridge must not be negative; got {ridge}")
        self.similarities, self.ridge = gram, float(ridge)
        self.n, self.device, self.dtype = gram.n, gram.device, gram.dtype
        self.monotone = ridge >= 1.0
        self._wide_copy: Tensor | None = None
        self._own_N: Tensor | None = None

    def __call__(self, selected: Any) -> Tensor:
        return logdet(self._ridged(self.index(selected)))

    def residual(self, index: Tensor, given: Tensor, factor_G: Tensor) -> Tensor:
        """K_A + λI - u'(K_G + λI)⁻¹u, u = factor · K_GA: the kernel of A given a set G."""
        block = self._ridged(index)
        if len(given) == 0:
            return block
        cross = self.similarities.block(index, given) * factor_G
        return block - cross @ torch.linalg.solve(self._ridged(given), cross.T)

    def _ridged(self, index: Tensor) -> Tensor:
        """K_A + λI."""
        block = self.similarities.block(index, index)
        return block + self.ridge * torch.eye(len(index), dtype=block.dtype, device=block.device)

    def start(self, given: Any = ()) -> LogDetState:
        index = self.index(given)
        state = self.conditioned(index, torch.ones(len(index), dtype=self.dtype))
        nothing = self.index(())
        return replace(state, given=nothing, factor=state.factor[:0], picked=tuple(index.tolist()))

    def conditioned(self, given: Tensor, factor_G: Tensor) -> LogDetState:
        """The state given a set whose similarities to all others are multiplied by a factor.

        d_v = K_vv + λ - u_v'(K_G + λI)⁻¹u_v with u_v = factor · K_Gv; the factor is η for a query
        and ν for a private set.
        """
        wide, d_N = self._wide(), self._variances()
        by_features = self.similarities.mapped_ND is not None
        eye_DD = torch.eye(wide.shape[1] if by_features else 0, dtype=wide.dtype).to(self.device)
        if len(given) == 0:
            rows_KN = None if by_features else wide.new_zeros(0, self.n)
            return LogDetState(d_N, eye_DD if by_features else None, rows_KN, given, factor_G)
        side_GD = wide[given]
        block_GG = side_GD @ side_GD.T if by_features else side_GD[:, given]
        ridge_GG = self.ridge * torch.eye(len(given), dtype=wide.dtype, device=self.device)
        lower_GG, info = torch.linalg.cholesky_ex(block_GG + ridge_GG)
        if int(info):
            raise InputError(
                "the kernel of the given set is singular (duplicates, or more rows than "
                "dimensions); use a ridge above 0"
            )
        factor_G1 = factor_G.to(wide)[:, None]
        side_GD = torch.linalg.solve_triangular(lower_GG, factor_G1 * side_GD, upper=False)
        explained_GN = side_GD @ wide.T if by_features else side_GD
        d_N = d_N - explained_GN.square().sum(dim=0)
        if not by_features:
            return LogDetState(d_N, None, explained_GN, given, factor_G)
        return LogDetState(d_N, eye_DD - side_GD.T @ side_GD, None, given, factor_G)

    def _wide(self) -> Tensor:
        """Features or kernel in the type in which sums are made, kept once made."""
        if self._wide_copy is None:
            self._wide_copy = self.similarities.base.detach().to(self.sum_dtype)
        return self._wide_copy

    def _variances(self) -> Tensor:
        """K_vv + λ; unit vectors have exactly 1, whatever their rounding."""
        if self._own_N is None:
            self._own_N = self.similarities.diagonal(self.sum_dtype)
        return self._own_N + self.ridge

    def gains(self, state: LogDetState, candidates: Tensor) -> Tensor:
        d_C = state.d_N[candidates]
        if len(d_C) and float(d_C.min()) <= FLOOR:
            self._check_value(state, int(candidates[int(d_C.argmin())]))
        return d_C.clamp_min(FLOOR).log()

    def _check_value(self, state: LogDetState, v: int) -> None:
        """Refuse A + v as f(A + v) does where the kernel given the set is indefinite."""
        index = self.index([*state.picked, v])
        logdet(self.residual(index, state.given, state.factor.to(self.dtype)).detach())

    def add(self, state: LogDetState, v: int) -> LogDetState:
        d_v, picked = state.d_N[v], (*state.picked, v)
        if float(d_v) <= FLOOR:  # an exact duplicate without ridge carries nothing
            self._check_value(state, v)
            return replace(state, picked=picked)
        root = d_v.sqrt()
        if state.metric_DD is not None:
            z_ND = self._wide()
            w_D = state.metric_DD @ z_ND[v] / root
            e_N = z_ND @ w_D
            metric_DD, rows_KN = state.metric_DD - torch.outer(w_D, w_D), None
        else:
            assert state.rows_KN is not None
            row_N = self._wide()[v]
            e_N = (row_N - state.rows_KN[:, v] @ state.rows_KN) / root
            metric_DD, rows_KN = None, torch.cat([state.rows_KN, e_N[None]])
        d_N = state.d_N - e_N.square()
        return replace(state, d_N=d_N, metric_DD=metric_DD, rows_KN=rows_KN, picked=picked)

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        if self.device.type != "cpu":
            return None
        return self.greedy_from(self._fresh(), k, candidates, lazy)

    def _fresh(self) -> LogDetState:
        """An empty state without the float64 copy that only ``add`` and ``conditioned`` need."""
        nothing, one = self.index(()), torch.empty(0, dtype=self.dtype)
        if self.similarities.mapped_ND is not None:
            identity_DD = torch.empty(0, 0, dtype=torch.float64)  # the loop reads it as I
            return LogDetState(self._variances(), identity_DD, None, nothing, one)
        rows_KN = torch.zeros(0, self.n, dtype=torch.float64)
        return LogDetState(self._variances(), None, rows_KN, nothing, one)

    def greedy_from(
        self, state: LogDetState, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """The compiled walk from a given state; the state is not changed."""
        d_C = state.d_N[candidates].clamp_min(FLOOR).numpy()
        picks = candidates.numpy()
        if state.metric_DD is not None:
            z_ND = np.ascontiguousarray(self.similarities.base.detach().numpy())
            metric_DD = state.metric_DD.numpy()
            walked = logdet_loops.logdet_greedy_features(
                z_ND, metric_DD, d_C, FLOOR, picks, k, lazy
            )
        else:
            assert state.rows_KN is not None
            given = len(state.rows_KN)
            c_CK = np.zeros((len(picks), given + k), np.float64)
            c_CK[:, :given] = state.rows_KN.T[candidates].numpy()
            kernel = np.ascontiguousarray(self.similarities.base.detach().numpy())
            walked = logdet_loops.logdet_greedy_kernel(
                kernel, c_CK, d_C, FLOOR, picks, given, k, lazy
            )
        at_floor = np.flatnonzero(walked[1] <= np.log(FLOOR))
        if len(at_floor):
            first = int(at_floor[0])
            before = tuple(int(v) for v in walked[0][:first])
            self._check_value(replace(state, picked=before), int(walked[0][first]))
        return walked

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction:
        return LogDet(self.similarities.part(index), self.ridge)

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        if eta == 1.0 and nu == 1.0:
            return self
        return LogDet(self.similarities.magnified(query, eta, private, nu), self.ridge)
