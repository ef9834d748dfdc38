"""``shasam train``: one run, from a specification to a table, a run directory and a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich import box
from rich.table import Table

from shasam.commands.flags import (
    NO_DATA,
    NO_MODEL,
    NO_TRAIN,
    DataFlags,
    ModelFlags,
    SetFlag,
    TrainFlags,
    given,
    layer,
)
from shasam.errors import TrainingError
from shasam.metrics import catalogue
from shasam.output import Screen
from shasam.runs.directory import RunDirectory
from shasam.runs.machine import computed_with
from shasam.types import Head

if TYPE_CHECKING:
    from shasam.spec import RunSpec
    from shasam.training.monitor import TrainingProgress
    from shasam.training.runtime import Runtime

# -------------------------------------------------------------------------------------------------
# The table that a run ends with.
# -------------------------------------------------------------------------------------------------


def print_answer(run: RunDirectory, plain: RunDirectory | None, console: Screen) -> None:
    """Print the model beside plain cross-entropy, and the command that most people type next."""
    from shasam.report.answer import PLAIN, RunAnswer, next_command, plain_command

    _print_learnt(run, console)
    found = RunAnswer.of(run, plain)
    for line in found.lines():
        console.print(line)
    method = run.spec().method
    if found.plain is None and method != PLAIN:
        beside = plain_command(sys.argv[1:], method)
        console.print(f"Plain cross-entropy was not trained beside it: {beside}", soft_wrap=True)
    console.print(f"Next: {next_command(run)}", soft_wrap=True)
    console.print(f"run        {run.path}", soft_wrap=True)


def _print_learnt(run: RunDirectory, console: Screen) -> None:
    learnt = run.learnt()
    for line in learnt.sentences(run.unit) if learnt is not None else ():
        console.print(line, style="yellow" if learnt is not None and learnt.ok else "bold red")


def print_summary(run: RunDirectory, console: Screen) -> None:
    """Print accuracy, EO and the worst cell in per cent, with intervals, by kind of feature."""
    metrics, provenance = run.metrics(), run.provenance()
    _print_learnt(run, console)
    title = f"{run.spec().method} on the test split (%, 95 % interval; worst: worst cell)"
    table = Table(title=title, box=box.SIMPLE_HEAD)  # narrow enough for 80 columns
    table.add_column("features", no_wrap=True)
    shown = catalogue.shown("run")
    for heading in (*(m.heading for m in shown.values()), "probe"):
        table.add_column(heading, justify="right", no_wrap=True)
    kinds = [k for k in metrics if k.startswith("test.")] or ["test"]
    for kind in kinds:
        name = kind.removeprefix("test.") if "." in kind else "encoder"
        probe = metrics["probe"].get(Head.named(name).features)
        cells = [_cell(metrics[kind].get(key), key != "worst_group_accuracy") for key in shown]
        cells.append(f"{100 * probe['accuracy']:.1f}" if probe else "-")
        own = " *" if len(kinds) > 1 and metrics[kind] == metrics["test"] else ""
        table.add_row(name + own, *cells)
    console.print(table)
    if metrics.get("natural_head"):
        console.print(_representation(metrics))
    for key, metric in shown.items():
        reason = (metrics["test"].get(key) or {}).get("reason")
        if reason:
            console.print(f"{metric.heading} is undefined: {reason} in the test split")
    minutes, seconds = divmod(round(provenance["wall_seconds"]), 60)
    line = f"{provenance['images_seen']} views in {minutes} min {seconds} s"
    if provenance["mine_fraction"] is not None:
        line += f", mining {provenance['mine_fraction']:.0%} of the learning stage"
    if len(kinds) > 1:
        line += "; * is what predictions.parquet holds"
    console.print(line)
    if settings := computed_with([provenance]):
        console.print(settings)
    console.print(f"run        {run.path}", soft_wrap=True)


def _representation(metrics: dict[str, Any]) -> Table:
    """Return the natural head on each kind of feature, and how well the group is read from it."""
    title = "classifiers on the frozen features and the training data as they are (%)"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("features", no_wrap=True)
    for heading in ("acc", "EO", "group, linear", "group, MLP"):
        table.add_column(heading, justify="right", no_wrap=True)
    for kind, found in metrics["natural_head"].items():
        cells = [_cell(found["test"].get(key), True) for key in ("accuracy", "eo_mean")]
        probe = metrics["probe"].get(kind, {})
        leaks = [probe.get(f"{how}_within_class") for how in ("linear", "mlp")]
        cells += ["-" if leak is None else f"{100 * leak:.1f}" for leak in leaks]
        table.add_row(kind, *cells)
    return table


def _cell(entry: dict[str, float | None] | None, interval: bool) -> str:
    if not entry or entry["value"] is None or entry["low"] is None or entry["high"] is None:
        return "-"
    if not interval:
        return f"{100 * entry['value']:.1f}"
    return f"{100 * entry['value']:.1f} ({100 * entry['low']:.1f}-{100 * entry['high']:.1f})"


# what --help shows; --help-all shows the rest
COMMON = frozenset(
    f"--{name}"
    for name in (
        "method", "data", "csv", "root", "features", "target", "sensitive", "encoder", "profile",
        "steps", "lr", "seed", "out", "resume", "device", "set",
    )
)  # fmt: skip
NOT_LEARNT = 3  # exit code: the run is whole, and its model is no better than chance


def train(
    method: str | None = None,
    *,
    data: DataFlags = NO_DATA,
    model: ModelFlags = NO_MODEL,
    train: TrainFlags = NO_TRAIN,
    seed: int | None = None,
    profile: str | None = None,
    config: Path | None = None,
    set_: SetFlag = None,
    out: Path = Path("runs"),
    resume: bool = False,
    print_config: Annotated[bool, Parameter(negative=())] = False,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    strategy: Literal["auto", "ddp"] = "auto",
    threads: int | None = None,
    rank_timeout: float = 60.0,
    on_collapse: Literal["warn", "stop"] = "warn",
    allow_chance: Annotated[bool, Parameter(negative=())] = False,
    reproducible: Annotated[bool, Parameter(negative=())] = False,
    log: str | None = None,
    baseline: bool = True,
    details: Annotated[bool, Parameter(negative=())] = False,
    report: bool = True,
    thumbnails: bool = True,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
    color: bool = True,
) -> None:
    """Train a method, evaluate it and write its page.

    Without arguments it trains shasam-random on drawn faces, which takes minutes on two cores.
    --help-all shows all flags.

    Parameters
    ----------
    method
        The method to train (default: shasam-random); `shasam methods` lists them.
    seed
        Seed of the initial weights, the batches and the augmented views.
    profile
        Named set of defaults: paper, cpu, quick, short, frozen or smoke. Without --config and
        --profile, cpu.
    config
        YAML file with a specification; flags and --set override it.
    out
        Folder in which run directories are made.
    resume
        Continue from the last checkpoint of this specification, if there is one.
    print_config
        Print the resolved specification and exit.
    device
        Device to compute on.
    strategy
        auto (one process, or DDP if there are several devices) or ddp.
    threads
        CPU threads. Default: idle cores, or the original count when resuming. Changing it can flip
        borderline predictions.
    rank_timeout
        Seconds that one process of a run waits for another before it gives up.
    on_collapse
        What to do when the embeddings collapse (become nearly equal): warn, or stop the run.
    allow_chance
        Exit with 0 even if the model is no better than chance; without it the exit code is 3.
        Runs of the profile smoke are too short to learn and need no such flag.
    reproducible
        Use AVX2 and one thread: the same bits on every x86-64 processor, but slower.
    log
        Also write the numbers to a logger: tensorboard, mlflow, wandb or trackio, or several with
        commas.
    baseline
        Also train plain cross-entropy where that takes little (vectors, cached blocks), to compare
        with; --no-baseline leaves it out.
    details
        Print the table of research: every kind of feature, its probes and its natural head.
    report
        Write report.html at the end.
    thumbnails
        Keep small pictures of mined images, for the page; --no-thumbnails leaves them out of the
        run.
    quiet
        Print only the result, no progress.
    color
        Use colours on the terminal.
    """
    if reproducible:
        from shasam.runs.machine import REPRODUCIBLE, restart_with

        restart_with(REPRODUCIBLE)  # before anything imports torch

    from shasam.documents import read_yaml
    from shasam.output import Screen, emit
    from shasam.spec import DEFAULT_METHOD, resolve
    from shasam.spec.layers import starting_point

    base = read_yaml(config) if config is not None else {}
    if profile is not None:
        base = {**base, "profile": profile}
    flags = layer(data, model, train, set_, method=method, seed=seed)
    asked = None if config is not None else "cpu"  # a YAML file says all that it wants
    start = starting_point(flags, method or DEFAULT_METHOD, asked and (profile or asked))
    spec = resolve(start.layer, base, flags, profile=asked)
    if print_config:
        emit(spec.as_yaml())
        return

    from shasam.integrations.loggers import loggers
    from shasam.pipeline.execute import execute, write_page
    from shasam.runs.directory import RunDirectory
    from shasam.training.monitor import TrainingProgress
    from shasam.training.runtime import Runtime, is_first

    console = Screen(stderr=True, soft_wrap=True, no_color=not color or None)
    runtime = Runtime(
        device=device,
        strategy=strategy,
        rank_timeout=rank_timeout,
        quiet=quiet,
        on_collapse=on_collapse,
        listeners=loggers(log),
        thumbnails=thumbnails,
    )
    progress = TrainingProgress(quiet, console)
    _say_start(spec, data, start.line, progress)
    use_threads(RunDirectory(out / spec.name), threads, resume, progress.say)
    run = execute(spec, out, runtime=runtime, resume=resume, progress=progress)
    if not is_first():
        return

    if reproducible:
        _check_reproducible(run, console)
    cheap = spec.data.features is not None or spec.model.cache
    beside = baseline and cheap and config is None and profile != "smoke"
    layers = [start.layer, base, flags]
    plain = _plain(layers, asked, out, runtime, progress) if beside else None
    screen = Screen(no_color=not color or None)
    if details:
        print_summary(run, screen)
    print_answer(run, plain, screen)
    if report:
        write_page(run.path, thumbnails)
    _check_learnt(run, allow_chance or base.get("profile") == "smoke")


def _say_start(spec: RunSpec, data: DataFlags, line: str, progress: TrainingProgress) -> None:
    """Say which column paths are read from, if it was found by itself, and which network it is."""
    if spec.data.path_column != given(data).get("path_column", "path"):
        progress.say(f"paths are read from the column {spec.data.path_column!r}")
    if line:
        progress.say(line)


def _check_reproducible(run: RunDirectory, console: Screen) -> None:
    if not run.provenance().get("reproducible"):
        why = "it was done before without --reproducible, or this processor has no AVX2"
        console.print(f"{run.path} was not computed with AVX2 and one thread: {why}")


def _check_learnt(run: RunDirectory, allowed: bool) -> None:
    learnt = run.learnt()
    if not allowed and learnt is not None and not learnt.ok:
        raise SystemExit(NOT_LEARNT)


def _plain(
    layers: list[Any],
    profile: str | None,
    out: Path,
    runtime: Runtime,
    progress: TrainingProgress,
) -> RunDirectory | None:
    """Train plain cross-entropy with the flags of a run; None if that is what was trained."""
    from shasam.pipeline.execute import execute
    from shasam.report.answer import PLAIN
    from shasam.spec import resolve

    *below, flags = layers
    if flags.get("method") == PLAIN:
        return None
    progress.say(f"training plain cross-entropy ({PLAIN}) beside it; --no-baseline leaves it out")
    without = {key: value for key, value in flags.items() if key != "options"}
    spec = resolve(*below, {**without, "method": PLAIN}, profile=profile)
    try:
        return execute(spec, out, runtime=runtime, resume=True, progress=progress)
    except TrainingError as error:
        progress.say(f"no plain model: {error}", "yellow")
        return None


def use_threads(
    run: RunDirectory, asked: int | None, resume: bool, say: Callable[[str], None]
) -> None:
    """Compute with the threads of a run, in this process and in those that it starts."""
    import torch

    from shasam.runs.machine import threads_of

    chosen = threads_of(run, asked, resume=resume)
    os.environ["OMP_NUM_THREADS"] = str(chosen.count)
    torch.set_num_threads(chosen.count)
    if chosen.line:
        say(chosen.line)
