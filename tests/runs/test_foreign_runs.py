"""A run folder of somebody else: nothing is written outside of it, and damage is a sentence."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file
from tests.tiny_data import TinyData

from shasam.commands.evaluate import evaluate
from shasam.commands.predict import predict
from shasam.commands.report import report
from shasam.commands.train import train
from shasam.data.splits import SCHEMA, Manifest
from shasam.documents import parse_yaml
from shasam.errors import CheckpointError, DataError, MemoryLimitError, ShasamError
from shasam.pipeline import engines
from shasam.pipeline.execute import mining_record
from shasam.pipeline.load import load
from shasam.pipeline.sweeps import sweep
from shasam.runs.directory import RunDirectory, RunLog
from shasam.runs.machine import ExecutionOptions
from shasam.training.checkpoint import load_checkpoint, save_checkpoint

TINY = ["data.n=80", "data.holdout_per_cell=10", "data.size=32", "train.steps=4"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One run on a few drawn faces through the command, and its folder of stores."""
    out = tmp_path_factory.mktemp("foreign")
    patch = pytest.MonkeyPatch()
    patch.setenv("SHASAM_CACHE", str(out / "cache"))
    train("ce", profile="smoke", set_=TINY, out=out / "runs", quiet=True, device="cpu")
    yield next((out / "runs").iterdir())
    patch.undo()


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs" / made.name))


def train_again(run: Path) -> None:
    train("ce", profile="smoke", set_=TINY, out=run.parent, quiet=True, device="cpu", resume=True)


def linked(run: Path, name: str, to: Path) -> Path:
    """A link in place of a file of the run, to a copy of it outside."""
    if (run / name).exists():
        shutil.move(run / name, to)
    else:
        to.write_text("mine\n")
    (run / name).symlink_to(to)
    return to


def test_links_in_place_of_written_files_are_replaced_and_not_followed(run, tmp_path) -> None:
    names = ["predictions.parquet", "predictions.val.parquet", "embedding.parquet",
             "metrics.json", "report.html", "metrics.json.tmp", "log.jsonl.tmp"]  # fmt: skip
    canaries = [linked(run, name, tmp_path / f"canary-{name}") for name in names]
    before = [(c.read_bytes(), c.stat().st_mtime_ns) for c in canaries]
    evaluate(run, device="cpu")
    assert [(c.read_bytes(), c.stat().st_mtime_ns) for c in canaries] == before
    assert not any((run / name).is_symlink() for name in names[:5])


@pytest.mark.parametrize("name", ["log.jsonl", ".lock", "provenance.json", "spec.yaml"])
def test_links_in_place_of_files_that_are_kept_are_refused(run, tmp_path, name) -> None:
    canary = linked(run, name, tmp_path / "canary")
    before = canary.read_bytes(), canary.stat().st_mtime_ns
    with pytest.raises(ShasamError, match="link"):
        evaluate(run, device="cpu", report=False)
    assert (canary.read_bytes(), canary.stat().st_mtime_ns) == before


def test_checkpoints_that_are_a_link_are_neither_read_nor_written(run, tmp_path) -> None:
    outside = tmp_path / "outside"
    shutil.move(run / "checkpoints", outside)
    (run / "checkpoints").symlink_to(outside)
    (run / "DONE").unlink()
    (outside / ".x.0.tmp").write_text("not ours to delete")
    before = {p.name: p.read_bytes() for p in outside.iterdir()}
    with pytest.raises(ShasamError, match="leads out of"):
        train_again(run)
    assert {p.name: p.read_bytes() for p in outside.iterdir()} == before


def test_a_run_whose_folder_is_a_link_is_neither_gone_on_with_nor_swept(run, tmp_path) -> None:
    (run / "DONE").unlink()
    outside = Path(shutil.move(run, tmp_path / "outside"))
    run.symlink_to(outside)
    before = {p: p.stat().st_mtime_ns for p in [outside, *outside.rglob("*")]}
    with pytest.raises(CheckpointError, match="is a link, and a run is written into a folder"):
        train_again(run)
    with pytest.raises(CheckpointError, match="is a link, and a run is written into a folder"):
        sweep([RunDirectory(run).spec()], run.parent, ExecutionOptions(device="cpu"))
    assert {p: p.stat().st_mtime_ns for p in [outside, *outside.rglob("*")]} == before


