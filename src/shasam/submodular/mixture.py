"""Weighted sums of set functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular.set_function import SetFunction


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
        """A term that keeps only some of its represented rows is scaled up to all of them."""
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
