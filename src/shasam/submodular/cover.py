"""Cover of concepts and spread of a set: set cover, its probabilistic form, and disparity.

The measures of a cover are covers again, with other weights of the concepts: what a query does not
cover counts nothing, what a private set covers is not counted a second time. So all of them are
monotone and submodular.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular.kernels import (
    Gram,
    Similarities,
    as_features,
    check_disjoint,
    check_given,
    outside,
)
from shasam.submodular.set_function import SetFunction, SimilarityFunction


class ProbabilisticSetCover(SetFunction):
    """Measure how likely the concepts are covered by a set, each weighted.

    ``f(A) = Σ_u w_u (1 - Π_{a∈A} (1 - p_au))``

    Take it where a classifier says how likely an image shows each of many things. Monotone and
    submodular; memory is N × U. With a query and a private set, ``mutual_information`` and the
    other measures give covers with the weights ``w_u (1 - Π_q (1 - p_qu)) Π_p (1 - p_pu)``.

    Parameters
    ----------
    probabilities
        Chance (N, U) that an element covers a concept, within 0..1.
    weights
        Weight w_u ≥ 0 of each concept, by default 1.

    Examples
    --------
    >>> f = ProbabilisticSetCover([[0.5, 0.0], [0.5, 0.25], [0.0, 1.0]])
    >>> float(f([0])), float(f([0, 1])), float(f([0, 2]))
    (0.5, 1.0, 1.5)
    >>> from shasam.submodular import maximize
    >>> maximize(f, 2).indices.tolist()
    [2, 0]
    """

    submodular = True
    monotone = True

    def __init__(self, probabilities: Any, weights: Any = None) -> None:
        p_NU = as_features(probabilities, "probabilities")
        if not 0 <= float(p_NU.detach().amin()) <= float(p_NU.detach().amax()) <= 1:
            raise InputError("probabilities must be within 0..1")
        self._set(p_NU, _weights(weights, p_NU), None)

    def _set(self, p_NU: Tensor, w_U: Tensor, candidates: Tensor | None) -> None:
        self.p_NU, self.w_U, self.candidates = p_NU, w_U, candidates
        self.n, self.device, self.dtype = len(p_NU), p_NU.device, p_NU.dtype

    def missed(self, selected: Any) -> Tensor:
        """Return (U,): how likely each concept is covered by no element of a set."""
        return (1 - self.p_NU[self.index(selected)]).prod(dim=0)

    def __call__(self, selected: Any) -> Tensor:
        return (self.w_U * (1 - self.missed(selected))).sum()

    def start(self, given: Any = ()) -> Tensor:
        """Return (U,): the weight that is left of each concept."""
        missed_U = (1 - self.p_NU.detach()[self.index(given)].to(self.sum_dtype)).prod(dim=0)
        return self.w_U.detach().to(self.sum_dtype) * missed_U

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        return self.p_NU.detach()[candidates].to(state.dtype) @ state

    def add(self, state: Tensor, v: int) -> Tensor:
        return state * (1 - self.p_NU.detach()[v].to(state.dtype))

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction:
        return self._reweighted(self.p_NU[index], self.w_U, None)

    def after(self, given: Tensor) -> SetFunction:
        return self._reweighted(self.p_NU, self.w_U * self.missed(given), self.candidates)

    def about(self, *, query: Any = None, private: Any = None) -> ProbabilisticSetCover:
        """Return the mutual information with elements of a query, given those of a private set.

        I(A; Q | P), or I(A; Q) or H(A | P) where one of the two is left out.
        """
        w_U, given = self.w_U, []
        for chosen, name in ((query, "query"), (private, "private")):
            index = self.index(()) if chosen is None else check_given(self.index(chosen), name)
            given.append(index)
            if chosen is not None:
                missed_U = self.missed(index)
                w_U = w_U * (1 - missed_U if name == "query" else missed_U)
        check_disjoint(*given)
        return self._reweighted(self.p_NU, w_U, outside(self.n, *given))

    def about_concepts(self, *, query: Any = None, private: Any = None) -> ProbabilisticSetCover:
        """Return the same where query and private set name concepts, not elements."""
        w_U = self.w_U.clone()
        everything = set(range(len(w_U)))
        for chosen, name in ((query, "query"), (private, "private")):
            if chosen is None:
                continue
            named = {int(u) for u in chosen}
            if not named <= everything:
                raise InputError(f"{name} concepts must be within 0..{len(w_U) - 1}")
            w_U[sorted(everything - named if name == "query" else named)] = 0
        return self._reweighted(self.p_NU, w_U, self.candidates)

    def _reweighted(
        self, p_NU: Tensor, w_U: Tensor, candidates: Tensor | None
    ) -> ProbabilisticSetCover:
        made = ProbabilisticSetCover.__new__(type(self))
        made._set(p_NU, w_U, candidates)
        return made


class SetCover(ProbabilisticSetCover):
    """Measure the weight of the concepts that a set covers.

    ``f(A) = Σ_{u ∈ ∪_{a∈A} U_a} w_u``

    Monotone and submodular.

    Parameters
    ----------
    cover
        The concepts of each element: a list of sets, or a matrix (N, U) of 0 and 1.
    concepts
        Number of concepts U, where ``cover`` is a list of sets; by default the highest named + 1.
    weights
        Weight w_u ≥ 0 of each concept, by default 1.

    Examples
    --------
    >>> f = SetCover([{0, 1}, {1, 2}, {3}], weights=[1.0, 2.0, 1.0, 0.5])
    >>> float(f([0])), float(f([0, 1])), float(f([0, 2]))
    (3.0, 4.0, 3.5)
    >>> from shasam.submodular import mutual_information
    >>> float(mutual_information(f, [1])([0]))
    2.0
    """

    def __init__(self, cover: Any, concepts: int | None = None, weights: Any = None) -> None:
        if isinstance(cover, list | tuple) and all(isinstance(u, set | frozenset) for u in cover):
            cover = _matrix(cover, concepts)
        super().__init__(cover, weights)
        if not bool(((self.p_NU == 0) | (self.p_NU == 1)).all()):
            raise InputError("cover must hold 0 and 1; use ProbabilisticSetCover for chances")


def _matrix(cover: Sequence[set[int]], concepts: int | None) -> Tensor:
    """Return (N, U) of 0 and 1."""
    named = sorted(set().union(*cover))
    most = (named[-1] + 1 if named else 1) if concepts is None else concepts
    if named and not 0 <= named[0] <= named[-1] < most:
        raise InputError(f"concepts must be within 0..{most - 1}; got {named[0]}..{named[-1]}")
    made = torch.zeros(len(cover), most)
    for v, covered in enumerate(cover):
        made[v, sorted(covered)] = 1
    return made


def _weights(weights: Any, p_NU: Tensor) -> Tensor:
    if weights is None:
        return torch.ones(p_NU.shape[1], dtype=p_NU.dtype, device=p_NU.device)
    w_U = torch.as_tensor(weights, dtype=p_NU.dtype, device=p_NU.device).reshape(-1)
    if len(w_U) != p_NU.shape[1] or not bool((w_U >= 0).all()):
        raise InputError(f"weights must be {p_NU.shape[1]} numbers that are not negative")
    return w_U


class DisparitySum(SimilarityFunction):
    """Sum the distances 1 - K of all pairs of a set.

    ``f(A) = Σ_{a<b ∈ A} (1 - K_ab)``

    Supermodular: the gain of an element grows with the set, so no measure of it is submodular, and
    lazy greedy is refused. Naive greedy has at least 1/2 of the best value where 1 - K is a metric.

    Parameters
    ----------
    kernel
        Symmetric similarities (N, N); ``from_features`` takes features (N, D).

    Examples
    --------
    >>> f = DisparitySum([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])
    >>> float(f([0])), float(f([0, 2])), float(f([0, 1, 2]))
    (0.0, 1.0, 2.0)
    >>> from shasam.submodular import maximize
    >>> maximize(f, 2).indices.tolist()
    [0, 2]
    """

    def __init__(self, kernel: Any) -> None:
        self.similarities, self.n, self.device, self.dtype = _gram(kernel)

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        return torch.triu(1 - self.similarities.block(index, index), diagonal=1).sum()

    def start(self, given: Any = ()) -> Tensor:
        """Return (N,): the sum of the distances of each element to the set."""
        index = self.index(given)
        near_N = self.similarities.cross(index).detach().sum(dim=1, dtype=self.sum_dtype)
        return len(index) - near_N

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        return state[candidates]

    def add(self, state: Tensor, v: int) -> Tensor:
        return state + (1 - self.similarities.column(v).detach())


class DisparityMin(SimilarityFunction):
    """Measure the smallest distance 1 - K of a pair of a set; 0 for fewer than two.

    ``f(A) = min_{a≠b ∈ A} (1 - K_ab)``

    Neither monotone nor submodular. Naive greedy is the farthest-first walk, whose value is at
    least 1/2 of the best where 1 - K is a metric. ``maximize`` returns falls as negative gains.

    Parameters
    ----------
    kernel
        Symmetric similarities (N, N); ``from_features`` takes features (N, D).

    Examples
    --------
    >>> f = DisparityMin([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])
    >>> float(f([0])), float(f([0, 2])), float(f([0, 1, 2]))
    (0.0, 1.0, 0.5)
    """

    def __init__(self, kernel: Any) -> None:
        self.similarities, self.n, self.device, self.dtype = _gram(kernel)

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        if len(index) < 2:
            return torch.zeros((), dtype=self.dtype, device=self.device)
        apart = 1 - self.similarities.block(index, index)
        pairs = torch.ones_like(apart, dtype=torch.bool).triu(diagonal=1)
        return apart[pairs].amin()

    def start(self, given: Any = ()) -> tuple[int, float, Tensor]:
        """Return how many there are, f of them, and (N,): the distance of each to the nearest."""
        index = self.index(given)
        near_NG = self.similarities.cross(index).detach()
        far_N = torch.full((self.n,), torch.inf, dtype=self.sum_dtype, device=self.device)
        if len(index):
            far_N = (1 - near_NG.amax(dim=1)).to(self.sum_dtype)
        return len(index), float(self(index).detach()), far_N

    def gains(self, state: tuple[int, float, Tensor], candidates: Tensor) -> Tensor:
        many, value, far_N = state
        if many == 0:
            return torch.zeros(len(candidates), dtype=self.sum_dtype, device=self.device)
        nearest_C = far_N[candidates]
        return (nearest_C if many == 1 else nearest_C.clamp_max(value)) - value

    def add(self, state: tuple[int, float, Tensor], v: int) -> tuple[int, float, Tensor]:
        many, value, far_N = state
        gain = float(self.gains(state, torch.tensor([v], device=self.device))[0])
        away_N = (1 - self.similarities.column(v).detach()).to(far_N.dtype)
        return many + 1, value + gain, torch.minimum(far_N, away_N)


def _gram(kernel: Any) -> tuple[Gram, int, torch.device, torch.dtype]:
    gram, _ = Similarities.of(kernel).gram()
    return gram, gram.n, gram.device, gram.dtype
