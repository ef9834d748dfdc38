"""Measures over any set function: mutual information, conditional gain, and both at once.

I(A; Q) = f(A) + f(Q) - f(A∪Q),  H(A | P) = f(A∪P) - f(P),
I(A; Q | P) = f(A∪P) + f(Q∪P) - f(A∪Q∪P) - f(P).

They are set functions again. Where a closed form is known it is used; ``form="definition"`` keeps
to the definition, and the tests tie the two.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from shasam.submodular.cover import ProbabilisticSetCover
from shasam.submodular.facility_location import FL1MI, FLCG, FLCMI, FacilityLocation
from shasam.submodular.graph_cut import GCCG, GCMI, Cut, GraphCut
from shasam.submodular.kernels import check_disjoint, check_given, check_strength, outside
from shasam.submodular.logdet import LogDet, LogDetCG, LogDetCMI, LogDetMI
from shasam.submodular.set_function import SetFunction

Form = Literal["auto", "definition"]


def mutual_information(
    f: SetFunction, query: Any, *, eta: float = 1.0, form: Form = "auto"
) -> SetFunction:
    """Make the mutual information of a set function and a query.

    ``I(A; Q) = f(A) + f(Q) - f(A∪Q)``

    Parameters
    ----------
    f
        The set function.
    query
        Indices Q in the ground set of f; they are not picked.
    eta
        η, a factor of the similarities to the query.
    form
        "auto" takes a closed form if there is one; "definition" evaluates the three terms.

    Returns
    -------
    SetFunction
        I(A; Q) as a function of A.

    Examples
    --------
    >>> f = FacilityLocation([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])
    >>> type(mutual_information(f, [0])).__name__, float(mutual_information(f, [0])([1]))
    ('FL1MI', 1.0)
    >>> float(f([1]) + f([0]) - f([0, 1]))
    1.0
    """
    if form == "auto":
        if isinstance(f, FacilityLocation):
            return FL1MI(f.similarities, query, eta)
        if isinstance(f, GraphCut):
            return GCMI(f.similarities, query, f.lam, eta)
        if isinstance(f, LogDet):
            return LogDetMI(f.similarities, query, f.ridge, eta)
        if isinstance(f, ProbabilisticSetCover) and eta == 1.0:
            return f.about(query=query)
    return Information(f, query, None, eta, 1.0)


def conditional_gain(
    f: SetFunction, private: Any, *, nu: float = 1.0, form: Form = "auto"
) -> SetFunction:
    """Make the conditional gain of a set function given a private set.

    ``H(A | P) = f(A∪P) - f(P)``

    Parameters
    ----------
    f
        The set function.
    private
        Indices P in the ground set of f; they are not picked.
    nu
        ν, a factor of the similarities to the private set.
    form
        "auto" takes a closed form if there is one; "definition" evaluates the two terms.

    Returns
    -------
    SetFunction
        H(A | P) as a function of A.

    Examples
    --------
    >>> f = FacilityLocation([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])
    >>> float(conditional_gain(f, [0])([1])), float(f([0, 1]) - f([0]))
    (1.0, 1.0)
    """
    if form == "auto":
        if isinstance(f, FacilityLocation):
            return FLCG(f.similarities, private, nu)
        if isinstance(f, GraphCut):
            return GCCG(f.similarities, private, f.lam, nu, f.represented)
        if isinstance(f, LogDet):
            return LogDetCG(f.similarities, private, f.ridge, nu)
        if isinstance(f, ProbabilisticSetCover) and nu == 1.0:
            return f.about(private=private)
    return Information(f, None, private, 1.0, nu)


def conditional_mutual_information(
    f: SetFunction,
    query: Any,
    private: Any,
    *,
    eta: float = 1.0,
    nu: float = 1.0,
    form: Form = "auto",
) -> SetFunction:
    """Make the conditional mutual information of a set function.

    ``I(A; Q | P) = f(A∪P) + f(Q∪P) - f(A∪Q∪P) - f(P)``

    Parameters
    ----------
    f
        The set function.
    query
        Indices Q in the ground set of f; they are not picked.
    private
        Indices P in the ground set of f; they are not picked.
    eta
        η, a factor of the similarities to the query.
    nu
        ν, a factor of the similarities to the private set.
    form
        "auto" takes a closed form if there is one; "definition" evaluates the four terms.

    Returns
    -------
    SetFunction
        I(A; Q | P) as a function of A.

    Examples
    --------
    >>> f = FacilityLocation([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]])
    >>> float(conditional_mutual_information(f, [0], [2])([1]))
    0.5
    >>> float(f([1, 2]) + f([0, 2]) - f([0, 1, 2]) - f([2]))
    0.5
    """
    if form == "auto":
        if isinstance(f, FacilityLocation):
            return FLCMI(f.similarities, query, private, eta, nu)
        if isinstance(f, LogDet):
            return LogDetCMI(f.similarities, query, private, f.ridge, eta, nu)
        if isinstance(f, ProbabilisticSetCover) and eta == nu == 1.0:
            return f.about(query=query, private=private)
    return Information(f, query, private, eta, nu)


class Information(SetFunction):
    """The definition, walked with two states of f: gain = f(v | A∪P) - f(v | A∪Q∪P)."""

    def __init__(self, f: SetFunction, query: Any, private: Any, eta: float, nu: float) -> None:
        check_strength(eta, nu)
        empty = f.index(())
        self.query = empty if query is None else check_given(f.index(query), "query")
        self.private = empty if private is None else check_given(f.index(private), "private")
        check_disjoint(self.query, self.private)
        self.f = f.magnified(self.query, eta, self.private, nu)
        self.conditional = query is None
        self.n, self.device, self.dtype, self.gain_unit = f.n, f.device, f.dtype, f.gain_unit
        self.candidates = outside(f.n, self.query, self.private)
        # A conditional gain inherits both laws; information of a submodular f never falls, but
        # is submodular only for functions known to keep it so.
        keeps = isinstance(f, FacilityLocation | Cut | ProbabilisticSetCover)
        self.submodular = f.submodular and (self.conditional or keeps)
        self.monotone = f.monotone if self.conditional else f.submodular

    def _union(self, *parts: Tensor) -> Tensor:
        return torch.cat(parts).unique()

    def __call__(self, selected: Any) -> Tensor:
        index, f, q, p = self.index(selected), self.f, self.query, self.private
        if self.conditional:
            return f(self._union(index, p)) - f(p)
        return (f(self._union(index, p)) - f(p)) - (
            f(self._union(index, q, p)) - f(self._union(q, p))
        )

    def start(self, given: Any = ()) -> tuple[Any, Any]:
        index = self.index(given)
        plus = self.f.start(self._union(index, self.private))
        if self.conditional:
            return plus, None
        return plus, self.f.start(self._union(index, self.query, self.private))

    def gains(self, state: tuple[Any, Any], candidates: Tensor) -> Tensor:
        gains_C = self.f.gains(state[0], candidates)
        return gains_C if self.conditional else gains_C - self.f.gains(state[1], candidates)

    def add(self, state: tuple[Any, Any], v: int) -> tuple[Any, Any]:
        return self.f.add(state[0], v), None if self.conditional else self.f.add(state[1], v)

    def check_maximizable(self) -> None:
        self.f.check_maximizable()
