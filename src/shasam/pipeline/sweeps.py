"""Train the runs of a grid declared in YAML, on this machine or on Ray; skip finished ones."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from shasam.documents import of_our_shape, read_yaml
from shasam.errors import BusyError, FileError, SpecError
from shasam.files import open_regular
from shasam.metrics import catalogue
from shasam.pipeline.engines import Engine, RunProcess, engine_of
from shasam.registry import did_you_mean, lookup, names
from shasam.runs.directory import RunDirectory
from shasam.runs.machine import LOCALLY, ExecutionOptions
from shasam.spec import RunSpec, resolve, stored_spec
from shasam.spec.layers import full_keys, lay
from shasam.spec.run import with_encoder
from shasam.training.runtime import Interrupt

# -------------------------------------------------------------------------------------------------
# A grid of runs, declared in YAML.
#
# `base` is a specification; `grid` maps dotted keys to lists of values and stands for every
# combination; `runs` is a list of specifications. With both, every entry of `runs` is combined
# with every point of the grid.
#
#     profile: cpu
#     base: {data: {name: utkface, root: faces, alpha: 4}}
#     grid: {seed: [0, 1, 2], data.seed: same as seed}
#     runs:
#       - {method: ce}
#       - {label: fscl at 0.2, method: fscl, options: {temperature: 0.2}}
#
# A value `same as <key>` copies another key, so that two keys move together. A `label` names the
# row of a table that the runs of an entry belong to; without one it is the method's name.
# -------------------------------------------------------------------------------------------------

_KEYS = ("profile", "base", "grid", "runs")
_SAME = "same as "
MOST_RUNS = 10_000


@dataclass(frozen=True)
class GridRun:
    """One run of a grid and the row of a table that it belongs to."""

    label: str
    spec: RunSpec

    @cached_property
    def values(self) -> dict[str, Any]:
        """The specification by dotted keys."""
        return _flat(self.spec.as_dict())


def expand(body: Mapping[str, Any]) -> list[RunSpec]:
    """Return all specifications of a grid, checked before anything runs; duplicates are dropped."""
    return [run.spec for run in expand_labelled(body)]


def expand_labelled(body: Mapping[str, Any]) -> list[GridRun]:
    """Expand as ``expand`` does, each specification with its label."""
    _check_shape(body)
    grid = body.get("grid") or {}
    listed = {k: v for k, v in grid.items() if isinstance(v, list)}
    copied = {k: v for k, v in grid.items() if not isinstance(v, list)}
    for key, value in copied.items():
        if not (isinstance(value, str) and value.startswith(_SAME)):
            raise SpecError(f"grid.{key}: give a list of values, or 'same as <key>'")
    found: dict[str, GridRun] = {}
    errors = []
    base = full_keys(body.get("base") or {})
    entries = body.get("runs") or [{}]
    used = {_encoder_of(lay(base, full_keys(_run(entry)))) for entry in entries}
    # every run of a seed before the next seed: a sweep that is cut has whole comparisons
    for values, entry in itertools.product(itertools.product(*listed.values()), entries):
        run = full_keys(_run(entry))
        own_base = _without_options_of(used, base, _encoder_of(lay(base, run)))
        point: dict[str, Any] = dict(zip(listed, values, strict=True))
        for key, value in copied.items():
            source = value.removeprefix(_SAME)
            if source not in point:
                raise SpecError(f"grid.{key}: {source!r} is not a key of the grid")
            point[key] = point[source]
        try:
            spec = resolve(own_base, run, point, profile=body.get("profile"))
            label = str(entry.get("label") or spec.method)
            found.setdefault(spec.key, GridRun(label, spec))
        except SpecError as error:
            errors.append(f"{ {**_run(entry), **point} }: {error}")
    if errors:
        raise SpecError("the grid has errors:\n" + "\n".join(dict.fromkeys(errors)))
    return list(found.values())


def runs_of_experiment(experiment: Path) -> list[GridRun]:
    """Return the runs of all grids of an experiment: its YAML files with ``runs`` or ``grid``."""
    bodies = [read_yaml(path) for path in sorted(experiment.glob("*.yaml"))]
    grids = [body for body in bodies if isinstance(body, dict) and {"runs", "grid"} & body.keys()]
    if not grids:
        raise FileError(f"{experiment} has no grid of runs; write one into {experiment}/grid.yaml")
    return [run for body in grids for run in expand_labelled(body)]


def label_of(body: Mapping[str, Any], runs: Sequence[GridRun]) -> str | None:
    """Return the label of the grid run whose keys all match the stored specification.

    A key that a later release has added is not compared, nor where images and stores were.
    """
    known = set(_flat(body))
    known |= {key.replace("model.", "model.options.", 1) for key in known}  # before 0.2
    spec = stored_spec(body)
    own = {k: v for k, v in _flat(spec.as_dict()).items() if k in known}
    own = {k: v for k, v in own.items() if k not in ("data.root", "data.store")}
    for run in runs:
        if (run.spec.method, run.spec.seed) != (spec.method, spec.seed):
            continue
        if all(run.values.get(k) == v for k, v in own.items()):
            return run.label
    return None


def _flat(body: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return dotted keys and values."""
    found: dict[str, Any] = {}
    for key, value in body.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def differing(specs: Sequence[RunSpec]) -> list[str]:
    """Return what tells each run from the others.

    Its seed, and every key whose value is not the same.
    """
    flat = [_flat(spec.as_dict()) for spec in specs]
    keys = dict.fromkeys(key for body in flat for key in body)
    told = [key for key in keys if len({repr(body.get(key)) for body in flat}) > 1]
    told = [key for key in told if key not in ("method", "seed", "data.seed")]
    return [
        ", ".join([f"seed {body['seed']}", *(f"{k}={body[k]}" for k in told if k in body)])
        for body in flat
    ]


