"""Set functions: facility location, graph cut, log-determinant.

A set function over the ground set {0..n-1} can be evaluated, ``f(A)``, with gradient, and walked:
``state = f.start(given)``, ``f.gains(state, candidates)``, ``f.add(state, v)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import kernels, loops
from shasam.submodular.kernels import Similarity

_TILE = 256  # rows looked at together where an n×n matrix is to be avoided


class SetFunction:
    """The base class: what ``maximize``, the measures and ``check_set_function`` rely on."""

    n: int  # size of the ground set
    device: torch.device
    dtype: torch.dtype
    monotone: bool = False
    submodular: bool = False
    gain_unit: float = 0.0  # gains closer than 1e-10 · max(|gain|, gain_unit) are a tie
    candidates: Tensor | None = None  # what may be picked; None is everything

    def __call__(self, selected: Any) -> Tensor:
        """f(A), a differentiable scalar; f(∅) = 0."""
        raise NotImplementedError

    def start(self, given: Any = ()) -> Any:
        """The state after the elements of ``given`` have been added."""
        raise NotImplementedError

    def gains(self, state: Any, candidates: Tensor) -> Tensor:
        """f(A ∪ {v}) - f(A) for every candidate v, in one operation; float64 where it exists."""
        raise NotImplementedError

    def add(self, state: Any, v: int) -> Any:
        """The state with v added; the old state may be reused."""
        raise NotImplementedError

    def check_maximizable(self) -> None:
        """Raise where greedy picks would mean nothing, with what to do instead."""

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        """A compiled greedy walk on the CPU, or None where there is none."""
        return None

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        """The same function with similarities to the query times η, to the private set times ν."""
        if eta == 1.0 and nu == 1.0:
            return self
        raise InputError(
            f"{type(self).__name__} does not say how a query or private set is magnified; "
            "use eta = nu = 1 or write its magnified()"
        )

    def index(self, selected: Any) -> Tensor:
        """Checked indices of the ground set, as int64 on the function's device."""
        index = torch.as_tensor(
            selected if isinstance(selected, Tensor | np.ndarray) else list(selected),
            device=self.device,
        ).reshape(-1)
        if len(index) and (index.is_floating_point() or index.dtype == torch.bool):
            kind = "a mask" if index.dtype == torch.bool else "floats"
            raise InputError(
                f"a set is given by the indices of its elements, whole numbers; got {kind}"
            )
        index = index.to(torch.int64)
        if len(index) and (int(index.min()) < 0 or int(index.max()) >= self.n):
            raise InputError(
                f"indices must be within 0..{self.n - 1}; "
                f"got {int(index.min())}..{int(index.max())}"
            )
        if len(index) != len(index.unique()):
            raise InputError("a set holds each index once; remove the repeated ones")
        return index

    def represented_index(self, represented: Any) -> Tensor:
        """Checked indices of the represented rows; there must be some."""
        index = self.index(represented)
        if len(index) == 0:
            raise InputError("the represented set is empty; leave it out to represent all rows")
        return index

    @property
    def sum_dtype(self) -> torch.dtype:
        """float64 where the device has it: gains must not depend on the order of summation."""
        return torch.float32 if self.device.type == "mps" else torch.float64


