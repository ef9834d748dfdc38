"""submodlib's functions by their names and call shapes, on the engine of ``shasam.submodular``.

``from shasam.submodular.submodlib import FacilityLocationFunction`` in place of ``from submodlib
import …``: the constructors take the same arguments, ``maximize`` returns the same list of
(element, gain). What differs: ties go to the lowest index, ``LazyGreedy`` is refused for functions
that are not submodular, random draws come from a seed of their own (``seed``), and
``clustered`` needs ``cluster_labels``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch

from shasam.errors import InputError
from shasam.registry import did_you_mean
from shasam.submodular.concave import Concave, FeatureBased
from shasam.submodular.cover import DisparityMin, DisparitySum, ProbabilisticSetCover, SetCover
from shasam.submodular.facility_location import FL1MI, FLCG, FLCMI, FLQMI, FacilityLocation
from shasam.submodular.graph_cut import GCCG, GCMI, GraphCut
from shasam.submodular.greedy import check_costs, maximize, walk
from shasam.submodular.logdet import LogDet, LogDetCG, LogDetCMI, LogDetMI
from shasam.submodular.set_function import SetFunction as OurSetFunction

Array = np.ndarray
_OPTIMIZERS = {
    "NaiveGreedy": "naive",
    "LazyGreedy": "lazy",
    "StochasticGreedy": "stochastic",
    "LazierThanLazyGreedy": "stochastic",
}
_ZERO = 1e-5  # gains that stopIfZeroGain takes for 0


# -------------------------------------------------------------------------------------------------
# Similarities as submodlib computes them.
# -------------------------------------------------------------------------------------------------


def create_kernel(
    X: Any,
    mode: Literal["dense", "sparse"] = "dense",
    metric: str = "euclidean",
    num_neigh: int = -1,
    X_rep: Any = None,
) -> Array:
    """Make the similarities of rows: exp(-distance/D) ("euclidean"), "cosine" or "dot".

    With ``X_rep`` (M, D) every row of it against every row of X, (M, N). ``sparse`` keeps the
    ``num_neigh`` nearest of each row and makes the others 0; the matrix stays dense.

    >>> create_kernel([[1.0, 0.0], [0.0, 2.0]], metric="cosine").tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    x_ND = _rows(X, "X")
    y_MD = x_ND if X_rep is None else _rows(X_rep, "X_rep")
    if y_MD.shape[1] != x_ND.shape[1]:
        raise InputError(f"X has {x_ND.shape[1]} columns and X_rep {y_MD.shape[1]}")
    if metric == "euclidean":
        square = (y_MD**2).sum(axis=1)[:, None] + (x_ND**2).sum(axis=1) - 2 * y_MD @ x_ND.T
        if X_rep is None:
            np.fill_diagonal(square, 0.0)
        made = np.exp(-np.sqrt(np.maximum(square, 0)) / x_ND.shape[1])
    elif metric in ("cosine", "dot"):
        made = y_MD @ x_ND.T
        if metric == "cosine":
            lengths = [np.linalg.norm(rows, axis=1) for rows in (y_MD, x_ND)]
            made = made / np.maximum(np.outer(*lengths), np.finfo(np.float64).tiny)
    else:
        known = ("euclidean", "cosine", "dot")
        raise InputError(f"there is no metric {metric!r}{did_you_mean(metric, known)}")
    if mode == "sparse":
        if not 0 < num_neigh <= len(x_ND):
            raise InputError(f"num_neigh must be within 1..{len(x_ND)}; got {num_neigh}")
        far = np.argsort(-made, axis=1, kind="stable")[:, num_neigh:]
        np.put_along_axis(made, far, 0.0, axis=1)
    elif mode != "dense":
        raise InputError(f"mode is 'dense' or 'sparse'; got {mode!r}")
    return made


def _rows(X: Any, name: str) -> Array:
    rows = np.asarray(X, np.float64)
    if rows.ndim != 2 or rows.size == 0:
        raise InputError(f"{name} must be a matrix (rows, numbers); got shape {rows.shape}")
    return rows


