"""Facility location over the nearest neighbours of every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import neighbour_loops
from shasam.submodular.neighbours import Neighbours
from shasam.submodular.set_function import SetFunction


class SparseFacilityLocation(SetFunction):
    """f(A) = Σ_i max(0, max_{a∈A} S_ia): facility location where only near pairs count.

    S is a ``Neighbours`` kernel: a row is represented by the picks among its k nearest elements
    and by nothing else, so f(A) is at most the value of facility location over all pairs, and both
    are equal with all neighbours. Memory is n × k. It suits many picks, each of which stands for
    about k rows; with few picks and few neighbours most rows count 0 and the picks are poor.

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
            neighbour_loops.raise_best(*self._graph(), v, best_N)
        return best_N

    def gains(self, state: np.ndarray, candidates: Tensor) -> Tensor:
        told = neighbour_loops.sparse_gains(*self._graph(), state, candidates.cpu().numpy())
        return torch.from_numpy(told).to(self.device)

    def add(self, state: np.ndarray, v: int) -> np.ndarray:
        neighbour_loops.raise_best(*self._graph(), v, state)
        return state

    def greedy(
        self, k: int, candidates: Tensor, lazy: bool
    ) -> tuple[np.ndarray, np.ndarray, int] | None:
        best_N = np.zeros(self.n, np.float64)
        return neighbour_loops.sparse_greedy(
            *self._graph(), best_N, candidates.cpu().numpy(), k, lazy
        )

    def _graph(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.neighbours.start_N1, self.neighbours.row_E, self.neighbours.value_E