def _check_shape(body: Mapping[str, Any]) -> None:
    """Refuse in a sentence a part of the grid that is malformed or stands for too many runs."""
    for key in body:
        if key not in _KEYS:
            raise SpecError(f"a grid has no key {key!r}{did_you_mean(str(key), _KEYS)}")
    for key in ("base", "grid"):
        if not isinstance(body.get(key) or {}, Mapping):
            raise SpecError(f"{key}: write keys and values, such as `seed: [0, 1]`")
    runs = body.get("runs") or [{}]
    if not isinstance(runs, list) or not all(isinstance(run, Mapping) for run in runs):
        raise SpecError("runs: write a list of specifications, such as `- {method: ce}`")
    if not isinstance(body.get("profile") or "", str):
        raise SpecError("profile: write the name of a profile")
    values = (v for v in (body.get("grid") or {}).values() if isinstance(v, list))
    count = len(runs) * math.prod(len(v) for v in values)
    if count > MOST_RUNS:
        raise SpecError(f"the grid has {count:,} runs; at most {MOST_RUNS:,} are allowed")


def _run(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "label"}


def _encoder_of(layer: dict[str, Any]) -> str:
    model = with_encoder(layer).get("model")
    return str(model.get("encoder", "resnet18")) if isinstance(model, Mapping) else "resnet18"


def _without_options_of(used: set[str], base: dict[str, Any], encoder: str) -> dict[str, Any]:
    """Free the base of a grid over several encoders from the options that only others have."""
    model = base.get("model")
    if not isinstance(model, Mapping) or not {encoder} < used <= set(names("encoder")):
        return base
    own = lookup("encoder", encoder).Config.model_fields
    foreign = {k for e in used for k in lookup("encoder", e).Config.model_fields} - set(own)
    options = {k: v for k, v in (model.get("options") or {}).items() if k not in foreign}
    return {**base, "model": {**model, "options": options}}


# -------------------------------------------------------------------------------------------------
# Train the runs of a grid, on this machine or on Ray; finished runs are skipped.
# -------------------------------------------------------------------------------------------------

_TAIL = 64 << 10  # bytes of the end of output.txt that are looked at
STATUS_SECONDS = 30  # between lines about how far a sweep has come


@dataclass(frozen=True)
class Outcome:
    """How one run of a sweep ended."""

    spec: RunSpec
    path: Path
    status: str  # "done", "skipped", "failed", or "left" where the time was over
    seconds: float
    message: str = ""


def says(outcome: Outcome) -> str:
    """Return one line about a run that has ended."""
    line = f"{outcome.status:8s}{outcome.spec.name} seed {outcome.spec.seed}"
    if outcome.status == "left":
        return line
    if outcome.status == "failed":
        return f"{line}  {outcome.message} (see {outcome.path / 'output.txt'})"
    with of_our_shape(outcome.path / "metrics.json"):
        metrics = RunDirectory(outcome.path).metrics()["test"]
        for key in ("accuracy", "eo_mean"):
            word, value = catalogue.named(key).heading, metrics[key]["value"]
            line += f"  {word} {100 * value:.1f}" if value is not None else f"  {word} -"
        learnt = RunDirectory(outcome.path).learnt()
        line += "  NOT LEARNT" if learnt is not None and not learnt.ok else ""
    line += f"  {outcome.seconds:.0f} s" if outcome.status == "done" else ""
    return f"{line}  {outcome.message}" if outcome.message else line


