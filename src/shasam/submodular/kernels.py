"""Compute similarity kernels, whole or by rows as they are needed, within the free memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError, MemoryLimitError
from shasam.memory import available_memory
from shasam.registry import did_you_mean
from shasam.submodular import loops

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


# -------------------------------------------------------------------------------------------------
# Checks of query and private sets, and of their strengths η and ν.
# -------------------------------------------------------------------------------------------------


def outside(n: int, *given: Tensor) -> Tensor:
    """Return what may be picked: all of 0..n-1 but the given sets."""
    free_N = torch.ones(n, dtype=torch.bool, device=given[0].device)
    for index in given:
        free_N[index] = False
    return free_N.nonzero().flatten()


def check_given(index: Tensor, name: str) -> Tensor:
    """Refuse an empty query or private set."""
    if len(index) == 0:
        raise InputError(f"the {name} set is empty; without it use the plain function")
    return index


def check_disjoint(query: Tensor, private: Tensor) -> None:
    """Refuse a query and a private set that share elements."""
    shared = np.intersect1d(query.cpu().numpy(), private.cpu().numpy())
    if len(shared):
        raise InputError(
            f"query and private set overlap in {len(shared)} elements (the first is {shared[0]}); "
            "an element cannot be both wanted and unwanted"
        )


def check_strength(eta: float, nu: float) -> None:
    """Check that η and ν, which multiply similarities, are finite and not negative."""
    for name, value in (("eta", eta), ("nu", nu)):
        if not 0 <= value < float("inf"):
            raise InputError(f"{name} must be a number that is not negative; got {value}")


# -------------------------------------------------------------------------------------------------
# Similarity kernels: cosine, (1 + cos)/2 and rbf, with the memory they need known beforehand.
#
# `cosine` and `shifted_cosine` are inner products of *mapped* features, so code that needs no
# n×n matrix can work on the features alone: (1 + z·y)/2 = [z, 1]/√2 · [y, 1]/√2.
# -------------------------------------------------------------------------------------------------

Similarity = Literal["cosine", "shifted_cosine", "rbf"]
SIMILARITIES = ("cosine", "shifted_cosine", "rbf")
_TILE = 512  # rows and columns per tile: the mirror reads what is still in the cache
_SMALL = 2**20  # bytes that are not worth asking the system for


def as_tensor(x: ArrayLike | Tensor, name: str) -> Tensor:
    """Return a float tensor of at least 32 bits; 16-bit input is computed in float32."""
    tensor = x if isinstance(x, Tensor) else _shared(np.asarray(x))
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.get_default_dtype())
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.float()
    if tensor.ndim != 2:
        raise InputError(
            f"{name} must be a matrix, one row per element; got shape {tuple(tensor.shape)}"
        )
    return tensor


def _shared(array: np.ndarray) -> Tensor:
    """Return the array as a tensor, not copied; a memory-mapped file may be read-only."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.as_tensor(array)  # nothing here writes to features


def check_finite(x_ND: Tensor, name: str) -> None:
    """Refuse NaN and infinity, and say in which row."""
    # One reduction when all is well; rows are looked at only when it is not.
    if bool(torch.isfinite(x_ND.detach().sum())):
        return
    bad = (~torch.isfinite(x_ND.detach())).any(dim=1).nonzero()
    if len(bad):
        raise InputError(
            f"{name} has NaN or infinity in row {int(bad[0])} ({len(bad)} such rows); "
            "drop those rows or repair what made them"
        )


def as_features(z: ArrayLike | Tensor, name: str = "features") -> Tensor:
    """Check features (N, D); an empty set is refused."""
    z_ND = as_tensor(z, name)
    if z_ND.numel() == 0:
        raise InputError(f"{name} is empty; there is nothing to select from")
    check_finite(z_ND, name)
    return z_ND


def as_features_like(other: ArrayLike | Tensor, name: str, z_ND: Tensor) -> Tensor:
    """Check features (M, D) of another set; return them in the type and on the device of z."""
    y_MD = as_features(other, name).to(z_ND)
    if y_MD.shape[1] != z_ND.shape[1]:
        raise InputError(
            f"{name} have {y_MD.shape[1]} columns and the candidates {z_ND.shape[1]}; "
            "both must come from the same encoder"
        )
    return y_MD


