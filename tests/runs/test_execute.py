from __future__ import annotations

import ast
import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tests.tiny_data import TinyData

import shasam
from shasam.errors import (
    CheckpointError,
    DataError,
    InputError,
    ShasamError,
    Stopped,
    TrainingError,
)
from shasam.metrics import evaluate
from shasam.pipeline.execute import execute
from shasam.pipeline.load import load
from shasam.report import write_model_card, write_report
from shasam.runs.directory import RunDirectory, read_log, read_predictions
from shasam.spec import resolve
from shasam.training.inference import linear_probe
from shasam.training.runtime import Interrupt, Runtime
from shasam.training.trainer import Trainer

QUIET = Runtime(device="cpu", quiet=True)
SMALL = {"data": {"size": 16}, "train": {"steps": 6}}


def spec_of(method, **more):
    return resolve({**SMALL, "method": method, **more}, profile="smoke")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished two-stage run, shared by the tests that only read it."""
    return execute(
        spec_of("supcon"), tmp_path_factory.mktemp("runs"), runtime=QUIET, data=TinyData()
    )


def test_a_run_leaves_every_file_of_the_contract(finished):
    names = {p.name for p in finished.path.iterdir()}
    assert names >= {
        "spec.yaml",
        "manifest.parquet",
        "log.jsonl",
        "checkpoints",
        "model.safetensors",
        "predictions.parquet",
        "predictions.encoder.parquet",
        "predictions.projection.parquet",
        "predictions.val.parquet",
        "metrics.json",
        "embedding.parquet",
        "provenance.json",
        "DONE",
    }
    assert not [n for n in names if n.endswith(".tmp")]
    metadata = pq.read_schema(finished.file("predictions.parquet")).metadata
    assert json.loads(metadata[b"target_names"]) == ["standing", "lying"]
    assert metadata[b"sha256"].decode() == TinyData().manifest.sha256
    table = pq.read_table(finished.file("embedding.parquet"))
    assert table.column_names == ["id", "x", "y", "target", "sensitive"]


def test_every_metric_can_be_computed_again_from_the_predictions(finished):
    p = read_predictions(finished.file("predictions.parquet"))
    again = evaluate(p.target, p.prediction, p.sensitive, p.scores)
    for name, entry in finished.metrics()["test"].items():
        if not name.startswith("ece_") and entry["value"] is not None:
            assert again[name].value == pytest.approx(entry["value"], abs=1e-12)
    assert finished.metrics()["test"] == finished.metrics()["test.encoder"]


def test_provenance_says_what_was_done(finished):
    provenance = json.loads(finished.file("provenance.json").read_text())
    assert provenance["images_seen"] == 6 * 48 and provenance["test_opened"] == 1
    assert provenance["manifest_sha256"] == TinyData().manifest.sha256
    assert {"shasam", "torch", "numpy"} <= set(provenance["versions"])


def test_two_runs_of_one_specification_have_pages_of_the_same_bytes(finished, tmp_path):
    again = execute(spec_of("supcon"), tmp_path / "later", runtime=QUIET, data=TinyData())
    pages = [write_report([run.path], run.path / "report.html") for run in (finished, again)]
    assert pages[0] != pages[1] and pages[0].read_bytes() == pages[1].read_bytes()
    cards = [write_model_card(run.path) for run in (finished, again)]
    assert cards[0].read_bytes() == cards[1].read_bytes()


def test_a_finished_run_is_not_trained_again(finished, monkeypatch):
    monkeypatch.setattr(Trainer, "fit", lambda self, resume: pytest.fail("trained again"))
    run = execute(spec_of("supcon"), finished.path.parent, runtime=QUIET, data=TinyData())
    assert run.path == finished.path


def test_a_loaded_model_predicts_what_the_run_predicted(finished):
    data, model = TinyData(), shasam.load(finished.path)
    rows = data.rows("test")
    answer = model.predict(data.images(rows).numpy())
    stored = read_predictions(finished.file("predictions.parquet"))
    assert np.array_equal(answer.prediction, stored.prediction)
    assert np.allclose(answer.scores, stored.scores, atol=1e-6)
    assert set(answer.labels) <= {"standing", "lying"}
    channels_last = data.images(rows).permute(0, 2, 3, 1).numpy()
    assert np.array_equal(model.predict(channels_last).prediction, stored.prediction)
    assert model.features(data.images(rows).numpy())["projection"].shape == (len(rows), 128)


def test_a_loaded_model_reads_files_of_any_size_and_refuses_wrong_arrays(finished, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (50, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "face.png")
    model = load(finished)
    assert len(model.predict(tmp_path / "face.png").labels) == 1
    with pytest.raises(InputError, match="trained on 16 px"):
        model.predict(np.zeros((1, 3, 20, 20), np.uint8))
    with pytest.raises(InputError, match="uint8"):
        model.predict(np.zeros((1, 3, 16, 16), np.float32))
    with pytest.raises(InputError, match="cannot be read"):
        model.predict([tmp_path / "nobody.jpg"])


def copy_of(run, folder):
    return Path(shutil.copytree(run.path, folder / "copy", dirs_exist_ok=True))


def test_every_flipped_byte_of_the_weights_is_found_on_loading(finished, tmp_path):
    path = copy_of(finished, tmp_path)
    weights = path / "model.safetensors"
    good = weights.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(good), 60):
        flipped = bytes([good[place] ^ (1 << int(rng.integers(8)))])
        weights.write_bytes(good[:place] + flipped + good[place + 1 :])
        with pytest.raises(CheckpointError, match=r"model\.safetensors"):
            load(path)
    weights.write_bytes(good)
    load(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_even_where_their_hash_is_not_known(
    finished, tmp_path, value
):
    path = copy_of(finished, tmp_path)
    tensors = load_file(path / "model.safetensors")
    tensors["encoder.conv1.weight"][0, 0] = value
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(CheckpointError, match="SHA-256"):
        load(path)
    (path / "provenance.json").unlink()
    with pytest.raises(CheckpointError, match=r"encoder\.conv1\.weight holds NaN or infinity"):
        load(path)
    (path / "provenance.json").write_text("{")
    with pytest.raises(ShasamError, match=r"provenance\.json"):
        load(path)


def test_methods_that_decide_by_group_ask_for_the_groups(tmp_path):
    data = TinyData()
    run = execute(spec_of("posthoc"), tmp_path, runtime=QUIET, data=data)
    rows = data.rows("test")
    with pytest.raises(InputError, match="decides by group"):
        load(run).predict(data.images(rows).numpy())
    assert len(load(run).predict(data.images(rows).numpy(), data.s_N[rows]).labels) == len(rows)


def test_ctrl_c_saves_and_the_run_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    spec = spec_of("ce")
    whole = execute(spec, tmp_path / "whole", runtime=QUIET, data=TinyData())
    original = Trainer._step

    def interrupted(self, run):
        if self.state.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, run)

    monkeypatch.setattr(Trainer, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(spec, tmp_path / "cut", runtime=QUIET, data=TinyData())
    monkeypatch.undo()
    with pytest.raises(TrainingError, match="resume="):
        execute(spec, tmp_path / "cut", runtime=QUIET, data=TinyData())
    cut = execute(spec, tmp_path / "cut", runtime=QUIET, data=TinyData(), resume=True)
    a, b = (load_file(r.file("model.safetensors")) for r in (whole, cut))
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert [e["step"] for e in read_log(cut.file("log.jsonl")) if e["event"] == "resume"] == [4]


def test_a_signal_in_the_last_save_of_training_is_not_swallowed(tmp_path, monkeypatch):
    spec = spec_of("ce")
    original = Trainer._save

    def signalled(self, run=None):
        original(self, run)
        if self.state.stage == 1:  # the only stage is over
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Trainer, "_save", signalled)
    with pytest.raises(Stopped) as stopped:
        execute(spec, tmp_path, runtime=QUIET, data=TinyData())
    assert stopped.value.number == signal.SIGTERM
    monkeypatch.undo()
    run = RunDirectory(tmp_path / spec.name)
    assert not run.done
    monkeypatch.setattr(Trainer, "_step", lambda self, run: pytest.fail("trained again"))
    assert execute(spec, tmp_path, runtime=QUIET, data=TinyData(), resume=True).done


def test_signals_of_one_second_are_one_wish_to_stop_and_ctrl_c_later_stops_at_once(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("shasam.training.runtime.time.monotonic", lambda: now[0])
    with pytest.raises(Stopped) as stopped, Interrupt() as stop:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        now[0] += 60
        os.kill(os.getpid(), signal.SIGTERM)  # never counts twice
        assert stop.asked
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second Ctrl-C was not heard")
    assert stopped.value.number == signal.SIGINT


def test_a_run_does_not_go_on_with_other_data(tmp_path, monkeypatch):
    spec = spec_of("ce")
    original = Trainer._end_epoch

    def stop(self, run, epoch, rate, last):
        if epoch == 1:
            raise TrainingError("stop here")
        original(self, run, epoch, rate, last)

    monkeypatch.setattr(Trainer, "_end_epoch", stop)
    saving = dataclasses.replace(QUIET, checkpoint_seconds=0.0)  # there is one to resume
    with pytest.raises(TrainingError, match="stop here"):
        execute(spec, tmp_path, runtime=saving, data=TinyData())
    monkeypatch.undo()
    with pytest.raises(DataError, match="has changed since the run began"):
        execute(spec, tmp_path, runtime=QUIET, data=TinyData(bias=0.5), resume=True)


def test_two_processes_cannot_work_on_one_run(tmp_path):
    spec = spec_of("ce")
    run = RunDirectory(tmp_path / spec.name)
    run.make()
    with run.lock(), pytest.raises(TrainingError, match="another process is working"):
        execute(spec, tmp_path, runtime=QUIET, data=TinyData())


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CheckpointError, match="choose another with out="):
        execute(spec_of("ce"), tmp_path / "file", runtime=QUIET, data=TinyData())


def test_the_test_split_has_one_door():
    source = Path(shasam.__file__).parent
    doors = []
    for room in ("training", "runs", "methods", "commands", "mining", "pipeline"):
        for path in (source / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                named = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                if named and node.func.attr == "rows" and node.args:
                    first = node.args[0]
                    if isinstance(first, ast.Constant) and first.value == "test":
                        doors.append(path.name)
    assert doors == ["results.py"]


def test_the_probe_reads_a_group_that_is_there_and_guesses_one_that_is_not():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    noise = torch.from_numpy(rng.normal(size=(400, 8)))
    told = noise.clone()
    told[:, 3] += torch.from_numpy(3.0 * y)
    assert linear_probe(told[:200], y[:200], told[200:], y[200:], 2) > 0.85
    assert 0.35 < linear_probe(noise[:200], y[:200], noise[200:], y[200:], 2) < 0.65


@pytest.mark.parametrize("empty", ["train", "val", "test"])
def test_an_empty_split_is_refused_before_training(tmp_path, monkeypatch, empty):
    data = TinyData()
    rows = data.rows
    monkeypatch.setattr(data, "rows", lambda split: rows(split)[: 0 if split == empty else None])
    monkeypatch.setattr(Trainer, "fit", lambda *words, **more: pytest.fail("it trained"))
    with pytest.raises(DataError, match=f"the {empty} split is empty"):
        execute(spec_of("ce"), tmp_path, runtime=QUIET, data=data)


def test_a_stop_in_evaluation_changes_no_result_and_is_told(tmp_path, monkeypatch, finished):
    """What docs/training.md promises: equal results, and a log that says what happened."""
    write = RunDirectory.write_json

    def stop_once(self, name, body):
        if name == "metrics.json":
            monkeypatch.undo()
            raise Stopped(signal.SIGTERM)
        write(self, name, body)

    monkeypatch.setattr(RunDirectory, "write_json", stop_once)
    with pytest.raises(Stopped):
        execute(spec_of("supcon"), tmp_path, runtime=QUIET, data=TinyData())
    run = execute(spec_of("supcon"), tmp_path, runtime=QUIET, data=TinyData(), resume=True)
    for name in ("model.safetensors", "predictions.parquet", "metrics.json", "embedding.parquet"):
        assert run.file(name).read_bytes() == finished.file(name).read_bytes()
    assert (run.provenance()["test_opened"], finished.provenance()["test_opened"]) == (2, 1)
    told = [[line["event"] for line in one.log()] for one in (run, finished)]
    assert sorted(told[0]) == sorted([*told[1], "resume", "test_opened"])
