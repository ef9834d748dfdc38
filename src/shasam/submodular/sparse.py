"""Facility location over the nearest neighbours of every row: sparse kernels for many rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numba import njit
from torch import Tensor

from shasam.errors import InputError, MemoryLimitError
from shasam.extras import need
from shasam.memory import available_memory, readable
from shasam.submodular import kernels, loops
from shasam.submodular.kernels import Gram, Similarity
from shasam.submodular.loops import BLOCK, TIE, block_top, block_tops, first_of_ties, highest
from shasam.submodular.set_function import SetFunction

# -------------------------------------------------------------------------------------------------
# Compiled loops over the nearest neighbours of every row: finding, storing and walking them.
#
# The graph is stored by element: `start_N1` says where the edges of an element begin, `row_E`
# which represented row an edge leads to and `value_E` how similar it is.
# -------------------------------------------------------------------------------------------------

_STRIP = 64  # similarities whose largest is compared first: most strips hold no near neighbour


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz", "reassoc", "contract"})
def strip_top(block_TC, t, left, right):
    top = block_TC[t, left]
    for c in range(left + 1, right):
        top = max(top, block_TC[t, c])
    return top


@njit(cache=True, nogil=True)
def keep_nearest(block_TC, first_row, own_C, value_TK, index_TK):
    """Put the similarities of a tile among the k largest of its rows; own_C numbers its columns.

    Of equal ones the first stays. A row is no neighbour of itself.
    """
    k = value_TK.shape[1]
    for t in range(block_TC.shape[0]):
        least = 0
        for j in range(1, k):
            if value_TK[t, j] < value_TK[t, least]:
                least = j
        for left in range(0, block_TC.shape[1], _STRIP):
            right = min(left + _STRIP, block_TC.shape[1])
            if strip_top(block_TC, t, left, right) <= value_TK[t, least]:
                continue
            for c in range(left, right):
                value = block_TC[t, c]
                if value > value_TK[t, least] and own_C[c] != first_row + t:
                    value_TK[t, least], index_TK[t, least] = value, own_C[c]
                    for j in range(k):
                        if value_TK[t, j] < value_TK[t, least]:
                            least = j


@njit(cache=True, nogil=True)
def _place(index_NK, i, j):
    """Return where j stands among the neighbours of i; -1 if it does not."""
    for s in range(index_NK.shape[1]):
        if index_NK[i, s] == j:
            return s
    return -1


@njit(cache=True, nogil=True)
def by_element(index_NK, value_NK, own_N, symmetric):
    """Return the edges by element, every element with an edge to itself.

    Symmetric: i and j are joined if either is near the other, with one value both ways.
    """
    n, k = index_NK.shape
    start = np.zeros(n + 1, np.int64)
    for i in range(n):
        if own_N[i] >= 0:
            start[i + 1] += 1
        for s in range(k):
            j = index_NK[i, s]
            if j < 0:
                continue
            start[j + 1] += 1
            if symmetric and _place(index_NK, j, i) < 0:
                start[i + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
    free = start[:-1].copy()
    row = np.empty(start[n], np.int32)
    value = np.empty(start[n], value_NK.dtype)
    for i in range(n):  # edges of an element stand in the order of their rows
        if own_N[i] >= 0:
            row[free[i]], value[free[i]] = i, own_N[i]
            free[i] += 1
        for s in range(k):
            j = index_NK[i, s]
            if j < 0:
                continue
            back = _place(index_NK, j, i) if symmetric else -1
            told = value_NK[j, back] if back >= 0 and j < i else value_NK[i, s]
            row[free[j]], value[free[j]] = i, told
            free[j] += 1
            if symmetric and back < 0:
                row[free[i]], value[free[i]] = j, told
                free[i] += 1
    return start, row, value


@njit(cache=True, nogil=True)
def sparse_gain(start, row, value, v, best_N):
    total = 0.0
    for e in range(start[v], start[v + 1]):
        total += max(np.float64(value[e]) - best_N[row[e]], 0.0)
    return total


@njit(cache=True, nogil=True)
def sparse_gains(start, row, value, best_N, candidates):
    gains = np.empty(candidates.shape[0], np.float64)
    for c in range(candidates.shape[0]):
        gains[c] = sparse_gain(start, row, value, candidates[c], best_N)
    return gains


@njit(cache=True, nogil=True)
def raise_best(start, row, value, v, best_N):
    for e in range(start[v], start[v + 1]):
        best_N[row[e]] = max(best_N[row[e]], np.float64(value[e]))


@njit(cache=True, nogil=True)
def _renew_block(start, row, value, best_N, candidates, bound, b, cut):
    """Return new gains in block b where the old one reaches the cut; how many there were."""
    renewed = 0
    for c in range(b * BLOCK, min((b + 1) * BLOCK, candidates.shape[0])):
        if bound[c] >= cut:
            bound[c] = sparse_gain(start, row, value, candidates[c], best_N)
            renewed += 1
    return renewed


@njit(cache=True, nogil=True)
def sparse_greedy(start, row, value, best_N, candidates, k, lazy):
    """Return k greedy picks; a gain is looked at again only if its old value could still win."""
    bound = sparse_gains(start, row, value, best_N, candidates)
    tops = block_tops(bound)
    indices, gains = np.empty(k, np.int64), np.empty(k, np.float64)
    evaluations = candidates.shape[0]
    lowest = -np.finfo(np.float64).max
    for step in range(k):
        if step > 0:
            top = highest(bound, tops)
            b = top // BLOCK
            bound[top] = sparse_gain(start, row, value, candidates[top], best_N)
            best, evaluations = bound[top], evaluations + 1
            tops[b] = block_top(bound, b)
            for b in range(tops.shape[0]):
                cut = best - TIE * abs(best) if lazy else lowest
                if tops[b] >= cut:
                    evaluations += _renew_block(
                        start, row, value, best_N, candidates, bound, b, cut
                    )
                    tops[b] = block_top(bound, b)
                    best = max(best, tops[b])
        chosen = first_of_ties(bound, tops, highest(bound, tops))
        indices[step], gains[step] = candidates[chosen], bound[chosen]
        bound[chosen] = -np.inf
        tops[chosen // BLOCK] = block_top(bound, chosen // BLOCK)
        raise_best(start, row, value, candidates[chosen], best_N)
    return indices, gains, evaluations


# -------------------------------------------------------------------------------------------------
# Nearest neighbours by a graph of faiss (HNSW): some may be missed, and n² pairs are not
# compared.
#
# Only the search is approximate. The similarities of what it finds are computed here.
# -------------------------------------------------------------------------------------------------

_LINKS = 32  # of an element in the graph: 4 bytes × 2 each
_FAISS_ROWS = 8192  # rows that are looked up at a time


def nearest(
    z_ND: Tensor, own_C: np.ndarray, k: int, similarity: Similarity, gamma: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Find near elements among ``own_C`` and similarities, (N, k); -1 and 0 if none is left.

    The graph is built by one thread, because it depends on the order in which elements arrive;
    looking up uses as many as torch.
    """
    need("faiss", "Neighbours(…, search='faiss')")
    import faiss

    points_ND = z_ND if similarity == "rbf" else kernels.unit_rows(z_ND)
    points = np.ascontiguousarray(points_ND.float().numpy())
    metric = faiss.METRIC_L2 if similarity == "rbf" else faiss.METRIC_INNER_PRODUCT
    graph = faiss.IndexHNSWFlat(points.shape[1], _LINKS, metric)
    graph.hnsw.efSearch = max(64, 2 * (k + 1))
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        graph.add(points[own_C])
        faiss.omp_set_num_threads(torch.get_num_threads())
        parts = [graph.search(rows, min(k + 1, len(own_C)))[1] for rows in _chunks(points)]
    finally:
        faiss.omp_set_num_threads(before)
    index_NK = _without_itself(np.concatenate(parts), own_C, k)
    value_NK = np.zeros(index_NK.shape, z_ND.numpy().dtype)
    for start in range(0, len(z_ND), _FAISS_ROWS):
        rows = slice(start, start + _FAISS_ROWS)
        value_NK[rows] = _similarities(z_ND, start, index_NK[rows], similarity, gamma)
    return index_NK, value_NK


