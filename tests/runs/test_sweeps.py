"""Sweeps under signals, and several sweeps in one folder: real processes, real locks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from shasam.cli import app, main
from shasam.errors import SpecError, Stopped
from shasam.pipeline import engines, sweeps
from shasam.runs.directory import RunDirectory
from shasam.runs.machine import ExecutionOptions
from shasam.spec import resolve
from shasam.training.checkpoint import load_checkpoint

LONG = {
    "profile": "smoke",
    "base": {
        "method": "ce",
        "data": {"n": 80, "holdout_per_cell": 10, "size": 32},
        "train": {"steps": 100000},
    },
}


def wait_for(happened, seconds=300):
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


def training(log: Path) -> bool:
    """A run that has finished an epoch: it is in the middle of its steps."""
    return log.exists() and '"epoch"' in log.read_text()


def start_sweep(folder: Path, grid: dict, *more: str) -> subprocess.Popen[bytes]:
    (folder / "grid.yaml").write_text(yaml.safe_dump(grid))
    command = [sys.executable, "-m", "shasam.cli", "sweep", str(folder / "grid.yaml")]
    command += ["--out", str(folder / "runs"), "--device", "cpu", *more]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE)


def check_signals(
    folder: Path, runs: int, signals: list[int], send=os.killpg, more: tuple[str, ...] = ()
) -> None:
    """Signals to the whole process group, as a terminal sends them: each run saves once."""
    grid = {**LONG, "grid": {"seed": list(range(runs))}}
    process = start_sweep(folder, grid, "--jobs", str(runs), "--threads", "1", *more)
    try:
        wait_for(lambda: sum(map(training, folder.glob("runs/*/log.jsonl"))) == runs)
        for number in signals:
            send(process.pid, number)
        # of signals that are pending together the kernel delivers the lowest number first
        assert process.wait(timeout=300) in {128 + number for number in signals}
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for path in (folder / "runs").iterdir():
        run = RunDirectory(path)
        assert not run.done
        with run.lock(), run.lock(".claim"):  # nobody is left at work
            pass
        saved = load_checkpoint(run.file("checkpoints"), pytest.fail).state["step"]
        said = run.file("output.txt").read_text()
        assert (
            said.count(f"stopped at step {saved} of stage learn") == 1 and "Traceback" not in said
        )


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "cache"))


def test_ctrl_c_on_a_sweep_saves_every_run_once(tmp_path, cache):
    check_signals(tmp_path, 1, [signal.SIGINT])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_exit_code_says_which_signal_stopped_a_command(number):
    def stopped():
        raise Stopped(number)

    app.command(stopped, name="stopped-by-a-signal")
    try:
        with pytest.raises(SystemExit) as left:
            main(["stopped-by-a-signal"])
    finally:
        del app["stopped-by-a-signal"]
    assert left.value.code == 128 + number


# a run without torch: it takes the lock as a run does, works, prints, and is done
CHILD = """
import fcntl, pathlib, sys, time
run, name = pathlib.Path(sys.argv[1]), sys.argv[2]
lock = open(run / ".lock", "a")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("worked for", name, flush=True)
time.sleep(0.3)
with open(run / "worked", "a") as file:
    file.write(name + chr(10))