def represented_features(represented: Any, z_ND: Tensor) -> Tensor:
    """Return rows of z where ``represented`` holds indices, else the features that it holds."""
    if isinstance(represented, Tensor | np.ndarray) and represented.ndim == 2:
        return as_features_like(represented, "represented features", z_ND)
    rows = torch.as_tensor(
        represented if isinstance(represented, Tensor | np.ndarray) else list(represented),
        device=z_ND.device,
    )
    whole = (
        rows.ndim == 1
        and len(rows) > 0
        and not rows.is_floating_point()
        and rows.dtype != torch.bool
    )
    if not whole or int(rows.min()) < 0 or int(rows.max()) >= len(z_ND):
        raise InputError(
            f"represented must hold row indices within 0..{len(z_ND) - 1}, or the features of "
            "another set as a tensor or array of two dimensions"
        )
    return z_ND[rows.long()]


def check_index(selected: Any, n: int, device: torch.device) -> Tensor:
    """Return distinct whole numbers within 0..n-1, as int64 on the device."""
    index = torch.as_tensor(
        selected if isinstance(selected, Tensor | np.ndarray) else list(selected), device=device
    ).reshape(-1)
    if len(index) and (index.is_floating_point() or index.dtype == torch.bool):
        kind = "a mask" if index.dtype == torch.bool else "floats"
        raise InputError(
            f"a set is given by the indices of its elements, whole numbers; got {kind}"
        )
    index = index.to(torch.int64)
    if len(index) and (int(index.min()) < 0 or int(index.max()) >= n):
        raise InputError(
            f"indices must be within 0..{n - 1}; got {int(index.min())}..{int(index.max())}"
        )
    if len(index) != len(index.unique()):
        raise InputError("a set holds each index once; remove the repeated ones")
    return index


def mapped_features(z_ND: Tensor, similarity: Similarity) -> Tensor | None:
    """Return features whose plain inner products are the similarity.

    None if there are none (rbf).
    """
    check_similarity(similarity)
    if similarity == "rbf":
        return None
    unit_ND = unit_rows(z_ND)
    if similarity == "cosine":
        return unit_ND
    ones_N1 = torch.ones_like(unit_ND[:, :1])
    return torch.cat([unit_ND, ones_N1], dim=1) * (0.5**0.5)


def unit_rows(z_ND: Tensor) -> Tensor:
    """Return z / |z| row by row, at any scale.

    A zero vector has no direction: it stays zero, similar to nothing, and gets no gradient.
    """
    norm_N1 = z_ND.norm(dim=1, keepdim=True)
    safe = torch.finfo(z_ND.dtype).tiny ** 0.25  # squares stay far from under- and overflow
    plain = norm_N1.detach()
    if bool(((plain > safe) & (plain < 1 / safe)).all()):
        return z_ND / norm_N1
    scale_N1 = z_ND.detach().abs().amax(dim=1, keepdim=True)
    some_N1 = scale_N1 > 0
    z_ND = z_ND / torch.where(some_N1, scale_N1, 1.0)
    norm_N1 = z_ND.norm(dim=1, keepdim=True)
    return z_ND / torch.where(some_N1, norm_N1, 1.0) * some_N1


def similarity_matrix(
    x_ND: Tensor, y_MD: Tensor, similarity: Similarity, gamma: float | None = None
) -> Tensor:
    """Compute a cross kernel (N, M), differentiable.

    cosine: x·y / |x||y|; shifted_cosine: (1 + cosine)/2; rbf: exp(-γ |x - y|²), γ = 1/D if None.
    """
    check_similarity(similarity)
    check_memory(len(x_ND), len(y_MD), x_ND)
    if similarity != "rbf":
        cross_NM = _cross_cosines(x_ND, y_MD, similarity == "shifted_cosine")
        if cross_NM is not None:
            return cross_NM
    x_map, y_map = mapped_features(x_ND, similarity), mapped_features(y_MD, similarity)
    if x_map is not None and y_map is not None:
        return x_map @ y_map.T
    gamma = 1.0 / x_ND.shape[1] if gamma is None else gamma
    if not 0 < gamma < float("inf"):
        raise InputError(f"gamma must be a positive number; got {gamma}")
    # Squares are summed directly: the expanded form loses half its digits for near points.
    return torch.exp(
        -gamma * torch.cdist(x_ND, y_MD, compute_mode="donot_use_mm_for_euclid_dist").square()
    )


