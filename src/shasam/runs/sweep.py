"""Carry out a grid: each run in its own process, those that are DONE are skipped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shasam.config import RunSpec
from shasam.files import open_in_place, write_atomic
from shasam.metrics import catalogue
from shasam.runs.directory import RunDirectory


@dataclass(frozen=True)
class Outcome:
    """How one run of a sweep ended."""

    spec: RunSpec
    path: Path
    status: str  # "done", "skipped", "failed"
    seconds: float
    message: str = ""


def says(outcome: Outcome) -> str:
    """One line about a run that has ended."""
    line = f"{outcome.status:8s}{outcome.spec.name} seed {outcome.spec.seed}"
    if outcome.status == "failed":
        return f"{line}  {outcome.message} (see {outcome.path / 'output.txt'})"
    metrics = json.loads((outcome.path / "metrics.json").read_text())["test"]
    for key in ("accuracy", "eo_mean"):
        word, value = catalogue.named(key).heading, metrics[key]["value"]
        line += f"  {word} {100 * value:.1f}" if value is not None else f"  {word} -"
    return line + (f"  {outcome.seconds:.0f} s" if outcome.status == "done" else "")


def sweep(
    specs: list[RunSpec],
    out: Path,
    *,
    jobs: int = 1,
    threads: int | None = None,
    device: str = "auto",
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run all specifications, ``jobs`` at a time; an unfinished run goes on from its checkpoint."""
    outcomes = []
    waiting = list(specs)
    running: list[tuple[RunSpec, subprocess.Popen[bytes], float]] = []
    threads = threads or max(1, (os.cpu_count() or 1) // jobs)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    # a sweep that is told to end must not leave its runs behind
    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler) if in_main else None
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                spec = waiting.pop(0)
                run = RunDirectory(out / spec.name)
                if run.done:
                    outcomes.append(Outcome(spec, run.path, "skipped", 0.0))
                    tell(outcomes[-1])
                    continue
                running.append((spec, _start(spec, run, device, environment), time.monotonic()))
            for entry in list(running):
                spec, process, began = entry
                if process.poll() is None:
                    continue
                running.remove(entry)
                path = out / spec.name
                failed = process.returncode != 0
                message = _last_line(path / "output.txt") if failed else ""
                status = "failed" if failed else "done"
                seconds = time.monotonic() - began
                outcomes.append(Outcome(spec, path, status, seconds, message))
                tell(outcomes[-1])
            time.sleep(0.1)
    finally:
        # an interrupted sweep lets its runs save a checkpoint before it leaves
        for _, process, _ in running:
            process.terminate()
        for _, process, _ in running:
            process.wait()
        if in_main:
            signal.signal(signal.SIGTERM, before)
    return outcomes


def _start(
    spec: RunSpec, run: RunDirectory, device: str, environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    run.make()
    asked = run.file("asked.yaml")
    write_atomic(asked, spec.as_yaml(), within=run.path)
    command = [sys.executable, "-m", "shasam.cli", "train", "--config", str(asked)]
    command += ["--out", str(run.path.parent), "--resume", "--quiet", "--no-report"]
    command += ["--device", device, "--no-color"]
    run.file("output.txt").unlink(missing_ok=True)  # of the last time, or a link
    handle = open_in_place(run.file("output.txt"), os.O_WRONLY | os.O_CREAT)
    with open(handle, "wb") as output:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and our own arguments
            command, stdout=output, stderr=subprocess.STDOUT, env=environment
        )


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "no output"
