"""``shasam train``: one run, from a specification to a table, a run directory and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from shasam.errors import ShasamError


def train(
    method: str | None = None,
    *,
    data: str | None = None,
    root: Path | None = None,
    csv: Path | None = None,
    setting: str | None = None,
    target: str | None = None,
    sensitive: str | None = None,
    alpha: float | None = None,
    allow_missing: Annotated[bool | None, Parameter(negative=())] = None,
    allow_bad: Annotated[bool | None, Parameter(negative=())] = None,
    size: int | None = None,
    profile: str | None = None,
    encoder: str | None = None,
    init: Path | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    config: Path | None = None,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative=())] = None,
    out: Path = Path("runs"),
    resume: bool = False,
    print_config: Annotated[bool, Parameter(negative=())] = False,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] | None = None,
    devices: int | None = None,
    strategy: str = "auto",
    on_collapse: Literal["warn", "stop"] = "warn",
    tensorboard: Annotated[bool, Parameter(negative=())] = False,
    report: bool = True,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
    color: bool = True,
) -> None:
    """Train one method, test it and write a page about it.

    With no arguments: SHaSaM on the embedded faces, in minutes on two cores.

    Parameters
    ----------
    method
        What to train; `shasam methods` lists them.
    data
        The source: faces, utkface, celeba, manifest, ...
    root
        The folder of the images.
    csv
        The table of --data manifest: CSV or Parquet with a path, a target and a sensitive column.
    setting
        A named pair of target and sensitive attribute, such as CelebA's a/m.
    target
        What is predicted: a column or a rule of the source.
    sensitive
        What must not matter: a column or a rule of the source.
    alpha
        How biased the training split is.
    allow_missing
        Go on without images that the folder lacks.
    allow_bad
        Go on without images that cannot be decoded.
    size
        Pixels of a side.
    profile
        Starting point: paper, cpu, quick or smoke. Without --config and --profile it is cpu.
    encoder
        resnet18 or vit.
    init
        A .safetensors file of pretrained weights (torchvision or timm keys).
    steps
        Length of the learning stage in steps.
    epochs
        Length of the learning stage in epochs, instead of steps.
    lr
        Learning rate of the learning stage.
    seed
        Decides the start weights, the batches and the views.
    config
        A YAML specification; flags and --set lie on top of it.
    set_
        Any key of the specification, such as `--set options.temperature=0.5 --set train.ema=0.99`.
    out
        The folder that holds run directories.
    resume
        Go on from the last checkpoint of this specification, if there is one.
    print_config
        Show the resolved specification and stop.
    device
        Where to compute.
    precision
        32-true, bf16-mixed or 16-mixed.
    devices
        Processes that share each batch.
    strategy
        auto, ddp, ddp_spawn or ddp_fork.
    on_collapse
        What to do when all embeddings become equal.
    tensorboard
        Write TensorBoard files too.
    report
        Write report.html at the end.
    quiet
        No progress, only the result.
    color
        Colours on the terminal.
    """
    from rich.console import Console

    from shasam.config import merge, nest, parse_set, resolve
    from shasam.documents import read_yaml

    flags: dict[str, Any] = {}
    for key, value in {
        "method": method,
        "data.name": data,
        "data.root": root,
        "data.csv": csv,
        "data.setting": setting,
        "data.target": target,
        "data.sensitive": sensitive,
        "data.alpha": alpha,
        "data.allow_missing": allow_missing,
        "data.allow_bad": allow_bad,
        "data.size": size,
        "model.encoder": encoder,
        "model.init": None if init is None else str(init),
        "train.steps": steps,
        "train.epochs": epochs,
        "train.lr": lr,
        "train.precision": precision,
        "train.devices": devices,
        "seed": seed,
    }.items():
        if value is not None:
            flags = merge(flags, nest(key, value))
    base = read_yaml(config) if config is not None else {}
    if profile is not None:
        base = {**base, "profile": profile}
    default = None if config is not None else "cpu"
    spec = resolve(base, flags, parse_set(set_ or []), profile=default)
    if print_config:
        print(spec.as_yaml(), end="")
        return

    from shasam.runs.execute import execute
    from shasam.training.progress import TrainingProgress
    from shasam.training.runtime import Runtime

    console = Console(stderr=True, highlight=False, soft_wrap=True, no_color=not color or None)
    runtime = Runtime(
        device=device,
        strategy=strategy,
        quiet=quiet,
        on_collapse=on_collapse,
        tensorboard=tensorboard,
    )
    run = execute(
        spec, out, runtime=runtime, resume=resume, progress=TrainingProgress(quiet, console)
    )
    if not run.done:  # another process than the first
        return

    from shasam.runs.summary import print_summary

    print_summary(run, Console(highlight=False, no_color=not color or None))
    if report:
        write_page(run.path)


def write_page(path: Path) -> None:
    """``report.html`` of a run, where the report is installed."""
    from importlib import import_module

    write_report = getattr(import_module("shasam.report"), "write_report", None)
    if write_report is None:
        return
    page = path / "report.html"
    try:
        write_report([path], page)
    except ShasamError as error:
        print(f"no page was written: {error}")
        return
    print(f"page       {page}")
