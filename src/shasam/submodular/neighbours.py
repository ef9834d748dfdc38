"""Sparse kernels: the similarities of every row to its k nearest elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError, MemoryLimitError
from shasam.memory import available_memory, readable
from shasam.submodular import faiss_search, kernels, neighbour_loops, threads
from shasam.submodular.kernels import Similarity
from shasam.submodular.similarities import Gram

_ROWS, _COLUMNS = 512, 2048  # of a tile: it stays in the cache until its largest are kept


class Neighbours(Gram):
    """A kernel that keeps only near pairs: S_ij = K_ij where j is among the k nearest of i.

    A pair is kept if either is near the other, so S is symmetric; S_ii is kept too, and all other
    entries are 0. The search is exact: it computes all n² similarities in tiles and keeps
    n × k of them, so memory grows with n × k and time with n². With ``among``, every row keeps its
    k nearest of those elements only, and only they can be picked: n × len(among) similarities.

    ``search="faiss"`` finds them by a graph of faiss (extra ``faiss``) without comparing all pairs.
    It can miss some of them; the similarities of those that it finds are exact.

    ``SparseFacilityLocation`` and ``GraphCut`` take it for a kernel.

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
        self.start_N1, self.row_E, self.value_E = neighbour_loops.by_element(
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
        """The k nearest of every row, in tiles of similarities, rows side by side on threads."""
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
                neighbour_loops.keep_nearest(
                    similar(rows, columns).numpy(), top, columns, value_NK[rows], index_NK[rows]
                )

        tops = range(0, self.n, _ROWS)
        for done, _ in enumerate(threads.each(search, tops), start=1):
            if progress is not None:
                progress(done, len(tops))
        value_NK[index_NK < 0] = 0  # a row that is itself among the few has one neighbour less
        return index_NK, value_NK

    def _found(self) -> tuple[np.ndarray, np.ndarray]:
        """As ``_search``, by faiss."""
        own = np.arange(self.n) if self.among is None else self.among.cpu().numpy()
        z_ND = self.z_ND.detach().cpu()
        return faiss_search.nearest(z_ND, own, self.k, self.similarity, self.gamma)

    def _own(self) -> np.ndarray:
        """S_vv of every element; -1 where it cannot be picked. A zero vector is like nothing."""
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
        """S of some edges of some elements; computed anew where the features ask for a gradient."""
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
        """Element, represented row and number of every edge of some elements."""
        picked = index.cpu().numpy()
        first, last = self.start_N1[picked], self.start_N1[picked + 1]
        edge_E = np.concatenate(
            [np.arange(a, b) for a, b in zip(first, last, strict=True)] or [np.arange(0)]
        )
        element_E = torch.from_numpy(np.repeat(picked, last - first)).to(self.device)
        row_E = torch.from_numpy(self.row_E[edge_E].astype(np.int64)).to(self.device)
        return element_E, row_E, torch.from_numpy(edge_E).to(self.device)

    def block(self, rows: Tensor | None, columns: Tensor) -> Tensor:
        """S between two index sets as a dense matrix; None is everything."""
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
