"""The number of threads: free cores, what is asked for, and what a run was begun with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shasam.errors import SpecError
from shasam.runs import machine as machine_module
from shasam.runs.directory import RunDirectory
from shasam.runs.machine import threads_of, threads_of_runs


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Eight cores, of which others use 5.2; no variable is set."""
    monkeypatch.setattr(machine_module.os, "sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(machine_module.os, "getloadavg", lambda: (5.2, 0.0, 0.0), raising=False)
    monkeypatch.setattr(machine_module, "_QUOTAS", ())
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return monkeypatch


def unfinished(folder: Path, count: int | None) -> RunDirectory:
    run = RunDirectory(folder / "run")
    run.write("checkpoints/a.json", b"{}")
    run.write("log.jsonl", json.dumps({"event": "start", "threads": count}).encode() + b"\n")
    return run


def test_a_run_takes_the_cores_that_are_free_and_says_so(machine, tmp_path: Path) -> None:
    new = RunDirectory(tmp_path / "new")
    chosen = threads_of(new, None, resume=False)
    assert chosen.count == 3 and "3 of 8 cores" in chosen.line and "--threads 8" in chosen.line
    assert threads_of(new, 8, resume=False) == machine_module.Threads(8)
    machine.setenv("OMP_NUM_THREADS", "2")
    assert threads_of(new, None, resume=False) == machine_module.Threads(2)
    machine.delenv("OMP_NUM_THREADS")
    machine.setattr(machine_module.os, "getloadavg", lambda: (40.0, 0.0, 0.0), raising=False)
    assert threads_of(new, None, resume=False).count == 1
    machine.setattr(machine_module.os, "getloadavg", lambda: (0.1, 0.0, 0.0), raising=False)
    assert threads_of(new, None, resume=False) == machine_module.Threads(8)
    for count in (0, 10**9):
        with pytest.raises(SpecError, match="must be 1 to 1024"):
            threads_of(new, count, resume=False)


def test_a_container_has_the_cores_of_its_quota(machine, tmp_path: Path) -> None:
    quota = tmp_path / "cpu.max"
    machine.setattr(machine_module, "_QUOTAS", ((str(quota),),))
    for text, cores in (("150000 100000\n", 2), ("max 100000\n", 8), ("50000 100000", 1)):
        quota.write_text(text)
        assert machine_module.usable_cores() == cores
    assert threads_of_runs(jobs=1, threads=None, reproducible=False) == 1


def test_a_resumed_run_computes_with_the_threads_it_was_begun_with(machine, tmp_path: Path) -> None:
    run = unfinished(tmp_path, 6)
    machine.setenv("OMP_NUM_THREADS", "2")
    assert threads_of(run, None, resume=True).count == 6
    asked = threads_of(run, 2, resume=True)
    assert asked.count == 2 and "begun with 6 threads" in asked.line
    assert threads_of(run, None, resume=False).count == 2
    for nonsense in (None, 0, -1, 10**9):
        assert threads_of(unfinished(tmp_path, nonsense), None, resume=True).count == 2
