"""Facility location, and the one engine that it shares with all its measures."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import clamped_loops, threads
from shasam.submodular.rows import Rows
from shasam.submodular.set_function import SetFunction, SimilarityFunction
from shasam.submodular.similarities import Gram, Similarities

_TOGETHER = 1024  # candidates that are compared together where there is no kernel


class ClampedFacilityLocation(SimilarityFunction):
    """f(A) = Σ_r [ max(min(max_{a∈A} K_ra, hi_r), lo_r) - lo_r ] + Σ_{a∈A} bonus_a, f(∅) = 0.

    The one engine of facility location and of all its measures. K has a row for each element and
    a column for each represented one; over features it is made when a walk needs it. ``lo_R``
    None: no floor (plain facility location); ``hi_R`` None: no cap.
    """

    submodular = True
    monotone = True

    def __init__(
        self,
        rows: Rows,
        lo_R: Tensor | None = None,
        hi_R: Tensor | None = None,
        bonus_N: Tensor | None = None,
        *,
        candidates: Tensor | None = None,
        nonnegative: bool | None = None,
    ) -> None:
        self.rows, self.lo_R, self.hi_R, self.bonus_N = rows, lo_R, hi_R, bonus_N
        self.n, self.device, self.dtype = rows.n, rows.device, rows.dtype
        self.candidates = candidates
        self._nonnegative = nonnegative
        self._bonus_array: np.ndarray | None = None

    @property
    def kernel_NR(self) -> Tensor:
        """(N, R): every element against every represented row."""
        return self.rows.kernel_NR

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        value = torch.zeros((), dtype=self.dtype, device=self.device)
        if len(index) == 0:
            return value
        for piece, block in self.rows.blocks(index):
            value = value + self._of_rows(block, piece).sum()
        return value if self.bonus_N is None else value + self.bonus_N[index].sum()

    def row_values(self, selected: Any) -> Tensor:
        """(R,): what every represented row adds to f(A), without the bonus."""
        index = self.index(selected)
        return torch.cat([self._of_rows(block, p) for p, block in self.rows.blocks(index)])

    def _of_rows(self, block_AP: Tensor, piece: slice) -> Tensor:
        best = block_AP.amax(dim=0)
        if self.hi_R is not None:
            best = torch.minimum(best, self.hi_R[piece])
        return best if self.lo_R is None else (best - self.lo_R[piece]).clamp_min(0)

    def start(self, given: Any = ()) -> Tensor:
        floor_R = self._floor().to(self.device, copy=True)
        index = self.index(given)
        if len(index):
            best_R = self.rows.best(index).detach()
            floor_R = self._capped(torch.maximum(floor_R, best_R), floor_R)
        return floor_R

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        cap_R = None if self.hi_R is None else torch.maximum(self.hi_R.detach(), state)
        if self.device.type == "cpu" and self.rows.is_made(len(candidates)):
            return _compiled_gains(self._array(), state, cap_R, self._bonus(), candidates.numpy())
        parts = list(candidates.split(_TOGETHER))
        many = self.device.type == "cpu" and len(parts) > 1
        gather = threads.each if many else map  # whole parts side by side, one thread each
        told = list(gather(lambda part: self._gains_anew(part, state, cap_R), parts))
        gains_C = torch.cat([*told, torch.zeros(0, dtype=self.sum_dtype, device=self.device)])
        if self.bonus_N is not None:
            gains_C = gains_C + self.bonus_N.detach()[candidates].to(gains_C.dtype)
        return gains_C

    def _gains_anew(self, index: Tensor, state: Tensor, cap_R: Tensor | None) -> Tensor:
        """Gains of some elements without the bonus; their similarities are not kept."""
        gains_C = torch.zeros(len(index), dtype=self.sum_dtype, device=self.device)
        for piece, block in self.rows.blocks(index):
            cap = None if cap_R is None else cap_R[piece]
            gains_C += self._block_gains(block.detach(), state[piece], cap)
        return gains_C

    def _block_gains(self, block_CR: Tensor, state: Tensor, cap_R: Tensor | None) -> Tensor:
        """Gains of all rows of a block, without the bonus."""
        if self.device.type == "cpu":
            rows, pool = np.ascontiguousarray(block_CR.numpy()), np.arange(len(block_CR))
            return _compiled_gains(rows, state, cap_R, np.zeros(len(pool)), pool)
        raised_CR = torch.maximum(block_CR, state)
        if cap_R is not None:
            raised_CR = torch.minimum(raised_CR, cap_R)
        # Without a floor nothing is picked yet where the state is -inf: the gain is K itself.
        if not bool(torch.isinf(state).any()):
            raised_CR = raised_CR - state
        return raised_CR.sum(dim=1, dtype=self.sum_dtype)

    def add(self, state: Tensor, v: int) -> Tensor:
        row_R = self.rows.best(torch.tensor([v], device=self.device)).detach()
        return self._capped(torch.maximum(state, row_R), state)

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        if self.device.type != "cpu" or not self.rows.kept:
            return None
        # Without a floor the walk starts at 0: check_maximizable has refused negative entries.
        rows = self._array()
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

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction:
        rows, columns = self.rows.part(index, represented)
        keep: Any = slice(None) if columns is None else columns
        return ClampedFacilityLocation(
            rows,
            None if self.lo_R is None else self.lo_R[keep],
            None if self.hi_R is None else self.hi_R[keep],
            None if self.bonus_N is None else self.bonus_N[index],
            nonnegative=self._nonnegative,
        )

    def gains_along(self, order: Tensor) -> Tensor:
        """One pass over the represented rows for all picks."""
        value_K = torch.zeros(len(order), dtype=self.sum_dtype, device=self.device)
        for piece, block in self.rows.blocks(order):
            best = block.detach().cummax(dim=0).values
            if self.hi_R is not None:
                best = torch.minimum(best, self.hi_R.detach()[piece])
            if self.lo_R is not None:
                best = (best - self.lo_R.detach()[piece]).clamp_min(0)
            value_K += best.sum(dim=1, dtype=self.sum_dtype)
        gains_K = value_K.diff(prepend=value_K.new_zeros(1))
        if self.bonus_N is not None:
            gains_K = gains_K + self.bonus_N.detach()[order].to(gains_K.dtype)
        return gains_K.to(self.dtype)

    def after(self, given: Tensor) -> SetFunction:
        """H(A | given) = f(A ∪ given) - f(given): the walk goes on from a raised floor."""
        return ClampedFacilityLocation(
            self.rows,
            self.start(given),
            self.hi_R,
            self.bonus_N,
            candidates=self.candidates,
            nonnegative=self._nonnegative,
        )

    def _array(self) -> np.ndarray:
        return np.ascontiguousarray(self.kernel_NR.detach().numpy())

    def _floor(self) -> Tensor:
        if self.lo_R is not None:
            return self.lo_R.detach()
        return torch.full((self.rows.width,), -torch.inf, dtype=self.dtype)

    def _capped(self, raised: Tensor, floor_R: Tensor) -> Tensor:
        if self.hi_R is None:
            return raised
        # A cap below the floor gives nothing.
        return torch.minimum(raised, torch.maximum(self.hi_R.detach(), floor_R))

    def _bonus(self) -> np.ndarray:
        """The bonus in float64, made once: a walk over few represented rows is short."""
        if self._bonus_array is None:
            self._bonus_array = (
                np.zeros(self.n, np.float64)
                if self.bonus_N is None
                else self.bonus_N.detach().double().numpy()
            )
        return self._bonus_array


def _compiled_gains(
    rows: np.ndarray, state: Tensor, cap_R: Tensor | None, bonus: np.ndarray, pool: np.ndarray
) -> Tensor:
    cap, out = None if cap_R is None else cap_R.numpy(), np.empty(len(pool), np.float64)
    if bool(torch.isinf(state).any()):  # nothing is picked and there is no floor
        clamped_loops.first_gains(rows, cap, bonus, pool, out)
    else:
        clamped_loops.clamped_gains(rows, state.numpy(), cap, bonus, pool, out)
    return torch.from_numpy(out)


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
        super().__init__(Rows(s, represented), nonnegative=s.nonnegative)

    @property
    def similarities(self) -> Gram:
        """The kernel (N, R) with sets as indices, for the measures."""
        return Gram(self.kernel_NR, nonnegative=self._nonnegative)

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        scale_N1 = torch.ones(self.n, 1, dtype=self.dtype, device=self.device)
        scale_N1[query], scale_N1[private] = eta, nu
        return ClampedFacilityLocation(Rows.of(self.kernel_NR * scale_N1))