def _chunks(points: np.ndarray) -> list[np.ndarray]:
    return [points[start : start + _FAISS_ROWS] for start in range(0, len(points), _FAISS_ROWS)]


def _without_itself(found_NM: np.ndarray, own_C: np.ndarray, k: int) -> np.ndarray:
    """Return the first k of every row that are not the row; -1 where faiss found fewer."""
    named_NM = np.where(found_NM < 0, -1, own_C[found_NM])
    named_NM[named_NM == np.arange(len(named_NM))[:, None]] = -1
    order_NM = np.argsort(named_NM < 0, axis=1, kind="stable")
    kept = np.take_along_axis(named_NM, order_NM, axis=1)[:, :k]
    full = np.full((len(kept), k), -1, np.int32)
    full[:, : kept.shape[1]] = kept
    return full


def _similarities(
    z_ND: Tensor, start: int, index_BK: np.ndarray, similarity: Similarity, gamma: float | None
) -> np.ndarray:
    """Return S of every row and its neighbours; 0 if there is none."""
    x_BD = z_ND[start : start + len(index_BK)]
    y_BKD = z_ND[torch.from_numpy(np.maximum(index_BK, 0)).long()]
    if similarity == "rbf":
        width = 1.0 / x_BD.shape[1] if gamma is None else gamma
        value_BK = torch.exp(-width * (x_BD[:, None] - y_BKD).square().sum(dim=2))
    else:
        unit = kernels.unit_rows(y_BKD.reshape(-1, y_BKD.shape[2])).view_as(y_BKD)
        value_BK = torch.einsum("bd,bkd->bk", kernels.unit_rows(x_BD), unit)
        value_BK = value_BK if similarity == "cosine" else (1 + value_BK) / 2
    return np.where(index_BK < 0, 0, value_BK.numpy())


