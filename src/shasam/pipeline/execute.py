"""Train a run from its specification to a finished run directory; ``shasam.train``."""

from __future__ import annotations

import base64
import hashlib
import io
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import shasam
from shasam.documents import of_our_shape
from shasam.errors import (
    Argument,
    CheckpointError,
    DataError,
    FileError,
    ShasamError,
    ShasamWarning,
    Stopped,
    TrainingError,
)
from shasam.files import check_writable, remove, remove_leftovers
from shasam.methods.base import Method
from shasam.metrics import catalogue
from shasam.output import say
from shasam.pipeline.build import build_method, check_activations, check_start
from shasam.pipeline.embedding import origin_of
from shasam.pipeline.load import VECTORS
from shasam.pipeline.results import evaluate_run, times_opened
from shasam.report.answer import inferred_line
from shasam.report.cards import write_model_card
from shasam.runs.directory import Listener, RunDirectory, RunLog
from shasam.runs.machine import machine
from shasam.spec import DEFAULT_METHOD, RunSpec, resolve
from shasam.training.cached_maps import cached_maps
from shasam.training.checkpoint import to_bytes
from shasam.training.inference import TrainingData
from shasam.training.inferred import (
    GROUPS,
    DataWithGroups,
    InferredGroups,
    infer_groups,
    unknown_rows,
)
from shasam.training.monitor import TrainingProgress
from shasam.training.runtime import (
    SHARE,
    Device,
    Fabric,
    Runtime,
    agree,
    is_first,
    make_fabric,
    watching_others,
)
from shasam.training.trainer import State, Trainer

# -------------------------------------------------------------------------------------------------
# `mining.json`: the notes of the log with ids and thumbnails, for the mining explorer.
# -------------------------------------------------------------------------------------------------

_SIDE = 48  # pixels of a thumbnail


def mining_record(
    log: RunLog, data: TrainingData, *, thumbnails: bool = True
) -> list[dict[str, Any]]:
    """Return the iterations that were noted in training, in order; pictures only where wanted."""
    ids = data.manifest.table.column("id")
    thumbs: dict[int, str | None] = {}

    def shown(item: dict[str, Any]) -> dict[str, Any]:
        row = int(item["row"])
        if row not in thumbs and thumbnails:
            image = data.images(torch.tensor([row]))[0]
            thumbs[row] = _thumb(image) if image.ndim == 3 else None
        return {
            "id": str(ids[row]),
            "gain": item.get("gain"),
            "similarity": item["similarity"],
            "thumb": thumbs.get(row),
        }

    def told(line: dict[str, Any]) -> dict[str, Any]:
        sets = {name: [shown(item) for item in items] for name, items in line["sets"].items()}
        return {key: line[key] for key in ("step", "target", "sensitive")} | {"sets": sets}

    with of_our_shape(log.path):
        return [told(line) for line in log.whole() if line["event"] == "mining"]


def _thumb(image_u8: torch.Tensor) -> str:
    picture = Image.fromarray(image_u8.permute(1, 2, 0).contiguous().numpy())
    picture.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


# -------------------------------------------------------------------------------------------------
# From a specification to a finished run directory.
# -------------------------------------------------------------------------------------------------

_PACKAGES = ("torch", "numpy", "lightning-fabric", "safetensors", "pyarrow", "pillow")


