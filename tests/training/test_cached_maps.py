"""Frozen blocks whose results are kept: the same numbers, computed once, resumed to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shasam.data import open_data
from shasam.errors import SpecError, Stopped
from shasam.models import efficientnet
from shasam.models.efficientnet import EfficientNetLite0
from shasam.pipeline.execute import execute
from shasam.pipeline.load import load
from shasam.spec import resolve
from shasam.training import cached_maps as kept
from shasam.training.cached_maps import cached_maps
from shasam.training.inference import prepare_images
from shasam.training.runtime import Interrupt, Runtime

SIZE = 32
QUIET = Runtime(device="cpu", quiet=True)


@pytest.fixture
def pretrained(monkeypatch):
    """Random weights in the place of those of the package, with statistics that suit them."""
    torch.manual_seed(3)
    network = EfficientNetLite0(pretrained=False)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    network.train()(torch.rand(32, 3, SIZE, SIZE) * 2 - 1)
    weights = network.state_dict()
    monkeypatch.setattr(efficientnet, "imagenet_weights", lambda: weights)


def spec_of(tmp_path, method="ce", **train):
    return resolve(
        {
            "method": method,
            "data": {
                "size": SIZE,
                "n": 60,
                "holdout_per_cell": 6,
                "store": str(tmp_path / "store"),
            },
            "model": {"encoder": "efficientnet-lite0", "freeze": 3, "cache": True},
            "train": {"steps": 4, "batch_views": 16, "natural_head": False, **train},
        },
        profile="smoke",
    )


def cached(spec, said=lambda text: None):
    data = open_data(spec.data)
    return data, cached_maps(spec.model, SIZE, data, torch.device("cpu"), said)


def test_the_maps_are_what_the_frozen_blocks_give_for_image_and_mirror_image(pretrained, tmp_path):
    spec = spec_of(tmp_path)
    data, maps = cached(spec)
    encoder = kept.build_encoder(spec.model, SIZE)
    kept.start_weights(encoder, spec.model)
    encoder.eval()
    rows = torch.arange(5)
    images = prepare_images(data.images(rows), "cpu")
    with torch.no_grad():
        assert torch.allclose(encoder.before_cut(images), maps.images(rows), rtol=1e-2, atol=1e-2)
        seen, wanted = encoder(prepare_images(maps.images(rows), "cpu")), encoder(images)
        assert torch.allclose(seen, wanted, rtol=1e-2, atol=1e-2)
        mirrored = encoder.before_cut(images.flip(3))
    both = maps.views(rows, seed=0, draw=0, views=2, flip=1.0)
    assert torch.allclose(both[:5], mirrored, rtol=1e-2, atol=1e-2)
    assert torch.equal(both[5:], maps.images(rows))


def test_views_are_mirrored_by_chance_and_the_second_is_the_other_one(pretrained, tmp_path):
    _, maps = cached(spec_of(tmp_path))
    rows = torch.arange(40)
    one, two = maps.views(rows, seed=1, draw=2, views=2, flip=0.5).chunk(2)
    plain = maps.images(rows)
    same = [bool(torch.equal(a, b)) for a, b in zip(one, plain, strict=True)]
    assert 5 < sum(same) < 35
    assert [bool(torch.equal(a, b)) for a, b in zip(two, plain, strict=True)] == [
        not one for one in same
    ]
    assert torch.equal(maps.views(rows[7:9], 1, 2, 1, 0.5), one[7:9])


def test_they_are_computed_once_and_again_where_they_are_damaged(pretrained, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "_PART", 32)
    spec, said = spec_of(tmp_path), []
    _, first = cached(spec, said.append)
    before = [np.array(part) for part in first.parts]
    seen = []
    monkeypatch.setattr(kept, "_part", lambda *given: seen.append(1) or _part(*given))
    cached(spec, said.append)
    assert "computing" in said[0] and "are kept" in said[1] and not seen
    damaged = next((tmp_path / "store").rglob("part-00001.bin"))
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    _, again = cached(spec, said.append)
    assert len(seen) == 1  # the damaged file alone
    for part, wanted in zip(again.parts, before, strict=True):
        assert np.array_equal(part, wanted)


_part = kept._part


@pytest.mark.parametrize("method", ["ce", "supcon"])
def test_frozen_blocks_stay_and_a_run_is_resumed_to_the_same_bits(
    pretrained, tmp_path, monkeypatch, method
):
    spec = spec_of(tmp_path, method)
    whole = execute(spec, tmp_path / "whole", runtime=QUIET)
    steps = []
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Interrupt, "asked", property(lambda self: steps.append(1) or len(steps) == 2))
        execute(spec, tmp_path / "cut", runtime=QUIET)
    again = execute(spec, tmp_path / "cut", runtime=QUIET, resume=True)
    for name in ("model.safetensors", "metrics.json"):
        assert whole.file(name).read_bytes() == again.file(name).read_bytes()
    weights, start = load(whole).method.encoder.state_dict(), efficientnet.imagenet_weights()
    moved = {name for name, value in weights.items() if not torch.equal(value, start[name])}
    blocks = {int(name.split(".")[1]) for name in moved if name.startswith("_blocks")}
    assert blocks == {13, 14, 15} and not any(name.startswith("_conv_stem") for name in moved)


def test_a_trained_run_scores_pixels_as_it_scored_the_kept_maps(pretrained, tmp_path):
    spec = spec_of(tmp_path)
    run = execute(spec, tmp_path / "runs", runtime=QUIET)
    data, maps = cached(spec)
    rows = torch.from_numpy(data.rows("test"))
    model = load(run)
    from_pixels = model.predict(data.images(rows).numpy()).scores
    from_maps = torch.softmax(
        model.method.logits(prepare_images(maps.images(rows), "cpu"))["encoder"], 1
    )
    assert np.abs(from_pixels - from_maps.numpy()).max() < 1e-3


def test_what_cannot_be_cached_is_said(tmp_path):
    body = {"method": "ce", "model": {"encoder": "efficientnet-lite0", "cache": True}}
    with pytest.raises(SpecError, match="give freeze a number"):
        resolve(body, profile="smoke")
    spec = resolve(
        {"method": "ce", "model": {"encoder": "resnet18", "freeze": 2, "cache": True}},
        profile="smoke",
    )
    with pytest.raises(SpecError, match="cannot be cached"):
        kept.build_encoder(spec.model, SIZE)


def test_a_specification_without_it_keeps_its_name():
    body = resolve({"method": "ce"}, profile="smoke").as_dict()
    assert "cache" not in body["model"]
