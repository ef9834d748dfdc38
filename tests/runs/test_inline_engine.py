"""Sweeps in one process: the same files as by processes, failures told, signals obeyed."""

from __future__ import annotations

import os
import signal

import pytest
from tests.runs.test_sweeps import LONG, start_sweep, training, wait_for

from shasam.pipeline.sweeps import expand, sweep
from shasam.runs.directory import RunDirectory
from shasam.runs.machine import ExecutionOptions

INLINE = ExecutionOptions(engine="inline", threads=1, device="cpu")
SHORT = {
    "profile": "smoke",
    "base": {"data": {"name": "clusters", "n": 400, "holdout_per_cell": 20}},
    "grid": {"seed": [0, 1]},
    "runs": [{"method": "ce"}, {"method": "shasam-random"}, {"method": "posthoc"}],
}
FILES = ("predictions.parquet", "metrics.json", "model.safetensors", "manifest.parquet")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "cache"))


@pytest.mark.needs_torch
def test_runs_in_one_process_write_what_processes_write(tmp_path):
    specs = expand(SHORT)
    inline = sweep(specs, tmp_path / "inline", INLINE, say=lambda line: None)
    local = sweep(
        specs, tmp_path / "local", ExecutionOptions(threads=1, device="cpu"), say=lambda line: None
    )
    assert [o.status for o in inline + local] == ["done"] * 12
    for spec in specs:
        for name in FILES:
            one, other = (
                (tmp_path / f / spec.name / name).read_bytes() for f in ("inline", "local")
            )
            assert one == other, (spec.name, name)


@pytest.mark.needs_torch
def test_a_run_that_fails_is_told_and_the_others_go_on(tmp_path):
    first, second = expand({**SHORT, "grid": {"seed": [0]}})[:2]
    nothing = first.data.model_copy(update={"name": "embeddings", "features": None})
    broken = first.model_copy(update={"data": nothing})
    found = sweep([first, broken, second], tmp_path, INLINE, say=lambda line: None)
    assert [o.status for o in found] == ["done", "failed", "done"]
    assert "give features" in found[1].message


@pytest.mark.needs_torch
def test_an_error_of_a_library_is_told_and_the_others_go_on(tmp_path, monkeypatch):
    from shasam.pipeline import execute as module

    specs = expand({**SHORT, "grid": {"seed": [0]}})[:2]
    real = module.execute

    def breaks(spec, *args, **named):
        if spec.method == "ce":
            raise RuntimeError("no kernel image")
        return real(spec, *args, **named)

    monkeypatch.setattr(module, "execute", breaks)
    found = sweep(specs, tmp_path, INLINE, say=lambda line: None)
    assert [o.status for o in found] == ["failed", "done"]
    assert "RuntimeError: no kernel image" in found[0].message


@pytest.mark.needs_torch
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_and_the_sweep_and_both_go_on_later(tmp_path, number):
    process = start_sweep(tmp_path, {**LONG, "grid": {"seed": [0, 1]}}, "--engine", "inline")
    try:
        wait_for(lambda: any(map(training, tmp_path.glob("runs/*/log.jsonl"))))
        os.killpg(process.pid, number)
        assert process.wait(timeout=300) == 128 + number
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    (path,) = (tmp_path / "runs").iterdir()
    run = RunDirectory(path)
    assert not run.done and run.has_checkpoint
    with run.lock(), run.lock(".claim"):
        pass


@pytest.mark.parametrize(
    ("options", "word"), [({"jobs": 2}, "one run at a time"), ({"reproducible": True}, "inline")]
)
def test_what_one_process_cannot_do_is_refused(options, word):
    with pytest.raises(ValueError, match=word):
        ExecutionOptions(engine="inline", **options)
