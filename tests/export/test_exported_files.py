from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors import safe_open
from tests.export.conftest import CASES
from tests.tiny_data import TinyData

import shasam
from shasam.errors import CheckpointError, FileError, InputError
from shasam.export import export
from shasam.methods.baselines import CE
from shasam.pipeline.load import Model

N = 1000


@pytest.fixture(scope="module")
def given() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shades = rng.integers(0, 200, (N, 1, 1, 1))
    return {
        "pixels": (shades + rng.integers(0, 56, (N, 16, 16, 3))).astype(np.uint8),
        "vectors": rng.normal(size=(N, 12)).astype(np.float32),
        "group": rng.integers(0, 2, N),
        "ids": np.array([f"image-{k}" for k in range(N)]),
    }


def test_onnx_files_give_the_models_predictions_in_a_process_without_torch(
    runs, vector_run, given, tmp_path
):
    runs = {**{method: runs[method] for method in CASES}, "vectors": vector_run}
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    files = [
        export(run, "onnx", tmp_path / f"{method}.onnx", allow_chance=True)
        for method, run in runs.items()
    ]
    np.savez(tmp_path / "in.npz", **given)
    script = Path(__file__).with_name("without_torch.py")
    words = [sys.executable, str(script), str(tmp_path / "in.npz"), str(tmp_path / "out.npz")]
    subprocess.run([*words, *map(str, files)], check=True, timeout=300)
    found = np.load(tmp_path / "out.npz")
    for file, run in zip(files, runs.values(), strict=True):
        inputs = given["vectors" if run == vector_run else "pixels"]
        wanted = shasam.load(run).predict(inputs, given["group"], given["ids"])
        assert np.abs(found[f"{file}:scores"] - wanted.scores).max() < 1e-5
        # a coin or a threshold may lie within 1e-5 of a score; no more than that may differ
        assert (found[f"{file}:prediction"] != wanted.prediction).sum() <= 2
        assert 0 < wanted.prediction.mean() < 1


@pytest.mark.parametrize("method", CASES)
def test_torchscript_gives_the_models_predictions_and_describes_itself(
    runs, given, tmp_path, method
):
    file = export(runs[method], "torchscript", tmp_path / "model.pt", allow_chance=True)
    extra = {"shasam": ""}
    loaded = torch.jit.load(str(file), _extra_files=extra)
    said = json.loads(extra["shasam"])
    inputs = [torch.from_numpy(given["pixels"])]
    if method == "posthoc":
        from shasam.metrics.odds import uniform_by_id

        inputs += [
            torch.from_numpy(given["group"]),
            torch.from_numpy(uniform_by_id(given["ids"], 0)),
        ]
    assert len(inputs) == len(said["inputs"])
    scores, prediction = loaded(*inputs)
    wanted = shasam.load(runs[method]).predict(given["pixels"], given["group"], given["ids"])
    assert np.abs(scores.numpy() - wanted.scores).max() < 1e-5
    assert (prediction.numpy() != wanted.prediction).sum() <= 2


def test_safetensors_and_hub_folders_are_read_back_to_the_same_bits(runs, given, tmp_path):
    wanted = shasam.load(runs["shasam"]).predict(given["pixels"])
    for format, place in (("safetensors", "model.safetensors"), ("hub", "folder")):
        again = shasam.load(export(runs["shasam"], format, tmp_path / place, allow_chance=True))
        assert isinstance(again, Model)
        assert (again.classes, again.groups) == (TinyData.target_names, TinyData.sensitive_names)
        assert (again.predict(given["pixels"]).scores == wanted.scores).all()


def test_a_hub_folder_of_a_model_of_vectors_is_read_back(vector_run, given, tmp_path):
    again = shasam.load(export(vector_run, "hub", tmp_path / "folder", allow_chance=True))
    wanted = shasam.load(vector_run).predict(given["vectors"]).scores
    assert (again.predict(given["vectors"]).scores == wanted).all()


