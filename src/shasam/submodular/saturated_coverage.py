"""Saturated coverage: every row is covered by the sum of its similarities, up to a cap."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import concave_loops
from shasam.submodular.rows import Rows
from shasam.submodular.set_function import SetFunction, SimilarityFunction
from shasam.submodular.similarities import Similarities


class SaturatedCoverage(SimilarityFunction):
    """f(A) = Σ_{i∈R} min( Σ_{a∈A} K_ia, α Σ_{v∈V} K_iv ): all similarities count, up to a share.

    Facility location lets the nearest pick alone stand for a row; here several picks do, until the
    row has the share α of what the whole ground set V would give it (Lin and Bilmes 2011). Small α
    favours diverse sets, α = 1 is modular. ``kernel`` (N, N) is symmetric with entries that are
    not negative; from features z (N, D), ``represented`` may be features (R, D) of another set.
    Memory is N × R. Monotone and submodular.

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
        """(R,): what is left below the cap."""
        covered_R = self.kernel_NR.detach()[self.index(given)].sum(dim=0, dtype=self.sum_dtype)
        return self.cap_R.detach().to(covered_R.dtype) - covered_R

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        room_R = state.clamp_min(0)
        if self.device.type == "cpu":
            rows = np.ascontiguousarray(self.kernel_NR.detach().numpy())
            gains_C = concave_loops.capped_gains(rows, room_R.numpy(), candidates.numpy())
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