def test_a_run_that_goes_on_does_not_copy_what_its_log_links_to(run, tmp_path) -> None:
    (run / "DONE").unlink()
    canary = linked(run, "log.jsonl", tmp_path / "canary")
    canary.write_text(f"{canary.read_text()}my key\n")
    before = canary.read_bytes()
    with pytest.raises(ShasamError, match="leads out of"):
        train_again(run)
    assert (run / "log.jsonl").is_symlink() and canary.read_bytes() == before


FORGED = {
    "another key": lambda state, tensors: state.update(other=1),
    "a text": lambda state, tensors: state.update(step="1"),
    "below zero": lambda state, tensors: state.update(stage=-1),
    "no size of the log": lambda state, tensors: state.pop("log_bytes"),
    "no weights": lambda state, tensors: tensors.clear(),
    "other weights": lambda state, tensors: tensors.update(
        {k: v[..., :1] for k, v in tensors.items() if k.startswith("model.") and v.ndim > 1}
    ),
    "other best weights": lambda state, tensors: tensors.update({"best.x": torch.zeros(1)}),
    "in the middle, without its optimiser": lambda state, tensors: state.update(stage=0, step=1),
    "in the middle, with another optimiser": lambda state, tensors: (
        state.update(stage=0, step=1),
        tensors.update({"optimizer.head.0.step": torch.ones(1)}),
    ),
    "in the middle, with state of no parameter": lambda state, tensors: (
        state.update(stage=0, step=1),
        tensors.update({"optimizer.main.x.y": torch.ones(1)}),
    ),
}


def test_the_checkpoint_that_is_changed_below_is_of_its_run(run) -> None:
    (run / "DONE").unlink()
    before = (run / "model.safetensors").read_bytes()
    train_again(run)
    assert RunDirectory(run).done and (run / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("how", FORGED)
def test_a_checkpoint_whose_hashes_are_right_and_that_fits_nothing_is_a_sentence(run, how) -> None:
    (run / "DONE").unlink()
    found = load_checkpoint(run / "checkpoints", print)
    state, tensors = dict(found.state), dict(found.tensors)
    FORGED[how](state, tensors)
    shutil.rmtree(run / "checkpoints")
    save_checkpoint(run / "checkpoints", tensors, state)
    with pytest.raises(CheckpointError, match="the checkpoint is not of this run"):
        train_again(run)


@pytest.mark.parametrize("name", ["output.txt", "asked.yaml"])
def test_a_folder_in_the_place_of_a_file_of_a_sweep_is_a_sentence(run, name) -> None:
    (run / "DONE").unlink()
    (run / name).mkdir()
    spec = RunDirectory(run).spec()
    for engine in ("local", "inline"):
        with pytest.raises(ShasamError, match=f"{name}: cannot be"):
            sweep([spec], run.parent, ExecutionOptions(device="cpu", engine=engine))


def test_a_folder_in_the_place_of_the_log_is_a_sentence(run) -> None:
    for name in ("checkpoints", "log.jsonl"):
        shutil.rmtree(run / name) if name == "checkpoints" else (run / name).unlink()
    (run / "DONE").unlink()
    (run / "log.jsonl").mkdir()
    with pytest.raises(ShasamError, match=r"log\.jsonl: cannot be removed"):
        train_again(run)


@pytest.mark.parametrize(
    "line",
    [{}, {"sets": []}, {"sets": {"P": [{"row": 10**9, "similarity": 1}]}}, {"sets": {"P": 3}}],
)
def test_a_line_of_mining_that_no_run_writes_is_a_sentence(tmp_path, line) -> None:
    body = {"event": "mining", "step": 1, "target": 0, "sensitive": 0, **line}
    (tmp_path / "log.jsonl").write_text(json.dumps(body) + "\n")
    with pytest.raises(DataError, match="is not as shasam writes it"):
        mining_record(RunLog(tmp_path / "log.jsonl"), TinyData(), thumbnails=False)


@pytest.mark.parametrize("forked", [True, False])
def test_a_sweep_writes_its_own_files_and_not_where_links_lead(
    run, tmp_path, monkeypatch, forked
) -> None:
    (run / "DONE").unlink()
    canaries = [linked(run, n, tmp_path / f"canary-{n}") for n in ("asked.yaml", "output.txt")]
    if not forked or not engines.POSSIBLE:
        monkeypatch.setattr(engines, "POSSIBLE", False)
        monkeypatch.setattr(sys, "executable", shutil.which("true"))  # the run is not the point
    (outcome,) = sweep([RunDirectory(run).spec()], run.parent, ExecutionOptions(device="cpu"))
    assert outcome.path == run and outcome.status == "done"
    assert [c.read_text() for c in canaries] == ["mine\n"] * 2


def test_where_stores_are_written_is_not_taken_from_the_run(run, tmp_path) -> None:
    chosen = tmp_path / "victim"
    spec = parse_yaml((run / "spec.yaml").read_text(), "spec")
    spec["data"]["store"] = str(chosen)
    (run / "spec.yaml").write_text(json.dumps(spec))
    evaluate(run, device="cpu", report=False)
    assert not chosen.exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"manifest_sha256": 3}'])