(run / "DONE").touch()
"""


def test_two_sweeps_in_one_folder_share_the_runs(tmp_path, monkeypatch):
    names = {"1": "one", "2": "two"}  # by their threads

    def start(run, flags, variables):
        with open(run.file("output.txt"), "wb") as output:
            name = names[variables["OMP_NUM_THREADS"]]
            command = [sys.executable, "-c", CHILD, str(run.path), name]
            return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    monkeypatch.setattr(engines, "POSSIBLE", False)
    monkeypatch.setattr(engines, "start_training", start)
    specs = [resolve({"method": "ce", "seed": seed}, profile="smoke") for seed in range(6)]
    found: dict[str, list[sweeps.Outcome]] = {}

    def work(threads: str) -> None:
        how = ExecutionOptions(jobs=2, threads=int(threads))
        found[names[threads]] = sweeps.sweep(specs, tmp_path, how, say=lambda text: None)

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in ("one", "two"):
        assert {o.spec.seed for o in found[name]} == set(range(6))
        assert {o.status for o in found[name]} == {"done", "skipped"}
    done = [o for outcomes in found.values() for o in outcomes if o.status == "done"]
    assert len(done) == 6  # every run was carried out by one of them, and once
    for spec in specs:
        worked = (tmp_path / spec.name / "worked").read_text().split()
        assert len(worked) == 1
        assert (tmp_path / spec.name / "output.txt").read_text() == f"worked for {worked[0]}\n"


def test_a_run_that_is_being_trained_by_hand_is_waited_for(tmp_path, monkeypatch):
    spec = resolve({"method": "ce"}, profile="smoke")
    run = RunDirectory(tmp_path / spec.name)
    run.make()
    second = "started a second process"
    monkeypatch.setattr(engines, "POSSIBLE", False)
    monkeypatch.setattr(engines, "start_training", lambda *args: pytest.fail(second))
    said: list[str] = []

    def finish(text: str) -> None:
        said.append(text)
        run.file("DONE").touch()

    with run.lock():
        outcomes = sweeps.sweep([spec], tmp_path, say=finish)
    assert [o.status for o in outcomes] == ["skipped"]
    assert said == ["other processes are at work on 1 of the runs; waiting"]


SHORT = {"n": 80, "holdout_per_cell": 10, "size": 32}
on_linux = pytest.mark.skipif(not engines.POSSIBLE, reason="runs are forked on Linux alone")


@on_linux
class Endless:
    """A run that goes on until it is asked to stop."""

    returncode: int | None = None

    def poll(self):
        return self.returncode

    def terminate(self):
        self.returncode = 143

    wait = poll


def test_when_the_time_is_over_runs_save_and_the_rest_is_left(tmp_path, monkeypatch):
    started, told = [], []

    def start(run, *args):
        started.append(Endless())
        return started[-1]

    monkeypatch.setattr(engines, "POSSIBLE", False)
    monkeypatch.setattr(engines, "start_training", start)
    specs = sweeps.expand({**LONG, "grid": {"seed": [0, 1, 2]}})
    finished = RunDirectory(tmp_path / specs[2].name)
    monkeypatch.setattr(RunDirectory, "done", property(lambda run: run.path == finished.path))
    found = sweeps.sweep(specs, tmp_path, seconds=0.3, say=told.append)
    states = {o.spec.seed: o.status for o in found}
    assert states == {0: "left", 1: "left", 2: "skipped"}
    assert [work.returncode for work in started] == [143]
    assert any("save a checkpoint" in line for line in told)
    assert sweeps.says(found[-1]) == f"left    {specs[1].name} seed 1"


def test_a_comparison_says_what_the_time_was_too_short_for():
    from shasam.commands.compare import _grid, left_out, seconds_of

    assert [seconds_of(t) for t in ("90s", "10m", "1.5h", None)] == [90, 600, 5400, float("inf")]
    for wrong in ("10", "m", "-3s", "0m", "1e3s", "10 minutes", ""):
        with pytest.raises(SpecError, match="write a time such as"):
            seconds_of(wrong)
    specs = sweeps.expand(_grid(["ce", "grl"], {}, "quick", 2, front=True))
    (line,) = left_out(specs[-3:], len(specs))
    assert line.startswith(f"left out, as the time was over: 3 of {len(specs)} runs (grl strength=")
    assert line.count("seed 1") == 3 and left_out([], 8) == []


def test_a_forked_run_has_the_bits_of_one_that_was_started_anew(tmp_path, cache, monkeypatch):
    spec = resolve({"method": "ce", "data": SHORT, "train": {"steps": 3}}, profile="smoke")
    found = {}
    for word, possible in (("one", True), ("two", False)):
        monkeypatch.setattr(engines, "POSSIBLE", possible)
        (outcome,) = sweeps.sweep(
            [spec], tmp_path / word, ExecutionOptions(threads=1), say=lambda text: None
        )
        assert outcome.status == "done", outcome.message
        found[word] = RunDirectory(outcome.path)
    for name in ("model.safetensors", "predictions.parquet", "metrics.json", "output.txt"):
        assert found["one"].file(name).read_bytes().replace(b"/one/", b"/two/") == (
            found["two"].file(name).read_bytes()
        )
    commands = [run.provenance()["command"] for run in found.values()]
    assert [word.replace("/one", "/two") for word in commands[0]] == commands[1]


@on_linux
def test_a_forked_run_that_fails_says_why_and_the_next_one_is_carried_out(tmp_path, cache):
    data = {**SHORT, "name": "utkface", "root": str(tmp_path / "nothing")}
    bad = resolve({"method": "ce", "data": data}, profile="smoke")
    good = resolve({"method": "ce", "data": SHORT, "train": {"steps": 2}}, profile="smoke")
    outcomes = sweeps.sweep([bad, good], tmp_path / "runs", say=lambda text: None)
    assert [o.status for o in outcomes] == ["failed", "done"]
    assert "nothing" in outcomes[0].message


@on_linux
def test_runs_are_seen_to_their_end_when_the_process_that_forked_them_is_killed(tmp_path):
    class Patient(engines.WarmStarter):
        def kill_server(self) -> None:
            self._server.kill()
            self._server.wait()

    starter = Patient({})
    try:
        work = starter.start(["doctor"], tmp_path / "output.txt")
        starter.kill_server()
        assert work.poll() is None  # it is under way, and nobody's child here
        assert work.wait() == -signal.SIGKILL  # how it ended cannot be known
        assert (tmp_path / "output.txt").read_text()
        assert starter.start(["doctor"], tmp_path / "other.txt").wait() == -signal.SIGKILL
    finally:
        starter.close()
