"""What stage 1 costs: seconds of each row, measured in turns in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from shasam.data import open_data
from shasam.output import markdown
from shasam.output.csv_text import Cell as CsvCell
from shasam.output.csv_text import csv_text
from shasam.reproduce.artefact import Artefact
from shasam.reproduce.cells import Cell
from shasam.reproduce.speed import in_turns, views_of_training
from shasam.runs.machine import machine


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
    cells: list[Cell],
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
    """A record from which the table is written again without measuring."""
    return asdict(costs)


def from_json(body: dict[str, Any]) -> Costs:
    return Costs(**{**body, "rows": [CostRow(**row) for row in body["rows"]]})


def as_markdown(costs: Costs) -> str:
    """The table; ratios are worth more than seconds."""
    first = costs.rows[0].row
    head = ["", "seconds of stage 1", f"times {first}", "views a second", "mining"]
    body = [
        [
            markdown.inline(r.row),
            f"{r.seconds:,.0f}",
            f"{r.ratio:.2f}",
            f"{r.views_per_second:,.0f}",
            "" if r.mining is None else f"{100 * r.mining:.0f} %",
        ]
        for r in costs.rows
    ]
    lines = [f"## {markdown.inline(costs.title)}", "", *markdown.table(head, body), ""]
    note = (
        f"Profile {costs.profile}; medians of three turns of a few steps each, so that every row "
        "met the same load. Seconds are for the whole stage of the profile. The paper prints bars "
        "without numbers: SHaSaM costs more than FSCL+ for an epoch and needs fewer epochs."
    )
    return "\n".join([*lines, note, ""])


def as_csv(costs: Costs) -> str:
    """A line a row."""
    head: list[CsvCell] = ["row", "seconds", "ratio", "views_per_second", "mining"]
    rows: list[list[CsvCell]] = [
        [r.row, round(r.seconds, 1), round(r.ratio, 3), round(r.views_per_second, 1), r.mining]
        for r in costs.rows
    ]
    return csv_text([head, *rows])