def _cross_cosines(x_ND: Tensor, y_MD: Tensor, shifted: bool) -> Tensor | None:
    """Compare many rows with few on the CPU without gradient: the product is scaled, x not copied.

    None if that is not the case, or a norm of x is too small or too large for it.
    """
    if len(y_MD) >= x_ND.shape[1] or x_ND.device.type != "cpu" or not x_ND.is_contiguous():
        return None
    if torch.is_grad_enabled() and (x_ND.requires_grad or y_MD.requires_grad):
        return None
    norm_N = loops.row_norms(x_ND.detach().numpy())
    least, most = norm_N.min(), norm_N.max()
    safe = torch.finfo(x_ND.dtype).tiny ** 0.25
    if not safe < least <= most < 1 / safe:
        return None
    cross_NM = x_ND.detach() @ unit_rows(y_MD.detach()).T
    loops.scale_rows(cross_NM.numpy(), norm_N, shifted)
    return cross_NM


def kernel_matrix(z_ND: Tensor, similarity: Similarity, gamma: float | None = None) -> Tensor:
    """Return symmetric kernel (N, N); without gradient the lower half is a mirror of the upper."""
    mapped = mapped_features(z_ND, similarity)
    if mapped is None or mapped.requires_grad or z_ND.device.type != "cpu" or len(z_ND) <= _TILE:
        kernel_NN = similarity_matrix(z_ND, z_ND, similarity, gamma)
        # Rounding may break symmetry in the last digit; the mean of both halves has the gradient.
        return (kernel_NN + kernel_NN.T) / 2
    n = len(mapped)
    check_memory(n, n, mapped)
    mapped = mapped.contiguous()
    # numpy asks the system for huge pages and torch does not: a large matrix is then touched four
    # times as fast, and read half as fast again.
    view = np.empty((n, n), mapped.numpy().dtype)
    kernel_NN = torch.from_numpy(view)

    def fill(top: int) -> None:
        bottom = min(top + _TILE, n)
        rows = mapped[top:bottom]
        torch.mm(rows, rows.T, out=kernel_NN[top:bottom, top:bottom])
        loops.mirror_upper(view, top, bottom)
        for left in range(bottom, n, _TILE):
            right = min(left + _TILE, n)
            torch.mm(rows, mapped[left:right].T, out=kernel_NN[top:bottom, left:right])
            loops.mirror_block(view, top, bottom, left, right)

    # Threads share rows of tiles, each of which is mirrored from the cache of its thread. Threads
    # inside of a product would wait for each other at the end of every tile.
    tops = range(0, n, _TILE)
    for _ in loops.each(fill, tops) if loops.count(n * n) > 1 else map(fill, tops):
        pass
    return kernel_NN


def check_kernel(kernel: ArrayLike | Tensor) -> tuple[Tensor, bool]:
    """Check that a given kernel is square, symmetric, finite, not empty.

    Say if it is to the last bit.
    """
    kernel_NN = as_tensor(kernel, "kernel")
    n, m = kernel_NN.shape
    if n != m:
        raise InputError(
            f"kernel must be square; got {n}×{m}. "
            "For candidates against another set use from_features"
        )
    if n == 0:
        raise InputError("kernel is empty; there is nothing to select from")
    check_finite(kernel_NN, "kernel")
    plain = kernel_NN.detach()
    if plain.device.type == "cpu":
        gap, row, column = loops.largest_asymmetry(np.ascontiguousarray(plain.numpy()))
    else:
        gaps_NN = (plain - plain.T).abs()
        flat = int(gaps_NN.argmax())
        gap, row, column = float(gaps_NN.flatten()[flat]), flat // n, flat % n
    scale = max(float(plain.abs().amax()), 1e-300)
    if gap > 1e3 * torch.finfo(plain.dtype).eps * scale:
        raise InputError(
            f"kernel is not symmetric: entries ({row}, {column}) and ({column}, {row}) differ "
            f"by {gap:.3g}; use (K + K.T)/2 if that is what is meant"
        )
    return kernel_NN, gap == 0


def check_memory(rows: int, columns: int, like: Tensor) -> None:
    """Refuse an allocation that cannot succeed, with the bytes it needs and the size that fits."""
    need = rows * columns * like.element_size()
    if need <= _SMALL:
        return
    free = available_bytes(like.device)
    if free is None or need <= 0.9 * free:
        return
    fits = int((0.9 * free / like.element_size()) ** 0.5)
    if rows != columns:
        fits = int(0.9 * free / like.element_size() / max(min(rows, columns), 1))
    raise MemoryLimitError(
        f"a {rows:,}×{columns:,} kernel needs {need:,} bytes ({need / 2**30:.1f} GiB) and "
        f"{free / 2**30:.1f} GiB are free; a pool of up to {fits:,} fits. "
        "Give fewer represented rows, split the pool with maximize(f, k, partitions=…), or use "
        "LogDet or FLQMI, which need no square kernel"
    )