def execute(
    spec: RunSpec,
    out: str | Path = "runs",
    *,
    runtime: Runtime | None = None,
    resume: bool = False,
    data: TrainingData | None = None,
    progress: TrainingProgress | None = None,
) -> RunDirectory:
    """Train and evaluate; returns the run directory, at once where it is DONE already."""
    runtime = runtime or Runtime()
    fabric = make_fabric(spec.train, runtime)
    run = RunDirectory(Path(out) / spec.name)
    with watching_others(fabric, runtime):
        fabric.launch()
        agree(fabric, "the specification", spec.name, "Start all processes with the same command")
        agree(
            fabric, "the run directory", "a finished run" if run.done else "no finished run", *SHARE
        )
    first = fabric.global_rank == 0
    progress = progress or TrainingProgress(runtime.quiet)
    progress.quiet = progress.quiet or not first
    if run.done:
        progress.say(f"{run.path} is done already")
        return run
    if first:
        _check_place(run)
    check_start(spec)
    if data is None:
        data = _open_data(spec, progress)
    _check_splits(data)
    pictures = data
    if spec.model.cache:
        data = cached_maps(spec.model, spec.data.size, data, fabric.device, progress.say)
    if not first:
        # the first process says how the run ended; if another exited with a code of its own, the
        # launcher would kill the first one in the middle of its save
        with suppress(Stopped):
            _train(spec, run, data, fabric, runtime, resume, progress, RunLog(None))
        return run
    run.make()
    with run.lock():
        log = _begin(run, spec, data, resume, runtime.listeners)
        with _telling_how_it_ends(log):
            _first_process(spec, run, data, pictures, fabric, runtime, resume, progress, log)
    return run


def _first_process(
    spec: RunSpec,
    run: RunDirectory,
    data: TrainingData,
    pictures: TrainingData,
    fabric: Fabric,
    runtime: Runtime,
    resume: bool,
    progress: TrainingProgress,
    log: RunLog,
) -> None:
    """Train, evaluate, and write the files of the run."""
    started = _started(log)
    method, state = _train(spec, run, data, fabric, runtime, resume, progress, log)
    progress.say("evaluating on validation and test")
    evaluate_run(run, method, data, fabric, log, "end of training")
    weights = to_bytes(method.state_dict())
    run.write("model.safetensors", weights)
    mined = mining_record(log, pictures, thumbnails=runtime.thumbnails)
    if mined:
        run.write_json("mining.json", {"iterations": mined})
    provenance = _provenance(spec, data, method, state, fabric, log, started)
    provenance["model_sha256"] = hashlib.sha256(weights).hexdigest()
    run.write_json("provenance.json", provenance)
    write_model_card(run.path, recorded=True)
    log.tell("result", **_shown(run.metrics()["test"]))
    log.write("end", time=_now(), images_seen=state.images_seen)
    run.write("DONE", b"")


@contextmanager
def _telling_how_it_ends(log: RunLog) -> Iterator[None]:
    """Tell listeners of a run that was stopped or failed; one that ends well has told them."""
    try:
        yield
    except BaseException as error:
        log.tell("stopped", message=str(error) or type(error).__name__)
        raise


