"""Tables of runs that go into a paper: Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shasam.errors import SpecError
from shasam.metrics import Estimate, over_seeds
from shasam.registry import did_you_mean
from shasam.report.comparing import Entry, entry_of
from shasam.report.run import Run
from shasam.report.words import METRICS, percent

FORMATS = ("md", "latex", "csv")
DEFAULT = ("accuracy", "eo_mean", "eo_max", "worst_group_accuracy", "demographic_parity")


@dataclass(frozen=True)
class Row:
    """A method on a setting: for each metric mean and spread, or value and interval."""

    setting: str
    method: str
    seeds: int
    cells: dict[str, tuple[float, float, float, float]]  # value, low, high, sd over seeds
    manifest: str


def rows_of(
    runs: Sequence[Path], metrics: Sequence[str] = DEFAULT, *, draws: int = 2000, seed: int = 0
) -> list[Row]:
    """One row for each (setting, method), over all its seeds."""
    for name in metrics:
        if name not in METRICS:
            raise SpecError(f"there is no metric {name!r}{did_you_mean(name, METRICS)}")
    grouped: dict[tuple[str, str], list[tuple[Run, Entry]]] = {}
    for path in runs:
        run = Run(Path(path))
        grouped.setdefault((run.setting, run.method), []).append((run, entry_of(run, draws, seed)))
    out = []
    for (setting, method), members in grouped.items():
        cells = {}
        for name in metrics:
            found = [
                e.estimates.get(name) or Estimate.undefined("not computed") for _, e in members
            ]
            spread = over_seeds(found)
            one = found[0] if len(found) == 1 else None
            cells[name] = (
                spread.mean,
                one.low if one else spread.low,
                one.high if one else spread.high,
                spread.sd,
            )
        hashes = sorted({run.manifest_sha256[:12] for run, _ in members})
        out.append(Row(setting, method, len(members), cells, " ".join(hashes)))
    return out


def table(rows: Sequence[Row], form: str) -> str:
    """The rows as text in one of the formats."""
    if form not in FORMATS:
        raise SpecError(f"there is no table format {form!r}{did_you_mean(form, FORMATS)}")
    return {"md": markdown, "latex": latex, "csv": as_csv}[form](rows)


def markdown(rows: Sequence[Row]) -> str:
    """GitHub Markdown, with the manifest hashes below."""
    metrics = list(rows[0].cells)
    lines = [
        "| setting | method | seeds | " + " | ".join(METRICS[m][0] for m in metrics) + " |",
        "|---|---|---|" + "---|" * len(metrics),
    ]
    for row in rows:
        cells = [_plain(row.cells[m], "±") for m in metrics]
        lines.append(
            f"| {md(row.setting)} | {md(row.method)} | {row.seeds} | " + " | ".join(cells) + " |"
        )
    lines += ["", footer(rows), ""]
    return "\n".join(lines)


def latex(rows: Sequence[Row]) -> str:
    """A booktabs tabular; special characters are escaped."""
    metrics = list(rows[0].cells)
    lines = [
        f"% {footer(rows)}".replace("\n", " "),
        r"\begin{tabular}{ll" + "r" * len(metrics) + "}",
        r"\toprule",
        "Setting & Method & " + " & ".join(_tex(METRICS[m][0]) for m in metrics) + r" \\",
        r"\midrule",
    ]
    for row in rows:
        cells = [_plain(row.cells[m], r"$\pm$") for m in metrics]
        lines.append(f"{_tex(row.setting)} & {_tex(row.method)} & " + " & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join(lines)


def as_csv(rows: Sequence[Row]) -> str:
    """One line for each row, numbers as fractions; what a spreadsheet would run is quoted."""
    metrics = list(rows[0].cells)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    parts = ("", "_low", "_high", "_sd")
    writer.writerow(
        ["setting", "method", "seeds", "manifest", *(m + part for m in metrics for part in parts)]
    )
    for row in rows:
        numbers = ["" if math.isnan(v) else f"{v:.6f}" for m in metrics for v in row.cells[m]]
        writer.writerow(
            [harmless(row.setting), harmless(row.method), row.seeds, row.manifest, *numbers]
        )
    return out.getvalue()


def harmless(cell: str) -> str:
    """A cell that starts like a formula gets an apostrophe, so that no spreadsheet runs it."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def _plain(cell: tuple[float, float, float, float], plus_minus: str) -> str:
    value, low, high, sd = cell
    if math.isnan(value):
        return "–"
    if not math.isnan(sd):
        return f"{percent(value)} {plus_minus} {percent(sd)}"
    return f"{percent(value)} [{percent(low)}, {percent(high)}]"


def footer(rows: Sequence[Row]) -> str:
    hashes = " ".join(dict.fromkeys(h for r in rows for h in r.manifest.split()))
    return (
        "Per cent and points; ± is the standard deviation over seeds, brackets are 95 % intervals. "
        f"Manifests: {hashes or 'not recorded'}."
    )


def md(text: str) -> str:
    out = " ".join(text.splitlines()).replace("\\", "\\\\")
    for character in "|<>[]*_`&":
        out = out.replace(
            character, f"&#{ord(character)};" if character in "<>&" else f"\\{character}"
        )
    return out


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
    "\n": " ",
    "\r": " ",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in " ".join(text.splitlines()))
