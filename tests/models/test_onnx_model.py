"""ONNX networks as encoders: what is read off a graph, what is refused, and the same vectors."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

pytest.importorskip("onnx", reason="needs shasam[onnx]")
pytest.importorskip("onnxruntime", reason="needs shasam[onnx]")

from onnx import TensorProto, external_data_helper
from tests.models import tiny_onnx
from tests.tiny_data import TinyData

import shasam
from shasam.errors import CheckpointError, InputError
from shasam.models import build_encoder, start_weights
from shasam.models.onnx_model import image_input, parse_onnx, read_onnx
from shasam.pipeline.execute import execute
from shasam.spec import resolve
from shasam.training.inference import prepare_images
from shasam.training.runtime import Runtime

SIDE = 8


def encoder(path, size=SIDE, **options):
    spec = resolve(
        {"method": "ce", "model": {"encoder": f"onnx:{path}", **options}, "data": {"size": size}},
        profile="smoke",
    ).model
    made = build_encoder(spec, size)
    start_weights(made, spec)
    return made


def pixels(n=5, side=SIDE):
    return np.random.default_rng(1).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def encoded(made, images):
    return made(prepare_images(torch.from_numpy(images).permute(0, 3, 1, 2), "cpu")).numpy()


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("kind", ["FLOAT", "FLOAT16", "UINT8"])
def test_vectors_are_those_of_the_graph_in_every_layout_and_type(tmp_path, layout, kind):
    dtype = getattr(TensorProto, kind)
    path = tiny_onnx.saved(tmp_path / "a.onnx", layout=layout, dtype=dtype)
    options = {} if kind == "UINT8" else {"range": "unit"}
    found = encoded(encoder(path, **options), pixels())
    scale = 1.0 if kind == "UINT8" else 1 / 255
    assert np.abs(found - tiny_onnx.vectors(pixels(), scale)).max() < (
        2e-3 if kind == "FLOAT16" else 1e-5
    )


@pytest.mark.parametrize(("mean", "range_"), [(120.0, "bytes"), (0.45, "unit"), (None, None)])
def test_the_range_of_pixels_is_read_off_the_first_arithmetic(tmp_path, mean, range_):
    path = tiny_onnx.saved(tmp_path / "a.onnx", mean=mean)
    assert image_input(parse_onnx(read_onnx(path), "a"), "a").range == range_
    if range_ is None:
        with pytest.raises(InputError, match=r"does not say its range.*model\.range="):
            encoder(path)
    else:
        scale = {"bytes": 1.0, "unit": 1 / 255}[range_]
        wanted = tiny_onnx.vectors(pixels(), scale, mean)
        assert np.abs(encoded(encoder(path), pixels()) - wanted).max() < 1e-4


def test_blue_can_come_first(tmp_path):
    path = tiny_onnx.saved(tmp_path / "a.onnx")
    found = encoded(encoder(path, range="unit", channels="bgr"), pixels())
    assert np.abs(found - tiny_onnx.vectors(pixels()[..., ::-1])).max() < 1e-5


def test_a_graph_with_a_fixed_batch_is_run_piece_by_piece(tmp_path):
    path = tiny_onnx.saved(tmp_path / "a.onnx", batch=2)
    made = encoder(path, range="unit")
    assert np.abs(encoded(made, pixels(5)) - tiny_onnx.vectors(pixels(5))).max() < 1e-5


def test_the_size_of_the_graph_counts(tmp_path):
    path = tiny_onnx.saved(tmp_path / "a.onnx", side=SIDE)
    body = {"method": "ce", "model": {"encoder": f"onnx:{path}", "range": "unit"}}
    assert resolve(body).data.size == SIDE
    with pytest.raises(InputError, match=f"takes images of {SIDE} px"):
        encoder(path, size=16, range="unit")


def test_one_of_several_outputs_has_to_be_named(tmp_path):
    path = tiny_onnx.saved(tmp_path / "a.onnx", outputs=2)
    with pytest.raises(InputError, match=r"2 outputs.*model\.output=NAME"):
        encoder(path, range="unit")
    assert encoder(path, range="unit", output="colour").out_dim == 3
    with pytest.raises(InputError, match="no output 'other'"):
        encoder(path, range="unit", output="other")


def test_operators_of_other_domains_are_refused(tmp_path):
    path = tiny_onnx.saved(tmp_path / "a.onnx", domain="com.microsoft")
    with pytest.raises(InputError, match=r"com\.microsoft"):
        encoder(path, range="unit")


def with_external_data(folder, location):
    model = tiny_onnx.graph()
    external_data_helper.set_external_data(model.graph.initializer[0], location)
    held = model.graph.initializer[0]
    raw = held.raw_data
    held.ClearField("raw_data")
    folder.mkdir()
    (folder / "a.onnx").write_bytes(model.SerializeToString())
    return folder / "a.onnx", raw


def test_external_data_of_the_same_folder_is_put_inside(tmp_path):
    path, raw = with_external_data(tmp_path / "in", "weights.bin")
    (tmp_path / "in" / "weights.bin").write_bytes(raw)
    found = encoded(encoder(path, range="unit"), pixels())
    assert np.abs(found - tiny_onnx.vectors(pixels())).max() < 1e-5


@pytest.mark.parametrize("how", ["..", "absolute", "link", "short"])
def test_external_data_that_is_outside_of_the_folder_or_too_short_is_refused(tmp_path, how):
    outside = tmp_path / "secret.bin"
    names = {"..": "../secret.bin", "absolute": str(outside), "link": "link", "short": "short"}
    path, raw = with_external_data(tmp_path / "in", names[how])
    outside.write_bytes(raw)
    if how == "link":
        (tmp_path / "in" / "link").symlink_to(outside)
    if how == "short":
        (tmp_path / "in" / "short").write_bytes(raw[:7])
        model = parse_onnx(path.read_bytes(), "a", external=True)
        entry = model.graph.initializer[0].external_data.add()
        entry.key, entry.value = "length", str(len(raw))
        path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError):
        read_onnx(path)


@pytest.mark.parametrize("content", [b"", b"not an onnx file", b"\x08\x07" * 50])
def test_other_files_are_refused_in_a_sentence(tmp_path, content):
    (tmp_path / "a.onnx").write_bytes(content)
    with pytest.raises(InputError, match="ONNX"):
        encoder(tmp_path / "a.onnx", range="unit")


def test_a_changed_file_is_another_encoder(tmp_path):
    path = tiny_onnx.saved(tmp_path / "a.onnx")
    body = {"method": "ce", "model": {"encoder": f"onnx:{path}", "range": "unit"}}
    before = resolve(body, profile="smoke")
    tiny_onnx.saved(path, seed=1)
    assert resolve(body, profile="smoke").name != before.name
    with pytest.raises(InputError, match="has changed"):
        start_weights(build_encoder(before.model, SIDE), before.model)


def test_a_copy_runs_and_a_damaged_graph_does_not(tmp_path):
    made = encoder(tiny_onnx.saved(tmp_path / "a.onnx"), range="unit")
    found = encoded(made, pixels())
    other = copy.deepcopy(made)
    assert np.array_equal(encoded(other, pixels()), found)
    other = copy.deepcopy(made)
    other.graph[10] ^= 1
    with pytest.raises(CheckpointError, match="damaged"):
        encoded(other, pixels())


def test_a_run_trains_on_images_and_is_loaded_without_the_file(tmp_path):
    path = tiny_onnx.saved(tmp_path / "a.onnx")
    model = {"encoder": f"onnx:{path}", "range": "unit"}
    spec = resolve(
        {"method": "supcon", "model": model, "data": {"size": SIDE}, "train": {"steps": 4}},
        profile="smoke",
    )
    data = TinyData(size=SIDE)
    run = execute(spec, tmp_path, runtime=Runtime(device="cpu", quiet=True), data=data)
    images = data.pixels.permute(0, 2, 3, 1).numpy()[:4]
    before = shasam.load(run).predict(images).scores
    path.unlink()
    assert np.array_equal(shasam.load(run).predict(images).scores, before)
    assert before.std() > 0


def test_training_without_a_file_says_so(tmp_path):
    with pytest.raises(InputError, match="no ONNX file"):
        encoder(tmp_path / "none.onnx")
