"""The log-determinant: f(A) = log det(K_A + λI), over a kernel or over features alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import kernels, loops
from shasam.submodular.functions import SetFunction, magnify_cross
from shasam.submodular.kernels import Similarity

FLOOR = 1e-12  # of the conditional variance: what is left of an exact duplicate without ridge


def logdet(matrix: Tensor) -> Tensor:
    """log det of a symmetric positive definite matrix, in float64 where the device has it.

    -inf for a singular one; an indefinite one is refused, since it is no similarity of anything.
    """
    if matrix.shape[-1] == 0:
        return matrix.new_zeros(())
    wide = matrix if matrix.device.type == "mps" else matrix.double()
    factor, info = torch.linalg.cholesky_ex(wide)
    if int(info) == 0:
        return 2 * factor.diagonal().log().sum().to(matrix.dtype)
    lowest = float(torch.linalg.eigvalsh(wide.detach())[0])
    largest = float(wide.detach().diagonal().amax())
    if lowest < -1e-6 * max(largest, 1e-300):
        raise InputError(
            f"the kernel is not positive semi-definite (smallest eigenvalue {lowest:.3g}); "
            f"use a Gram matrix or rbf, or a ridge above {-lowest:.3g}"
        )
    return matrix.new_full((), -torch.inf)


@dataclass
class LogDetState:
    """d_v = K_vv + λ - (what the picked explain), and what is needed to go on."""

    d_N: Tensor
    metric_DD: Tensor | None  # features: residual metric P
    rows_KN: Tensor | None  # kernel: rows of the Cholesky factor


class LogDet(SetFunction):
    """f(A) = log det(K_A + λI). Diverse sets have a large volume.

    The ridge λ belongs to the definition: with unit diagonal and λ = 0 every gain is ≤ 0, with
    λ ≥ 1 the function is monotone. Over cosine features no n×n matrix is made: with
    P = I - Z_A'(K_A + λI)⁻¹Z_A, d_v = λ + z_v'P z_v and the gain of v is log d_v.
    """

    submodular = True
    gain_unit = 1.0

    def __init__(self, kernel: Any, ridge: float = 1.0) -> None:
        self._set_up(kernels.check_kernel(kernel), None, ridge)

    def _set_up(self, kernel_NN: Tensor | None, mapped_ND: Tensor | None, ridge: float) -> None:
        if not ridge >= 0:
            raise InputError(f"ridge must not be negative; got {ridge}")
        self.kernel_NN, self.mapped_ND, self.ridge = kernel_NN, mapped_ND, float(ridge)
        self._wide_copy: Tensor | None = None
        self._own_N: Tensor | None = None
        self.unit_norm = False  # are all rows known to be unit vectors (or zero)?
        base = kernel_NN if kernel_NN is not None else mapped_ND
        assert base is not None
        self.n, self.device, self.dtype = len(base), base.device, base.dtype
        self.monotone = ridge >= 1.0

    @classmethod
    def from_features(
        cls,
        z: Any,
        ridge: float = 1.0,
        *,
        similarity: Similarity = "cosine",
        gamma: float | None = None,
    ) -> LogDet:
        """Over features (N, D); cosine and shifted cosine need O(nD) memory, rbf a kernel."""
        z_ND = kernels.as_features(z)
        self = cls.__new__(cls)
        mapped_ND = kernels.mapped_features(z_ND, similarity)
        if mapped_ND is None:
            self._set_up(kernels.kernel_matrix(z_ND, similarity, gamma), None, ridge)
        else:
            self._set_up(None, mapped_ND.contiguous(), ridge)
            self.unit_norm = similarity == "cosine"
        return self

    def block(self, rows: Tensor, columns: Tensor) -> Tensor:
        """K between two index sets, without ridge."""
        if self.kernel_NN is not None:
            return self.kernel_NN[rows][:, columns]
        assert self.mapped_ND is not None
        return self.mapped_ND[rows] @ self.mapped_ND[columns].T

    def ridged(self, index: Tensor) -> Tensor:
        """K_A + λI."""
        block = self.block(index, index)
        return block + self.ridge * torch.eye(len(index), dtype=block.dtype, device=block.device)

    def __call__(self, selected: Any) -> Tensor:
        return logdet(self.ridged(self.index(selected)))

    def start(self, given: Any = ()) -> LogDetState:
        index = self.index(given)
        return self.conditioned(index, torch.ones(len(index), dtype=self.dtype))

    def conditioned(self, given: Tensor, factor_G: Tensor) -> LogDetState:
        """The state given a set whose similarities to all others are multiplied by a factor.

        d_v = K_vv + λ - u_v'(K_G + λI)⁻¹u_v with u_v = factor · K_Gv; the factor is η for a query
        and ν for a private set.
        """
        wide = self._wide()
        d_N = self._variances()
        width = wide.shape[1]
        if len(given) == 0:
            if self.mapped_ND is not None:
                return LogDetState(
                    d_N, torch.eye(width, dtype=wide.dtype, device=self.device), None
                )
            return LogDetState(d_N, None, wide.new_zeros(0, self.n))
        factor_G1 = factor_G.to(wide)[:, None]
        if self.mapped_ND is not None:
            block_GG = wide[given] @ wide[given].T
            side_GD = wide[given]
        else:
            block_GG, side_GD = wide[given][:, given], wide[given]
        ridge_GG = self.ridge * torch.eye(len(given), dtype=wide.dtype, device=self.device)
        lower_GG, info = torch.linalg.cholesky_ex(block_GG + ridge_GG)
        if int(info):
            raise InputError(
                "the kernel of the given set is singular (duplicates, or more rows than "
                "dimensions); use a ridge above 0"
            )
        side_GD = torch.linalg.solve_triangular(lower_GG, factor_G1 * side_GD, upper=False)
        explained_GN = side_GD @ wide.T if self.mapped_ND is not None else side_GD
        d_N = (d_N - explained_GN.square().sum(dim=0)).clamp_min(FLOOR)
        if self.mapped_ND is None:
            return LogDetState(d_N, None, explained_GN)
        eye_DD = torch.eye(width, dtype=wide.dtype, device=self.device)
        return LogDetState(d_N, eye_DD - side_GD.T @ side_GD, None)

    def _wide(self) -> Tensor:
        """Features or kernel in the type in which sums are made, kept once made."""
        if self._wide_copy is None:
            base = self.mapped_ND if self.kernel_NN is None else self.kernel_NN
            assert base is not None
            self._wide_copy = base.detach().to(self.sum_dtype)
        return self._wide_copy

    def _variances(self) -> Tensor:
        """K_vv + λ; unit vectors have exactly 1, whatever their rounding."""
        if self._own_N is None:
            if self.kernel_NN is not None:
                self._own_N = self.kernel_NN.detach().diagonal().to(self.sum_dtype)
            else:
                assert self.mapped_ND is not None
                self._own_N = self.mapped_ND.detach().to(self.sum_dtype).square().sum(dim=1)
                if self.unit_norm:
                    self._own_N = self._own_N.round()
        return self._own_N + self.ridge

    def gains(self, state: LogDetState, candidates: Tensor) -> Tensor:
        return state.d_N[candidates].log()

    def add(self, state: LogDetState, v: int) -> LogDetState:
        d_v = state.d_N[v]
        if float(d_v) <= FLOOR:
            return state
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
        return LogDetState((state.d_N - e_N.square()).clamp_min(FLOOR), metric_DD, rows_KN)

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        if self.device.type != "cpu":
            return None
        return self.greedy_from(self._fresh(), k, candidates, lazy)

    def _fresh(self) -> LogDetState:
        """An empty state without the float64 copy that only ``add`` and ``conditioned`` need."""
        if self.mapped_ND is not None:
            identity_DD = torch.empty(0, 0, dtype=torch.float64)  # the loop reads it as I
            return LogDetState(self._variances(), identity_DD, None)
        return LogDetState(self._variances(), None, torch.zeros(0, self.n, dtype=torch.float64))

    def greedy_from(
        self, state: LogDetState, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """The compiled walk from a given state; the state is not changed."""
        d_C = state.d_N[candidates].numpy().copy()
        picks = candidates.numpy()
        if state.metric_DD is not None:
            assert self.mapped_ND is not None
            z_ND = np.ascontiguousarray(self.mapped_ND.detach().numpy())
            metric_DD = state.metric_DD.numpy()
            return loops.logdet_greedy_features(z_ND, metric_DD, d_C, FLOOR, picks, k, lazy)
        assert self.kernel_NN is not None and state.rows_KN is not None
        given = len(state.rows_KN)
        c_CK = np.zeros((len(picks), given + k), np.float64)
        c_CK[:, :given] = state.rows_KN.T[candidates].numpy()
        kernel = np.ascontiguousarray(self.kernel_NN.detach().numpy())
        return loops.logdet_greedy_kernel(kernel, c_CK, d_C, FLOOR, picks, given, k, lazy)

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        everything = torch.arange(self.n, device=self.device)
        if eta == 1.0 and nu == 1.0:
            return self
        kernels.check_memory(self.n, self.n, self._variances())
        scaled = LogDet.__new__(LogDet)
        kernel_NN = magnify_cross(self.block(everything, everything), query, eta, private, nu)
        scaled._set_up(kernel_NN, None, self.ridge)
        return scaled