class ClampedFacilityLocation(SetFunction):
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
        if self.device.type == "cpu" and started:
            out = np.empty(len(candidates), np.float64)
            loops.clamped_gains(
                self._rows(),
                state.numpy(),
                self._cap_array(state),
                self._bonus(),
                candidates.numpy(),
                out,
            )
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
        return loops.clamped_greedy(
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

    >>> f = FacilityLocation(torch.tensor([[1.0, 0.2], [0.2, 1.0]]))
    >>> float(f([0]))
    1.2000000476837158
    """

    def __init__(self, kernel: Any, represented: Any = None) -> None:
        kernel_NN = kernels.check_kernel(kernel)
        super().__init__(kernel_NN)
        if represented is not None:
            self.kernel_NR = kernel_NN[:, self.represented_index(represented)]

    @classmethod
    def from_features(
        cls,
        z: Any,
        represented: Any = None,
        *,
        similarity: Similarity = "shifted_cosine",
        gamma: float | None = None,
    ) -> FacilityLocation:
        """Over features (N, D); ``represented``: row indices, or features (R, D) of another set."""
        z_ND = kernels.as_features(z)
        self = cls.__new__(cls)
        safe = True if similarity != "cosine" else None
        if represented is None:
            kernel_NR = kernels.kernel_matrix(z_ND, similarity, gamma)
        else:
            z_RD = kernels.represented_features(represented, z_ND)
            kernel_NR = kernels.similarity_matrix(z_ND, z_RD, similarity, gamma)
        ClampedFacilityLocation.__init__(self, kernel_NR, nonnegative=safe)
        return self

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        scale_N1 = torch.ones(self.n, 1, dtype=self.dtype, device=self.device)
        scale_N1[query], scale_N1[private] = eta, nu
        return ClampedFacilityLocation(self.kernel_NR * scale_N1)


class GraphCut(SetFunction):
    """f(A) = Σ_{i∈R} Σ_{a∈A} K_ia - λ Σ_{a,b∈A} K_ab: relevance less redundancy."""

    def __init__(self, kernel: Any, lam: float = 0.5, represented: Any = None) -> None:
        kernel_NN = kernels.check_kernel(kernel)
        self.n, self.device = len(kernel_NN), kernel_NN.device
        rows_NR = kernel_NN
        if represented is not None:
            rows_NR = kernel_NN[:, self.represented_index(represented)]
        self._set_up(kernel_NN, None, lam, rows_NR.sum(dim=1))
        self.monotone = self.monotone and represented is None

    def _set_up(
        self, pair_NN: Tensor | None, mapped_ND: Tensor | None, lam: float, relevance_N: Tensor
    ) -> None:
        if not lam >= 0:
            raise InputError(f"lam must not be negative; got {lam}")
        self.pair_NN, self.mapped_ND, self.lam = pair_NN, mapped_ND, lam
        self.relevance_N = relevance_N
        self.n, self.device, self.dtype = len(relevance_N), relevance_N.device, relevance_N.dtype
        self.gain_unit = float(relevance_N.detach().abs().amax())
        self.submodular, self.monotone = True, lam <= 0.5
        self._nonnegative: bool | None = None

    @classmethod
    def from_features(
        cls,
        z: Any,
        lam: float = 0.5,
        represented: Any = None,
        *,
        similarity: Similarity = "shifted_cosine",
        gamma: float | None = None,
    ) -> GraphCut:
        """Over features; cosine kernels need no n×n matrix: Σ_i K_ia = z_a · Σ_i z_i."""
        z_ND = kernels.as_features(z)
        mapped_ND = kernels.mapped_features(z_ND, similarity)
        if mapped_ND is None:
            return cls(kernels.kernel_matrix(z_ND, similarity, gamma), lam, represented)
        self = cls.__new__(cls)
        self.n, self.device = len(mapped_ND), mapped_ND.device
        rows_RD = mapped_ND
        if represented is not None:
            rows_RD = mapped_ND[self.represented_index(represented)]
        self._set_up(None, mapped_ND, lam, mapped_ND @ rows_RD.sum(dim=0))
        self.monotone = self.monotone and represented is None
        if similarity == "shifted_cosine":
            # (1 + cos)/2 ≥ 0; rounding puts the pair of two opposite rows just below zero
            self._nonnegative = True
        return self

    def _pairs(self, rows: Tensor, columns: Tensor) -> Tensor:
        if self.pair_NN is not None:
            return self.pair_NN[rows][:, columns]
        assert self.mapped_ND is not None
        return self.mapped_ND[rows] @ self.mapped_ND[columns].T

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        return self.relevance_N[index].sum() - self.lam * self._pairs(index, index).sum()

    def start(self, given: Any = ()) -> Tensor:
        index = self.index(given)
        everything = torch.arange(self.n, device=self.device)
        return self._pairs(everything, index).detach().sum(dim=1, dtype=self.sum_dtype)

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        own_C = self._own()[candidates].to(state.dtype)
        relevance_C = self.relevance_N.detach()[candidates].to(state.dtype)
        return relevance_C - self.lam * (2 * state[candidates] + own_C)

    def add(self, state: Tensor, v: int) -> Tensor:
        if self.pair_NN is not None:
            return state + self.pair_NN.detach()[:, v]
        assert self.mapped_ND is not None
        return state + (self.mapped_ND @ self.mapped_ND[v]).detach()

    def _own(self) -> Tensor:
        if self.pair_NN is not None:
            return self.pair_NN.detach().diagonal()
        assert self.mapped_ND is not None
        return self.mapped_ND.detach().square().sum(dim=1)

    def check_maximizable(self) -> None:
        if self._nonnegative is None:
            rounding = 1e3 * torch.finfo(self.dtype).eps * float(self._own().abs().amax())
            self._nonnegative = self._least_pair() >= -rounding
        if not self._nonnegative:
            raise InputError(
                f"{type(self).__name__} is submodular only over similarities that are not "
                "negative; map cosines with (1 + K)/2 (similarity='shifted_cosine') or use rbf. "
                "Evaluating a signed kernel is fine"
            )

    def _least_pair(self) -> float:
        """min K, tile by tile: features need no n×n matrix here either."""
        if self.pair_NN is not None:
            return float(self.pair_NN.detach().amin())
        assert self.mapped_ND is not None
        z_ND = self.mapped_ND.detach()
        return min(float((tile @ z_ND.T).amin()) for tile in z_ND.split(_TILE))

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        """Only the pairwise term is magnified: relevance does not speak of query or private."""
        everything = torch.arange(self.n, device=self.device)
        scaled = GraphCut.__new__(GraphCut)
        pair_NN = magnify_cross(self._pairs(everything, everything), query, eta, private, nu)
        scaled._set_up(pair_NN, None, self.lam, self.relevance_N)
        return scaled


def magnify_cross(
    kernel_NN: Tensor, query: Tensor, eta: float, private: Tensor, nu: float
) -> Tensor:
    """Times η where one side is in the query and the other in neither set; ν for the private."""
    kind_N = torch.zeros(len(kernel_NN), dtype=torch.int64, device=kernel_NN.device)
    kind_N[query], kind_N[private] = 1, 2
    factor = torch.tensor(
        [[1.0, eta, nu], [eta, 1.0, 1.0], [nu, 1.0, 1.0]],
        dtype=kernel_NN.dtype,
        device=kernel_NN.device,
    )
    return kernel_NN * factor[kind_N][:, kind_N]