def available_bytes(device: torch.device) -> int | None:
    """Free memory of a device in bytes, None if the platform does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    return available_memory()


def check_similarity(similarity: str) -> None:
    """Refuse an unknown name, with the nearest one."""
    if similarity not in SIMILARITIES:
        raise InputError(
            f"there is no similarity {similarity!r}{did_you_mean(similarity, SIMILARITIES)}"
        )


# -------------------------------------------------------------------------------------------------
# Similarities between the elements of a set function, over a kernel or over features.
#
# A set function asks for a few blocks of similarities only, and does not care where they come
# from: `Gram` reads them from a kernel (or as inner products of mapped features) and names every
# set by indices; `Features` computes them from embeddings and names a query, private or
# represented set by its features.
# -------------------------------------------------------------------------------------------------

_FEATURE_TILE = 256  # rows looked at together where an n×n matrix is to be avoided


class Similarities:
    """The blocks of a kernel over n elements that set functions are made of."""

    n: int
    nonnegative: bool | None  # None: not checked yet
    mirrored = False  # is the kernel of all rows known to be symmetric to the last bit?

    @staticmethod
    def of(kernel: Any) -> Similarities:
        """Return a kernel (N, N), checked, or similarities as they are."""
        if isinstance(kernel, Similarities):
            return kernel
        checked, mirrored = check_kernel(kernel)
        gram = Gram(checked)
        gram.mirrored = mirrored
        return gram

    def members(self, given: Any, name: str) -> Tensor:
        """Return a query or private set, checked: its indices, or its features."""
        raise NotImplementedError

    def sets(self, query: Any, private: Any) -> tuple[Tensor | None, Tensor | None]:
        """Return query and private set, checked; None is no such set."""
        q = None if query is None else self.members(query, "query")
        p = None if private is None else self.members(private, "private")
        return q, p

    def candidates(self, *sets: Tensor | None) -> Tensor | None:
        """Return the elements outside of the sets; None is all of them."""
        raise NotImplementedError

    def rows(self, represented: Any = None) -> Tensor:
        """Return (N, R): every element against the represented rows, by default all elements."""
        raise NotImplementedError

    def nearest(self, members: Tensor, represented: Any = None) -> Tensor:
        """Return (R,): the largest similarity of each represented row to a member."""
        raise NotImplementedError

    def cross(self, members: Tensor) -> Tensor:
        """Return (N, M): every element against the members of a set."""
        raise NotImplementedError

    def gram(self, *sets: Tensor | None) -> tuple[Gram, list[Tensor]]:
        """Return one ground set of all elements and sets, and the indices of each set in it."""
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
        return check_index(selected, self.n, self.device)

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
        """Check indices of the represented rows, of which there must be some; None is all."""
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
        """Return K between two index sets; None is everything."""
        if self.kernel_NN is not None:
            return (self.kernel_NN if rows is None else self.kernel_NN[rows])[:, columns]
        assert self.mapped_ND is not None
        left = self.mapped_ND if rows is None else self.mapped_ND[rows]
        return left @ self.mapped_ND[columns].T

    def square(self) -> Tensor:
        """Return the whole kernel (N, N)."""
        if self.kernel_NN is not None:
            return self.kernel_NN
        assert self.mapped_ND is not None
        check_memory(self.n, self.n, self.mapped_ND)
        return self.mapped_ND @ self.mapped_ND.T

    def column(self, v: int) -> Tensor:
        """Return (N,): K_·v."""
        if self.kernel_NN is not None:
            return self.kernel_NN[:, v]
        assert self.mapped_ND is not None
        return self.mapped_ND @ self.mapped_ND[v]

    def sums(self, represented: Tensor | None) -> Tensor:
        """Return (N,): Σ_{i∈R} K_ia; over features x_a · Σ_i x_i, without a kernel."""
        if self.kernel_NN is not None:
            chosen = self.kernel_NN if represented is None else self.kernel_NN[:, represented]
            return chosen.sum(dim=1)
        assert self.mapped_ND is not None
        chosen = self.mapped_ND if represented is None else self.mapped_ND[represented]
        return self.mapped_ND @ chosen.sum(dim=0)

    def diagonal(self, dtype: torch.dtype | None = None) -> Tensor:
        """Return (N,): K_aa without gradient; unit vectors have exactly 1 in a wider type."""
        if self.kernel_NN is not None:
            return self.kernel_NN.detach().diagonal().to(dtype or self.dtype)
        assert self.mapped_ND is not None
        own_N = self.mapped_ND.detach().to(dtype or self.dtype).square().sum(dim=1)
        return own_N.round() if self.unit_norm and dtype is not None else own_N

    def is_nonnegative(self) -> bool:
        """Return min K ≥ 0 up to rounding, looked at once, tile by tile over features."""
        if self.nonnegative is None:
            if self.kernel_NN is not None:
                least = float(self.kernel_NN.detach().amin())
            else:
                assert self.mapped_ND is not None
                z_ND = self.mapped_ND.detach()
                least = min(float((tile @ z_ND.T).amin()) for tile in z_ND.split(_FEATURE_TILE))
            rounding = 1e3 * torch.finfo(self.dtype).eps * float(self.diagonal().abs().amax())
            self.nonnegative = least >= -rounding
        return self.nonnegative

    def part(self, index: Tensor) -> Gram:
        """Return the same similarities between some elements only."""
        square = None if self.kernel_NN is None else self.kernel_NN[index][:, index]
        mapped = None if self.mapped_ND is None else self.mapped_ND[index]
        return Gram(square, mapped, nonnegative=self.nonnegative, unit_norm=self.unit_norm)

    def magnified(self, query: Tensor, eta: float, private: Tensor, nu: float) -> Gram:
        """Multiply by η where one side is in the query and the other in neither set; ν for
        private.
        """
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
        check_similarity(similarity)
        self.z_ND, self.similarity, self.gamma = as_features(z), similarity, gamma
        self.n = len(self.z_ND)
        self.nonnegative = None if similarity == "cosine" else True
        self.mirrored = True

    def members(self, given: Any, name: str) -> Tensor:
        return as_features_like(given, f"{name} features", self.z_ND)

    def candidates(self, *sets: Tensor | None) -> Tensor | None:
        return None

    def represented(self, represented: Any) -> Tensor:
        """Return (R, D): the features of the represented rows, by default all."""
        if represented is None:
            return self.z_ND
        return represented_features(represented, self.z_ND)

    def rows(self, represented: Any = None) -> Tensor:
        if represented is None:
            return kernel_matrix(self.z_ND, self.similarity, self.gamma)
        return self.cross(self.represented(represented))

    def nearest(self, members: Tensor, represented: Any = None) -> Tensor:
        return self.between(self.represented(represented), members).amax(dim=1)

    def cross(self, members: Tensor) -> Tensor:
        return self.between(self.z_ND, members)

    def between(self, x_ND: Tensor, y_MD: Tensor) -> Tensor:
        """Return (N, M): the similarities of two sets of features."""
        return similarity_matrix(x_ND, y_MD, self.similarity, self.gamma)

    def part(self, index: Tensor) -> Features:
        """Return the features of some elements, compared in the same way."""
        return Features(self.z_ND[index], self.similarity, self.gamma)

    def gram(self, *sets: Tensor | None) -> tuple[Gram, list[Tensor]]:
        """Return the features of all sets below each other; only rbf makes a kernel of them."""
        parts, found, start = [self.z_ND], [], self.n
        for members in sets:
            stop = start + (0 if members is None else len(members))
            found.append(torch.arange(start, stop, device=self.z_ND.device))
            if members is not None:
                parts.append(members)
            start = stop
        z_ND = self.z_ND if len(parts) == 1 else torch.cat(parts)
        mapped_ND = mapped_features(z_ND, self.similarity)
        if mapped_ND is None:
            kernel_NN = kernel_matrix(z_ND, self.similarity, self.gamma)
            return Gram(kernel_NN, nonnegative=True), found
        return Gram(
            mapped_ND=mapped_ND.contiguous(),
            nonnegative=self.nonnegative,
            unit_norm=self.similarity == "cosine",
        ), found


class CrossKernel(Similarities):
    """A kernel (N, R) of N candidates against R represented rows, such as a cell against V.

    It says nothing of how candidates compare with each other: a query or private set is given by
    its own similarities to the represented rows, (Q, R) or (P, R).
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel_NR = as_tensor(kernel, "kernel")
        if self.kernel_NR.numel() == 0:
            raise InputError("kernel is empty; there is nothing to select from")
        self.n = len(self.kernel_NR)
        least, most = self.kernel_NR.detach().aminmax()  # one reading says both
        if not bool(torch.isfinite(least) & torch.isfinite(most)):
            check_finite(self.kernel_NR, "kernel")
        self.nonnegative = bool(least >= 0)

    def members(self, given: Any, name: str) -> Tensor:
        row_MR = as_tensor(given, f"{name} similarities").to(self.kernel_NR)
        if row_MR.shape[1] != self.kernel_NR.shape[1]:
            raise InputError(
                f"the {name} set has similarities to {row_MR.shape[1]} rows and the candidates to "
                f"{self.kernel_NR.shape[1]}; both must be compared with the same represented rows"
            )
        check_finite(row_MR, f"{name} similarities")
        return check_given(row_MR, name)

    def candidates(self, *sets: Tensor | None) -> Tensor | None:
        return None

    def rows(self, represented: Any = None) -> Tensor:
        return (
            self.kernel_NR if represented is None else self.kernel_NR[:, self._columns(represented)]
        )

    def nearest(self, members: Tensor, represented: Any = None) -> Tensor:
        chosen = members if represented is None else members[:, self._columns(represented)]
        return chosen.amax(dim=0)

    def _columns(self, represented: Any) -> Tensor:
        width, device = self.kernel_NR.shape[1], self.kernel_NR.device
        return check_given(check_index(represented, width, device), "represented")

    def cross(self, members: Tensor) -> Tensor:
        raise self._unknown()

    def gram(self, *sets: Tensor | None) -> tuple[Gram, list[Tensor]]:
        raise self._unknown()

    def _unknown(self) -> InputError:
        return InputError(
            "a kernel of candidates against represented rows does not hold the similarities "
            "between candidates and a set; use from_features, or FLQMI.from_cross"
        )


