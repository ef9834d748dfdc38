"""Loggers: every event reaches a callable, and each adapter writes what its package reads back."""

from __future__ import annotations

import json
import sqlite3
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shasam
from shasam.cli import app
from shasam.errors import FileError, InputError, MissingExtraError, ShasamWarning, TrainingError
from shasam.integrations.loggers import LOGGERS, NumberLogger, TensorBoard, Trackio, WandB, loggers
from shasam.pipeline.sweeps import sweep
from shasam.runs.directory import RunDirectory, read_log
from shasam.runs.machine import ExecutionOptions

SHORT = {"train.steps": 6, "train.natural_head": False}


@pytest.fixture
def vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Vectors with a class and a group in them, and the folder they lie in."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    t, s = rng.integers(0, 2, (2, 300))
    x = rng.normal(size=(300, 6)) + np.stack([2 * t, 2 * s, *[0 * t] * 4], 1)
    np.save("x.npy", x.astype(np.float32))
    Path("labels.csv").write_text(
        "t,s\n" + "".join(f"{a},{b}\n" for a, b in zip(t, s, strict=True))
    )
    return {"features": "x.npy", "csv": "labels.csv", "target": "t", "sensitive": "s"}


def trained(vectors: dict[str, str], listener: Any, method: str = "ce") -> RunDirectory:
    return shasam.train(
        method, data=vectors, profile="quick", overrides=SHORT, quiet=True, report=False,
        on_event=listener,
    )  # fmt: skip


class Heard(list[tuple[str, dict[str, Any]]]):
    def __call__(self, event: str, fields: Mapping[str, Any]) -> None:
        self.append((event, dict(fields)))


@pytest.mark.filterwarnings("ignore:.*not learnt")
def test_a_callable_hears_the_run_from_its_beginning_to_its_end(vectors) -> None:
    heard = Heard()
    run = trained(vectors, heard)
    events = [event for event, _ in heard]
    assert events[:2] == ["begin", "start"] and events[-2:] == ["result", "end"]
    begin, result = heard[0][1], heard[-2][1]
    assert begin["run"] == run.path.name and begin["settings"]["method"] == "ce"
    assert result["accuracy"] == run.metrics()["test"]["accuracy"]["value"]
    said = [{"event": e, **f} for e, f in heard if e not in ("begin", "result")]
    assert said == read_log(run.path / "log.jsonl")


@pytest.mark.filterwarnings("ignore:.*not learnt")
def test_a_logger_that_fails_is_warned_of_and_the_run_goes_on(vectors) -> None:
    calls = []

    def broken(event: str, fields: Mapping[str, Any]) -> None:
        calls.append(event)
        raise ConnectionError("no answer")

    with pytest.warns(ShasamWarning, match=r"a logger failed at 'begin'.*no answer"):
        run = trained(vectors, [broken])
    assert run.done and calls == ["begin"]


