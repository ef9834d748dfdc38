"""Train the runs of a grid, on this machine or on Ray; finished runs are skipped."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from shasam.errors import BusyError
from shasam.metrics import catalogue
from shasam.pipeline.engines import Engine, Work, engine_of
from shasam.runs.directory import RunDirectory
from shasam.runs.how import LOCALLY, How
from shasam.spec import RunSpec
from shasam.training.interrupt import Interrupt

STATUS_SECONDS = 60  # between lines about how far a sweep has come


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
    metrics = RunDirectory(outcome.path).metrics()["test"]
    for key in ("accuracy", "eo_mean"):
        word, value = catalogue.named(key).heading, metrics[key]["value"]
        line += f"  {word} {100 * value:.1f}" if value is not None else f"  {word} -"
    line += f"  {outcome.seconds:.0f} s" if outcome.status == "done" else ""
    return f"{line}  {outcome.message}" if outcome.message else line


@dataclass(frozen=True)
class _Running:
    """A run under way: its process or task, and what keeps other sweeps from it."""

    spec: RunSpec
    run: RunDirectory
    work: Work
    claim: ExitStack
    began: float


def sweep(
    specs: list[RunSpec],
    out: Path,
    how: How = LOCALLY,
    *,
    thumbnails: bool = True,
    tell: Callable[[Outcome], None] = lambda outcome: None,
    say: Callable[[str], None] = print,
) -> list[Outcome]:
    """Run all specifications as ``how`` says; an unfinished run goes on from its checkpoint.

    Several sweeps may work in one ``out``: each takes what no other has begun, and waits at the end
    for what others have under way. Ctrl-C and SIGTERM let every run save a checkpoint first.
    """
    outcomes: list[Outcome] = []

    def ended(outcome: Outcome) -> None:
        outcomes.append(outcome)
        tell(outcome)

    waiting = list(specs)
    running: list[_Running] = []
    told, began, shown = False, time.monotonic(), time.monotonic()
    with engine_of(how, thumbnails, say) as engine, Interrupt() as stop:
        try:
            while (waiting or running) and not stop.asked:
                held = 0  # runs that another process is at
                # while all places are taken there is nothing to look for
                for spec in list(waiting) if len(running) < engine.room else ():
                    run = RunDirectory(out / spec.name)
                    if run.done:
                        waiting.remove(spec)
                        ended(Outcome(spec, run.path, "skipped", 0.0, _other(run, how)))
                    elif len(running) < engine.room:
                        begun = _begin(engine, spec, run)
                        held += begun is None
                        if begun is not None:
                            waiting.remove(spec)
                            running.append(begun)
                            number = len(outcomes) + len(running)
                            place = f"{number} of {len(specs)}"
                            say(f"{engine.word:8s}{spec.name} seed {spec.seed}  ({place})")
                for entry in [entry for entry in running if entry.work.poll() is not None]:
                    running.remove(entry)
                    entry.claim.close()
                    outcome = _outcome(entry)
                    if outcome is None:
                        waiting.append(entry.spec)
                    else:
                        ended(outcome)
                if held and not running and not told:
                    told = True
                    say(f"other processes are at work on {held} of the runs; waiting")
                if running and time.monotonic() - shown > STATUS_SECONDS:
                    shown = time.monotonic()
                    minutes = (shown - began) / 60
                    say(f"{len(outcomes)} of {len(specs)} runs have ended after {minutes:.0f} min")
                time.sleep(0.1 if running else 0.5)
            if running:
                _end(running, say)
        finally:
            for entry in running:  # only where a second Ctrl-C, or an error, left some alive
                entry.work.kill()
                entry.work.wait()
                entry.claim.close()
    return outcomes


def _begin(engine: Engine, spec: RunSpec, run: RunDirectory) -> _Running | None:
    """Start a run, or None where another process is at it or has just finished it."""
    if not run.path.is_dir():
        run.make()
    with ExitStack() as claim:
        try:
            claim.enter_context(run.claim())
        except BusyError:
            return None
        if run.done:
            return None
        work = engine.start(spec, run)
        return _Running(spec, run, work, claim.pop_all(), time.monotonic())


def _outcome(entry: _Running) -> Outcome | None:
    """How a run ended; None where it gave way to a process that had taken its lock first."""
    path, seconds = entry.run.path, time.monotonic() - entry.began
    if entry.work.returncode == 0:
        return Outcome(entry.spec, path, "done", seconds)
    try:
        with entry.run.lock():
            pass
    except BusyError:
        return None
    return Outcome(entry.spec, path, "failed", seconds, _last_line(path / "output.txt"))


def _end(running: list[_Running], say: Callable[[str], None]) -> None:
    """Ask every run to stop, and wait until each has saved its checkpoint."""
    say(f"stopping: {len(running)} runs save a checkpoint; the same command continues them")
    for entry in running:
        entry.work.terminate()
    for entry in list(running):
        entry.work.wait()
        running.remove(entry)
        entry.claim.close()


def _other(run: RunDirectory, how: How) -> str:
    """A word about a run that is done, but not in the way that is asked for."""
    if how.reproducible and not run.provenance().get("reproducible"):
        return "(not computed with --reproducible; delete it to train it again)"
    return ""


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "no output"