# -------------------------------------------------------------------------------------------------
# The similarities of every element to the represented rows, made when they are first needed.
#
# Facility location over a million features can be evaluated, split and sampled without the kernel
# of a million columns; only the compiled walk needs it, and asks for it.
# -------------------------------------------------------------------------------------------------

_FEW_ROWS = 2**28  # entries of a kernel that is made without asking: 1 GiB of float32
_ROW_TILE = 2**20  # entries that are computed together where there is no kernel: they stay in cache


class Rows:
    """K (N, R), or the features from which blocks of it are computed."""

    def __init__(self, source: Similarities, represented: Any = None) -> None:
        self.source, self.n = source, source.n
        self._z_RD: Tensor | None = None
        self._kernel_NR: Tensor | None = None
        self.kept = True  # False: a walk computes similarities anew instead of keeping all
        # Is row r of the kernel also what all elements give to the represented row r?
        self.mirrored = source.mirrored and represented is None
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
        """Wrap a kernel that is there."""
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
        """Say whether there is a kernel, or one is small enough to be made for this many rows."""
        if self._kernel_NR is None and wanted > 1 and self.n * self.width <= _FEW_ROWS:
            self._make()
        return self._kernel_NR is not None

    def blocks(self, index: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield K of some elements in pieces (len(index), width of a piece), with their columns."""
        if self._kernel_NR is not None:
            yield slice(0, self.width), self._kernel_NR[index]
            return
        assert isinstance(self.source, Features) and self._z_RD is not None
        z_CD = self.source.z_ND[index]
        step = max(_ROW_TILE // max(len(index), 1), 1)
        for start in range(0, self.width, step):
            piece = slice(start, min(start + step, self.width))
            z_PD = self._z_RD[piece]
            if len(z_CD) >= len(z_PD):
                yield piece, self.source.between(z_CD, z_PD)
            else:  # the longer side first: it is not copied where the other is short
                yield piece, self.source.between(z_PD, z_CD).T

    def best(self, index: Tensor) -> Tensor:
        """Return (R,): the largest similarity of each represented row to the elements."""
        return torch.cat([block.amax(dim=0) for _, block in self.blocks(index)])

    def part(self, index: Tensor, represented: Tensor | None) -> tuple[Rows, Tensor | None]:
        """Return some elements, and the columns that were kept for them; None is all columns.

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
    """Return ``size`` of n rows without replacement, in ascending order."""
    return torch.randperm(n, generator=generator)[:size].sort().values
