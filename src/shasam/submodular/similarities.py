"""Similarities between the elements of a set function, over a kernel or over features.

A set function asks for a few blocks of similarities only, and does not care where they come from:
``Gram`` reads them from a kernel (or as inner products of mapped features) and names every set by
indices; ``Features`` computes them from embeddings and names a query, private or represented set
by its features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import kernels
from shasam.submodular.given import check_disjoint, check_given, outside
from shasam.submodular.kernels import Similarity

_TILE = 256  # rows looked at together where an n×n matrix is to be avoided


class Similarities:
    """The blocks of a kernel over n elements that set functions are made of."""

    n: int
    nonnegative: bool | None  # None: not checked yet

    @staticmethod
    def of(kernel: Any) -> Similarities:
        """A kernel (N, N), checked, or similarities as they are."""
        if isinstance(kernel, Similarities):
            return kernel
        return Gram(kernels.check_kernel(kernel))

    def members(self, given: Any, name: str) -> Tensor:
        """A query or private set, checked: its indices, or its features."""
        raise NotImplementedError

    def sets(self, query: Any, private: Any) -> tuple[Tensor | None, Tensor | None]:
        """Query and private set, checked; None is no such set."""
        q = None if query is None else self.members(query, "query")
        p = None if private is None else self.members(private, "private")
        return q, p

    def candidates(self, *sets: Tensor | None) -> Tensor | None:
        """The elements outside of the sets; None is all of them."""
        raise NotImplementedError

    def rows(self, represented: Any = None) -> Tensor:
        """(N, R): every element against the represented rows, by default all elements."""
        raise NotImplementedError

    def nearest(self, members: Tensor, represented: Any = None) -> Tensor:
        """(R,): the largest similarity of each represented row to a member."""
        raise NotImplementedError

    def cross(self, members: Tensor) -> Tensor:
        """(N, M): every element against the members of a set."""
        raise NotImplementedError

    def gram(self, *sets: Tensor | None) -> tuple[Gram, list[Tensor]]:
        """One ground set of all elements and sets, and the indices of each set in it."""
        raise NotImplementedError


class Gram(Similarities):
    """A kernel K (N, N), or mapped features X (N, D) with K = XX'; sets are indices.

    Facility location also makes one of a kernel (N, R) whose represented columns are chosen.
    """

    def __init__(
        self,
        kernel_NN: Tensor | None = None,
        mapped_ND: Tensor | None = None,
        *,
        nonnegative: bool | None = None,
        unit_norm: bool = False,
    ) -> None:
        base = kernel_NN if kernel_NN is not None else mapped_ND
        assert base is not None
        self.kernel_NN, self.mapped_ND, self.base = kernel_NN, mapped_ND, base
        self.n, self.device, self.dtype = len(base), base.device, base.dtype
        self.nonnegative = nonnegative
        self.unit_norm = unit_norm  # are all mapped rows known to be unit vectors (or zero)?

    def index(self, selected: Any) -> Tensor:
        return kernels.check_index(selected, self.n, self.device)

    def members(self, given: Any, name: str) -> Tensor:
        return check_given(self.index(given), name)

    def sets(self, query: Any, private: Any) -> tuple[Tensor | None, Tensor | None]:
        q, p = super().sets(query, private)
        if q is not None and p is not None:
            check_disjoint(q, p)
        return q, p

    def candidates(self, *sets: Tensor | None) -> Tensor | None:
        return outside(self.n, *(index for index in sets if index is not None))

    def represented_index(self, represented: Any) -> Tensor | None:
        """Checked indices of the represented rows, of which there must be some; None is all."""
        if represented is None:
            return None
        index = self.index(represented)
        if len(index) == 0:
            raise InputError("the represented set is empty; leave it out to represent all rows")
        return index

    def rows(self, represented: Any = None) -> Tensor:
        kernel_NN = self.square()
        index = self.represented_index(represented)
        return kernel_NN if index is None else kernel_NN[:, index]

    def nearest(self, members: Tensor, represented: Any = None) -> Tensor:
        index = self.represented_index(represented)
        rows = self.cross(members).T if self.kernel_NN is None else self.kernel_NN[members]
        return (rows if index is None else rows[:, index]).amax(dim=0)

    def cross(self, members: Tensor) -> Tensor:
        return self.block(None, members)

    def gram(self, *sets: Tensor | None) -> tuple[Gram, list[Tensor]]:
        empty = torch.empty(0, dtype=torch.int64, device=self.device)
        return self, [empty if index is None else index for index in sets]

    def block(self, rows: Tensor | None, columns: Tensor) -> Tensor:
        """K between two index sets; None is everything."""
        if self.kernel_NN is not None:
            return (self.kernel_NN if rows is None else self.kernel_NN[rows])[:, columns]
        assert self.mapped_ND is not None
        left = self.mapped_ND if rows is None else self.mapped_ND[rows]
        return left @ self.mapped_ND[columns].T

    def square(self) -> Tensor:
        """The whole kernel (N, N)."""
        if self.kernel_NN is not None:
            return self.kernel_NN
        assert self.mapped_ND is not None
        kernels.check_memory(self.n, self.n, self.mapped_ND)
        return self.mapped_ND @ self.mapped_ND.T

    def column(self, v: int) -> Tensor:
        """(N,): K_·v."""
        if self.kernel_NN is not None:
            return self.kernel_NN[:, v]
        assert self.mapped_ND is not None
        return self.mapped_ND @ self.mapped_ND[v]

    def sums(self, represented: Tensor | None) -> Tensor:
        """(N,): Σ_{i∈R} K_ia; over features x_a · Σ_i x_i, without a kernel."""
        if self.kernel_NN is not None:
            chosen = self.kernel_NN if represented is None else self.kernel_NN[:, represented]
            return chosen.sum(dim=1)
        assert self.mapped_ND is not None
        chosen = self.mapped_ND if represented is None else self.mapped_ND[represented]
        return self.mapped_ND @ chosen.sum(dim=0)

    def diagonal(self, dtype: torch.dtype | None = None) -> Tensor:
        """(N,): K_aa without gradient; unit vectors have exactly 1 in a wider type."""
        if self.kernel_NN is not None:
            return self.kernel_NN.detach().diagonal().to(dtype or self.dtype)
        assert self.mapped_ND is not None
        own_N = self.mapped_ND.detach().to(dtype or self.dtype).square().sum(dim=1)
        return own_N.round() if self.unit_norm and dtype is not None else own_N

    def is_nonnegative(self) -> bool:
        """min K ≥ 0 up to rounding, looked at once, tile by tile over features."""
        if self.nonnegative is None:
            if self.kernel_NN is not None:
                least = float(self.kernel_NN.detach().amin())
            else:
                assert self.mapped_ND is not None
                z_ND = self.mapped_ND.detach()
                least = min(float((tile @ z_ND.T).amin()) for tile in z_ND.split(_TILE))
            rounding = 1e3 * torch.finfo(self.dtype).eps * float(self.diagonal().abs().amax())
            self.nonnegative = least >= -rounding
        return self.nonnegative

    def part(self, index: Tensor) -> Gram:
        """The same similarities between some elements only."""
        square = None if self.kernel_NN is None else self.kernel_NN[index][:, index]
        mapped = None if self.mapped_ND is None else self.mapped_ND[index]
        return Gram(square, mapped, nonnegative=self.nonnegative, unit_norm=self.unit_norm)

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> Gram:
        """Times η where one side is in the query and the other in neither set; ν for private."""
        kernel_NN = self.square()
        kind_N = torch.zeros(self.n, dtype=torch.int64, device=self.device)
        kind_N[query], kind_N[private] = 1, 2
        factor = torch.tensor(
            [[1.0, eta, nu], [eta, 1.0, 1.0], [nu, 1.0, 1.0]],
            dtype=self.dtype,
            device=self.device,
        )
        return Gram(kernel_NN * factor[kind_N][:, kind_N])


class Features(Similarities):
    """Embeddings z (N, D) and how two of them are compared; sets are features of their own."""

    def __init__(self, z: Any, similarity: Similarity, gamma: float | None = None) -> None:
        kernels.check_similarity(similarity)
        self.z_ND, self.similarity, self.gamma = kernels.as_features(z), similarity, gamma
        self.n = len(self.z_ND)
        self.nonnegative = None if similarity == "cosine" else True

    def members(self, given: Any, name: str) -> Tensor:
        return kernels.as_features_like(given, f"{name} features", self.z_ND)

    def candidates(self, *sets: Tensor | None) -> Tensor | None:
        return None

    def represented(self, represented: Any) -> Tensor:
        """(R, D): the features of the represented rows, by default all."""
        if represented is None:
            return self.z_ND
        return kernels.represented_features(represented, self.z_ND)

    def rows(self, represented: Any = None) -> Tensor:
        if represented is None:
            return kernels.kernel_matrix(self.z_ND, self.similarity, self.gamma)
        return self.cross(self.represented(represented))

    def nearest(self, members: Tensor, represented: Any = None) -> Tensor:
        return self.between(self.represented(represented), members).amax(dim=1)

    def cross(self, members: Tensor) -> Tensor:
        return self.between(self.z_ND, members)

    def between(self, x_ND: Tensor, y_MD: Tensor) -> Tensor:
        """(N, M): the similarities of two sets of features."""
        return kernels.similarity_matrix(x_ND, y_MD, self.similarity, self.gamma)

    def part(self, index: Tensor) -> Features:
        """The features of some elements, compared in the same way."""
        return Features(self.z_ND[index], self.similarity, self.gamma)

    def gram(self, *sets: Tensor | None) -> tuple[Gram, list[Tensor]]:
        """The features of all sets below each other; only rbf makes a kernel of them."""
        parts, found, start = [self.z_ND], [], self.n
        for members in sets:
            stop = start + (0 if members is None else len(members))
            found.append(torch.arange(start, stop, device=self.z_ND.device))
            if members is not None:
                parts.append(members)
            start = stop
        z_ND = self.z_ND if len(parts) == 1 else torch.cat(parts)
        mapped_ND = kernels.mapped_features(z_ND, self.similarity)
        if mapped_ND is None:
            kernel_NN = kernels.kernel_matrix(z_ND, self.similarity, self.gamma)
            return Gram(kernel_NN, nonnegative=True), found
        return Gram(
            mapped_ND=mapped_ND.contiguous(),
            nonnegative=self.nonnegative,
            unit_norm=self.similarity == "cosine",
        ), found
