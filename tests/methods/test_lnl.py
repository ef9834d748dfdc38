"""LNL's map and ramp, which the contract leaves at their defaults."""

from __future__ import annotations

import pytest
import torch

from shasam.losses import dann_ramp
from shasam.methods.lnl import LNL
from shasam.models import ResNet18, ViT
from shasam.types import Batch


def gradients(progress: float, **options: float) -> list[torch.Tensor]:
    """Of the network, in the step that hides the group."""
    torch.manual_seed(0)
    method = LNL(LNL.Config(**options), ResNet18("imagenet", 8, 8), 2, 2)
    labels = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    images, rows = torch.randn(4, 3, 32, 32), torch.arange(4)
    batch = Batch(images, *labels, rows_B=rows, views=1, step=0, progress=progress)
    steps = method.steps(batch, "learn")
    next(steps)
    _, losses = next(steps)
    parameters = method.parameter_groups()["network"]
    found = torch.autograd.grad(losses.total, parameters, allow_unused=True)
    return [g for g in found if g is not None]


@pytest.mark.parametrize("progress", [0.1, 0.7])
def test_a_ramp_scales_the_reversal_by_how_far_training_is(progress: float) -> None:
    ramped = gradients(progress, reversal=1.0, slope=2.0)
    constant = gradients(progress, reversal=dann_ramp(progress, 2.0))
    assert ramped and any(g.abs().max() > 0 for g in ramped)
    for a, b in zip(ramped, constant, strict=True):
        assert torch.allclose(a, b, atol=1e-7)


def test_the_map_is_a_middle_one_or_the_last() -> None:
    resnet, vit = ResNet18("imagenet", 8, 8), ViT("tiny", 32, 16, depth=4)
    taps = {
        tap: [LNL(LNL.Config(tap=tap), encoder, 2, 2).tap for encoder in (resnet, vit)]
        for tap in (None, "last")
    }
    assert taps == {None: ["layer2", "blocks.1"], "last": ["layer4", "blocks.3"]}


def test_a_baseline_comes_first_where_it_is_asked_for() -> None:
    method = LNL(LNL.Config(start="ce"), ResNet18("imagenet", 8, 8), 2, 2)
    assert [stage.name for stage in method.stages()] == ["baseline", "learn"]
    labels = torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1])
    images = torch.randn(4, 3, 32, 32)
    batch = Batch(images, *labels, rows_B=torch.arange(4), views=1, step=0, progress=0.0)
    ((group, losses),) = method.steps(batch, "baseline")
    wanted = torch.nn.functional.cross_entropy(method.logits(images)["encoder"], labels[0])
    assert group == "network" and torch.allclose(losses.total, wanted)
