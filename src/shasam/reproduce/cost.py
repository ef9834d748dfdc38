"""Measure what stage 1 costs on this machine: seconds of each row, in turns in one process."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shasam import output
from shasam.data import open_data
from shasam.output import Cell as CsvCell
from shasam.output import csv_text
from shasam.pipeline.build import build_method, outline
from shasam.reproduce.artefact import Artefact, ArtefactRun
from shasam.runs.directory import RunLog, read_log
from shasam.runs.machine import machine
from shasam.spec import RunSpec, resolve
from shasam.training.inference import TrainingData
from shasam.training.monitor import TrainingProgress
from shasam.training.runtime import Runtime, make_fabric
from shasam.training.stage import views_on_images
from shasam.training.trainer import Trainer

# -------------------------------------------------------------------------------------------------
# How fast stage 1 is on this machine, measured by a few steps and never guessed.
# -------------------------------------------------------------------------------------------------

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
    """Return the median speed of each specification, measured one after the other, several times
    over.
    """
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
    """Return views in a second of balanced cross-entropy with an encoder, on a few drawn faces."""
    with tempfile.TemporaryDirectory() as store:
        data = {"name": "faces", "n": 128, "holdout_per_cell": 4, "store": store}
        model = {"encoder": encoder}
        spec = resolve({"method": "balanced", "data": data, "model": model}, profile=profile)
        return measure(spec, open_data(spec.data), steps=4).views


def views_of_training(spec: RunSpec, images: int) -> float:
    """Return the views that the stages on images see, on a number of training images."""
    method = outline(spec, classes=2, groups=2)
    if method is None:  # one of another package, which computes with values as it is made
        method, _ = build_method(spec, classes=2, groups=2)
    return float(views_on_images(method, spec.train, images))


# -------------------------------------------------------------------------------------------------
# What stage 1 costs: seconds of each row, measured in turns in one process.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CostRow:
    """A row of the table: seconds of its stage 1, beside the first row's."""

    row: str
    seconds: float
    ratio: float
    views_per_second: float
    mining: float | None  # share of stage 1


@dataclass(frozen=True)
class Costs:
    """All rows, and what they were measured on."""

    title: str
    rows: list[CostRow]
    profile: str
    machine: dict[str, Any]


def measure_costs(
    artefact: Artefact,
    cells: list[ArtefactRun],
    profile: str,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> Costs:
    """Measure the rows in turns; cells are those of one seed and one column."""
    data = open_data(cells[0].spec.data)
    speeds = in_turns([cell.spec for cell in cells], data, tell=tell)
    images = len(data.rows("train"))
    seconds = [
        views_of_training(cell.spec, images) / speed.views
        for cell, speed in zip(cells, speeds, strict=True)
    ]
    rows = [
        CostRow(cell.row, s, s / seconds[0], speed.views, speed.mined)
        for cell, s, speed in zip(cells, seconds, speeds, strict=True)
    ]
    return Costs(artefact.title, rows, profile, machine())


def as_json(costs: Costs) -> dict[str, Any]:
    """Return a record from which the table is written again without measuring."""
    return asdict(costs)


def from_json(body: dict[str, Any]) -> Costs:
    return Costs(**{**body, "rows": [CostRow(**row) for row in body["rows"]]})


def as_markdown(costs: Costs) -> str:
    """Write the table; ratios are worth more than seconds."""
    first = costs.rows[0].row
    head = ["", "seconds of stage 1", f"times {first}", "views a second", "mining"]
    body = [
        [
            output.markdown_text(r.row),
            f"{r.seconds:,.0f}",
            f"{r.ratio:.2f}",
            f"{r.views_per_second:,.0f}",
            "" if r.mining is None else f"{100 * r.mining:.0f} %",
        ]
        for r in costs.rows
    ]
    lines = [f"## {output.markdown_text(costs.title)}", "", *output.markdown_table(head, body), ""]
    note = (
        f"Profile {costs.profile}; medians of three turns of a few steps each, so that every row "
        "met the same load. Seconds are for the whole stage of the profile. The paper prints bars "
        "without numbers: SHaSaM costs more than FSCL+ for an epoch and needs fewer epochs."
    )
    return "\n".join([*lines, note, ""])


def as_csv(costs: Costs) -> str:
    """Write the rows as text, one line each."""
    head: list[CsvCell] = ["row", "seconds", "ratio", "views_per_second", "mining"]
    rows: list[list[CsvCell]] = [
        [r.row, round(r.seconds, 1), round(r.ratio, 3), round(r.views_per_second, 1), r.mining]
        for r in costs.rows
    ]
    return csv_text([head, *rows])
