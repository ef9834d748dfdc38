"""The named measures, in closed form: FL1MI, FLQMI, FLCG, FLCMI, GCMI, GCCG, LogDetMI/CG/CMI.

Each can be made over a kernel, with query and private sets as indices into it, or over features,
with query and private sets as features of their own (``from_features``; then the candidates are
the rows of ``z``). η magnifies the query, ν hardens the private set; both are 1 in the paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import kernels
from shasam.submodular.functions import (
    ClampedFacilityLocation,
    FacilityLocation,
    GraphCut,
    SetFunction,
)
from shasam.submodular.kernels import Similarity
from shasam.submodular.logdet import FLOOR, LogDet, LogDetState, logdet


def outside(n: int, *given: Tensor) -> Tensor:
    """What may be picked: all of 0..n-1 but the given sets."""
    free_N = torch.ones(n, dtype=torch.bool, device=given[0].device)
    for index in given:
        free_N[index] = False
    return free_N.nonzero().flatten()


def check_disjoint(query: Tensor, private: Tensor) -> None:
    """A query and a private set must not share elements."""
    shared = np.intersect1d(query.cpu().numpy(), private.cpu().numpy())
    if len(shared):
        raise InputError(
            f"query and private set overlap in {len(shared)} elements (the first is {shared[0]}); "
            "an element cannot be both wanted and unwanted"
        )


def check_given(index: Tensor, name: str) -> Tensor:
    """A query or private set must not be empty."""
    if len(index) == 0:
        raise InputError(f"the {name} set is empty; without it use the plain function")
    return index


def check_strength(eta: float, nu: float) -> None:
    """η and ν multiply similarities: finite, not negative."""
    for name, value in (("eta", eta), ("nu", nu)):
        if not 0 <= value < float("inf"):
            raise InputError(f"{name} must be a number that is not negative; got {value}")


class _FacilityLocationMeasure(ClampedFacilityLocation):
    """Σ_{i∈R} max( min(max_a K_ia, η max_q K_iq) - ν max_p K_ip, 0 ), either part optional."""

    def _over(
        self, f: ClampedFacilityLocation, query: Any, private: Any, eta: float, nu: float
    ) -> None:
        check_strength(eta, nu)
        empty = f.index(())
        query_index = empty if query is None else check_given(f.index(query), "query")
        private_index = empty if private is None else check_given(f.index(private), "private")
        check_disjoint(query_index, private_index)
        super().__init__(
            f.kernel_NR,
            None if private is None else nu * f.kernel_NR[private_index].amax(dim=0),
            None if query is None else eta * f.kernel_NR[query_index].amax(dim=0),
            candidates=outside(f.n, query_index, private_index),
            nonnegative=f._nonnegative,
        )

    def _over_features(
        self,
        z: Any,
        query: Any,
        private: Any,
        eta: float,
        nu: float,
        represented: Any,
        similarity: Similarity,
        gamma: float | None,
    ) -> None:
        check_strength(eta, nu)
        z_ND = kernels.as_features(z)
        f = FacilityLocation.from_features(z_ND, represented, similarity=similarity, gamma=gamma)
        z_RD = z_ND
        if represented is not None:
            z_RD = kernels.represented_features(represented, z_ND)

        def nearest(other: Any, name: str) -> Tensor:
            y_MD = kernels.as_features_like(other, f"{name} features", z_RD)
            return kernels.similarity_matrix(z_RD, y_MD, similarity, gamma).amax(dim=1)

        super().__init__(
            f.kernel_NR,
            None if private is None else nu * nearest(private, "private"),
            None if query is None else eta * nearest(query, "query"),
            nonnegative=f._nonnegative,
        )


class FL1MI(_FacilityLocationMeasure):
    """I(A; Q) = Σ_{i∈R} min( max_{a∈A} K_ia, η max_{q∈Q} K_iq ); it saturates after a few picks."""

    def __init__(self, kernel: Any, query: Any, eta: float = 1.0, represented: Any = None) -> None:
        self._over(FacilityLocation(kernel, represented), query, None, eta, 1.0)

    @classmethod
    def from_features(
        cls,
        z: Any,
        query: Any,
        eta: float = 1.0,
        represented: Any = None,
        *,
        similarity: Similarity = "shifted_cosine",
        gamma: float | None = None,
    ) -> FL1MI:
        """Candidates z (N, D), query features (Q, D); represented rows: the candidates."""
        self = cls.__new__(cls)
        self._over_features(z, query, None, eta, 1.0, represented, similarity, gamma)
        return self


class FLCG(_FacilityLocationMeasure):
    """H(A | P) = Σ_{i∈R} max( max_{a∈A} K_ia - ν max_{p∈P} K_ip, 0 )."""

    def __init__(self, kernel: Any, private: Any, nu: float = 1.0, represented: Any = None) -> None:
        self._over(FacilityLocation(kernel, represented), None, private, 1.0, nu)

    @classmethod
    def from_features(
        cls,
        z: Any,
        private: Any,
        nu: float = 1.0,
        represented: Any = None,
        *,
        similarity: Similarity = "shifted_cosine",
        gamma: float | None = None,
    ) -> FLCG:
        """Candidates z (N, D), private features (P, D); represented rows: the candidates."""
        self = cls.__new__(cls)
        self._over_features(z, None, private, 1.0, nu, represented, similarity, gamma)
        return self


class FLCMI(_FacilityLocationMeasure):
    """I(A; Q | P) = Σ_{i∈R} max( min(max_a K_ia, η max_q K_iq) - ν max_p K_ip, 0 ) (Table 1)."""

    def __init__(
        self,
        kernel: Any,
        query: Any,
        private: Any,
        eta: float = 1.0,
        nu: float = 1.0,
        represented: Any = None,
    ) -> None:
        self._over(FacilityLocation(kernel, represented), query, private, eta, nu)

    @classmethod
    def from_features(
        cls,
        z: Any,
        query: Any,
        private: Any,
        eta: float = 1.0,
        nu: float = 1.0,
        represented: Any = None,
        *,
        similarity: Similarity = "shifted_cosine",
        gamma: float | None = None,
    ) -> FLCMI:
        """Candidates z (N, D), query (Q, D), private (P, D); represented rows: the candidates."""
        self = cls.__new__(cls)
        self._over_features(z, query, private, eta, nu, represented, similarity, gamma)
        return self


class FLQMI(ClampedFacilityLocation):
    """Σ_{q∈Q} max_{a∈A} K_qa + η Σ_{a∈A} max_{q∈Q} K_qa; needs the cross kernel alone.

    Not the mutual information of facility location but its two-sided variant: it keeps rewarding
    every pick for being near the query, so that it finds the hardest elements where FL1MI is flat.
    """

    def __init__(self, kernel: Any, query: Any, eta: float = 1.0) -> None:
        f = FacilityLocation(kernel)
        index = check_given(f.index(query), "query")
        self._over_cross(f.kernel_NR[:, index], eta, outside(f.n, index), None)

    def _over_cross(
        self, cross_NQ: Tensor, eta: float, candidates: Tensor | None, nonnegative: bool | None
    ) -> None:
        check_strength(eta, 1.0)
        super().__init__(
            cross_NQ,
            bonus_N=eta * cross_NQ.amax(dim=1),
            candidates=candidates,
            nonnegative=nonnegative,
        )

    @classmethod
    def from_features(
        cls,
        z: Any,
        query: Any,
        eta: float = 1.0,
        *,
        similarity: Similarity = "shifted_cosine",
        gamma: float | None = None,
    ) -> FLQMI:
        """Candidates z (N, D) and query features (Q, D)."""
        z_ND = kernels.as_features(z)
        y_QD = kernels.as_features_like(query, "query features", z_ND)
        self = cls.__new__(cls)
        cross_NQ = kernels.similarity_matrix(z_ND, y_QD, similarity, gamma)
        self._over_cross(cross_NQ, eta, None, True if similarity != "cosine" else None)
        return self


class GCMI(GraphCut):
    """I(A; Q) = 2λη Σ_{a∈A} Σ_{q∈Q} K_aq: modular, the plain sum of similarities to the query."""

    def __init__(self, kernel: Any, query: Any, lam: float = 0.5, eta: float = 1.0) -> None:
        self._over(GraphCut(kernel, lam), query, eta)

    @classmethod
    def from_features(  # type: ignore[override]
        cls,
        z: Any,
        query: Any,
        lam: float = 0.5,
        eta: float = 1.0,
        *,
        similarity: Similarity = "shifted_cosine",
        gamma: float | None = None,
    ) -> GCMI:
        """Candidates z (N, D) and query features (Q, D)."""
        z_ND = kernels.as_features(z)
        y_QD = kernels.as_features_like(query, "query features", z_ND)
        f = GraphCut.from_features(torch.cat([z_ND, y_QD]), lam, similarity=similarity, gamma=gamma)
        self = cls.__new__(cls)
        self._over(f, range(len(z_ND), f.n), eta)
        return self

    def check_maximizable(self) -> None:
        """A modular function can be maximised over any kernel."""

    def _over(self, f: GraphCut, query: Any, eta: float) -> None:
        check_strength(eta, 1.0)
        index = check_given(f.index(query), "query")
        everything = torch.arange(f.n, device=f.device)
        relevance_N = 2 * f.lam * eta * f._pairs(everything, index).sum(dim=1)
        self._set_up(f.pair_NN, f.mapped_ND, 0.0, relevance_N)
        self.candidates = outside(f.n, index)
        self.monotone = bool((relevance_N.detach()[self.candidates] >= 0).all())


class GCCG(GraphCut):
    """H(A | P) = f(A) - 2λν Σ_{a∈A} Σ_{p∈P} K_ap."""

    def __init__(
        self,
        kernel: Any,
        private: Any,
        lam: float = 0.5,
        nu: float = 1.0,
        represented: Any = None,
    ) -> None:
        self._over(GraphCut(kernel, lam, represented), private, nu)

    @classmethod
    def from_features(  # type: ignore[override]
        cls,
        z: Any,
        private: Any,
        lam: float = 0.5,
        nu: float = 1.0,
        represented: Any = None,
        *,
        similarity: Similarity = "shifted_cosine",
        gamma: float | None = None,
    ) -> GCCG:
        """Candidates z (N, D), private features (P, D); represented rows: the candidates."""
        z_ND = kernels.as_features(z)
        y_PD = kernels.as_features_like(private, "private features", z_ND)
        rows = range(len(z_ND)) if represented is None else represented
        f = GraphCut.from_features(
            torch.cat([z_ND, y_PD]), lam, rows, similarity=similarity, gamma=gamma
        )
        self = cls.__new__(cls)
        self._over(f, range(len(z_ND), f.n), nu)
        return self

    def _over(self, f: GraphCut, private: Any, nu: float) -> None:
        check_strength(1.0, nu)
        index = check_given(f.index(private), "private")
        everything = torch.arange(f.n, device=f.device)
        penalty_N = 2 * f.lam * nu * f._pairs(everything, index).sum(dim=1)
        self._set_up(f.pair_NN, f.mapped_ND, f.lam, f.relevance_N - penalty_N)
        self._nonnegative = f._nonnegative
        self.monotone = False
        self.candidates = outside(f.n, index)


class _LogDetMeasure(SetFunction):
    """log det of A given one set, less log det of A given another, by Schur complements."""

    gain_unit = 1.0
    plus: LogDetState
    minus: LogDetState | None

    def _over(self, f: LogDet, query: Any, private: Any, eta: float, nu: float) -> None:
        check_strength(eta, nu)
        empty = f.index(())
        self.query = empty if query is None else check_given(f.index(query), "query")
        self.private = empty if private is None else check_given(f.index(private), "private")
        check_disjoint(self.query, self.private)
        self.f, self.n, self.device, self.dtype = f, f.n, f.device, f.dtype
        self.candidates = outside(f.n, self.query, self.private)
        self.nu_P = torch.full((len(self.private),), nu, dtype=f.dtype, device=f.device)
        eta_Q = torch.full((len(self.query),), eta, dtype=f.dtype, device=f.device)
        self.both = torch.cat([self.query, self.private])
        self.factor = torch.cat([eta_Q, self.nu_P])
        self.plus = f.conditioned(self.private, self.nu_P)
        self.minus = f.conditioned(self.both, self.factor) if query is not None else None
        # log d given P, less log d given Q and P: a difference of submodular functions.
        self.submodular = query is None
        if query is None:
            self.monotone = nu <= 1.0 and f.ridge >= 1.0
        else:  # two different factors need not leave a positive semi-definite kernel
            self.monotone = eta <= 1.0 and (private is None or eta == nu)

    def _over_features(
        self,
        z: Any,
        query: Any,
        private: Any,
        ridge: float,
        eta: float,
        nu: float,
        similarity: Similarity,
        gamma: float | None,
    ) -> None:
        z_ND = kernels.as_features(z)
        parts, sizes = [z_ND], []
        for other, name in ((query, "query"), (private, "private")):
            if other is not None:
                parts.append(kernels.as_features_like(other, f"{name} features", z_ND))
            sizes.append(0 if other is None else len(parts[-1]))
        n = len(z_ND)
        f = LogDet.from_features(torch.cat(parts), ridge, similarity=similarity, gamma=gamma)
        query_index = None if query is None else range(n, n + sizes[0])
        private_index = None if private is None else range(n + sizes[0], n + sum(sizes))
        self._over(f, query_index, private_index, eta, nu)

    def _residual(self, index: Tensor, given: Tensor, factor: Tensor) -> Tensor:
        """K_A + λI - K_AG (K_G + λI)⁻¹ K_GA with the cross block times the factor."""
        block = self.f.ridged(index)
        if len(given) == 0:
            return block
        cross = self.f.block(index, given) * factor
        return block - cross @ torch.linalg.solve(self.f.ridged(given), cross.T)

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        value = logdet(self._residual(index, self.private, self.nu_P))
        if self.minus is None:
            return value
        return value - logdet(self._residual(index, self.both, self.factor))

    def start(self, given: Any = ()) -> tuple[LogDetState, LogDetState | None]:
        state = (self.plus, self.minus)
        for v in self.index(given).tolist():
            state = self.add(state, v)
        return state

    def gains(self, state: tuple[LogDetState, LogDetState | None], candidates: Tensor) -> Tensor:
        if self.f.ridge > FLOOR:
            for part in state:
                if part is not None and bool((part.d_N[candidates] <= FLOOR).any()):
                    self._refuse_strength()
        gains_C = self.f.gains(state[0], candidates)
        return gains_C if state[1] is None else gains_C - self.f.gains(state[1], candidates)

    def add(
        self, state: tuple[LogDetState, LogDetState | None], v: int
    ) -> tuple[LogDetState, LogDetState | None]:
        minus = None if state[1] is None else self.f.add(state[1], v)
        return self.f.add(state[0], v), minus

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        if self.minus is not None or self.device.type != "cpu":
            return None
        walked = self.f.greedy_from(self.plus, k, candidates, lazy)
        if self.f.ridge > FLOOR and walked[1].min() <= np.log(FLOOR):
            self._refuse_strength()
        return walked

    def _refuse_strength(self) -> None:
        """A conditional variance is at least the ridge, unless η or ν has broken the kernel."""
        raise InputError(
            f"eta and nu ({self.factor.unique().tolist()}) leave no positive semi-definite kernel "
            "here; use values up to 1, or a larger ridge"
        )


class LogDetMI(_LogDetMeasure):
    """I(A; Q) = log det(K_A) - log det(K_A - η² K_AQ K_Q⁻¹ K_QA), each block with its ridge.

    Not submodular in A: lazy greedy would be wrong, ``maximize`` refuses it.
    """

    def __init__(self, kernel: Any, query: Any, ridge: float = 1.0, eta: float = 1.0) -> None:
        self._over(LogDet(kernel, ridge), query, None, eta, 1.0)

    @classmethod
    def from_features(
        cls,
        z: Any,
        query: Any,
        ridge: float = 1.0,
        eta: float = 1.0,
        *,
        similarity: Similarity = "cosine",
        gamma: float | None = None,
    ) -> LogDetMI:
        """Candidates z (N, D) and query features (Q, D)."""
        self = cls.__new__(cls)
        self._over_features(z, query, None, ridge, eta, 1.0, similarity, gamma)
        return self


class LogDetCG(_LogDetMeasure):
    """H(A | P) = log det(K_A - ν² K_AP K_P⁻¹ K_PA), each block with its ridge."""

    def __init__(self, kernel: Any, private: Any, ridge: float = 1.0, nu: float = 1.0) -> None:
        self._over(LogDet(kernel, ridge), None, private, 1.0, nu)

    @classmethod
    def from_features(
        cls,
        z: Any,
        private: Any,
        ridge: float = 1.0,
        nu: float = 1.0,
        *,
        similarity: Similarity = "cosine",
        gamma: float | None = None,
    ) -> LogDetCG:
        """Candidates z (N, D) and private features (P, D)."""
        self = cls.__new__(cls)
        self._over_features(z, None, private, ridge, 1.0, nu, similarity, gamma)
        return self


class LogDetCMI(_LogDetMeasure):
    """I(A; Q | P) = log det(K_A | P) - log det(K_A | Q ∪ P); equal to the ratio in Table 1."""

    def __init__(
        self,
        kernel: Any,
        query: Any,
        private: Any,
        ridge: float = 1.0,
        eta: float = 1.0,
        nu: float = 1.0,
    ) -> None:
        self._over(LogDet(kernel, ridge), query, private, eta, nu)

    @classmethod
    def from_features(
        cls,
        z: Any,
        query: Any,
        private: Any,
        ridge: float = 1.0,
        eta: float = 1.0,
        nu: float = 1.0,
        *,
        similarity: Similarity = "cosine",
        gamma: float | None = None,
    ) -> LogDetCMI:
        """Candidates z (N, D), query (Q, D) and private (P, D)."""
        self = cls.__new__(cls)
        self._over_features(z, query, private, ridge, eta, nu, similarity, gamma)
        return self
