"""Nearest neighbours by a graph of faiss (HNSW): some may be missed, and n² pairs are not compared.

Only the search is approximate. The similarities of what it finds are computed here.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shasam.extras import need
from shasam.submodular import kernels
from shasam.submodular.kernels import Similarity

_LINKS = 32  # of an element in the graph: 4 bytes × 2 each
_ROWS = 8192  # rows that are looked up at a time


def nearest(
    z_ND: Tensor, own_C: np.ndarray, k: int, similarity: Similarity, gamma: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Element and similarity (N, k) of near elements among ``own_C``; -1 and 0 where none is left.

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
    for start in range(0, len(z_ND), _ROWS):
        rows = slice(start, start + _ROWS)
        value_NK[rows] = _similarities(z_ND, start, index_NK[rows], similarity, gamma)
    return index_NK, value_NK


def _chunks(points: np.ndarray) -> list[np.ndarray]:
    return [points[start : start + _ROWS] for start in range(0, len(points), _ROWS)]


def _without_itself(found_NM: np.ndarray, own_C: np.ndarray, k: int) -> np.ndarray:
    """The first k of every row that are not the row; -1 where faiss found fewer."""
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
    """S of every row and its neighbours; 0 where there is none."""
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
