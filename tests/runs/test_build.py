"""Sizes that a specification asks for are judged before memory is taken."""

from __future__ import annotations

import resource

import pytest
import torch
from tests.tiny_data import TinyData

from shasam.errors import MemoryLimitError, ShasamError, SpecError
from shasam.pipeline import build as build_module
from shasam.pipeline.build import build_method, outline
from shasam.pipeline.execute import execute
from shasam.registry import names
from shasam.spec import resolve
from shasam.training.runtime import Runtime, make_fabric


@pytest.mark.parametrize("method", names("method"))
def test_an_outline_has_the_shapes_of_the_method(method: str) -> None:
    spec = resolve({"method": method}, profile="smoke")
    built, _ = build_method(spec, 3, 2)
    outlined = outline(spec, 3, 2)
    assert outlined is not None
    assert {t.device.type for t in outlined.state_dict().values()} == {"meta"}
    shapes = [{k: v.shape for k, v in m.state_dict().items()} for m in (built, outlined)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    "body",
    [
        {"model": {"width": 5000}},
        {"model": {"width": 65_536}},
        {"model": {"embed_dim": 1_000_000, "width": 2000}},
        {"method": "fscl", "options": {"projection_dim": 10**10}},
        {"method": "fscl", "options": {"projection_hidden": 10**17}},
        {"method": "grl", "options": {"hidden": 10**9}},
        {"method": "fdvae", "options": {"hidden": 10**9}},
        {"train": {"learn": {"steps": 1, "batch_views": 10**9}}},
    ],
)
def test_what_cannot_fit_is_refused_with_the_figure_before_it_is_allocated(body, tmp_path) -> None:
    spec = resolve({"method": "ce", **body}, profile="smoke")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((MemoryLimitError, SpecError), match=r"GiB|TiB|cannot be built"):
        execute(spec, tmp_path, runtime=Runtime(device="cpu", quiet=True), data=TinyData())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB


@pytest.mark.parametrize("encoder", ["resnet18", "vit"])
def test_what_a_step_keeps_is_counted_without_computing_it(encoder: str) -> None:
    spec = resolve({"method": "ce", "model": {"encoder": encoder}}, profile="smoke")
    outlined, (built, _) = outline(spec, 2, 2), build_method(spec, 2, 2)
    assert outlined is not None
    counted = build_module.kept_for_backward(outlined.encoder, 32)
    own = {p.untyped_storage().data_ptr() for p in built.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = built.encoder.train()(torch.zeros(16, 3, 32, 32))
    assert result.requires_grad  # the graph is alive, and so is what it keeps
    assert counted == pytest.approx(sum(kept.values()) / 16, rel=0.1)


def test_a_step_that_cannot_fit_is_refused_before_it_is_taken(tmp_path, monkeypatch) -> None:
    data = {"size": 128}
    spec = resolve({"method": "fscl+", "data": data, "train": {"steps": 1}}, profile="paper")
    monkeypatch.setattr(build_module, "available_memory", lambda: 16 << 30)
    with pytest.raises(MemoryLimitError, match=r"256 views of 128 px .* 1[78]\.\d GiB .*bf16"):
        execute(spec, tmp_path, runtime=Runtime(device="cpu", quiet=True), data=TinyData())
    half = resolve(spec.as_dict(), {"train": {"precision": "bf16-mixed"}})
    build_module.check_activations(half, 2, 2)


@pytest.mark.parametrize(
    "body",
    [
        {"model": {"width": 10**9}},
        {"model": {"encoder": "vit", "depth": 10**6}},
        {"data": {"n": 10**12}},
        {"data": {"holdout_per_cell": 10**12}},
        {"options": {"dropout": float("inf")}},
        {"data": {"alpha": float("inf")}},
        {"train": {"lr": float("nan")}},
        {"train": {"lr": float("inf")}},
    ],
)
def test_sizes_beyond_any_use_are_no_specification(body) -> None:
    with pytest.raises(ShasamError):
        resolve({"method": "ce", **body}, profile="smoke")


def test_a_negative_size_is_a_sentence() -> None:
    spec = resolve({"method": "fscl", "options": {"projection_dim": -3}}, profile="smoke")
    with pytest.raises(SpecError, match="cannot be built"):
        build_method(spec, 2, 2)


def test_a_specification_cannot_start_more_processes_than_the_cores_can_carry() -> None:
    for devices in (10**9, 1000):
        with pytest.raises(SpecError, match="devices"):
            make_fabric(resolve({"train": {"devices": devices}}).train, Runtime(device="cpu"))