# -------------------------------------------------------------------------------------------------
# Sparse kernels: the similarities of every row to its k nearest elements.
# -------------------------------------------------------------------------------------------------

_ROWS, _COLUMNS = 512, 2048  # of a tile: it stays in the cache until its largest are kept


class Neighbours(Gram):
    """Keep the similarities of near pairs only: a sparse kernel.

    ``S_ij = K_ij if j is among the k nearest of i, or i among those of j; else 0``

    S is symmetric and S_ii is kept. The search is exact by default: it computes all n² similarities
    in tiles and keeps n × k of them, so memory grows with n × k and time with n².
    ``SparseFacilityLocation`` and ``GraphCut`` take it for a kernel.

    Parameters
    ----------
    z
        Features (n, D).
    k
        Neighbours that each row keeps.
    similarity
        "cosine", "shifted_cosine" or "rbf".
    gamma
        γ of "rbf", by default 1/D.
    among
        Elements that may be neighbours, and picked: n × len(among) similarities. By default
        all.
    search
        "exact", or "faiss" for a graph of faiss (extra ``faiss``) that does not compare all
        pairs. It can miss neighbours; the similarities of those that it finds are exact.
    progress
        Function that is called with (done, whole).

    Examples
    --------
    >>> near = Neighbours([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]], k=1)
    >>> near.edges, [round(s, 3) for s in near.column(0).tolist()]
    (8, [1.0, 0.998, 0.0, 0.0])
    """

    def __init__(
        self,
        z: Any,
        k: int = 32,
        similarity: Similarity = "shifted_cosine",
        gamma: float | None = None,
        *,
        among: Any = None,
        search: Literal["exact", "faiss"] = "exact",
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        kernels.check_similarity(similarity)
        if search not in ("exact", "faiss"):
            raise InputError(f"search is 'exact' or 'faiss'; got {search!r}")
        self.z_ND, self.similarity, self.gamma = kernels.as_features(z), similarity, gamma
        self._set(len(self.z_ND), self.z_ND.device, self.z_ND.dtype)
        self.among = None if among is None else self.index(among).sort().values
        others = self.n - 1 if self.among is None else len(self.among)
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= max(others, 1):
            raise InputError(
                f"every row keeps k of its neighbours, from 1 to {others} of them; got {k!r}"
            )
        self.k = k
        _check_memory(self.n, k)
        with torch.no_grad():
            index_NK, value_NK = self._search(progress) if search == "exact" else self._found()
            own_N = self._own()
        if float(value_NK.min()) < 0 and value_NK.size:
            raise InputError(
                "some neighbours have a negative similarity, below that of rows that are left "
                "out; use similarity='shifted_cosine' or 'rbf'"
            )
        self.start_N1, self.row_E, self.value_E = by_element(
            index_NK, value_NK, own_N, self.among is None
        )

    def _set(self, n: int, device: torch.device, dtype: torch.dtype) -> None:
        self.n, self.device, self.dtype = n, device, dtype
        self.kernel_NN = self.mapped_ND = None
        self.nonnegative, self.unit_norm = True, False

    @property
    def edges(self) -> int:
        """How many entries of S are kept."""
        return len(self.row_E)

    @property
    def base(self) -> Tensor:  # type: ignore[override]
        raise InputError(
            "a kernel of nearest neighbours is not positive semi-definite, so LogDet has no value "
            "over it; give LogDet the features, of which it needs no kernel"
        )

    def _search(self, progress: Callable[[int, int], None] | None) -> tuple[np.ndarray, np.ndarray]:
        """Return the k nearest of every row, in tiles of similarities, rows side by side on
        threads.
        """
        z_ND = self.z_ND.detach().cpu()
        mapped_ND = kernels.mapped_features(z_ND, self.similarity)
        own = np.arange(self.n) if self.among is None else self.among.cpu().numpy()
        index_NK = np.full((self.n, self.k), -1, np.int32)
        value_NK = np.full((self.n, self.k), -np.inf, z_ND.numpy().dtype)

        def similar(rows: slice, columns: np.ndarray) -> Tensor:
            chosen = slice(columns[0], columns[-1] + 1) if self.among is None else columns
            if mapped_ND is None:
                return kernels.similarity_matrix(
                    z_ND[rows], z_ND[chosen], self.similarity, self.gamma
                )
            return mapped_ND[rows] @ mapped_ND[chosen].T

        def search(top: int) -> None:
            rows = slice(top, min(top + _ROWS, self.n))
            for left in range(0, len(own), _COLUMNS):
                columns = own[left : left + _COLUMNS]
                keep_nearest(
                    similar(rows, columns).numpy(), top, columns, value_NK[rows], index_NK[rows]
                )

        tops = range(0, self.n, _ROWS)
        for done, _ in enumerate(loops.each(search, tops), start=1):
            if progress is not None:
                progress(done, len(tops))
        value_NK[index_NK < 0] = 0  # a row that is itself among the few has one neighbour less
        return index_NK, value_NK

    def _found(self) -> tuple[np.ndarray, np.ndarray]:
        """Search as ``_search`` does, by faiss."""
        own = np.arange(self.n) if self.among is None else self.among.cpu().numpy()
        z_ND = self.z_ND.detach().cpu()
        return nearest(z_ND, own, self.k, self.similarity, self.gamma)

    def _own(self) -> np.ndarray:
        """Return s_vv of every element.

        -1 where it cannot be picked. A zero vector is like nothing.
        """
        z_ND = self.z_ND.detach()
        own_N = torch.ones(self.n, dtype=self.dtype)
        if self.similarity == "cosine":
            own_N = z_ND.cpu().ne(0).any(dim=1).to(self.dtype)
        elif self.similarity == "shifted_cosine":
            own_N = (1 + z_ND.cpu().ne(0).any(dim=1).to(self.dtype)) / 2
        if self.among is not None:
            left_out = torch.ones(self.n, dtype=torch.bool)
            left_out[self.among.cpu()] = False
            own_N[left_out] = -1
        return own_N.numpy()

    def values(self, element_E: Tensor, edge_E: Tensor) -> Tensor:
        """Return S of some edges of some elements.

        Computed anew where the features ask for a gradient.
        """
        stored = torch.from_numpy(self.value_E)[edge_E.cpu()].to(self.device)
        if not self.z_ND.requires_grad or not torch.is_grad_enabled():
            return stored
        x_ED = self.z_ND[torch.from_numpy(self.row_E).long()[edge_E.cpu()]]
        y_ED = self.z_ND[element_E]
        if self.similarity == "rbf":
            gamma = 1.0 / x_ED.shape[1] if self.gamma is None else self.gamma
            return torch.exp(-gamma * (x_ED - y_ED).square().sum(dim=1))
        cosine_E = (kernels.unit_rows(x_ED) * kernels.unit_rows(y_ED)).sum(dim=1)
        return cosine_E if self.similarity == "cosine" else (1 + cosine_E) / 2

    def edges_of(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return element, represented row and number of every edge of some elements."""
        picked = index.cpu().numpy()
        first, last = self.start_N1[picked], self.start_N1[picked + 1]
        edge_E = np.concatenate(
            [np.arange(a, b) for a, b in zip(first, last, strict=True)] or [np.arange(0)]
        )
        element_E = torch.from_numpy(np.repeat(picked, last - first)).to(self.device)
        row_E = torch.from_numpy(self.row_E[edge_E].astype(np.int64)).to(self.device)
        return element_E, row_E, torch.from_numpy(edge_E).to(self.device)

    def block(self, rows: Tensor | None, columns: Tensor) -> Tensor:
        """Return S between two index sets as a dense matrix; None is everything."""
        element_E, row_E, edge_E = self.edges_of(columns)
        place_N = torch.zeros(self.n, dtype=torch.int64, device=self.device)
        place_N[columns] = torch.arange(len(columns), device=self.device)
        dense = torch.zeros(self.n, len(columns), dtype=self.dtype, device=self.device)
        dense = dense.index_put((row_E, place_N[element_E]), self.values(element_E, edge_E))
        return dense if rows is None else dense[rows]

    def column(self, v: int) -> Tensor:
        return self.block(None, torch.tensor([v], device=self.device))[:, 0]

    def square(self) -> Tensor:
        raise InputError(
            "a kernel of nearest neighbours is kept sparse; use SparseFacilityLocation in place "
            "of FacilityLocation, or GraphCut"
        )

    def sums(self, represented: Tensor | None) -> Tensor:
        if self.among is not None:
            raise InputError("GraphCut needs the neighbours among all elements; leave out among")
        everything = torch.arange(self.n, device=self.device)
        element_E, row_E, edge_E = self.edges_of(everything)
        value_E = self.values(element_E, edge_E)
        if represented is not None:
            inside_N = torch.zeros(self.n, dtype=torch.bool, device=self.device)
            inside_N[represented] = True
            value_E = value_E * inside_N[row_E]
        empty = torch.zeros(self.n, dtype=self.dtype, device=self.device)
        return empty.index_add(0, element_E, value_E)

    def diagonal(self, dtype: torch.dtype | None = None) -> Tensor:
        own_N = torch.from_numpy(self._own()).clamp_min(0)
        return own_N.to(self.device, dtype or self.dtype)

    def is_nonnegative(self) -> bool:
        return True

    def part(self, index: Tensor) -> Gram:
        return Gram(self.block(index, index).detach(), nonnegative=True)


def _check_memory(n: int, k: int) -> None:
    need, free = n * k * 8 * 3, available_memory()  # k nearest of each row, then both ways
    if free is not None and need > 0.9 * free:
        raise MemoryLimitError(
            f"{k} neighbours of {n:,} rows take {readable(need)} and {readable(free)} are free; "
            "keep fewer neighbours"
        )


# -------------------------------------------------------------------------------------------------
# Facility location over the nearest neighbours of every row.
# -------------------------------------------------------------------------------------------------


class SparseFacilityLocation(SetFunction):
    """Measure how well a set stands for all rows, near pairs alone counting.

    ``f(A) = Σ_i max(0, max_{a∈A} S_ia)``

    S is a ``Neighbours`` kernel: a row is represented by the picks among its k nearest elements
    and by nothing else, so f(A) is at most the value of facility location over all pairs, and both
    are equal with all neighbours. Memory is n × k. It suits many picks, each of which stands for
    about k rows; with few picks and few neighbours most rows count 0 and the picks are poor.

    Parameters
    ----------
    neighbours
        The kernel S of near pairs.

    Examples
    --------
    >>> z = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]
    >>> f = SparseFacilityLocation(Neighbours(z, k=1))
    >>> round(float(f([0])), 3), round(float(f([0, 2])), 3)
    (1.998, 3.995)
    >>> from shasam.submodular import maximize
    >>> maximize(f, 2).indices.tolist()
    [0, 2]
    """

    submodular = True
    monotone = True

    def __init__(self, neighbours: Neighbours) -> None:
        if not isinstance(neighbours, Neighbours):
            raise InputError(
                "give the neighbours: SparseFacilityLocation(Neighbours(features, k=32))"
            )
        self.neighbours = neighbours
        self.n, self.device, self.dtype = neighbours.n, neighbours.device, neighbours.dtype
        self.candidates = neighbours.among

    def __call__(self, selected: Any) -> Tensor:
        element_E, row_E, edge_E = self.neighbours.edges_of(self.index(selected))
        best_N = torch.zeros(self.n, dtype=self.dtype, device=self.device)
        value_E = self.neighbours.values(element_E, edge_E)
        return best_N.scatter_reduce(0, row_E, value_E, "amax").sum()

    def start(self, given: Any = ()) -> np.ndarray:
        best_N = np.zeros(self.n, np.float64)
        for v in self.index(given).tolist():
            raise_best(*self._graph(), v, best_N)
        return best_N

    def gains(self, state: np.ndarray, candidates: Tensor) -> Tensor:
        told = sparse_gains(*self._graph(), state, candidates.cpu().numpy())
        return torch.from_numpy(told).to(self.device)

    def add(self, state: np.ndarray, v: int) -> np.ndarray:
        raise_best(*self._graph(), v, state)
        return state

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        best_N = np.zeros(self.n, np.float64)
        return sparse_greedy(*self._graph(), best_N, candidates.cpu().numpy(), k, lazy)

    def _graph(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.neighbours.start_N1, self.neighbours.row_E, self.neighbours.value_E