def _kernel(sijs: Any, data: Any, other: Any, metric: str, shape: tuple[int, int]) -> Array:
    """Check given similarities, or make those of ``data`` (columns) against ``other`` (rows)."""
    if sijs is None and data is None:
        raise InputError("give the similarities or the data that they are computed from")
    if sijs is not None:
        made = np.asarray(sijs.toarray() if hasattr(sijs, "toarray") else sijs, np.float64)
    else:
        made = create_kernel(data, "dense", metric, X_rep=other)
    if made.shape != shape:
        raise InputError(f"similarities must have the shape {shape}; got {made.shape}")
    return made


def _cross(sijs: Any, data: Any, other: Any, metric: str, n: int, many: int) -> Array:
    """Return (n, many): elements against a query or a private set."""
    if sijs is None and other is None:
        raise InputError("give the similarities to the query or private set, or its data")
    made = create_kernel(other, "dense", metric, X_rep=data) if sijs is None else sijs
    return _kernel(made, None, None, metric, (n, many))


def _joined(blocks: list[list[Array]]) -> Array:
    whole = np.block(blocks)
    return (whole + whole.T) / 2


def _shown(kernel: Array) -> Array:
    """Count a negative similarity as 0 for facility location, as submodlib does."""
    return np.ascontiguousarray(np.maximum(kernel, 0))


# -------------------------------------------------------------------------------------------------
# What all functions can do.
# -------------------------------------------------------------------------------------------------


class SetFunction:
    """Evaluate and maximise a function of ``shasam.submodular`` under submodlib's names.

    ``f`` is the function itself, for all that submodlib has no name for.
    """

    def __init__(self, n: int, f: OurSetFunction) -> None:
        self.n, self.f = n, f
        self.effective_ground = set(range(n))

    def getEffectiveGroundSet(self) -> set[int]:
        return set(self.effective_ground)

    def evaluate(self, X: set[int]) -> float:
        """Compute f of a set."""
        return float(self.f(self._elements(X)).detach()) if X else 0.0

    def marginalGain(self, X: set[int], element: int) -> float:
        """Return what an element adds to a set."""
        given, (v,) = self._elements(X), self._elements({element})
        if element in X:
            return 0.0
        return float(self.f.gains(self.f.start(given), torch.tensor([v]))[0])

    def maximize(
        self,
        budget: float,
        optimizer: str = "NaiveGreedy",
        stopIfZeroGain: bool = False,
        stopIfNegativeGain: bool = False,
        epsilon: float = 0.1,
        verbose: bool = False,
        show_progress: bool = True,
        costs: Sequence[float] | None = None,
        costSensitiveGreedy: bool = False,
        seed: int = 0,
    ) -> list[tuple[int, float]]:
        """Return elements in the order of greedy picking, each with its gain.

        ``verbose`` and ``show_progress`` are accepted and print nothing.
        """
        if optimizer not in _OPTIMIZERS:
            raise InputError(
                f"there is no optimizer {optimizer!r}{did_you_mean(optimizer, _OPTIMIZERS)}"
            )
        how = _OPTIMIZERS[optimizer]
        pool = torch.arange(self.n)
        if costs is not None:
            if how == "stochastic":
                raise InputError("costs need optimizer='NaiveGreedy' or 'LazyGreedy'")
            self.f.check_maximizable()
            picked = walk(
                self.f, self.n, pool, lazy=how == "lazy" and self.f.submodular,
                costs_N=check_costs(costs, self.f, self.n), budget=float(budget),
                by_ratio=costSensitiveGreedy,
            )  # fmt: skip
        else:
            generator = torch.Generator().manual_seed(seed)
            picked = maximize(
                self.f, int(budget), candidates=pool, optimizer=how,  # type: ignore[arg-type]
                generator=generator, epsilon=epsilon,
            )  # fmt: skip
        made: list[tuple[int, float]] = []
        for v, gain in zip(picked.indices.tolist(), picked.gains.tolist(), strict=True):
            zero = stopIfZeroGain and abs(gain) < _ZERO
            if zero or (stopIfNegativeGain and gain < 0):
                break
            made.append((v, gain))
        return made

    # Walks of the engine keep what they need themselves; the names are there for old code.

    def setMemoization(self, X: set[int]) -> None:
        self._elements(X)

    def updateMemoization(self, X: set[int], element: int) -> None:
        self._elements({*X, element})

    def clearMemoization(self) -> None:
        pass

    def evaluateWithMemoization(self, X: set[int]) -> float:
        return self.evaluate(X)

    def marginalGainWithMemoization(self, X: set[int], element: int) -> float:
        return self.marginalGain(X, element)

    def _elements(self, X: Iterable[int]) -> list[int]:
        found = sorted({int(v) for v in X})
        if found and not 0 <= found[0] <= found[-1] < self.n:
            raise InputError(
                f"elements must be within 0..{self.n - 1}; got {found[0]}..{found[-1]}"
            )
        return found


