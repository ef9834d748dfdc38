"""What a result was computed with, and processors held to the same arithmetic."""

from __future__ import annotations

import json

import pytest
import torch
from tests.tiny_data import TinyData

from shasam.errors import SpecError
from shasam.pipeline.execute import execute
from shasam.runs.machine import (
    REPRODUCIBLE,
    ExecutionOptions,
    computed_with,
    how_runs_compute,
    machine,
    restart_with,
    variables_of_runs,
)
from shasam.spec import resolve
from shasam.training.runtime import Runtime


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    body = {"method": "ce", "data": {"size": 16}, "train": {"steps": 3}}
    return execute(
        resolve(body, profile="smoke"),
        tmp_path_factory.mktemp("runs"),
        runtime=Runtime(device="cpu", quiet=True),
        data=TinyData(),
    )


def test_provenance_says_what_the_bits_depend_on(run):
    provenance = json.loads(run.file("provenance.json").read_text())
    assert set(machine()) <= set(provenance)
    assert provenance["cpu"] and provenance["threads"] == torch.get_num_threads()
    assert provenance["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert "Pillow" in provenance["decoder"]


def test_tables_say_what_they_were_computed_with():
    one = {**machine(), "instructions": "AVX512", "threads": 2, "reproducible": False}
    assert computed_with([{}]) == ""  # a record that does not tell
    assert computed_with([one, one]).startswith("computed with AVX512, 2 threads; ")
    mixed = computed_with([one, one, {**one, "threads": 1}])
    assert "not all computed alike" in mixed and "1 runs with AVX512, 1 thread" in mixed
    assert computed_with([{**one, "reproducible": True}]).endswith("(AVX2, 1 thread)")


def test_jobs_change_threads_and_the_sweep_says_so(monkeypatch):
    monkeypatch.setattr("shasam.runs.machine.usable_cores", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (0.2, 0.0, 0.0), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    line = how_runs_compute(2, None, False)
    assert "2 threads" in line and "--jobs" in line
    assert variables_of_runs(2, None, False)["OMP_NUM_THREADS"] == "2"
    assert REPRODUCIBLE.items() <= variables_of_runs(2, None, True).items()
    with pytest.raises(SpecError, match="one thread"):
        variables_of_runs(1, 4, True)


def test_runs_of_a_sweep_leave_busy_cores_alone_and_keep_their_number(monkeypatch):
    monkeypatch.setattr("shasam.runs.machine.usable_cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    load = 2.1  # of other work, when the sweep begins
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    settled = ExecutionOptions().settled()
    assert "2 threads" in settled.line()
    load = 4.0  # its own runs as well
    assert settled.variables()["OMP_NUM_THREADS"] == "2" and "2 threads" in settled.line()
    assert ExecutionOptions(threads=4).settled().threads == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert ExecutionOptions().settled().threads == 3


def test_the_instruction_set_cannot_be_chosen_once_torch_is_loaded(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    with pytest.raises(SpecError, match="before torch is loaded"):
        restart_with(REPRODUCIBLE)
    for name, value in REPRODUCIBLE.items():
        monkeypatch.setenv(name, value)
    restart_with(REPRODUCIBLE)  # nothing to do
