"""One run over several machines by torchrun: here two agents that meet on the loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning_fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment

from shasam.errors import SpecError, TrainingError
from shasam.spec.fields import TrainSpec
from shasam.training.runtime import Runtime, agree, make_fabric

SMALL = ["--profile", "smoke", "--device", "cpu", "--encoder", "vit", "--no-report"]
for pair in ("data.n=80", "data.holdout_per_cell=10", "model.depth=1", "model.patch=8"):
    SMALL += ["--set", pair]


def under_torchrun(monkeypatch, world: int, here: int) -> None:
    for name, value in (
        ("TORCHELASTIC_RUN_ID", "one"),
        ("WORLD_SIZE", str(world)),
        ("LOCAL_WORLD_SIZE", str(here)),
        ("RANK", "0"),
        ("LOCAL_RANK", "0"),
    ):
        monkeypatch.setenv(name, value)


def test_the_processes_of_torchrun_are_laid_out_on_its_machines(monkeypatch):
    under_torchrun(monkeypatch, world=4, here=2)
    fabric = make_fabric(TrainSpec(devices=4), Runtime(device="cpu"))
    assert isinstance(fabric._connector.cluster_environment, TorchElasticEnvironment)
    assert (fabric.strategy.num_nodes, fabric.strategy.num_processes) == (2, 2)


@pytest.mark.parametrize(
    ("world", "here", "devices", "said"),
    [(2, 1, 1, r"write train\.devices=2"), (3, 2, 3, "equally many on every machine")],
)
def test_processes_that_do_not_fit_the_specification_are_an_error(
    monkeypatch, world, here, devices, said
):
    under_torchrun(monkeypatch, world, here)
    with pytest.raises(SpecError, match=said):
        make_fabric(TrainSpec(devices=devices), Runtime(device="cpu"))


def test_an_allocation_of_slurm_does_not_change_how_one_machine_is_used(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "1")
    fabric = make_fabric(TrainSpec(devices=2), Runtime(device="cpu"))
    assert isinstance(fabric._connector.cluster_environment, LightningEnvironment)
    monkeypatch.setenv("SLURM_NTASKS", "2")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    with pytest.raises(SpecError, match="one torchrun on each machine"):
        make_fabric(TrainSpec(devices=2), Runtime(device="cpu"))
    make_fabric(TrainSpec(), Runtime(device="cpu"))  # each task trains a run of its own


@pytest.mark.parametrize("difference", [0, 1])
def test_processes_that_read_different_files_do_not_train_together(difference):
    fabric = SimpleNamespace(
        world_size=2,
        global_rank=0,
        device="cpu",
        all_gather=lambda own: torch.stack([own, own + difference]),
    )
    if not difference:
        agree(fabric, "the data", "manifest 12", "Copy it")
        return
    with pytest.raises(TrainingError, match=r"the data of process 1 differs .* manifest 12\. Copy"):
        agree(fabric, "the data", "manifest 12", "Copy it")


class Nodes:
    """Two torchrun agents with one process each, and a cache each, as on two machines."""

    def __init__(self, folder: Path, words: list[str], outs: tuple[str, str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        folder.mkdir(exist_ok=True)
        self.outputs = [folder / f"node{rank}.txt" for rank in (0, 1)]
        self.agents = []
        for rank, output in enumerate(self.outputs):
            command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
            command += ["--nproc-per-node", "1", "--node-rank", str(rank)]
            command += ["--master-addr", "127.0.0.1", "--master-port", port]
            command += ["-m", "shasam.cli", "train", *words, "--devices", "2", *SMALL]
            command += ["--out", str(folder / outs[rank])]
            cache = str(folder / f"cache{rank}")
            environment = {**os.environ, "SHASAM_CACHE": cache, "OMP_NUM_THREADS": "1"}
            with open(output, "wb") as file:
                self.agents.append(
                    subprocess.Popen(
                        command, stdout=file, stderr=subprocess.STDOUT, env=environment
                    )
                )

    def said(self) -> str:
        return "\n".join(output.read_text() for output in self.outputs)

    def wait_for(self, folder: Path, text: str) -> None:
        deadline = time.monotonic() + 300
        while not any(text in p.read_text() for p in folder.glob("*/log.jsonl")):
            alive = all(agent.poll() is None for agent in self.agents)
            assert alive and time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def workers(self, rank: int) -> list[int]:
        words = ["ps", "-o", "pid=", "--ppid", str(self.agents[rank].pid)]
        found = subprocess.run(words, capture_output=True, check=True)
        return [int(word) for word in found.stdout.split()]

    def codes(self, seconds: float) -> list[int]:
        """Exit codes of the agents, which must all have ended within so many seconds."""
        deadline = time.monotonic() + seconds
        return [agent.wait(timeout=deadline - time.monotonic()) for agent in self.agents]

    def end(self) -> None:
        for rank, agent in enumerate(self.agents):
            if agent.poll() is None:
                for pid in (*self.workers(rank), agent.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                agent.wait()


@pytest.fixture
def nodes(tmp_path):
    started = []

    def start(*words, outs=("runs", "runs")):
        started.append(Nodes(tmp_path, list(words), outs))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.mark.slow
def test_two_machines_give_the_bytes_of_two_processes_on_one(nodes, tmp_path):
    run = nodes("ce")
    assert run.codes(300) == [0, 0], run.said()
    command = [sys.executable, "-m", "shasam.cli", "train", "ce", "--devices", "2", *SMALL]
    environment = {**os.environ, "SHASAM_CACHE": str(tmp_path / "cache0"), "OMP_NUM_THREADS": "1"}
    command += ["--out", str(tmp_path / "one"), "--quiet"]
    subprocess.run(command, env=environment, check=True, timeout=300, capture_output=True)
    (far,), (near,) = ((tmp_path / out).glob("ce-*") for out in ("runs", "one"))
    assert far.name == near.name
    for name in ("model.safetensors", "predictions.parquet"):
        assert (far / name).read_bytes() == (near / name).read_bytes()
    assert run.said().count("on the test split") == 1


@pytest.mark.slow
@pytest.mark.parametrize("with_agent", [False, True])
def test_a_rank_that_dies_ends_the_run_on_every_machine_within_30_seconds(
    nodes, tmp_path, with_agent
):
    run = nodes("ce", "--steps", "100000")
    run.wait_for(tmp_path / "runs", '"epoch"')
    (first,), (other,) = run.workers(0), run.workers(1)
    if with_agent:  # the whole machine is gone
        run.agents[1].kill()
    os.kill(other, signal.SIGKILL)
    assert all(code != 0 for code in run.codes(30))
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)
    assert "process 0 of 2 lost another process of this run" in run.said()


@pytest.mark.slow
def test_a_machine_that_does_not_see_the_checkpoint_does_not_join_a_resumed_run(nodes, tmp_path):
    run = nodes("ce", "--steps", "100000")
    run.wait_for(tmp_path / "runs", '"epoch"')
    os.kill(run.workers(0)[0], signal.SIGTERM)  # saves
    run.codes(60)
    again = nodes("ce", "--steps", "100000", "--resume", outs=("runs", "elsewhere"))
    assert all(code != 0 for code in again.codes(120))
    assert "the checkpoint of process 1 differs from that of process 0" in again.said()