def test_damaged_provenance_is_a_sentence(run, content) -> None:
    (run / "provenance.json").write_bytes(content)
    with pytest.raises(DataError):
        evaluate(run, device="cpu", report=False)


@pytest.mark.parametrize("content", [b"", b'[]\n3\nnull\n\xff\xfe\n{"event": 3}\n{"ev'])
def test_an_empty_or_damaged_log_is_no_obstacle(run, content) -> None:
    (run / "log.jsonl").write_bytes(content)
    evaluate(run, device="cpu", report=False)
    (run / "DONE").unlink()
    (run / "log.jsonl").write_bytes(content)
    train_again(run)
    assert (run / "DONE").is_file()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs on this system")
@pytest.mark.parametrize("name", ["model.safetensors", "manifest.parquet", "spec.yaml"])
def test_pipes_in_a_run_are_refused_and_do_not_hang(run, name) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    with pytest.raises(ShasamError):
        evaluate(run, device="cpu", report=False)


def test_weights_that_do_not_fit_are_refused_by_their_header(run) -> None:
    spec = parse_yaml((run / "spec.yaml").read_text(), "spec")
    spec["model"]["width"] = 700  # 1.3 billion parameters
    (run / "spec.yaml").write_text(json.dumps(spec))
    with pytest.raises(ShasamError, match="do not fit its specification"):
        load(run)
    save_file({"x": np.zeros(3, np.float32)}, run / "model.safetensors")
    with pytest.raises(ShasamError, match="do not fit its specification"):
        load(run)


def test_a_manifest_of_one_long_text_repeated_a_million_times_is_refused(run) -> None:
    n = 300_000
    long = pa.array(["x" * 50_000]).take(pa.array(np.zeros(8, np.int64)))
    columns = {name: pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), long[:1])
               for name in ("id", "path", "content_hash", "split")}  # fmt: skip
    columns |= {"target": pa.array(np.zeros(n, np.int64)), "sensitive": np.zeros(n, np.int64)}
    table = pa.table({name: columns[name] for name in SCHEMA.names})
    pq.write_table(table, run / "manifest.parquet", use_dictionary=True)
    assert (run / "manifest.parquet").stat().st_size < 2 << 20
    with pytest.raises(MemoryLimitError, match=r"its rows take .* GiB"):
        Manifest.load(run / "manifest.parquet")


def test_commands_that_cannot_write_say_so_in_a_sentence(run, tmp_path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    Image.new("RGB", (40, 40)).save(tmp_path / "face.png")
    with pytest.raises(ShasamError, match="cannot be"):
        predict(run, tmp_path / "face.png", out=blocked / "p.csv")
    with pytest.raises(ShasamError, match="cannot be"):
        report([run], out=blocked / "r.html")
    with pytest.raises(ShasamError, match="cannot be"):
        report([run], out=blocked / "r.md", format="md")
    with pytest.raises(ShasamError, match="cannot be"):
        train("ce", profile="smoke", set_=TINY, out=blocked, quiet=True, device="cpu")
    with pytest.raises(ShasamError, match="cannot be"):
        evaluate(run, device="cpu", report=False, store=blocked / "store")