def test_an_exported_file_names_no_folder_of_its_author(runs, tmp_path):
    body = yaml.safe_load((runs["ce"] / "spec.yaml").read_text())
    body["data"].update(root="/home/someone/photos", csv="/home/someone/people.csv")
    body["data"]["name"] = "table"
    run = tmp_path / "run"
    run.mkdir()
    for file in ("model.safetensors", "manifest.parquet", "predictions.parquet"):
        (run / file).write_bytes((runs["ce"] / file).read_bytes())
    (run / "spec.yaml").write_text(yaml.safe_dump(body))
    file = export(run, "safetensors", tmp_path / "m.safetensors", allow_chance=True)
    with safe_open(file, framework="np") as opened:
        assert "someone" not in str(opened.metadata())
    folder = export(run, "hub", tmp_path / "hub", allow_chance=True)
    assert not any(b"someone" in p.read_bytes() for p in folder.iterdir())


def test_the_card_of_a_hub_folder_has_the_results_in_the_hubs_schema(runs, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    folder = export(runs["ce"], "hub", tmp_path / "folder", allow_chance=True)
    assert {p.name for p in folder.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    card = hub.ModelCard.load(folder / "README.md")
    results = {r.metric_type: r for r in card.data.eval_results}
    metrics = json.loads((runs["ce"] / "metrics.json").read_text())["test"]
    for name in ("accuracy", "eo_mean"):
        assert results[name].metric_value == pytest.approx(metrics[name]["value"], abs=1e-6)
        assert results[name].dataset_split == "test" and results[name].dataset_name
    assert card.data.library_name == "shasam" and "How to load" in card.text


def test_a_hub_id_is_loaded_from_the_cache_through_its_links(runs, given, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    folder = export(runs["ce"], "hub", tmp_path / "folder", allow_chance=True)
    cache = tmp_path / "models--someone--faces"
    snapshot = cache / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (cache / "blobs").mkdir()
    for file in ("config.json", "model.safetensors"):
        (cache / "blobs" / file).write_bytes((folder / file).read_bytes())
        (snapshot / file).symlink_to(cache / "blobs" / file)
    asked = []

    def snapshot_download(name, *, allow_patterns):
        asked.append((name, allow_patterns))
        return str(snapshot)

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    model = shasam.load("someone/faces")
    assert asked == [("someone/faces", ["config.json", "model.safetensors"])]
    wanted = shasam.load(runs["ce"]).predict(given["pixels"]).scores
    assert (model.predict(given["pixels"]).scores == wanted).all()


def test_a_model_that_cannot_be_had_from_the_hub_is_a_sentence(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="could not be downloaded from the hub"):
        shasam.load("nobody/nothing")
    (tmp_path / "runs").mkdir()
    with pytest.raises(InputError, match="not a run directory"):
        shasam.load("runs/ce-0123456789ab")  # a mistyped run never asks the network


def test_changed_and_foreign_folders_are_refused(runs, tmp_path):
    folder = export(runs["ce"], "hub", tmp_path / "folder", allow_chance=True)
    with pytest.raises(InputError, match="give an empty folder"):
        export(runs["ce"], "hub", tmp_path, allow_chance=True)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    with pytest.raises(CheckpointError, match="damaged"):
        shasam.load(folder)
    config = json.loads((folder / "config.json").read_text())
    for change in ({"library_name": "timm"}, {"spec": {"method": "nothing"}}, {"classes": 3}):
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(InputError, match="cannot be used"):
            shasam.load(folder)


def test_an_unwritable_place_and_a_rule_that_no_file_can_hold_are_sentences(
    runs, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be made"):
        export(
            runs["ce"], "safetensors", tmp_path / "file" / "model.safetensors", allow_chance=True
        )
    monkeypatch.setattr(CE, "decide", lambda self, predictions: predictions)
    with pytest.raises(InputError, match=r"write that rule as decision"):
        export(runs["ce"], "torchscript", tmp_path / "model.pt", allow_chance=True)


def test_every_run_has_a_model_card_that_says_how_to_load_it(runs):
    assert "shasam.load(" in (runs["ce"] / "MODEL_CARD.md").read_text()