def _shown(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of a run's table, where they are defined."""
    return {
        key: metrics[key]["value"]
        for key in catalogue.shown("run")
        if (metrics.get(key) or {}).get("value") is not None
    }


def _begin(
    run: RunDirectory,
    spec: RunSpec,
    data: TrainingData,
    resume: bool,
    listeners: Sequence[Listener] = (),
) -> RunLog:
    """Write the first files of a run and return its log; refuse if it cannot begin or go on."""
    if run.has_checkpoint and not resume:
        raise TrainingError(
            f"{run.path} holds an unfinished run of this specification; continue it with ",
            Argument("resume"),
            ", or delete it to start again",
        )
    _same_data(run, data)
    run.write("spec.yaml", spec.as_yaml().encode())
    data.manifest.save(run.file("manifest.parquet"))
    origin = origin_of(spec.data.features)
    if origin is not None:
        run.write_json(VECTORS, origin)
    for folder in (run.path, run.file("checkpoints")):
        remove_leftovers(folder, within=run.path)  # of killed processes: we hold the lock
    path = run.file("log.jsonl")
    log = RunLog(path, listeners)
    log.tell("begin", run=run.path.name, path=str(run.path), settings=spec.as_dict())
    if not run.has_checkpoint:
        remove(path)
        threads = torch.get_num_threads()
        log.write("start", method=spec.method, key=spec.key, time=_now(), threads=threads)
    return log


def _train(
    spec: RunSpec,
    run: RunDirectory,
    data: TrainingData,
    fabric: Fabric,
    runtime: Runtime,
    resume: bool,
    progress: TrainingProgress,
    log: RunLog,
) -> tuple[Method, State]:
    if fabric.device.type == "cpu" and fabric.world_size == 1:
        check_activations(spec, data.classes, data.groups)
    if spec.data.missing == "infer":
        data = _taught(spec, run, data, fabric.global_rank == 0, resume, progress, log)
    method, report = build_method(spec, data.classes, data.groups)
    if report is not None:
        progress.say(f"init: {report}")
    trainer = Trainer.of_run(
        spec,
        method,
        data,
        fabric=fabric,
        runtime=runtime,
        directory=run.path,
        log=log,
        progress=progress,
    )
    with watching_others(fabric, runtime):
        same = "Give all machines the same images and labels, under the same "
        manifest = f"manifest {data.manifest.sha256[:12]}"
        agree(fabric, "the data", manifest, same, Argument("data.root"))
        return method, trainer.fit(resume=resume)


def _taught(
    spec: RunSpec,
    run: RunDirectory,
    data: TrainingData,
    first: bool,
    resume: bool,
    progress: TrainingProgress,
    log: RunLog,
) -> TrainingData:
    """Return the data with the groups that are inferred once, before the first step, and kept."""
    if not len(unknown_rows(data.manifest)):
        return data
    path = run.file(GROUPS)
    if resume and run.has_checkpoint and path.is_file():
        found = InferredGroups.load(path, data.manifest, run.path)
        return DataWithGroups(data, found.manifest(data.manifest))
    found = infer_groups(data, spec.seed)
    if first:
        run.write(GROUPS, found.as_bytes(data.manifest))
        log.write("inferred_groups", **found.summary)
        progress.say(inferred_line(found.summary, "vectors"))
    return DataWithGroups(data, found.manifest(data.manifest))


def _check_place(run: RunDirectory) -> None:
    """Refuse a folder that cannot be written before images are packed."""
    run.refuse_link()
    try:
        check_writable(run.path, folder=True)
    except FileError as error:
        raise CheckpointError(
            f"the run directory {run.path} cannot be written ({error}); choose another with ",
            Argument("out"),
        ) from error


def _check_splits(data: TrainingData) -> None:
    """Refuse an empty split now, and not when the trained model is to be evaluated on it."""
    sizes = {split: len(data.rows(split)) for split in ("train", "val", "test")}
    empty = [split for split, size in sizes.items() if not size]
    if empty:
        raise DataError(
            f"the {' and the '.join(empty)} split {'is' if len(empty) == 1 else 'are'} empty "
            f"({', '.join(f'{split} {size}' for split, size in sizes.items())} rows); give more "
            "rows, or a column split with train, val and test"
        )


def _open_data(spec: RunSpec, progress: TrainingProgress) -> TrainingData:
    from shasam.data import open_data

    dim = spec.data.features_dim
    size = f"at {spec.data.size} px" if dim is None else f"with vectors of {dim} numbers"
    progress.say(f"opening {spec.data.name} {size}")
    data = open_data(spec.data)
    sizes = ", ".join(f"{len(data.rows(split))} {split}" for split in ("train", "val"))
    progress.say(f"{sizes}; manifest {data.manifest.sha256[:12]}")
    return data


def _same_data(run: RunDirectory, data: TrainingData) -> None:
    """Refuse to go on with other data than a run began with."""
    from shasam.data.splits import Manifest

    if not run.has_checkpoint or not run.file("manifest.parquet").is_file():
        return
    before = Manifest.load(run.file("manifest.parquet"), within=run.path).sha256
    if before != data.manifest.sha256:
        raise DataError(
            f"the data of {run.path} has changed since the run began (manifest {before[:12]}, now "
            f"{data.manifest.sha256[:12]}); put the data back, or train in another ",
            Argument("out"),
        )


def _provenance(
    spec: RunSpec,
    data: TrainingData,
    method: Method,
    state: State,
    fabric: Fabric,
    log: RunLog,
    started: str,
) -> dict[str, Any]:
    fraction = state.mine_seconds / state.learn_seconds if state.learn_seconds else None
    return {
        "versions": {
            "shasam": shasam.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in _PACKAGES},
        },
        "command": ["shasam", *sys.argv[1:]],
        "seed": spec.seed,
        "manifest_sha256": data.manifest.sha256,
        "wall_seconds": round(state.seconds, 3),
        "images_seen": state.images_seen,
        "parameters": sum(p.numel() for p in method.parameters()),
        "mine_fraction": fraction,
        "test_opened": times_opened(log),
        "device": str(fabric.device),
        "processes": fabric.world_size,
        **machine(),
        "started": started,
        "ended": _now(),
    }


