"""How fast stage 1 is on this machine, measured by a few steps and never guessed."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shasam.data import open_data
from shasam.pipeline.build import build_method, outline
from shasam.runs.log import RunLog, read_log
from shasam.spec import RunSpec, resolve
from shasam.training.inference import TrainingData
from shasam.training.length import views_on_images
from shasam.training.progress import TrainingProgress
from shasam.training.runtime import Runtime, make_fabric
from shasam.training.trainer import Trainer

STEPS, ROUNDS = 12, 3


@dataclass(frozen=True)
class Speed:
    """Views of stage 1 in a second, and the share of the time that mining took."""

    views: float
    mined: float | None


def measure(spec: RunSpec, data: TrainingData, steps: int = STEPS) -> Speed:
    """Train the first stage for some steps; nothing is kept."""
    one: dict[str, Any] = {"steps": 1, "epochs": None}
    short: dict[str, Any] = {"learn": {"steps": steps, "epochs": None}, "classify": one}
    short["others"] = dict.fromkeys(spec.train.others, one)
    cut = resolve(spec.as_dict(), {"train": short})
    method, _ = build_method(cut, data.classes, data.groups)
    runtime = Runtime(quiet=True, notes=False)  # four notes would be a third of so few steps
    with tempfile.TemporaryDirectory() as folder:
        log = RunLog(Path(folder) / "log.jsonl")
        Trainer(
            method,
            data,
            cut.train,
            seed=cut.seed,
            image_size=cut.data.size,
            fabric=make_fabric(cut.train, runtime),
            runtime=runtime,
            log=log,
            progress=TrainingProgress(True),
        ).fit()
        lines = [e for e in read_log(Path(folder) / "log.jsonl") if e["event"] == "epoch"]
    first = [e for e in lines if e["stage"] == lines[0]["stage"]]
    return Speed(first[-1]["images_per_second"], first[-1].get("mine_fraction"))


def in_turns(
    specs: Sequence[RunSpec],
    data: TrainingData,
    *,
    rounds: int = ROUNDS,
    steps: int = STEPS,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> list[Speed]:
    """The median speed of each specification, measured one after the other, several times over."""
    found: list[list[Speed]] = [[] for _ in specs]
    for turn in range(rounds):
        for i, spec in enumerate(specs):
            found[i].append(measure(spec, data, steps))
            tell(turn * len(specs) + i + 1, rounds * len(specs))
    return [
        Speed(
            statistics.median(s.views for s in speeds),
            statistics.median(s.mined for s in speeds if s.mined is not None)
            if any(s.mined is not None for s in speeds)
            else None,
        )
        for speeds in found
    ]


def on_drawn_faces(profile: str, encoder: str) -> float:
    """Views in a second of balanced cross-entropy with an encoder, on a few drawn faces."""
    with tempfile.TemporaryDirectory() as store:
        data = {"name": "faces", "n": 128, "holdout_per_cell": 4, "store": store}
        model = {"encoder": encoder}
        spec = resolve({"method": "balanced", "data": data, "model": model}, profile=profile)
        return measure(spec, open_data(spec.data), steps=4).views


def views_of_training(spec: RunSpec, images: int) -> float:
    """The views that the stages on images see, on a number of training images."""
    method = outline(spec, classes=2, groups=2)
    if method is None:  # one of another package, which computes with values as it is made
        method, _ = build_method(spec, classes=2, groups=2)
    return float(views_on_images(method, spec.train, images))
