"""Similarities within 0..1 as 16-bit codes, code = round(65535 · K), and how they are computed."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError, MemoryLimitError
from shasam.memory import available_memory, readable
from shasam.submodular.coded_vectors import FULL
from shasam.submodular.kernels import check_similarity, similarity_matrix

LARGEST = 65_536  # rows whose sums of codes fit in 32 bits
Product = Literal["auto", "float32", "bfloat16", "exact"]
_GRID = 2.0**26  # steps of a coordinate to 1: products of unit vectors are whole multiples of 2^-52


def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 numbers itself."""
    asked = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(asked()) if asked is not None else False


class Coding:
    """From embeddings to codes: the similarity, and the type in which embeddings are multiplied."""

    def __init__(self, similarity: str, gamma: float | None, product: str) -> None:
        check_similarity(similarity)
        if similarity not in ("shifted_cosine", "rbf"):
            raise InputError(
                f"a kept kernel holds similarities within 0..1, and {similarity!r} has negative "
                "ones; use 'shifted_cosine' or 'rbf'"
            )
        if product not in ("auto", "float32", "bfloat16", "exact"):
            raise InputError(
                f"product is 'auto', 'float32', 'bfloat16' or 'exact'; got {product!r}"
            )
        if product == "exact" and similarity == "rbf":
            raise InputError("product='exact' needs 'shifted_cosine': no exponential is exact")
        if product == "auto":
            product = "bfloat16" if has_bfloat16() else "float32"
        self.similarity, self.gamma = similarity, gamma
        self.product = "float32" if similarity == "rbf" else product
        # From a product to its code: scale · product + shift, of which the half rounds.
        whole = FULL if similarity == "rbf" else FULL / 2
        self.scale = np.float32(whole)
        self.shift = np.float32(0.5 if similarity == "rbf" else whole + 0.5)

    @property
    def tolerance(self) -> float:
        """The largest difference of a coded similarity to the exact one."""
        rounding = 0.5 / FULL + 1e-6
        # Two factors and the cosine are each rounded by 2^-9 at most; a cosine counts half.
        return rounding + (1.5 * 2**-9 * (1 + 2**-9) if self.product == "bfloat16" else 0.0)

    def lowered(self, z_MD: Tensor) -> Tensor:
        """Embeddings in the type in which they are multiplied."""
        if self.product == "exact":
            # No partial sum exceeds 2 = 2^53 · 2^-52, so float64 holds each of them to the bit, in
            # whatever order and blocks they are summed.
            return (z_MD.double() * _GRID).round_().div_(_GRID)
        return z_MD.bfloat16() if self.product == "bfloat16" else z_MD

    def products(self, x_MD: Tensor, y_ND: Tensor) -> np.ndarray:
        """(M, N): what is coded, the cosine or the rbf similarity."""
        if self.similarity == "rbf":
            return similarity_matrix(x_MD, y_ND, "rbf", self.gamma).numpy()
        found = x_MD @ y_ND.T
        return (found if self.product == "exact" else found.float()).numpy()

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Codes as similarities."""
        return codes.astype(np.float32) / np.float32(FULL)


def aligned_codes(rows: int, columns: int) -> np.ndarray:
    """A matrix of codes whose rows begin at whole cache lines."""
    flat = np.empty(2 * rows * columns + 64, np.uint8)
    start = -flat.ctypes.data % 64
    return flat[start : start + 2 * rows * columns].view(np.uint16).reshape(rows, columns)


def check_rows(rows: int, need: int) -> None:
    """Refuse a kernel of too many rows, or of more bytes than are free."""
    if rows > LARGEST:
        raise InputError(
            f"a kept kernel has at most {LARGEST:,} rows and V has {rows:,}; "
            "draw a smaller V, or use maximize_sampled"
        )
    free = available_memory()
    if free is not None and need > 0.9 * free:
        raise MemoryLimitError(
            f"the kernel of {rows:,} rows needs {readable(need)} and {readable(free)} are "
            f"free; up to {int((0.45 * free) ** 0.5):,} rows fit. Draw a smaller V"
        )
