"""Graph cut, its mutual information and its conditional gain."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from shasam.errors import InputError
from shasam.submodular.kernels import Features, Gram, Similarities, check_strength
from shasam.submodular.set_function import SetFunction, SimilarityFunction


class Cut(SimilarityFunction):
    """f(A) = Σ_{a∈A} relevance_a - λ Σ_{a,b∈A} K_ab: graph cut and all its measures."""

    submodular = True

    def __init__(
        self, gram: Gram, lam: float, relevance_N: Tensor, candidates: Tensor | None = None
    ) -> None:
        self.similarities, self.lam, self.relevance_N = gram, lam, relevance_N
        self.n, self.device, self.dtype = gram.n, gram.device, gram.dtype
        self.gain_unit = float(relevance_N.detach().abs().amax())
        self.candidates = candidates

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        pairs = self.similarities.block(index, index)
        return self.relevance_N[index].sum() - self.lam * pairs.sum()

    def start(self, given: Any = ()) -> Tensor:
        index = self.index(given)
        return self.similarities.cross(index).detach().sum(dim=1, dtype=self.sum_dtype)

    def gains(self, state: Tensor, candidates: Tensor) -> Tensor:
        own_C = self.similarities.diagonal()[candidates].to(state.dtype)
        relevance_C = self.relevance_N.detach()[candidates].to(state.dtype)
        return relevance_C - self.lam * (2 * state[candidates] + own_C)

    def add(self, state: Tensor, v: int) -> Tensor:
        return state + self.similarities.column(v).detach()

    def check_maximizable(self) -> None:
        # With λ = 0 the function is modular: greedy is exact over any kernel.
        if self.lam > 0 and not self.similarities.is_nonnegative():
            raise InputError(
                f"{type(self).__name__} is submodular only over similarities that are not "
                "negative; map cosines with (1 + K)/2 (similarity='shifted_cosine') or use rbf. "
                "Evaluating a signed kernel is fine"
            )

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction:
        return Cut(self.similarities.part(index), self.lam, self.relevance_N[index])

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        """Magnify only pairs: the relevance does not depend on query or private set."""
        pairs = self.similarities.magnified(query, eta, private, nu)
        return Cut(pairs, self.lam, self.relevance_N)


class GraphCut(Cut):
    """Measure relevance less redundancy.

    ``f(A) = Σ_{i∈R} Σ_{a∈A} K_ia - λ Σ_{a,b∈A} K_ab``

    Monotone for λ ≤ 1/2 and R = everything. Over cosine features no N×N matrix is made, since ``Σ_i
    K_ia = z_a · Σ_i z_i``.

    Parameters
    ----------
    kernel
        Symmetric similarities (N, N).
    lam
        λ, the weight of redundancy.
    represented
        Indices of the represented rows R, by default all.

    Examples
    --------
    >>> f = GraphCut([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], lam=0.5)
    >>> float(f([1])), float(f([0, 2]))
    (1.5, 2.0)
    >>> GraphCut.from_features([[1.0, 0.0], [0.0, 1.0]], lam=0.5).n
    2
    """

    def __init__(self, kernel: Any, lam: float = 0.5, represented: Any = None) -> None:
        gram, _ = Similarities.of(kernel).gram()
        check_lam(lam)
        self.represented = gram.represented_index(represented)
        super().__init__(gram, lam, gram.sums(self.represented))
        self.monotone = lam <= 0.5 and represented is None


class GCMI(Cut):
    """Sum the similarities to the query: a modular function.

    ``I(A; Q) = 2λη Σ_{a∈A} Σ_{q∈Q} K_aq``

    Parameters
    ----------
    kernel
        Symmetric similarities (N, N); ``from_features`` takes features (N, D).
    query
        Indices of the query; from features its features (Q, D).
    lam
        λ of the graph cut.
    eta
        η, a factor of the similarities to the query.

    Examples
    --------
    >>> f = GCMI([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], query=[0], lam=0.5)
    >>> float(f([1])), float(f([1, 2]))
    (0.5, 0.5)
    >>> round(float(GCMI.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]])([0, 1])), 4)
    1.7071
    """

    def __init__(self, kernel: Any, query: Any, lam: float = 0.5, eta: float = 1.0) -> None:
        s = Similarities.of(kernel)
        check_lam(lam)
        check_strength(eta, 1.0)
        gram, (index,) = s.gram(s.members(query, "query"))
        relevance_N = 2 * lam * eta * gram.cross(index).sum(dim=1)
        super().__init__(gram, 0.0, relevance_N, gram.candidates(index))
        self.monotone = bool((relevance_N.detach()[self.candidates] >= 0).all())


class GCCG(Cut):
    """Measure the graph cut of a set less its similarities to a private set.

    ``H(A | P) = f(A) - 2λν Σ_{a∈A} Σ_{p∈P} K_ap``

    Parameters
    ----------
    kernel
        Symmetric similarities (N, N); ``from_features`` takes features (N, D).
    private
        Indices of the private set; from features its features (P, D).
    lam
        λ of the graph cut f.
    nu
        ν, a factor of the similarities to the private set.
    represented
        Indices of the represented rows R, by default all.

    Examples
    --------
    >>> f = GCCG([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], private=[0], lam=0.5)
    >>> float(f([1])), float(f([2]))
    (1.0, 1.0)
    >>> round(float(GCCG.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]])([0])), 4)
    0.1464
    """

    def __init__(
        self,
        kernel: Any,
        private: Any,
        lam: float = 0.5,
        nu: float = 1.0,
        represented: Any = None,
    ) -> None:
        s = Similarities.of(kernel)
        check_lam(lam)
        check_strength(1.0, nu)
        gram, (index,) = s.gram(s.members(private, "private"))
        if represented is None and isinstance(s, Features):
            represented = range(s.n)
        penalty_N = 2 * lam * nu * gram.cross(index).sum(dim=1)
        relevance_N = gram.sums(gram.represented_index(represented))
        super().__init__(gram, lam, relevance_N - penalty_N, gram.candidates(index))


def check_lam(lam: float) -> None:
    """Refuse a negative λ, which weighs the redundancy."""
    if not lam >= 0:
        raise InputError(f"lam must not be negative; got {lam}")
