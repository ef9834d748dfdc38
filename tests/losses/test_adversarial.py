"""Gradient reversal, its ramp, and the entropy term."""

from __future__ import annotations

import math

import pytest
import torch

from shasam.losses import dann_ramp, negative_entropy, reverse_gradient


@pytest.mark.parametrize("factor", [0.0, 0.1, 1.0, 10.0])
def test_reversal_keeps_the_value_and_turns_the_gradient(factor: float) -> None:
    x = torch.randn(3, 2, requires_grad=True)
    y = reverse_gradient(x, factor)
    (y**2).sum().backward()
    assert torch.equal(y, x)
    assert torch.allclose(x.grad, -factor * 2 * x.detach())


def test_ramp_goes_from_zero_to_nearly_one() -> None:
    values = [dann_ramp(p / 10) for p in range(11)]
    assert values[0] == 0.0 and values == sorted(values)
    assert values[-1] == pytest.approx(math.tanh(5.0))


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 2, 2)])
def test_negative_entropy_equals_a_loop(shape: tuple[int, ...]) -> None:
    logits = torch.randn(*shape, dtype=torch.float64)
    rows = logits.movedim(1, -1).reshape(-1, shape[1]).tolist()
    total = 0.0
    for row in rows:
        norm = sum(math.exp(v) for v in row)
        total += sum(math.exp(v) / norm * math.log(math.exp(v) / norm) for v in row)
    assert float(negative_entropy(logits)) == pytest.approx(total / len(rows))


def test_negative_entropy_is_smallest_for_a_predictor_that_knows_nothing() -> None:
    assert float(negative_entropy(torch.zeros(2, 4))) == pytest.approx(-math.log(4))
    assert float(negative_entropy(torch.tensor([[200.0, 0.0]]))) == pytest.approx(0.0)


def test_negative_entropy_gradient_is_that_of_finite_differences() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(negative_entropy, (x,))