def _started(log: RunLog) -> str:
    return str(next(log.whole(), {}).get("time") or _now())


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


# -------------------------------------------------------------------------------------------------
# Training from Python: `shasam train` as a function.
# -------------------------------------------------------------------------------------------------


def write_page(path: Path, thumbnails: bool = True, tell: Callable[[str], None] = say) -> None:
    """Write ``report.html`` of a run; a page that cannot be made does not fail the run."""
    from shasam.report import write_report

    page = path / "report.html"
    try:
        # its metrics were computed a moment ago
        write_report([path], page, recorded=True, thumbnails=thumbnails)
    except ShasamError as error:
        tell(f"no page was written: {error}")
        return
    tell(f"page       {page}")


def train(
    method: str = DEFAULT_METHOD,
    *,
    data: str | Mapping[str, Any] = "faces",
    options: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    profile: str = "cpu",
    seed: int = 0,
    out: str | Path = "runs",
    resume: bool = False,
    report: bool = True,
    quiet: bool = False,
    device: Device = "auto",
    on_event: Listener | Sequence[Listener] = (),
) -> RunDirectory:
    """Train and evaluate a method; return its run directory.

    The command ``shasam train`` as a function. A run that is done already is returned as it is.

    Parameters
    ----------
    method
        The method; ``shasam methods`` lists them.
    data
        Name of a data source, or the fields of a ``DataSpec``.
    options
        Options of the method, such as ``{"temperature": 0.5}``.
    overrides
        Dotted keys of the specification, such as ``{"train.steps": 400}``.
    profile
        Named set of defaults: paper, cpu, short, quick, frozen or smoke.
    seed
        Seed of the initial weights, the batches and the augmented views.
    out
        Folder in which the run directory is made.
    resume
        Continue from the last checkpoint of this specification, if there is one.
    report
        Write report.html at the end.
    quiet
        Print no progress.
    device
        "auto", "cpu", "cuda" or "mps".
    on_event
        A callable, or several, that is called with the name and the fields of every event: begin,
        epoch, step, warning, result, end, and others (docs/training.md). Those of
        ``shasam.integrations.loggers`` write to TensorBoard, MLflow, W&B and Trackio.

    Returns
    -------
    RunDirectory
        The files of the run: ``metrics()``, ``predictions()``, ``spec()``, ...

    Examples
    --------
    >>> run = train("ce", profile="smoke", overrides={"train.steps": 4}, quiet=True)
    >>> 0 <= run.metrics()["test"]["accuracy"]["value"] <= 1
    True
    >>> from shasam import load
    >>> load(run).classes
    ('serious', 'smiling')
    """
    body: dict[str, Any] = {
        "method": method,
        "data": {"name": data} if isinstance(data, str) else dict(data),
        "options": dict(options or {}),
        "seed": seed,
    }
    spec = resolve(body, overrides or {}, profile=profile)
    listeners = (on_event,) if callable(on_event) else tuple(on_event)
    runtime = Runtime(device=device, quiet=quiet, listeners=listeners)
    run = execute(spec, out, runtime=runtime, resume=resume)
    if report and is_first():
        write_page(run.path, tell=(lambda line: None) if quiet else say)
    learnt = run.learnt()
    if learnt is not None and not learnt.ok:
        warnings.warn(" ".join(learnt.sentences(run.unit)), ShasamWarning, stacklevel=2)
    return run
