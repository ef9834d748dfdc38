"""Facility location, and the one engine that it shares with all its measures."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import clamped_loops
from shasam.submodular.set_function import SetFunction, SimilarityFunction
from shasam.submodular.similarities import Gram, Similarities


class ClampedFacilityLocation(SimilarityFunction):
    """f(A) = Σ_r [ max(min(max_{a∈A} K_ra, hi_r), lo_r) - lo_r ] + Σ_{a∈A} bonus_a, f(∅) = 0.

    The one engine of facility location and of all its measures. ``kernel_NR`` has a row for each
    element and a column for each represented one. ``lo_R`` None: no floor (plain facility
    location); ``hi_R`` None: no cap.
    """

    submodular = True
    monotone = True

    def __init__(
        self,
        kernel_NR: Tensor,
        lo_R: Tensor | None = None,
        hi_R: Tensor | None = None,
        bonus_N: Tensor | None = None,
        *,
        candidates: Tensor | None = None,
        nonnegative: bool | None = None,
    ) -> None:
        self.kernel_NR, self.lo_R, self.hi_R, self.bonus_N = kernel_NR, lo_R, hi_R, bonus_N
        self.n, self.device, self.dtype = len(kernel_NR), kernel_NR.device, kernel_NR.dtype
        self.candidates = candidates
        self._nonnegative = nonnegative
        self._bonus_array: np.ndarray | None = None

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        if len(index) == 0:
            return self.kernel_NR.new_zeros(())
        best_R = self.kernel_NR[index].amax(dim=0)
        if self.hi_R is not None:
            best_R = torch.minimum(best_R, self.hi_R)
        if self.lo_R is not None:
            best_R = (best_R - self.lo_R).clamp_min(0)
        value = best_R.sum()
        return value if self.bonus_N is None else value + self.bonus_N[index].sum()

    def start(self, given: Any = ()) -> Tensor:
        floor_R = self._floor().to(self.device, copy=True)
        index = self.index(given)
        if len(index):
            best_R = self.kernel_NR.detach()[index].amax(dim=0)
            floor_R = self._capped(torch.maximum(floor_R, best_R), floor_R)
        return floor_R

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        started = not bool(torch.isinf(state).any())
        if self.device.type == "cpu":
            rows, bonus, pool = self._rows(), self._bonus(), candidates.numpy()
            cap, out = self._cap_array(state), np.empty(len(candidates), np.float64)
            if started:
                clamped_loops.clamped_gains(rows, state.numpy(), cap, bonus, pool, out)
            else:
                clamped_loops.first_gains(rows, cap, bonus, pool, out)
            return torch.from_numpy(out)
        raised_CR = self._capped(torch.maximum(self.kernel_NR.detach()[candidates], state), state)
        # Without a floor nothing is picked yet where the state is -inf: the gain is K itself.
        if started:
            raised_CR = raised_CR - state
        gains_C = raised_CR.sum(dim=1, dtype=self.sum_dtype)
        if self.bonus_N is not None:
            gains_C = gains_C + self.bonus_N.detach()[candidates].to(gains_C.dtype)
        return gains_C

    def add(self, state: Tensor, v: int) -> Tensor:
        return self._capped(torch.maximum(state, self.kernel_NR.detach()[v]), state)

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        if self.device.type != "cpu":
            return None
        # Without a floor the walk starts at 0: check_maximizable has refused negative entries.
        rows = self._rows()
        if self.lo_R is None:
            lo_R = np.zeros(rows.shape[1], rows.dtype)
        else:
            lo_R = self.lo_R.detach().numpy().copy()
        return clamped_loops.clamped_greedy(
            rows,
            lo_R,
            None if self.hi_R is None else np.maximum(self.hi_R.detach().numpy(), lo_R),
            self._bonus(),
            candidates.numpy(),
            k,
            lazy,
        )

    def check_maximizable(self) -> None:
        if self._nonnegative is None:
            self._nonnegative = bool(self.kernel_NR.detach().amin() >= 0)
        if not self._nonnegative:
            raise InputError(
                f"{type(self).__name__} needs similarities that are not negative to be maximised; "
                "map cosines with (1 + K)/2 (similarity='shifted_cosine') or use rbf. "
                "Evaluating a signed kernel is fine"
            )

    def _rows(self) -> np.ndarray:
        return np.ascontiguousarray(self.kernel_NR.detach().numpy())

    def _floor(self) -> Tensor:
        if self.lo_R is not None:
            return self.lo_R.detach()
        return self.kernel_NR.new_full((self.kernel_NR.shape[1],), -torch.inf).detach()

    def _capped(self, raised: Tensor, floor_R: Tensor) -> Tensor:
        if self.hi_R is None:
            return raised
        # A cap below the floor gives nothing.
        return torch.minimum(raised, torch.maximum(self.hi_R.detach(), floor_R))

    def _cap_array(self, floor_R: Tensor) -> np.ndarray | None:
        if self.hi_R is None:
            return None
        return torch.maximum(self.hi_R.detach(), floor_R).numpy()

    def _bonus(self) -> np.ndarray:
        """The bonus in float64, made once: a walk over few represented rows is short."""
        if self._bonus_array is None:
            self._bonus_array = (
                np.zeros(self.n, np.float64)
                if self.bonus_N is None
                else self.bonus_N.detach().double().numpy()
            )
        return self._bonus_array


class FacilityLocation(ClampedFacilityLocation):
    """f(A) = Σ_{i∈R} max_{a∈A} K_ia: how well A stands for the represented rows R (default: all).

    ``kernel`` (N, N) is symmetric, ``represented`` holds indices. From features z (N, D),
    ``represented`` may also be features (R, D) of another set; memory is N × R.

    >>> f = FacilityLocation([[1.0, 0.25, 0.0], [0.25, 1.0, 0.5], [0.0, 0.5, 1.0]])
    >>> float(f([1])), float(f([0, 1]))
    (1.75, 2.5)
    >>> g = FacilityLocation.from_features([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], represented=[0, 1])
    >>> tuple(g.kernel_NR.shape)
    (3, 2)
    """

    def __init__(self, kernel: Any, represented: Any = None) -> None:
        s = Similarities.of(kernel)
        super().__init__(s.rows(represented), nonnegative=s.nonnegative)

    @property
    def similarities(self) -> Gram:
        """The kernel (N, R) with sets as indices, for the measures."""
        return Gram(self.kernel_NR, nonnegative=self._nonnegative)

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        scale_N1 = torch.ones(self.n, 1, dtype=self.dtype, device=self.device)
        scale_N1[query], scale_N1[private] = eta, nu
        return ClampedFacilityLocation(self.kernel_NR * scale_N1)
