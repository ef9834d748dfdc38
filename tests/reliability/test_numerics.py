"""Numerics: 5,000 training steps and 1,000 losses on hostile input without a NaN."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from tests.methods.test_training import build
from tests.mining.rare_cells import CellData

from shasam.losses import FLCMILoss, LogDetCMILoss, fscl, supcon, unit_length
from shasam.spec.fields import StageSpec, TrainSpec
from shasam.training.runtime import Runtime
from shasam.training.trainer import Trainer

pytestmark = pytest.mark.slow
COUNTS = np.array([[1, 9], [9, 20]])  # a group of one image; pools that hold k rows or fewer
STEPS = 63  # of each stage: 2 stages x 63 steps x 40 cases = 5,040


def duplicated(pixels):
    pixels[:] = pixels[torch.arange(len(pixels)) % 2]


def half_black(pixels):
    pixels[::2] = 0


def equal(pixels):
    pixels[:] = 255


def as_they_are(pixels):
    pass


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("spoil", [duplicated, half_black, equal, as_they_are])
@pytest.mark.parametrize("name", ["shasam", "shasam-ld", "shasam-literal", "fscl+", "supcon"])
def test_hostile_images_train_without_a_nan(name, spoil, precision):
    # not 16 px: over maps of one pixel, torch 2.13 takes the bfloat16 gradient of a strided
    # convolution's weights from memory that nobody has written
    data = CellData(COUNTS, size=32)
    spoil(data.pixels)
    method = build(name, vit=False)
    stage = StageSpec(steps=STEPS, batch_views=48, lr=3e-3)
    Trainer(
        method,
        data,
        TrainSpec(learn=stage, classify=stage, precision=precision, validate_every=0),
        seed=1,
        image_size=32,
        fabric=Fabric(accelerator="cpu", devices=1, precision=precision),
        runtime=Runtime(quiet=True),
    ).fit()  # a loss or gradient that is not finite would raise
    for parameter in method.parameters():
        assert bool(torch.isfinite(parameter).all())


LOSSES = {
    "flcmi": lambda z, t, s, sets: FLCMILoss()(z, *sets),
    "flcmi literal": lambda z, t, s, sets: FLCMILoss("none", represented="batch")(z, *sets),
    "logdetcmi": lambda z, t, s, sets: LogDetCMILoss(attraction=1.0)(z, *sets),
    "fscl": lambda z, t, s, sets: fscl(unit_length(z), t, s),
    "fscl+": lambda z, t, s, sets: fscl(unit_length(z), t, s, group_normalised=True),
    "supcon": lambda z, t, s, sets: supcon(unit_length(z), t),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_at_any_scale_are_finite_with_finite_gradients(name):
    for seed in range(170):
        rng = torch.Generator().manual_seed(seed)
        n = int(torch.randint(3, 12, (1,), generator=rng))
        scale = 10.0 ** float(torch.randint(-6, 7, (1,), generator=rng))
        z = torch.randn(3 * n, 8, generator=rng)
        if seed % 3 == 0:
            z[n:] = z[:1]  # duplicates
        if seed % 5 == 0:
            z[::4] = 0.0  # rows without a direction
        dtype = (torch.float32, torch.bfloat16, torch.float16)[seed % 3]
        if dtype == torch.float16:  # 10⁶ and the gradient at 10⁻⁶ are no 16-bit numbers
            scale = min(max(scale, 1e-3), 1e3)
        z = (z * scale).to(dtype)
        z.requires_grad_()
        sets = torch.arange(3 * n).split(n)
        t = torch.cat([torch.zeros(2 * n), torch.ones(n)]).long()
        s = torch.cat([torch.zeros(n), torch.ones(n), torch.zeros(n)]).long()
        loss = LOSSES[name](z, t, s, sets)
        loss.backward()
        assert bool(torch.isfinite(loss)) and bool(torch.isfinite(z.grad).all()), (seed, scale)