# -------------------------------------------------------------------------------------------------
# Facility location, graph cut and log-determinant, with their measures.
# -------------------------------------------------------------------------------------------------


class FacilityLocationFunction(SetFunction):
    """Σ_i max_{a∈A} s_ia over the ground set, or over a represented set of its own.

    >>> f = FacilityLocationFunction(n=3, mode="dense", sijs=[[1, .5, 0], [.5, 1, .5], [0, .5, 1]])
    >>> f.maximize(budget=1)
    [(1, 2.0)]
    """

    def __init__(
        self, n: int, mode: str, separate_rep: bool | None = None, n_rep: int | None = None,
        sijs: Any = None, data: Any = None, data_rep: Any = None,
        num_clusters: int | None = None, cluster_labels: Any = None, metric: str = "cosine",
        num_neighbors: int | None = None, create_dense_cpp_kernel_in_python: bool = True,
        pybind_mode: str = "array",
    ) -> None:  # fmt: skip
        shape = (int(n_rep or 0), n) if separate_rep else (n, n)
        if mode == "sparse" and sijs is None:
            sijs = create_kernel(data, "sparse", metric, num_neighbors or 0)
        made = _kernel(sijs, data, data_rep if separate_rep else None, metric, shape)
        if mode == "clustered":
            if cluster_labels is None:
                raise InputError("mode='clustered' needs cluster_labels, one for each element")
            label = np.asarray(cluster_labels)
            made = np.where(label[:, None] == label[None, :], made, 0.0)
        elif mode not in ("dense", "sparse"):
            raise InputError(f"mode is 'dense', 'sparse' or 'clustered'; got {mode!r}")
        super().__init__(n, FacilityLocation.from_cross(_shown(made.T)))


class FacilityLocationMutualInformationFunction(SetFunction):
    """FL1MI: what a set and the query represent in common."""

    def __init__(
        self, n: int, num_queries: int, data_sijs: Any = None, query_sijs: Any = None,
        data: Any = None, queryData: Any = None, metric: str = "cosine",
        magnificationEta: float = 1,
    ) -> None:  # fmt: skip
        own = _kernel(data_sijs, data, None, metric, (n, n))
        near = _cross(query_sijs, data, queryData, metric, n, num_queries)
        super().__init__(n, FL1MI.from_cross(_shown(own.T), _shown(near.T), magnificationEta))


class FacilityLocationVariantMutualInformationFunction(SetFunction):
    """FLQMI: every pick counts for being near the query."""

    def __init__(
        self, n: int, num_queries: int, query_sijs: Any = None, data: Any = None,
        queryData: Any = None, metric: str = "cosine", queryDiversityEta: float = 1,
    ) -> None:  # fmt: skip
        near = _cross(query_sijs, data, queryData, metric, n, num_queries)
        super().__init__(n, FLQMI.from_cross(_shown(near), queryDiversityEta))


class FacilityLocationConditionalGainFunction(SetFunction):
    """FLCG: what a set represents beyond a private set."""

    def __init__(
        self, n: int, num_privates: int, data_sijs: Any = None, private_sijs: Any = None,
        data: Any = None, privateData: Any = None, metric: str = "cosine",
        privacyHardness: float = 1,
    ) -> None:  # fmt: skip
        own = _kernel(data_sijs, data, None, metric, (n, n))
        hidden = _cross(private_sijs, data, privateData, metric, n, num_privates)
        super().__init__(n, FLCG.from_cross(_shown(own.T), _shown(hidden.T), privacyHardness))


