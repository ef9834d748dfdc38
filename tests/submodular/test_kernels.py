"""Kernels: the fast paths of the CPU give what the plain formula gives."""

from __future__ import annotations

import pytest
import torch

from shasam.submodular.kernels import kernel_matrix, similarity_matrix


def cosines(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x·y / |x||y| in float64; 0 where a row is zero."""
    x, y = x.double(), y.double()
    norms = x.norm(dim=1, keepdim=True) * y.norm(dim=1)
    return torch.where(norms > 0, x @ y.T / norms.clamp_min(1e-300), 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-15, 1e15])
@pytest.mark.parametrize("zero_row", [False, True])
@pytest.mark.parametrize("others", [3, 40])  # fewer rows than columns, and more
def test_cross_similarities_at_any_scale(
    dtype: torch.dtype, scale: float, zero_row: bool, others: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 16, generator=generator, dtype=dtype) * scale
    y = torch.randn(others, 16, generator=generator, dtype=dtype)
    if zero_row:
        x[7] = 0
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    for similarity, expected in (
        ("cosine", cosines(x, y)),
        ("shifted_cosine", (1 + cosines(x, y)) / 2),
    ):
        found = similarity_matrix(x, y, similarity)  # type: ignore[arg-type]
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)
        columns = torch.cat([x, x], dim=1)[:, :16]  # not contiguous
        torch.testing.assert_close(
            similarity_matrix(columns, y, similarity),  # type: ignore[arg-type]
            found,
            rtol=0,
            atol=tolerance,
        )


def test_the_cross_kernel_has_a_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(9, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda a, b: similarity_matrix(a, b, "shifted_cosine"), (x, y))
    with torch.no_grad():
        plain = similarity_matrix(x, y, "shifted_cosine")
    torch.testing.assert_close(plain, similarity_matrix(x, y, "shifted_cosine"))


@pytest.mark.parametrize("n", [1, 255, 256, 257, 700])  # around the tiles
def test_a_large_kernel_is_symmetric_and_equals_the_formula(n: int) -> None:
    z = torch.randn(n, 8, generator=torch.Generator().manual_seed(n))
    kernel = kernel_matrix(z, "shifted_cosine")
    assert torch.equal(kernel, kernel.T)
    torch.testing.assert_close(kernel.double(), (1 + cosines(z, z)) / 2, rtol=0, atol=1e-6)
