"""Similarity kernels: cosine, (1 + cos)/2 and rbf, with the memory they need known beforehand.

``cosine`` and ``shifted_cosine`` are inner products of *mapped* features, so code that needs no
n×n matrix can work on the features alone: (1 + z·y)/2 = [z, 1]/√2 · [y, 1]/√2.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError, MemoryLimitError
from shasam.memory import available_memory
from shasam.registry import did_you_mean
from shasam.submodular import matrix_loops, threads

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Similarity = Literal["cosine", "shifted_cosine", "rbf"]
SIMILARITIES = ("cosine", "shifted_cosine", "rbf")
_TILE = 512  # rows and columns per tile: the mirror reads what is still in the cache
_SMALL = 2**20  # bytes that are not worth asking the system for


def as_tensor(x: ArrayLike | Tensor, name: str) -> Tensor:
    """A float tensor of at least 32 bits; 16-bit input is computed in float32."""
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
    """The array as a tensor, not copied; a memory-mapped file may be read-only."""
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
    """Checked features (N, D); an empty set is refused."""
    z_ND = as_tensor(z, name)
    if z_ND.numel() == 0:
        raise InputError(f"{name} is empty; there is nothing to select from")
    check_finite(z_ND, name)
    return z_ND


def as_features_like(other: ArrayLike | Tensor, name: str, z_ND: Tensor) -> Tensor:
    """Checked features (M, D) of another set, in the type and on the device of z."""
    y_MD = as_features(other, name).to(z_ND)
    if y_MD.shape[1] != z_ND.shape[1]:
        raise InputError(
            f"{name} have {y_MD.shape[1]} columns and the candidates {z_ND.shape[1]}; "
            "both must come from the same encoder"
        )
    return y_MD


def represented_features(represented: Any, z_ND: Tensor) -> Tensor:
    """Rows of z where ``represented`` holds indices, else the features that it holds."""
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
    """Distinct whole numbers within 0..n-1, as int64 on the device."""
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
    """Features whose plain inner products are the similarity; None where there are none (rbf)."""
    check_similarity(similarity)
    if similarity == "rbf":
        return None
    unit_ND = unit_rows(z_ND)
    if similarity == "cosine":
        return unit_ND
    ones_N1 = torch.ones_like(unit_ND[:, :1])
    return torch.cat([unit_ND, ones_N1], dim=1) * (0.5**0.5)


def unit_rows(z_ND: Tensor) -> Tensor:
    """z / |z| row by row, at any scale.

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
    """Cross kernel (N, M), differentiable.

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
    """Many rows against few, without gradient, on the CPU: the product is scaled, x not copied.

    None where that is not the case, or a norm of x is too small or too large for it.
    """
    if len(y_MD) >= x_ND.shape[1] or x_ND.device.type != "cpu" or not x_ND.is_contiguous():
        return None
    if torch.is_grad_enabled() and (x_ND.requires_grad or y_MD.requires_grad):
        return None
    norm_N = matrix_loops.row_norms(x_ND.detach().numpy())
    least, most = norm_N.min(), norm_N.max()
    safe = torch.finfo(x_ND.dtype).tiny ** 0.25
    if not safe < least <= most < 1 / safe:
        return None
    cross_NM = x_ND.detach() @ unit_rows(y_MD.detach()).T
    matrix_loops.scale_rows(cross_NM.numpy(), norm_N, shifted)
    return cross_NM


def kernel_matrix(z_ND: Tensor, similarity: Similarity, gamma: float | None = None) -> Tensor:
    """Symmetric kernel (N, N); without gradient the lower half is a mirror of the upper."""
    mapped = mapped_features(z_ND, similarity)
    if mapped is None or mapped.requires_grad or z_ND.device.type != "cpu" or len(z_ND) <= _TILE:
        kernel_NN = similarity_matrix(z_ND, z_ND, similarity, gamma)
        # Rounding may break symmetry in the last digit; the mean of both halves has the gradient.
        return kernel_NN if mapped is not None else (kernel_NN + kernel_NN.T) / 2
    n = len(mapped)
    check_memory(n, n, mapped)
    mapped = mapped.contiguous()
    # numpy asks the system for huge pages and torch does not: a large matrix is then touched four
    # times as fast, and read half as fast again.
    view = np.empty((n, n), mapped.numpy().dtype)
    kernel_NN = torch.from_numpy(view)
    # One thread mirrors a tile that is still in its cache; several wait for each other less often
    # if they share a longer one.
    parts = threads.count(n * n)
    width = _TILE if parts == 1 else n
    for top in range(0, n, _TILE):
        bottom = min(top + _TILE, n)
        rows = mapped[top:bottom]
        torch.mm(rows, rows.T, out=kernel_NN[top:bottom, top:bottom])
        for left in range(bottom, n, width):
            right = min(left + width, n)
            torch.mm(rows, mapped[left:right].T, out=kernel_NN[top:bottom, left:right])
            edges = [left + (right - left) * p // parts for p in range(parts + 1)]
            threads.run(
                matrix_loops.mirror_block,
                [(view, top, bottom, edges[p], edges[p + 1]) for p in range(parts)],
            )
    return kernel_NN


def check_kernel(kernel: ArrayLike | Tensor) -> Tensor:
    """A given kernel must be square, symmetric, finite and not empty."""
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
        gap, row, column = matrix_loops.largest_asymmetry(np.ascontiguousarray(plain.numpy()))
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
    return kernel_NN


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
    """Free memory of a device in bytes, None where the platform does not say."""
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
