"""The base class of all set functions, and the base of those that compare their elements.

A set function over the ground set {0..n-1} can be evaluated, ``f(A)``, with gradient, and walked:
``state = f.start(given)``, ``f.gains(state, candidates)``, ``f.add(state, v)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular.kernels import Features, Similarity, check_index

F = TypeVar("F", bound="SimilarityFunction")


class SetFunction:
    """Define what ``maximize``, the measures and ``check_set_function`` rely on.

    A subclass declares ``n``, ``device``, ``dtype``, ``monotone`` and ``submodular`` and writes
    ``__call__``, ``start``, ``gains`` and ``add``. A modular function, f(A) = Σ_{a∈A} w_a:

    Examples
    --------
    >>> class Weights(SetFunction):
    ...     monotone = submodular = True
    ...     def __init__(self, w_N):
    ...         self.w_N, self.n = w_N, len(w_N)
    ...         self.device, self.dtype = w_N.device, w_N.dtype
    ...     def __call__(self, selected):
    ...         return self.w_N[self.index(selected)].sum()
    ...     def start(self, given=()):
    ...         return None
    ...     def gains(self, state, candidates):
    ...         return self.w_N[candidates]
    ...     def add(self, state, v):
    ...         return None
    >>> from shasam.submodular import maximize
    >>> maximize(Weights(torch.tensor([0.2, 0.9, 0.5])), 2).indices.tolist()
    [1, 2]
    """

    n: int  # size of the ground set
    device: torch.device
    dtype: torch.dtype
    monotone: bool = False
    submodular: bool = False
    gain_unit: float = 0.0  # gains closer than 1e-10 · max(|gain|, gain_unit) are a tie
    candidates: Tensor | None = None  # what may be picked; None is everything

    def __call__(self, selected: Any) -> Tensor:
        """Compute f(A), a differentiable scalar; f(∅) = 0."""
        raise NotImplementedError

    def start(self, given: Any = ()) -> Any:
        """Return the state after the elements of ``given`` have been added."""
        raise NotImplementedError

    def gains(self, state: Any, candidates: Tensor) -> Tensor:
        """Compute f(A ∪ {v}) - f(A) for every candidate v, in one operation.

        Float64 where it exists.
        """
        raise NotImplementedError

    def add(self, state: Any, v: int) -> Any:
        """Return the state with v added; the old state may be reused."""
        raise NotImplementedError

    def check_maximizable(self) -> None:
        """Raise where greedy picks would mean nothing, with what to do instead."""

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Return picks, gains and number of evaluations of a compiled walk.

        None if there is none.
        """
        return None

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction | None:
        """Make the function over some elements; number j is ``index[j]``; None: not written.

        Facility location may keep only some columns, ``represented``, or without it those of the
        elements themselves; the value is then an estimate. Other functions stay exact.
        """
        return None

    @property
    def represented_rows(self) -> int | None:
        """How many represented rows the value is a sum over, where a part may keep some of them."""
        rows = getattr(self, "rows", None)
        return None if rows is None else rows.width

    def gains_along(self, order: Tensor) -> Tensor:
        """Return (K,): the marginal gains of picks in their order."""
        state, gains = self.start(), []
        for v in order:
            gains.append(float(self.gains(state, v[None])[0]))
            state = self.add(state, int(v))
        return torch.tensor(gains, dtype=self.dtype, device=self.device)

    def after(self, given: Tensor) -> SetFunction:
        """Return H(A | given) = f(A ∪ given) - f(given), for picks that go on from given ones."""
        from shasam.submodular.information import conditional_gain

        return conditional_gain(self, given)

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        """Return the same function with similarities to the query times η, to the private set times
        ν.
        """
        if eta == 1.0 and nu == 1.0:
            return self
        raise InputError(
            f"{type(self).__name__} does not say how a query or private set is magnified; "
            "use eta = nu = 1 or write its magnified()"
        )

    def index(self, selected: Any) -> Tensor:
        """Check indices of the ground set and return them as int64 on the function's device."""
        return check_index(selected, self.n, self.device)

    @property
    def sum_dtype(self) -> torch.dtype:
        """float64 where the device has it: gains must not depend on the order of summation."""
        return torch.float32 if self.device.type == "mps" else torch.float64


