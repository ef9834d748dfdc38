"""Images that are all equal have no direction to learn, and must not end a run."""

from __future__ import annotations

import pytest
import torch
from lightning_fabric import Fabric
from tests.methods.test_training import VIT, build
from tests.tiny_data import TinyData

from shasam.losses import unit_length
from shasam.registry import names
from shasam.spec.fields import StageSpec, TrainSpec
from shasam.training.runtime import Runtime
from shasam.training.trainer import Trainer

STAGE = StageSpec(steps=3, batch_views=48)


@pytest.mark.parametrize("name", names("method"))
def test_every_method_trains_on_black_images(name: str) -> None:
    size = 32 if name in VIT else 16  # smaller maps make larger gradients
    data = TinyData(train=64, held=16, size=size)
    data.pixels[:] = 0  # no jitter makes black images differ
    method = build(name, vit=name in VIT)
    Trainer(
        method,
        data,
        TrainSpec(learn=STAGE, classify=STAGE),
        seed=5,
        image_size=size,
        fabric=Fabric(accelerator="cpu", devices=1),
        runtime=Runtime(quiet=True),
    ).fit()
    assert all(bool(torch.isfinite(p).all()) for p in method.parameters())


def test_unit_length_is_normalisation_with_its_gradient_but_for_rows_of_length_zero() -> None:
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))
    x[2], x[4] = 0.0, 1e-16
    weight = torch.linspace(-1, 1, 40).view(5, 8)
    found, expected = x.clone().requires_grad_(), x.clone().requires_grad_()
    (unit_length(found) * weight).sum().backward()
    (torch.nn.functional.normalize(expected, dim=1) * weight).sum().backward()
    rows = [0, 1, 3]
    assert torch.equal(found.grad[rows], expected.grad[rows])
    assert torch.equal(unit_length(x)[rows], torch.nn.functional.normalize(x, dim=1)[rows])
    assert not found.grad[[2, 4]].any() and expected.grad[[2, 4]].abs().max() > 1e11
