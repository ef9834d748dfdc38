"""The measures of facility location in closed form: FL1MI, FLCG, FLCMI, and FLQMI.

Each is made over a kernel, with query and private sets as indices into it, or over features, with
query and private sets as features of their own (``from_features``; then the candidates are the
rows of ``z``). η magnifies the query, ν hardens the private set; both are 1 in the paper.
"""

from __future__ import annotations

from typing import Any

from shasam.submodular.facility_location import ClampedFacilityLocation
from shasam.submodular.given import check_strength
from shasam.submodular.rows import Rows
from shasam.submodular.similarities import Similarities


class _FacilityLocationMeasure(ClampedFacilityLocation):
    """Σ_{i∈R} max( min(max_a K_ia, η max_q K_iq) - ν max_p K_ip, 0 ), either part optional."""

    def __init__(
        self, kernel: Any, query: Any, private: Any, eta: float, nu: float, represented: Any
    ) -> None:
        s = Similarities.of(kernel)
        check_strength(eta, nu)
        q, p = s.sets(query, private)
        super().__init__(
            Rows(s, represented),
            None if p is None else nu * s.nearest(p, represented),
            None if q is None else eta * s.nearest(q, represented),
            candidates=s.candidates(q, p),
            nonnegative=s.nonnegative,
        )


class FL1MI(_FacilityLocationMeasure):
    """I(A; Q) = Σ_{i∈R} min( max_{a∈A} K_ia, η max_{q∈Q} K_iq ); it saturates after a few picks.

    ``kernel`` (N, N) with ``query`` and ``represented`` as indices; from features z (N, D) and
    query features (Q, D).

    >>> f = FL1MI([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], query=[0])
    >>> float(f([1])), float(f([1, 2]))
    (1.0, 1.0)
    >>> FL1MI.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]]).n
    2
    """

    def __init__(self, kernel: Any, query: Any, eta: float = 1.0, represented: Any = None) -> None:
        super().__init__(kernel, query, None, eta, 1.0, represented)


class FLCG(_FacilityLocationMeasure):
    """H(A | P) = Σ_{i∈R} max( max_{a∈A} K_ia - ν max_{p∈P} K_ip, 0 ).

    ``kernel`` (N, N) with ``private`` and ``represented`` as indices; from features z (N, D) and
    private features (P, D).

    >>> f = FLCG([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], private=[0])
    >>> float(f([1])), float(f([2]))
    (1.0, 1.0)
    >>> FLCG.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]], nu=0.5).n
    2
    """

    def __init__(self, kernel: Any, private: Any, nu: float = 1.0, represented: Any = None) -> None:
        super().__init__(kernel, None, private, 1.0, nu, represented)


class FLCMI(_FacilityLocationMeasure):
    """I(A; Q | P) = Σ_{i∈R} max( min(max_a K_ia, η max_q K_iq) - ν max_p K_ip, 0 ) (Table 1).

    ``kernel`` (N, N) with ``query``, ``private`` and ``represented`` as indices; from features
    z (N, D), query features (Q, D) and private features (P, D).

    >>> f = FLCMI([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], query=[0], private=[2])
    >>> float(f([1]))
    0.5
    >>> FLCMI.from_features([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]], [[1.0, -1.0]]).n
    2
    """

    def __init__(
        self,
        kernel: Any,
        query: Any,
        private: Any,
        eta: float = 1.0,
        nu: float = 1.0,
        represented: Any = None,
    ) -> None:
        super().__init__(kernel, query, private, eta, nu, represented)


class FLQMI(ClampedFacilityLocation):
    """Σ_{q∈Q} max_{a∈A} K_qa + η Σ_{a∈A} max_{q∈Q} K_qa; needs the cross kernel (N, Q) alone.

    Not the mutual information of facility location but its two-sided variant: it keeps rewarding
    every pick for being near the query, so that it finds the hardest elements where FL1MI is flat.
    ``kernel`` (N, N) with ``query`` as indices; from features z (N, D) and query features (Q, D).

    >>> f = FLQMI([[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]], query=[0])
    >>> float(f([1])), float(f([1, 2]))
    (1.0, 1.0)
    >>> from shasam.submodular import maximize
    >>> z, query = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [[0.1, 1.0]]
    >>> maximize(FLQMI.from_features(z, query), 1).indices.tolist()
    [1]
    """

    def __init__(self, kernel: Any, query: Any, eta: float = 1.0) -> None:
        s = Similarities.of(kernel)
        check_strength(eta, 1.0)
        q = s.members(query, "query")
        cross_NQ = s.cross(q)
        super().__init__(
            Rows.of(cross_NQ),
            bonus_N=eta * cross_NQ.amax(dim=1),
            candidates=s.candidates(q),
            nonnegative=s.nonnegative,
        )
