"""Batches of many views: the smaller form of LogDet, and FLCMI in blocks, agree with 64 bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from shasam.losses import sets as sets_module
from shasam.losses.sets import flcmi, logdetcmi
from shasam.submodular import LogDet

WIDTH = 16


def views(n: int, width: int = WIDTH, seed: int = 0) -> tuple[Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    z = torch.nn.functional.normalize(torch.randn(n, width, generator=generator), dim=1)
    sets = torch.randperm(n, generator=generator).tensor_split([n // 2, n // 2 + n // 3])
    return z, list(sets)


def by_definition(z: Tensor, a: Tensor, p: Tensor, n: Tensor, ridge: float, mu: float) -> Tensor:
    """Every determinant of its own (rows, rows) matrix, in 64 bits."""

    def ld(*sets: Tensor) -> Tensor:
        x = z[torch.cat(sets)]
        return torch.logdet(x @ x.T + ridge * torch.eye(len(x), dtype=x.dtype))

    whole = (ld(a, p) + ld(n, p) - ld(a, p, n) - ld(p)) / len(z)
    return whole - mu * (ld(a) + ld(p) - ld(a, p)) / (len(a) + len(p))


def gradient(loss: Any, z: Tensor, *arguments: Any, **named: Any) -> tuple[Tensor, Tensor]:
    z = z.clone().requires_grad_()
    value = loss(z, *arguments, **named)
    value.backward()
    assert z.grad is not None
    return value.detach(), z.grad


# Sets of fewer rows than dimensions, of more, and of both kinds in one batch.
@pytest.mark.parametrize("n", [9, 48, 90, 600])
@pytest.mark.parametrize("ridge", [0.5, 1.0, 0.01])
def test_either_form_agrees_with_the_definition_in_64_bits(n: int, ridge: float) -> None:
    z, sets = views(n)
    exact, exact_grad = gradient(by_definition, z.double(), *sets, ridge, 0.3)
    value, grad = gradient(logdetcmi, z, *sets, ridge=ridge, attraction=0.3)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), exact, rtol=2e-5, atol=1e-6)
    torch.testing.assert_close(grad.double(), exact_grad, rtol=1e-3, atol=2e-5 / n / ridge)


def test_sixteen_thousand_views_agree_with_64_bits() -> None:
    z, sets = views(16_384, width=64)
    exact, exact_grad = gradient(logdetcmi, z.double(), *sets, attraction=0.3)
    value, grad = gradient(logdetcmi, z, *sets, attraction=0.3)
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(grad.double(), exact_grad, rtol=1e-4, atol=1e-10)


def test_no_matrix_of_all_views_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest determinant is that of the dimensions."""
    seen: list[int] = []
    plain = torch.linalg.cholesky_ex
    monkeypatch.setattr(
        torch.linalg, "cholesky_ex", lambda m, **named: (seen.append(len(m)), plain(m, **named))[1]
    )
    z, sets = views(600)
    logdetcmi(z, *sets, attraction=0.3)
    assert set(seen) == {WIDTH}
    seen.clear()
    assert float(LogDet.from_features(z)(range(500))) > 0
    assert seen == [WIDTH]


def test_the_set_function_takes_the_smaller_form_too() -> None:
    z, _ = views(200)
    for ridge in (1.0, 0.1):
        exact = torch.logdet((z.double() @ z.double().T)[:150, :150] + ridge * torch.eye(150))
        f = LogDet.from_features(z, ridge)
        assert float(f(range(150))) == pytest.approx(float(exact), rel=1e-5)


@pytest.mark.parametrize("represented", ["anchors", "target", "batch"])
@pytest.mark.parametrize("form", ["set", "each"])
@pytest.mark.parametrize("smooth", ["lse", "none"])
def test_blocks_of_rows_change_neither_value_nor_gradient(
    monkeypatch: pytest.MonkeyPatch, represented: Any, form: Any, smooth: Any
) -> None:
    z, sets = views(90)
    named = {"represented": represented, "positive_form": form, "smooth": smooth}
    whole = gradient(flcmi, z, *sets, **named)
    monkeypatch.setattr(sets_module, "BLOCK", 7 * 90)
    for one, other in zip(gradient(flcmi, z, *sets, **named), whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_blocks_keep_only_some_similarities(monkeypatch: pytest.MonkeyPatch) -> None:
    z, sets = views(300)
    z.requires_grad_()
    saved: list[int] = []

    def keep(x: Tensor) -> Tensor:
        saved.append(x.numel())
        return x

    for block, most in ((2**24, 150 * 300), (3000, 150 * 50)):
        monkeypatch.setattr(sets_module, "BLOCK", block)
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            flcmi(z, *sets)
        assert max(saved) <= most and (max(saved) > 150 * 50) == (block == 2**24)