@dataclass(frozen=True)
class _ActiveRun:
    """A run under way: its process or task, and what keeps other sweeps from it."""

    spec: RunSpec
    run: RunDirectory
    work: RunProcess
    claim: ExitStack
    began: float


def sweep(
    specs: list[RunSpec],
    out: Path,
    how: ExecutionOptions = LOCALLY,
    *,
    thumbnails: bool = True,
    seconds: float = math.inf,
    tell: Callable[[Outcome], None] = lambda outcome: None,
    say: Callable[[str], None] = print,
) -> list[Outcome]:
    """Run all specifications as ``how`` says; an unfinished run goes on from its checkpoint.

    Several sweeps may work in one ``out``: each takes what no other has begun, and waits at the end
    for what others have under way. Ctrl-C and SIGTERM let every run save a checkpoint first. So
    does the end of ``seconds``; what was not finished by then is "left".
    """
    outcomes: list[Outcome] = []

    def ended(outcome: Outcome) -> None:
        outcomes.append(outcome)
        tell(outcome)

    waiting = list(specs)
    running: list[_ActiveRun] = []
    told, began, shown = False, time.monotonic(), time.monotonic()
    with engine_of(how, thumbnails, say) as engine, Interrupt() as stop:
        try:
            while (waiting or running) and not stop.asked and time.monotonic() - began < seconds:
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
                    trained = sum(o.status != "skipped" for o in outcomes)
                    say(_how_far(len(outcomes), trained, len(specs), shown - began))
                time.sleep(0.1 if running else 0.5)
            left = [*(entry.spec for entry in running), *waiting]
            if running:
                _end(running, say)
            for spec in left if not stop.asked else ():
                run = RunDirectory(out / spec.name)  # it may be done since long, or just now
                ended(Outcome(spec, run.path, "skipped" if run.done else "left", 0.0))
        finally:
            for entry in running:  # only where a second Ctrl-C, or an error, left some alive
                entry.work.kill()
                entry.work.wait()
                entry.claim.close()
    return outcomes


def _how_far(ended: int, trained: int, total: int, seconds: float) -> str:
    """Return how many runs have ended, and how long the others will take if they are like them."""
    line = f"{ended} of {total} runs have ended after {seconds / 60:.0f} min"
    if not trained:
        return line
    return f"{line}, about {seconds / trained * (total - ended) / 60:.0f} min left"


def _begin(engine: Engine, spec: RunSpec, run: RunDirectory) -> _ActiveRun | None:
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
        began = time.monotonic()
        work = engine.start(spec, run)
        return _ActiveRun(spec, run, work, claim.pop_all(), began)


def _outcome(entry: _ActiveRun) -> Outcome | None:
    """Return how a run ended; None if it gave way to a process that had taken its lock first."""
    path, seconds = entry.run.path, time.monotonic() - entry.began
    if entry.work.returncode == 0:
        return Outcome(entry.spec, path, "done", seconds)
    try:
        with entry.run.lock():
            pass
    except BusyError:
        return None
    return Outcome(entry.spec, path, "failed", seconds, _last_line(path / "output.txt"))


def _end(running: list[_ActiveRun], say: Callable[[str], None]) -> None:
    """Ask every run to stop, and wait until each has saved its checkpoint."""
    say(f"stopping: {len(running)} runs save a checkpoint; the same command continues them")
    for entry in running:
        entry.work.terminate()
    for entry in list(running):
        entry.work.wait()
        running.remove(entry)
        entry.claim.close()


def _other(run: RunDirectory, how: ExecutionOptions) -> str:
    """Return a word about a run that is done, but not in the way that is asked for."""
    if how.reproducible and not run.provenance().get("reproducible"):
        return "(not computed with --reproducible; delete it to train it again)"
    return ""


def _last_line(path: Path) -> str:
    """Return the last line of what a run has printed.

    A library may have printed without end before it.
    """
    try:
        with open_regular(path, within=path.parent) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read(_TAIL).decode(errors="replace").strip().splitlines()
    except (FileError, OSError):
        lines = []
    return lines[-1] if lines else "no output"
