"""A run of several processes, one of which is killed, stopped or interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from shasam.cli import main
from shasam.errors import SpecError, TrainingError
from shasam.spec.fields import TrainSpec
from shasam.training.checkpoint import load_checkpoint
from shasam.training.runtime import Runtime, make_fabric, watching_others

GLOO = "[/gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer. This is typically"


def test_a_strategy_that_starts_processes_otherwise_is_refused_with_a_sentence(capsys):
    with pytest.raises(SpecError, match="there are auto and ddp"):
        make_fabric(TrainSpec(devices=2), Runtime(strategy="ddp_fork"))  # type: ignore[arg-type]
    with pytest.raises(SystemExit) as left:
        main(["train", "ce", "--strategy", "ddp_fork"])
    assert left.value.code != 0
    assert "ddp_fork" in "".join(capsys.readouterr())


def test_a_lost_process_is_a_sentence_and_ends_the_others():
    killed = []
    process = SimpleNamespace(kill=lambda: killed.append(True))
    launcher = SimpleNamespace(procs=[process])
    fabric = SimpleNamespace(
        world_size=2, global_rank=0, strategy=SimpleNamespace(launcher=launcher)
    )
    lost = pytest.raises(TrainingError, match=r"\(Read error: Connection reset by peer\)")
    with lost, watching_others(fabric, Runtime()):
        raise RuntimeError(GLOO)
    assert killed == [True]
    other = pytest.raises(RuntimeError, match="an error of another kind")
    with other, watching_others(fabric, Runtime()):
        raise RuntimeError("an error of another kind")


class Ranks:
    """``shasam train`` with several processes, in a process group of its own, in mid-training."""

    def __init__(self, folder: Path, devices: int, *more: str) -> None:
        command = [sys.executable, "-m", "shasam.cli", "train", "ce", "--profile", "smoke"]
        command += ["--devices", str(devices), "--steps", "100000", "--device", "cpu"]
        command += ["--encoder", "vit", "--no-report", "--out", str(folder), *more]
        for pair in ("data.n=80", "data.holdout_per_cell=10", "model.depth=1", "model.patch=8"):
            command += ["--set", pair]
        self.output = folder / "output.txt"
        folder.mkdir(exist_ok=True)
        with open(self.output, "wb") as file:
            self.first = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + 300
        while not any('"epoch"' in p.read_text() for p in folder.glob("*/log.jsonl")):
            assert self.first.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.1)
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.first.pid)], capture_output=True, check=True
        )
        self.others = [int(word) for word in found.stdout.split()]
        assert len(self.others) == devices - 1

    def said(self) -> str:
        return self.output.read_text()

    def seconds_to_the_end(self) -> float:
        """Until no process of the group is left."""
        began = time.monotonic()
        self.first.wait(timeout=120)
        while time.monotonic() - began < 120:
            left = subprocess.run(["pgrep", "-g", str(self.first.pid)], capture_output=True)
            if left.returncode:
                return time.monotonic() - began
            time.sleep(0.1)
        pytest.fail("a process is left")

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.first.pid, signal.SIGKILL)
        self.first.wait()


@pytest.fixture
def ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    started = []

    def start(*more, devices=2):
        started.append(Ranks(tmp_path / "runs", devices, *more))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4])
def test_a_killed_process_ends_the_others_within_30_seconds(ranks, devices):
    run = ranks(devices=devices)
    os.kill(run.others[-1], signal.SIGKILL)
    assert run.seconds_to_the_end() < 30
    # the launcher may be faster than our sentence, and then kills what is left
    assert run.first.returncode in (2, -signal.SIGKILL)
    assert "lost another process of this run" in run.said() and "Traceback" not in run.said()


@pytest.mark.slow
def test_a_stopped_process_ends_the_others_after_the_timeout(ranks):
    run = ranks("--rank-timeout", "10")
    os.kill(run.others[0], signal.SIGSTOP)
    assert run.seconds_to_the_end() < 40
    assert run.first.returncode == 2
    assert "Timed out waiting 10000ms" in run.said() and "Traceback" not in run.said()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_saves_once_and_the_exit_code_is_true(ranks, tmp_path, number):
    run = ranks()
    os.killpg(run.first.pid, number)
    run.seconds_to_the_end()
    assert run.first.returncode == 128 + number
    (folder,) = (tmp_path / "runs").glob("*/checkpoints")
    step = load_checkpoint(folder, pytest.fail).state["step"]
    assert run.said().count(f"stopped at step {step} of stage learn") == 1
    assert "Traceback" not in run.said()