class FacilityLocationConditionalMutualInformationFunction(SetFunction):
    """FLCMI: what a set and the query represent in common beyond a private set."""

    def __init__(
        self, n: int, num_queries: int, num_privates: int, data_sijs: Any = None,
        query_sijs: Any = None, private_sijs: Any = None, data: Any = None,
        queryData: Any = None, privateData: Any = None, metric: str = "cosine",
        magnificationEta: float = 1, privacyHardness: float = 1,
    ) -> None:  # fmt: skip
        own = _kernel(data_sijs, data, None, metric, (n, n))
        near = _cross(query_sijs, data, queryData, metric, n, num_queries)
        hidden = _cross(private_sijs, data, privateData, metric, n, num_privates)
        sets = _shown(near.T), _shown(hidden.T)
        f = FLCMI.from_cross(_shown(own.T), *sets, magnificationEta, privacyHardness)
        super().__init__(n, f)


class GraphCutFunction(SetFunction):
    """Σ_i Σ_a s_ia - λ Σ_{a,b} s_ab."""

    def __init__(
        self, n: int, mode: str, lambdaVal: float, separate_rep: bool | None = None,
        n_rep: int | None = None, mgsijs: Any = None, ggsijs: Any = None, data: Any = None,
        data_rep: Any = None, metric: str = "cosine", num_neighbors: int | None = None,
    ) -> None:  # fmt: skip
        if mode == "sparse" and ggsijs is None and mgsijs is None:
            ggsijs = create_kernel(data, "sparse", metric, num_neighbors or 0)
        if not separate_rep:
            given = ggsijs if ggsijs is not None else mgsijs
            own = _kernel(given, data, None, metric, (n, n))
            super().__init__(n, GraphCut((own + own.T) / 2, lambdaVal))
            return
        many = int(n_rep or 0)
        own = _kernel(ggsijs, data, None, metric, (n, n))
        shown = _kernel(mgsijs, data, data_rep, metric, (many, n))
        whole = _joined([[own, shown.T], [shown, np.eye(many)]])
        super().__init__(n, GraphCut(whole, lambdaVal, range(n, n + many)))


class GraphCutMutualInformationFunction(SetFunction):
    """GCMI: the sum of the similarities to the query."""

    def __init__(
        self, n: int, num_queries: int, query_sijs: Any = None, data: Any = None,
        queryData: Any = None, metric: str = "cosine",
    ) -> None:  # fmt: skip
        near = _cross(query_sijs, data, queryData, metric, n, num_queries)
        whole = _joined([[np.eye(n), near], [near.T, np.eye(num_queries)]])
        super().__init__(n, GCMI(whole, range(n, n + num_queries), lam=0.5))


class GraphCutConditionalGainFunction(SetFunction):
    """GCCG: the graph cut less the similarities to a private set."""

    def __init__(
        self, n: int, num_privates: int, lambdaVal: float, data_sijs: Any = None,
        private_sijs: Any = None, data: Any = None, privateData: Any = None,
        metric: str = "cosine", privacyHardness: float = 1,
    ) -> None:  # fmt: skip
        own = _kernel(data_sijs, data, None, metric, (n, n))
        hidden = _cross(private_sijs, data, privateData, metric, n, num_privates)
        whole = _joined([[own, hidden], [hidden.T, np.eye(num_privates)]])
        members = range(n, n + num_privates)
        super().__init__(n, GCCG(whole, members, lambdaVal, privacyHardness, range(n)))


class LogDeterminantFunction(SetFunction):
    """log det(S_A + λI)."""

    def __init__(
        self, n: int, mode: str, lambdaVal: float, sijs: Any = None, data: Any = None,
        metric: str = "cosine", num_neighbors: int | None = None,
    ) -> None:  # fmt: skip
        if mode == "sparse" and sijs is None:
            sijs = create_kernel(data, "sparse", metric, num_neighbors or 0)
        own = _kernel(sijs, data, None, metric, (n, n))
        super().__init__(n, LogDet((own + own.T) / 2, lambdaVal))


