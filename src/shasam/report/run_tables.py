"""Tables of runs that go into a paper: Markdown, LaTeX or CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shasam import output
from shasam.errors import SpecError
from shasam.metrics import Estimate, catalogue, over_seeds
from shasam.output import Cell, csv_text, one_line
from shasam.registry import did_you_mean
from shasam.report.runs import finite, learnt_of, opened_runs, recorded_subject
from shasam.report.subject import Subject
from shasam.report.verdict import percent
from shasam.runs.directory import RunDirectory

FORMATS = ("md", "latex", "csv")
DEFAULT = catalogue.SHOWN["paper"]


@dataclass(frozen=True)
class ResultRow:
    """A method on a setting: for each metric mean and spread, or value and interval."""

    setting: str
    method: str
    seeds: int
    cells: dict[str, tuple[float, float, float, float]]  # value, low, high, sd over seeds
    manifest: str
    cost: Cost | None = None
    not_learnt: int = 0  # runs of the row that are no better than chance

    @property
    def name(self) -> str:
        """The method, with a mark where runs of it have not learnt."""
        if not self.not_learnt:
            return self.method
        return f"{self.method} ({self.not_learnt} of {self.seeds} not learnt)"


@dataclass(frozen=True)
class Cost:
    """What a run of the row took, on average over its seeds; None if it was not recorded."""

    minutes: float | None
    views: float | None  # images seen, each view counted
    parameters: float | None

    @classmethod
    def of(cls, runs: Sequence[RunDirectory]) -> Cost:
        def mean(key: str, unit: float = 1.0) -> float | None:
            found = [finite(run.provenance().get(key)) for run in runs]
            known = [v for v in found if v is not None]
            return sum(known) / len(known) / unit if known else None

        return cls(mean("wall_seconds", 60), mean("images_seen"), mean("parameters"))

    def words(self) -> tuple[str, str, str]:
        """Write minutes, thousands of views, thousands of parameters."""
        return (
            "–" if self.minutes is None else f"{self.minutes:.1f}",
            "–" if self.views is None else f"{self.views / 1000:,.0f}k",
            "–" if self.parameters is None else f"{self.parameters / 1000:,.0f}k",
        )


def rows_of(
    runs: Sequence[Path], metrics: Sequence[str] = DEFAULT, *, draws: int = 2000, seed: int = 0
) -> list[ResultRow]:
    """Return one row for each (setting, method), over all its seeds."""
    for name in metrics:
        catalogue.named(name)
    grouped: dict[tuple[str, str], list[tuple[RunDirectory, Subject]]] = {}
    for run in opened_runs(runs):
        subject = recorded_subject(run, draws, seed)
        grouped.setdefault((run.setting, run.method), []).append((run, subject))
    out = []
    for (setting, method), members in grouped.items():
        cells = {
            name: _cell(
                [e.estimates.get(name) or Estimate.undefined("not computed") for _, e in members]
            )
            for name in metrics
        }
        hashes = sorted({run.manifest_sha256[:12] for run, _ in members})
        cost = Cost.of([run for run, _ in members])
        poor = sum(not learnt_of(run).ok for run, _ in members)
        out.append(ResultRow(setting, method, len(members), cells, " ".join(hashes), cost, poor))
    return out


def rows_by_attribute(
    runs: Sequence[Path], metrics: Sequence[str] = DEFAULT
) -> dict[str, list[ResultRow]]:
    """Return the rows through each of several attributes, as the runs have recorded it; {} of one.

    The last one is the intersection.
    """
    grouped: dict[str, dict[tuple[str, str], list[tuple[RunDirectory, dict[str, Any]]]]] = {}
    for run in opened_runs(runs):
        for name, found in run.metrics().get("attributes", {}).get("test", {}).items():
            of_row = grouped.setdefault(name, {}).setdefault((run.setting, run.method), [])
            of_row.append((run, found))
    out: dict[str, list[ResultRow]] = {}
    for name, by_row in grouped.items():
        for (setting, method), members in by_row.items():
            cells = {
                m: _cell([Estimate.from_dict(found.get(m, {})) for _, found in members])
                for m in metrics
            }
            hashes = " ".join(sorted({run.manifest_sha256[:12] for run, _ in members}))
            row = ResultRow(setting, method, len(members), cells, hashes)
            out.setdefault(name, []).append(row)
    return out


def _cell(found: Sequence[Estimate]) -> tuple[float, float, float, float]:
    """Return mean, interval and deviation over seeds; of a single run its own interval."""
    spread = over_seeds(found)
    one = found[0] if len(found) == 1 else None
    return (
        spread.mean,
        one.low if one else spread.low,
        one.high if one else spread.high,
        spread.sd,
    )


def table(rows: Sequence[ResultRow], form: str) -> str:
    """Return the rows as text in one of the formats."""
    if form not in FORMATS:
        raise SpecError(f"there is no table format {form!r}{did_you_mean(form, FORMATS)}")
    return {"md": as_markdown, "latex": latex, "csv": as_csv}[form](rows)


def as_markdown(rows: Sequence[ResultRow]) -> str:
    """Write GitHub Markdown, with the manifest hashes below."""
    metrics = list(rows[0].cells)
    costs = ["minutes", "views", "parameters"] if rows[0].cost else []
    head = ["setting", "method", "seeds", *(catalogue.label_of(m) for m in metrics), *costs]
    cells = [
        [
            output.markdown_text(row.setting),
            output.markdown_text(row.name),
            str(row.seeds),
            *(plain(row.cells[m], " ± ") for m in metrics),
            *(row.cost.words() if costs and row.cost else ()),
        ]
        for row in rows
    ]
    return "\n".join(
        [*output.markdown_table(head, cells), "", output.markdown_text(footer(rows)), ""]
    )


def latex(rows: Sequence[ResultRow]) -> str:
    """Write a booktabs tabular; special characters are escaped."""
    metrics = list(rows[0].cells)
    lines = [
        f"% {one_line(footer(rows))}",
        r"\begin{tabular}{ll" + "r" * len(metrics) + "}",
        r"\toprule",
        "Setting & Method & " + " & ".join(tex(catalogue.label_of(m)) for m in metrics) + r" \\",
        r"\midrule",
    ]
    for row in rows:
        cells = [plain(row.cells[m], r" $\pm$ ") for m in metrics]
        lines.append(f"{tex(row.setting)} & {tex(row.name)} & " + " & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(lines)


def as_csv(rows: Sequence[ResultRow]) -> str:
    """Write one line for each row, numbers as fractions."""
    metrics = list(rows[0].cells)
    parts = ("", "_low", "_high", "_sd")
    lines: list[list[Cell]] = [
        [
            *("setting", "method", "seeds", "not_learnt", "manifest"),
            *(m + part for m in metrics for part in parts),
        ]
    ]
    for row in rows:
        numbers = ["" if math.isnan(v) else f"{v:.6f}" for m in metrics for v in row.cells[m]]
        about: list[Cell] = [row.setting, row.method, row.seeds, row.not_learnt, row.manifest]
        lines.append([*about, *numbers])
    return csv_text(lines)


def plain(cell: tuple[float, float, float, float], plus_minus: str) -> str:
    """Write '84.3 ± 1.2' over seeds, '84.3 [82.0, 86.1]' for a single run."""
    value, low, high, sd = cell
    if math.isnan(value):
        return "–"
    if not math.isnan(sd):
        return f"{percent(value)}{plus_minus}{percent(sd)}"
    return f"{percent(value)} [{percent(low)}, {percent(high)}]"


def footer(rows: Sequence[ResultRow]) -> str:
    hashes = " ".join(dict.fromkeys(h for r in rows for h in r.manifest.split()))
    return (
        "Per cent and points; ± is the standard deviation over seeds, brackets are 95 % intervals. "
        f"Manifests: {hashes or 'not recorded'}."
    )


_TEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in one_line(text))