class Among(SetFunction):
    """f over some of its elements, in an order: element j is ``rows[j]`` of f, with nothing copied.

    The order decides ties. So a kernel that is made once serves many sets of candidates.

    >>> from shasam.submodular import FacilityLocation, maximize
    >>> f = FacilityLocation([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])
    >>> maximize(Among(f, torch.tensor([2, 0])), 1).indices.tolist()
    [0]
    """

    def __init__(self, f: SetFunction, rows: Tensor) -> None:
        self.f, self.rows = f, f.index(rows)
        self.n, self.device, self.dtype = len(self.rows), f.device, f.dtype
        self.monotone, self.submodular, self.gain_unit = f.monotone, f.submodular, f.gain_unit

    def __call__(self, selected: Any) -> Tensor:
        return self.f(self.rows[self.index(selected)])

    def start(self, given: Any = ()) -> Any:
        return self.f.start(self.rows[self.index(given)])

    def gains(self, state: Any, candidates: Tensor) -> Tensor:
        return self.f.gains(state, self.rows[candidates])

    def add(self, state: Any, v: int) -> Any:
        return self.f.add(state, int(self.rows[v]))

    def check_maximizable(self) -> None:
        self.f.check_maximizable()

    @property
    def represented_rows(self) -> int | None:
        return self.f.represented_rows

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        walked = self.f.greedy(k, self.rows[candidates], lazy)
        if walked is None:
            return None
        picks, gains, evaluations = walked
        place_N = np.zeros(self.f.n, np.int64)
        place_N[self.rows.numpy()] = np.arange(self.n)
        return place_N[picks], gains, evaluations


class SimilarityFunction(SetFunction):
    """A set function of similarities: the constructor takes a kernel, ``from_features`` features.

    Wherever a constructor asks for a kernel it also takes a ``Similarities`` object.
    """

    compared_by: ClassVar[Similarity] = "shifted_cosine"  # the default of ``from_features``

    @classmethod
    def from_features(
        cls: type[F],
        z: Any,
        *arguments: Any,
        similarity: Similarity | None = None,
        gamma: float | None = None,
        **named: Any,
    ) -> F:
        """Return the function over features z (N, D) instead of a kernel; it picks rows of z.

        The other arguments are those of the constructor after the kernel. A query or a private
        set is given by features of its own, (Q, D) or (P, D); represented rows by their indices
        in z or by features (R, D). ``similarity`` is "cosine", "shifted_cosine" ((1 + cos)/2) or
        "rbf" (exp(-γ|x - y|²), γ = 1/D if None).
        """
        features = Features(z, similarity or cls.compared_by, gamma)
        return cls(features, *arguments, **named)  # type: ignore[call-arg]


# -------------------------------------------------------------------------------------------------
# Weighted sums of set functions.
# -------------------------------------------------------------------------------------------------