class LogDeterminantMutualInformationFunction(SetFunction):
    """LogDetMI."""

    def __init__(
        self, n: int, num_queries: int, lambdaVal: float, data_sijs: Any = None,
        query_sijs: Any = None, query_query_sijs: Any = None, data: Any = None,
        queryData: Any = None, metric: str = "cosine", magnificationEta: float = 1,
    ) -> None:  # fmt: skip
        own = _kernel(data_sijs, data, None, metric, (n, n))
        near = _cross(query_sijs, data, queryData, metric, n, num_queries)
        inner = _kernel(query_query_sijs, queryData, None, metric, (num_queries, num_queries))
        whole = _joined([[own, near], [near.T, inner]])
        members = range(n, n + num_queries)
        super().__init__(n, LogDetMI(whole, members, lambdaVal, magnificationEta))


class LogDeterminantConditionalGainFunction(SetFunction):
    """LogDetCG."""

    def __init__(
        self, n: int, num_privates: int, lambdaVal: float, data_sijs: Any = None,
        private_sijs: Any = None, private_private_sijs: Any = None, data: Any = None,
        privateData: Any = None, metric: str = "cosine", privacyHardness: float = 1,
    ) -> None:  # fmt: skip
        own = _kernel(data_sijs, data, None, metric, (n, n))
        hidden = _cross(private_sijs, data, privateData, metric, n, num_privates)
        shape = (num_privates, num_privates)
        inner = _kernel(private_private_sijs, privateData, None, metric, shape)
        whole = _joined([[own, hidden], [hidden.T, inner]])
        members = range(n, n + num_privates)
        super().__init__(n, LogDetCG(whole, members, lambdaVal, privacyHardness))


class LogDeterminantConditionalMutualInformationFunction(SetFunction):
    """LogDetCMI."""

    def __init__(
        self, n: int, num_queries: int, num_privates: int, lambdaVal: float,
        data_sijs: Any = None, query_sijs: Any = None, query_query_sijs: Any = None,
        private_sijs: Any = None, private_private_sijs: Any = None,
        query_private_sijs: Any = None, data: Any = None, queryData: Any = None,
        privateData: Any = None, metric: str = "cosine", magnificationEta: float = 1,
        privacyHardness: float = 1,
    ) -> None:  # fmt: skip
        own = _kernel(data_sijs, data, None, metric, (n, n))
        near = _cross(query_sijs, data, queryData, metric, n, num_queries)
        hidden = _cross(private_sijs, data, privateData, metric, n, num_privates)
        queries, privates = (num_queries, num_queries), (num_privates, num_privates)
        qq = _kernel(query_query_sijs, queryData, None, metric, queries)
        pp = _kernel(private_private_sijs, privateData, None, metric, privates)
        qp = _cross(query_private_sijs, queryData, privateData, metric, num_queries, num_privates)
        whole = _joined([[own, near, hidden], [near.T, qq, qp], [hidden.T, qp.T, pp]])
        query = range(n, n + num_queries)
        private = range(n + num_queries, len(whole))
        f = LogDetCMI(whole, query, private, lambdaVal, magnificationEta, privacyHardness)
        super().__init__(n, f)


# -------------------------------------------------------------------------------------------------
# Spread, features and covers.
# -------------------------------------------------------------------------------------------------


class DisparitySumFunction(SetFunction):
    """Σ_{a<b} (1 - s_ab)."""

    def __init__(
        self, n: int, mode: str, sijs: Any = None, data: Any = None, metric: str = "cosine",
        num_neighbors: int | None = None,
    ) -> None:  # fmt: skip
        own = _kernel(sijs, data, None, metric, (n, n))
        super().__init__(n, DisparitySum((own + own.T) / 2))


class DisparityMinFunction(SetFunction):
    """min_{a≠b} (1 - s_ab)."""

    def __init__(
        self, n: int, mode: str, sijs: Any = None, data: Any = None, metric: str = "cosine",
        num_neighbors: int | None = None,
    ) -> None:  # fmt: skip
        own = _kernel(sijs, data, None, metric, (n, n))
        super().__init__(n, DisparityMin((own + own.T) / 2))


