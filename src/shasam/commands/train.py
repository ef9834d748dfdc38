"""``shasam train``: one run, from a specification to a table, a run directory and a page."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from shasam.commands.flags import (
    NO_DATA,
    NO_MODEL,
    NO_TRAIN,
    DataFlags,
    ModelFlags,
    SetFlag,
    TrainFlags,
    layer,
)
from shasam.errors import ShasamError

if TYPE_CHECKING:
    from shasam.runs.directory import RunDirectory


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
    reproducible: Annotated[bool, Parameter(negative=())] = False,
    tensorboard: Annotated[bool, Parameter(negative=())] = False,
    report: bool = True,
    thumbnails: bool = True,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
    color: bool = True,
) -> None:
    """Train a method, evaluate it and write its page.

    Without arguments it trains SHaSaM on drawn faces, which takes minutes on two cores.

    Parameters
    ----------
    method
        The method to train; `shasam methods` lists them.
    seed
        Seed of the initial weights, the batches and the augmented views.
    profile
        Named set of defaults: paper, cpu, quick or smoke. Without --config and --profile, cpu.
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
        auto (one process, or DDP where there are several devices) or ddp.
    threads
        Processor threads; without it as many as there are free cores, and the number with which a
        resumed run was begun. Another number can change decisions.
    rank_timeout
        Seconds that one process of a run waits for another before it gives up.
    on_collapse
        What to do when the embeddings collapse (become nearly equal): warn, or stop the run.
    reproducible
        Use AVX2 and one thread: the same bits on every x86-64 processor, but slower.
    tensorboard
        Also write TensorBoard files.
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
        from shasam.runs.reproducible import REPRODUCIBLE, restart_with

        restart_with(REPRODUCIBLE)  # before anything imports torch

    from shasam.documents import read_yaml
    from shasam.output.terminal import Screen, emit
    from shasam.spec import resolve

    base = read_yaml(config) if config is not None else {}
    if profile is not None:
        base = {**base, "profile": profile}
    flags = layer(data, model, train, set_, method=method, seed=seed)
    spec = resolve(base, flags, profile=None if config is not None else "cpu")
    if print_config:
        emit(spec.as_yaml())
        return

    from shasam.pipeline.execute import execute
    from shasam.runs.directory import RunDirectory
    from shasam.training.progress import TrainingProgress
    from shasam.training.runtime import Runtime, is_first

    console = Screen(stderr=True, soft_wrap=True, no_color=not color or None)
    runtime = Runtime(
        device=device,
        strategy=strategy,
        rank_timeout=rank_timeout,
        quiet=quiet,
        on_collapse=on_collapse,
        tensorboard=tensorboard,
        thumbnails=thumbnails,
    )
    progress = TrainingProgress(quiet, console)
    use_threads(RunDirectory(out / spec.name), threads, resume, progress.say)
    run = execute(spec, out, runtime=runtime, resume=resume, progress=progress)
    if not is_first():
        return

    from shasam.runs.summary import print_summary

    if reproducible and not run.provenance().get("reproducible"):
        why = "it was done before without --reproducible, or this processor has no AVX2"
        console.print(f"{run.path} was not computed with AVX2 and one thread: {why}")

    print_summary(run, Screen(no_color=not color or None))
    if report:
        write_page(run.path, thumbnails)


def use_threads(
    run: RunDirectory, asked: int | None, resume: bool, say: Callable[[str], None]
) -> None:
    """Compute with the threads of a run, in this process and in those that it starts."""
    import torch

    from shasam.runs.threads import threads_of

    chosen = threads_of(run, asked, resume=resume)
    os.environ["OMP_NUM_THREADS"] = str(chosen.count)
    torch.set_num_threads(chosen.count)
    if chosen.line:
        say(chosen.line)


def write_page(path: Path, thumbnails: bool = True) -> None:
    """``report.html`` of a run; a page that cannot be made does not fail the run."""
    from shasam.output.terminal import say
    from shasam.report import write_report

    page = path / "report.html"
    try:
        # its metrics were computed a moment ago
        write_report([path], page, recorded=True, thumbnails=thumbnails)
    except ShasamError as error:
        say(f"no page was written: {error}")
        return
    say(f"page       {page}")
