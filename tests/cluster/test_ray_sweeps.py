"""Sweeps on Ray: real workers, real nodes, real kills."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.runs.test_sweeps import LONG, check_signals, start_sweep, training, wait_for

pytest.importorskip("ray", reason="needs shasam[ray]: make test-ray")

import shasam
from shasam.cluster import connected
from shasam.errors import ClusterError
from shasam.pipeline.ray_engine import RayEngine, carry_out
from shasam.pipeline.sweeps import Outcome, says, sweep
from shasam.runs.directory import RunDirectory
from shasam.runs.machine import ExecutionOptions
from shasam.spec import resolve

pytestmark = pytest.mark.slow  # a Ray takes seconds to start

BASE = {**LONG["base"], "train": {"steps": 150}}
ON_RAY = ("--engine", "ray")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "cache"))


def grid(seeds: int) -> dict:
    return {"profile": "smoke", "base": BASE, "grid": {"seed": list(range(seeds))}}


def parents(folder: Path) -> dict[str, int]:
    """Run directories of a folder that a process trains at the moment, and that one's parent."""
    shown = subprocess.run(
        ["ps", "-ww", "-eo", "ppid=,args="], capture_output=True, text=True, check=True
    )
    line = rf"^ *(\d+) .*tied\.py train --config {folder}/runs/([^/]+)/"
    found = re.findall(line, shown.stdout, re.M)
    return {name: int(parent) for parent, name in found}


def kill_one(folder: Path, runs: int, victims: Callable[[int], list[int]]) -> str:
    """SIGKILL to ``victims(worker)`` once all runs are in mid-training; the run it worked on."""
    wait_for(lambda: sum(map(training, folder.glob("runs/*/log.jsonl"))) == runs)
    name, worker = sorted(parents(folder).items())[0]
    for victim in victims(worker):
        os.kill(victim, signal.SIGKILL)
    return name


def check_complete(folder: Path, process: subprocess.Popen[bytes], name: str) -> None:
    """The sweep ended well, and the run went on to the bits that it has without a kill."""
    shown = process.communicate(timeout=600)[0].decode()
    assert process.returncode == 0, shown
    assert f"lost    {name} seed" in shown and "sent again" in shown
    assert shown.count("done    ce-") == 2 and "failed" not in shown
    run = RunDirectory(folder / "runs" / name)
    assert [line["step"] > 0 for line in run.log() if line["event"] == "resume"] == [True]
    (plain,) = sweep([run.spec()], folder / "plain", ExecutionOptions(threads=1, device="cpu"))
    bits = [RunDirectory(path).provenance()["model_sha256"] for path in (run.path, plain.path)]
    assert bits[0] == bits[1]


def parent_of(worker: int) -> int:
    """The raylet, which is Ray's process of a node."""
    return int(Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_a_sweep_ends_complete_though_one_of_two_workers_is_killed(tmp_path):
    process = start_sweep(tmp_path, grid(2), *ON_RAY, "--jobs", "2")
    try:
        name = kill_one(tmp_path, 2, lambda worker: [worker])
        check_complete(tmp_path, process, name)
    finally:
        process.kill()
    assert not parents(tmp_path)


def test_a_sweep_ends_complete_though_one_of_two_nodes_is_killed(tmp_path):
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        for _ in range(2):
            nodes.add_node(num_cpus=1)
        process = start_sweep(tmp_path, grid(2), *ON_RAY, "--address", nodes.address)
        try:
            name = kill_one(tmp_path, 2, lambda worker: [parent_of(worker), worker])
            check_complete(tmp_path, process, name)
        finally:
            process.kill()
    finally:
        nodes.shutdown()


def test_ctrl_c_saves_every_run_once_and_leaves_nothing_behind(tmp_path):
    before = set(Path("/tmp").glob("shasam-ray-*"))
    # what a script starts in the background begins with Ctrl-C ignored, and so do Ray's workers
    heeded = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        check_signals(tmp_path, 2, [signal.SIGINT], more=ON_RAY)
    finally:
        signal.signal(signal.SIGINT, heeded)
    assert not parents(tmp_path)
    made = set(Path("/tmp").glob("shasam-ray-*")) - before
    shown = subprocess.run(
        ["ps", "-ww", "-eo", "args="], capture_output=True, text=True, check=True
    )
    assert not made and not re.search(rf"asked.yaml --out {tmp_path}", shown.stdout)


def test_a_sweep_on_ray_and_one_without_share_a_folder(tmp_path):
    short = {**grid(4), "base": {**BASE, "train": {"steps": 10}}}
    both = [start_sweep(tmp_path, short, "--threads", "1", *more) for more in ((), ON_RAY)]
    shown = [process.communicate(timeout=600)[0].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum(text.count("done    ce-") for text in shown) == 4
    assert sum(text.count("skipped ce-") for text in shown) == 4
    assert not any("failed" in text for text in shown)


def test_failures_are_told_as_without_ray_and_work_without_a_place_is_refused(tmp_path):
    told: list[str] = []
    lost = {"method": "ce", "data": {"name": "utkface", "root": str(tmp_path / "nowhere")}}

    def run(how: ExecutionOptions) -> list[Outcome]:
        specs = [resolve(lost, profile="smoke")]
        return sweep(specs, tmp_path / how.engine, how, tell=lambda o: told.append(says(o)))

    run(ExecutionOptions(device="cpu", threads=1))
    with connected(None, "the tests"):
        run(ExecutionOptions(engine="ray"))
        with pytest.raises(ClusterError, match="needs 500 CPU on one node"):
            run(ExecutionOptions(engine="ray", threads=500))
        with pytest.raises(ClusterError, match=r"needs 1 CPU and 1 GPU .* and 0 GPU"):
            run(ExecutionOptions(engine="ray", device="cuda"))
        engine = RayEngine(
            ExecutionOptions(engine="ray", device="cuda", threads=3), True, told.append
        )
        assert engine.needs(devices=2) == {"CPU": 6, "GPU": 2}
    assert len(told) == 2 and told[0].startswith("failed  ce-")
    assert told[1] == told[0].replace(str(tmp_path / "local"), str(tmp_path / "ray"))


def test_a_node_that_lacks_the_folder_or_the_version_says_so(tmp_path):
    with pytest.raises(ClusterError, match=f"does not see {tmp_path}/runs/x; start the sweep in"):
        carry_out(str(tmp_path), "runs/x", [], {}, shasam.__version__)
    with pytest.raises(ClusterError, match=r"and the sweep 0\.0\.1; install one version"):
        carry_out(str(tmp_path), "runs/x", [], {}, "0.0.1")