class FeatureBasedFunction(SetFunction):
    """Σ_d w_d φ(Σ_a x_ad); features as a matrix, or (sparse) as lists of (number, value).

    ``mode`` is FeatureBasedFunction.logarithmic, .squareRoot or .inverse.
    """

    logarithmic, squareRoot, inverse = "log", "sqrt", "saturate"

    def __init__(
        self, n: int, features: Any, numFeatures: int, sparse: bool, featureWeights: Any = None,
        mode: Concave = "log",
    ) -> None:  # fmt: skip
        if sparse:
            x_ND = np.zeros((n, numFeatures))
            for v, row in enumerate(features):
                for number, value in row:
                    x_ND[v, int(number)] = value
        else:
            x_ND = _kernel(features, None, None, "", (n, numFeatures))
        super().__init__(n, FeatureBased(x_ND, mode, featureWeights))


class SetCoverFunction(SetFunction):
    """The weight of the covered concepts.

    >>> f = SetCoverFunction(n=3, cover_set=[{0, 1}, {1, 2}, {3}], num_concepts=4)
    >>> f.maximize(budget=2)
    [(0, 2.0), (1, 1.0)]
    """

    def __init__(
        self, n: int, cover_set: Any, num_concepts: int, concept_weights: Any = None, **sets: Any
    ) -> None:
        cover = [{int(u) for u in covered} for covered in cover_set]
        f = SetCover(cover, num_concepts, concept_weights)
        super().__init__(n, f.about_concepts(**sets) if sets else f)


class SetCoverMutualInformationFunction(SetCoverFunction):
    """Only the concepts of the query count."""

    def __init__(
        self, n: int, cover_set: Any, num_concepts: int, query_concepts: set[int],
        concept_weights: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(n, cover_set, num_concepts, concept_weights, query=query_concepts)


class SetCoverConditionalGainFunction(SetCoverFunction):
    """Private concepts do not count."""

    def __init__(
        self, n: int, cover_set: Any, num_concepts: int, private_concepts: set[int],
        concept_weights: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(n, cover_set, num_concepts, concept_weights, private=private_concepts)


class SetCoverConditionalMutualInformationFunction(SetCoverFunction):
    """Only the concepts of the query count, without the private ones."""

    def __init__(
        self, n: int, cover_set: Any, num_concepts: int, query_concepts: set[int],
        private_concepts: set[int], concept_weights: Any = None,
    ) -> None:  # fmt: skip
        sets = {"query": query_concepts, "private": private_concepts}
        super().__init__(n, cover_set, num_concepts, concept_weights, **sets)


class ProbabilisticSetCoverFunction(SetFunction):
    """The expected weight of the covered concepts."""

    def __init__(
        self, n: int, probs: Any, num_concepts: int, concept_weights: Any = None, **sets: Any
    ) -> None:
        p_NU = _kernel(probs, None, None, "", (n, num_concepts))
        f = ProbabilisticSetCover(p_NU, concept_weights)
        super().__init__(n, f.about_concepts(**sets) if sets else f)


class ProbabilisticSetCoverMutualInformationFunction(ProbabilisticSetCoverFunction):
    """Only the concepts of the query count."""

    def __init__(
        self, n: int, num_concepts: int, probs: Any, query_concepts: set[int],
        concept_weights: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(n, probs, num_concepts, concept_weights, query=query_concepts)


class ProbabilisticSetCoverConditionalGainFunction(ProbabilisticSetCoverFunction):
    """Private concepts do not count."""

    def __init__(
        self, n: int, num_concepts: int, probs: Any, private_concepts: set[int],
        concept_weights: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(n, probs, num_concepts, concept_weights, private=private_concepts)


class ProbabilisticSetCoverConditionalMutualInformationFunction(ProbabilisticSetCoverFunction):
    """Only the concepts of the query count, without the private ones."""

    def __init__(
        self, n: int, num_concepts: int, probs: Any, query_concepts: set[int],
        private_concepts: set[int], concept_weights: Any = None,
    ) -> None:  # fmt: skip
        sets = {"query": query_concepts, "private": private_concepts}
        super().__init__(n, probs, num_concepts, concept_weights, **sets)
