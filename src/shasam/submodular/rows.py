"""The similarities of every element to the represented rows, made when they are first needed.

Facility location over a million features can be evaluated, split and sampled without the kernel of
a million columns; only the compiled walk needs it, and asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from shasam.submodular.similarities import Features, Gram, Similarities

_SMALL = 2**28  # entries of a kernel that is made without asking: 1 GiB of float32
_TILE = 2**20  # entries that are computed together where there is no kernel: they stay in cache


class Rows:
    """K (N, R), or the features from which blocks of it are computed."""

    def __init__(self, source: Similarities, represented: Any = None) -> None:
        self.source, self.n = source, source.n
        self._z_RD: Tensor | None = None
        self._kernel_NR: Tensor | None = None
        self.kept = True  # False: a walk computes similarities anew instead of keeping all
        if isinstance(source, Features):
            self.device, self.dtype = source.z_ND.device, source.z_ND.dtype
            self._z_RD = source.represented(represented)
            self.represented = represented
            self.width = len(self._z_RD)
            if source.z_ND.requires_grad or self._z_RD.requires_grad:
                self._make()  # now, while gradients are recorded
        else:
            self._kernel_NR = source.rows(represented)
            self.device, self.dtype = self._kernel_NR.device, self._kernel_NR.dtype
            self.width = self._kernel_NR.shape[1]

    @classmethod
    def of(cls, kernel_NR: Tensor) -> Rows:
        """Of a kernel that is there."""
        return cls(Gram(kernel_NR))

    def _make(self) -> Tensor:
        assert isinstance(self.source, Features)
        self._kernel_NR = self.source.rows(self.represented)
        return self._kernel_NR

    @property
    def kernel_NR(self) -> Tensor:
        """The whole kernel; MemoryLimitError where it does not fit."""
        return self._make() if self._kernel_NR is None else self._kernel_NR

    def is_made(self, wanted: int) -> bool:
        """Is there a kernel, or is one small enough to be made for this many rows?"""
        if self._kernel_NR is None and wanted > 1 and self.n * self.width <= _SMALL:
            self._make()
        return self._kernel_NR is not None

    def blocks(self, index: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """K of some elements in pieces (len(index), width of the piece), with their columns."""
        if self._kernel_NR is not None:
            yield slice(0, self.width), self._kernel_NR[index]
            return
        assert isinstance(self.source, Features) and self._z_RD is not None
        z_CD = self.source.z_ND[index]
        step = max(_TILE // max(len(index), 1), 1)
        for start in range(0, self.width, step):
            piece = slice(start, min(start + step, self.width))
            z_PD = self._z_RD[piece]
            if len(z_CD) >= len(z_PD):
                yield piece, self.source.between(z_CD, z_PD)
            else:  # the longer side first: it is not copied where the other is short
                yield piece, self.source.between(z_PD, z_CD).T

    def best(self, index: Tensor) -> Tensor:
        """(R,): the largest similarity of each represented row to the elements."""
        return torch.cat([block.amax(dim=0) for _, block in self.blocks(index)])

    def part(self, index: Tensor, represented: Tensor | None) -> tuple[Rows, Tensor | None]:
        """Some elements, and the columns that were kept for them; None is all columns.

        With ``represented`` those columns are kept. Without, features that have no represented
        set of their own stand for themselves, so that a part costs only its own square.
        """
        if not isinstance(self.source, Features):
            kernel_NR = self.kernel_NR[index]
            return Rows.of(
                kernel_NR if represented is None else kernel_NR[:, represented]
            ), represented
        assert self._z_RD is not None
        whole = len(index) == self.n and bool((index == torch.arange(self.n).to(index)).all())
        some = self.source if whole else self.source.part(index)  # a million rows are not copied
        if represented is not None:
            return Rows(some, self._z_RD[represented]), represented
        if self.represented is None:
            return Rows(some), index
        return Rows(some, self._z_RD), None


def sample_rows(n: int, size: int, generator: torch.Generator) -> Tensor:
    """``size`` of n rows without replacement, in ascending order."""
    return torch.randperm(n, generator=generator)[:size].sort().values