def test_a_run_that_fails_is_told(vectors, monkeypatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise TrainingError("the loss is not finite")

    monkeypatch.setattr("shasam.pipeline.execute._train", fails)
    heard = Heard()
    with pytest.raises(TrainingError):
        trained(vectors, heard)
    assert heard[-1] == ("stopped", {"message": "the loss is not finite"})


class Kept(NumberLogger):
    """What an adapter is asked to write."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[tuple[int, dict[str, float]]] = []

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        self.numbers.append((step, dict(numbers)))


@pytest.mark.filterwarnings("ignore:.*not learnt")
def test_steps_grow_over_the_stages_and_the_test_metrics_come_last(vectors) -> None:
    kept = Kept()
    run = trained(vectors, kept, "supcon")  # stages learn and classify
    steps = [step for step, _ in kept.numbers]
    assert steps == sorted(steps)
    names = set().union(*(numbers for _, numbers in kept.numbers))
    assert {"learn/loss", "classify/loss", "classify/val/accuracy"} <= names
    accuracy = run.metrics()["test"]["accuracy"]["value"]
    assert kept.numbers[-1][1]["test/accuracy"] == accuracy


# -------------------------------------------------------------------------------------------------
# The packages themselves, where they are installed; stand-ins for two that write to servers.
# -------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_what_was_written(vectors) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = trained(vectors, loggers("tensorboard"))
    found = EventAccumulator(str(run.path / "tensorboard")).Reload()
    accuracy = run.metrics()["test"]["accuracy"]["value"]
    assert found.Scalars("test/accuracy")[-1].value == pytest.approx(accuracy)
    assert [event.step for event in found.Scalars("learn/loss")][-1] == 6


@pytest.mark.filterwarnings("ignore")
def test_mlflow_keeps_a_run_in_a_local_sqlite_file(vectors, monkeypatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    run = trained(vectors, loggers("mlflow"))
    (found,) = mlflow.search_runs(experiment_names=["shasam"], output_format="list")
    assert found.info.run_name == run.path.name and found.info.status == "FINISHED"
    accuracy = run.metrics()["test"]["accuracy"]["value"]
    assert found.data.metrics["test/accuracy"] == pytest.approx(accuracy)
    assert found.data.params["method"] == "ce" and found.data.params["data/target"] == "t"
    with sqlite3.connect("mlflow.db") as database:
        assert database.execute("select count(*) from runs").fetchone() == (1,)
    assert mlflow.active_run() is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [WandB, Trackio])
def test_modules_with_init_log_and_finish(kind, vectors, monkeypatch) -> None:
    """The calls that wandb 0.31 and trackio 0.43 document, on a stand-in."""
    calls: list[tuple[str, Any]] = []
    stand_in = types.ModuleType(kind.name)
    stand_in.__spec__ = types.SimpleNamespace(name=kind.name)  # type: ignore[assignment]
    stand_in.init = lambda **given: calls.append(("init", given))  # type: ignore[attr-defined]
    stand_in.log = lambda numbers, step: calls.append(("log", numbers))  # type: ignore[attr-defined]
    stand_in.finish = lambda **given: calls.append(("finish", given))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, kind.name, stand_in)
    run = trained(vectors, kind(project="faces", group="a"))
    names, given = [name for name, _ in calls], calls[0][1]
    assert names[0] == "init" and names[-1] == "finish" and names.count("log") >= 2
    assert given["project"] == "faces" and given["name"] == run.path.name and given["group"] == "a"
    assert given["config"]["method"] == "ce" and "test/accuracy" in calls[-2][1]


def test_names_of_the_flag_are_checked_before_training(monkeypatch) -> None:
    with pytest.raises(InputError, match="no logger 'papyrus'; there are tensorboard, mlflow"):
        loggers("papyrus")
    monkeypatch.setattr("shasam.extras.find_spec", lambda name: None)
    for name in LOGGERS:
        with pytest.raises(MissingExtraError, match=rf"pip install 'shasam\[{name}\]'"):
            loggers(name)


@pytest.mark.filterwarnings("ignore")
def test_the_flag_reaches_every_run_that_train_makes(vectors, monkeypatch, capsys) -> None:
    """Plain cross-entropy beside the model is a run of its own, in the logger too."""
    heard = Heard()
    monkeypatch.setattr("shasam.integrations.loggers.loggers", lambda names: (heard,))
    flags = "--features x.npy --csv labels.csv --target t --sensitive s --steps 6 --allow-chance"
    words = f"train balanced {flags} --set train.natural_head=false --log mlflow --no-report -q"
    app(words.split(), result_action="return_value")
    begun = [fields["settings"]["method"] for event, fields in heard if event == "begin"]
    assert begun == ["balanced", "ce"]


@pytest.mark.parametrize("command", ["compare", "sweep"])
def test_the_flag_reaches_the_runs_of_a_sweep(vectors, monkeypatch, command) -> None:
    """MLflow in a file that the process of every run writes to; SQLite takes one at a time."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    mlflow.set_tracking_uri("sqlite:///mlflow.db")
    mlflow.set_experiment("shasam")
    data = {"name": "embeddings", "features": "x.npy", "csv": "labels.csv", "target": "t"}
    body = {"train": {"steps": 4}, "data": {**data, "sensitive": "s"}}
    grid = {"profile": "smoke", "base": body, "runs": [{"method": "ce"}, {"method": "balanced"}]}
    Path("grid.yaml").write_text(json.dumps(grid))
    flags = "--features x.npy --csv labels.csv --target t --sensitive s --profile smoke --steps 4"
    words = {
        "sweep": "sweep grid.yaml",
        "compare": f"compare --methods ce,balanced {flags} --seeds 1",
    }
    app(f"{words[command]} --log mlflow".split(), result_action="return_value")
    runs = mlflow.search_runs(experiment_names=["shasam"], output_format="list")
    assert {run.data.params["method"] for run in runs} == {"ce", "balanced"}
    assert all("test/accuracy" in run.data.metrics for run in runs)


def test_a_sweep_checks_the_name_of_a_logger_before_it_starts_runs(tmp_path) -> None:
    with pytest.raises(InputError, match="no logger 'papyrus'"):
        sweep([], tmp_path, ExecutionOptions(log="papyrus"))


def test_event_files_are_not_written_through_a_link(tmp_path, monkeypatch) -> None:
    """A run that is resumed may have come from somebody else."""
    (run := tmp_path / "run").mkdir()
    (run / "tensorboard").symlink_to(tmp_path / "elsewhere")
    written = types.SimpleNamespace(SummaryWriter=lambda place: pytest.fail(f"written to {place}"))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", written)
    monkeypatch.setattr("shasam.integrations.loggers.need", lambda *words: None)
    with pytest.raises(FileError, match="leads out of"):
        TensorBoard().begin("run", run, {})
    assert not (tmp_path / "elsewhere").exists()
