"""The measures of the log-determinant in closed form: LogDetMI, LogDetCG, LogDetCMI."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular.given import check_strength
from shasam.submodular.kernels import Similarity
from shasam.submodular.logdet import FLOOR, LogDet, LogDetState, logdet
from shasam.submodular.set_function import SetFunction, SimilarityFunction
from shasam.submodular.similarities import Similarities

State = tuple[LogDetState, LogDetState | None]


class _LogDetMeasure(SimilarityFunction):
    """log det of A given one set, less log det of A given another, by Schur complements."""

    compared_by: ClassVar[Similarity] = "cosine"
    gain_unit = 1.0

    def __init__(
        self, kernel: Any, query: Any, private: Any, ridge: float, eta: float, nu: float
    ) -> None:
        s = Similarities.of(kernel)
        check_strength(eta, nu)
        gram, (q, p) = s.gram(*s.sets(query, private))
        self.f = f = LogDet(gram, ridge)
        self.n, self.device, self.dtype = f.n, f.device, f.dtype
        self.candidates = gram.candidates(q, p)
        nu_P = torch.full((len(p),), nu, dtype=f.dtype, device=f.device)
        eta_Q = torch.full((len(q),), eta, dtype=f.dtype, device=f.device)
        self.plus = f.conditioned(p, nu_P)
        self.minus: LogDetState | None = None
        if query is not None:
            self.minus = f.conditioned(torch.cat([q, p]), torch.cat([eta_Q, nu_P]))
        # log d given P, less log d given Q and P: a difference of submodular functions.
        self.submodular = query is None
        if query is None:
            self.monotone = nu <= 1.0 and f.ridge >= 1.0
        else:  # two different factors need not leave a positive semi-definite kernel
            self.monotone = eta <= 1.0 and (private is None or eta == nu)

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction:
        both = self.plus if self.minus is None else self.minus
        gram = self.f.similarities.part(torch.cat([index, both.given]))
        members = len(both.given) - len(self.plus.given)  # of the query, which comes first
        query, private = len(index) + members, len(index) + len(both.given)
        return _LogDetMeasure(
            gram,
            None if self.minus is None else range(len(index), query),
            None if query == private else range(query, private),
            self.f.ridge,
            float(both.factor[0]),
            float(both.factor[-1]),
        )

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        value = logdet(self.f.residual(index, self.plus.given, self.plus.factor))
        if self.minus is None:
            return value
        return value - logdet(self.f.residual(index, self.minus.given, self.minus.factor))

    def start(self, given: Any = ()) -> State:
        state = (self.plus, self.minus)
        for v in self.index(given).tolist():
            state = self.add(state, v)
        return state

    def gains(self, state: State, candidates: Tensor) -> Tensor:
        for part in state:
            if part is not None:
                self._check_strength(part.d_N[candidates])
        gains_C = self.f.gains(state[0], candidates)
        return gains_C if state[1] is None else gains_C - self.f.gains(state[1], candidates)

    def add(self, state: State, v: int) -> State:
        for part in state:
            if part is not None:
                self._check_strength(part.d_N[v])
        minus = None if state[1] is None else self.f.add(state[1], v)
        return self.f.add(state[0], v), minus

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        if self.minus is not None or self.device.type != "cpu":
            return None
        self._check_strength(self.plus.d_N[candidates])
        walked = self.f.greedy_from(self.plus, k, candidates, lazy)
        self._check_strength(torch.from_numpy(np.exp(walked[1])))
        return walked

    def _check_strength(self, d: Tensor) -> None:
        """A conditional variance is at least the ridge, unless η or ν has broken the kernel."""
        if self.f.ridge > FLOOR and d.numel() and float(d.min()) <= FLOOR * (1 + 1e-9):
            factor = self.plus.factor if self.minus is None else self.minus.factor
            raise InputError(
                f"eta and nu ({factor.unique().tolist()}) leave no positive semi-definite kernel "
                "here; use values up to 1, or a larger ridge"
            )


class LogDetMI(_LogDetMeasure):
    """I(A; Q) = log det(K_A) - log det(K_A - η² K_AQ K_Q⁻¹ K_QA), each block with its ridge.

    Not submodular in A: lazy greedy would be wrong, ``maximize`` refuses it. ``kernel`` (N, N)
    with ``query`` as indices; from features z (N, D) and query features (Q, D).

    >>> f = LogDetMI([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], query=[0])
    >>> round(float(f([1])), 4), round(float(f([2])), 4)
    (0.0645, 0.0)
    >>> LogDetMI.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]).submodular
    False
    """

    def __init__(self, kernel: Any, query: Any, ridge: float = 1.0, eta: float = 1.0) -> None:
        super().__init__(kernel, query, None, ridge, eta, 1.0)


class LogDetCG(_LogDetMeasure):
    """H(A | P) = log det(K_A - ν² K_AP K_P⁻¹ K_PA), each block with its ridge.

    ``kernel`` (N, N) with ``private`` as indices; from features z (N, D) and private features
    (P, D).

    >>> f = LogDetCG([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], private=[0])
    >>> round(float(f([1])), 4), round(float(f([2])), 4)
    (0.6286, 0.6931)
    >>> LogDetCG.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]).candidates.tolist()
    [0, 1]
    """

    def __init__(self, kernel: Any, private: Any, ridge: float = 1.0, nu: float = 1.0) -> None:
        super().__init__(kernel, None, private, ridge, 1.0, nu)


class LogDetCMI(_LogDetMeasure):
    """I(A; Q | P) = log det(K_A | P) - log det(K_A | Q ∪ P); equal to the ratio in Table 1.

    ``kernel`` (N, N) with ``query`` and ``private`` as indices; from features z (N, D), query
    features (Q, D) and private features (P, D).

    >>> f = LogDetCMI([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], query=[0], private=[2])
    >>> round(float(f([1])), 4)
    0.069
    >>> LogDetCMI.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]], [[1.0, -1.0]]).n
    4
    """

    def __init__(
        self,
        kernel: Any,
        query: Any,
        private: Any,
        ridge: float = 1.0,
        eta: float = 1.0,
        nu: float = 1.0,
    ) -> None:
        super().__init__(kernel, query, private, ridge, eta, nu)