class Mixture(SetFunction):
    """Add set functions with weights: several aims at once, such as coverage and diversity.

    ``f(A) = Σ_j w_j f_j(A)``

    Values of different functions have different scales: ``f([v])`` of some elements shows them. The
    query or private set of any of them is not picked.

    Parameters
    ----------
    functions
        Set functions over one ground set.
    weights
        Weights w_j ≥ 0, by default 1. A mixture of submodular functions is submodular, one of
        monotone functions monotone.

    Examples
    --------
    >>> from shasam.submodular import FacilityLocation, LogDet, maximize
    >>> kernel = [[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]]
    >>> f = Mixture([FacilityLocation(kernel), LogDet(kernel)], weights=[1.0, 2.0])
    >>> round(float(f([0, 2])), 4)
    5.2726
    >>> maximize(f, 2).indices.tolist()
    [1, 0]
    """

    def __init__(self, functions: Sequence[SetFunction], weights: Sequence[float] | None = None):
        self.functions = tuple(functions)
        if not self.functions:
            raise InputError("a mixture needs at least one function")
        weights = [1.0] * len(self.functions) if weights is None else list(map(float, weights))
        if len(weights) != len(self.functions):
            raise InputError(
                f"a mixture of {len(self.functions)} functions needs as many weights; "
                f"got {len(weights)}"
            )
        if not all(0 <= w < float("inf") for w in weights):
            raise InputError(f"weights must be finite and not negative; got {weights}")
        self.weights = tuple(weights)
        first = self.functions[0]
        for f in self.functions[1:]:
            if (f.n, f.device) != (first.n, first.device):
                raise InputError(
                    "the functions of a mixture share one ground set on one device; "
                    f"{type(first).__name__} has n = {first.n} on {first.device}, "
                    f"{type(f).__name__} n = {f.n} on {f.device}"
                )
        self.n, self.device = first.n, first.device
        self.dtype = first.dtype
        for f in self.functions:
            self.dtype = torch.promote_types(self.dtype, f.dtype)
        self.monotone = all(f.monotone for f in self.functions)
        self.submodular = all(f.submodular for f in self.functions)
        self.gain_unit = sum(w * f.gain_unit for w, f in self._terms())
        self.candidates = self._shared_candidates()

    def _terms(self) -> list[tuple[float, SetFunction]]:
        return list(zip(self.weights, self.functions, strict=True))

    def _shared_candidates(self) -> Tensor | None:
        free = [f.candidates for f in self.functions if f.candidates is not None]
        if not free:
            return None
        shared = free[0]
        for other in free[1:]:
            shared = shared[torch.isin(shared, other)]
        if len(shared) == 0:
            raise InputError("the functions of the mixture leave no common candidate to pick")
        return shared

    def __call__(self, selected: Any) -> Tensor:
        index = self.index(selected)
        value = torch.zeros((), dtype=self.dtype, device=self.device)
        for w, f in self._terms():
            value = value + w * f(index)
        return value

    def start(self, given: Any = ()) -> tuple[Any, ...]:
        index = self.index(given)
        return tuple(f.start(index) for f in self.functions)

    def gains(self, state: tuple[Any, ...], candidates: Tensor) -> Tensor:
        gains_C = torch.zeros(len(candidates), dtype=self.sum_dtype, device=self.device)
        for (w, f), own in zip(self._terms(), state, strict=True):
            gains_C += w * f.gains(own, candidates)
        return gains_C

    def add(self, state: tuple[Any, ...], v: int) -> tuple[Any, ...]:
        return tuple(f.add(own, v) for f, own in zip(self.functions, state, strict=True))

    def check_maximizable(self) -> None:
        for f in self.functions:
            f.check_maximizable()

    @property
    def represented_rows(self) -> int | None:
        """The represented rows that all functions which have such rows share."""
        widths = {f.represented_rows for f in self.functions if f.represented_rows is not None}
        return widths.pop() if len(widths) == 1 else None

    def part(self, index: Tensor, represented: Tensor | None = None) -> SetFunction | None:
        """Scale a term that keeps only some of its represented rows up to all of them."""
        parts, weights = [], []
        for w, f in self._terms():
            part = f.part(index, represented if f.represented_rows is not None else None)
            if part is None:
                return None
            parts.append(part)
            all_, kept = f.represented_rows, part.represented_rows
            weights.append(w if all_ is None or kept is None else w * all_ / kept)
        return Mixture(parts, weights)

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> SetFunction:
        if eta == 1.0 and nu == 1.0:
            return self
        return Mixture([f.magnified(query, eta, private, nu) for f in self.functions], self.weights)
