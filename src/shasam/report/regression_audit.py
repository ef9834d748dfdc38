"""Audits of numbers: error and bias of each group where label and prediction are no classes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from shasam.errors import Argument, InputError
from shasam.files import write_named
from shasam.metrics import ByGroup, Estimate, evaluate_regression
from shasam.output import Screen
from shasam.report.columns import Columns, choose, codes_of, numbers_of, without_missing
from shasam.report.subject import AuditOptions
from shasam.report.verdict import p_value
from shasam.tables import open_table

MEASURES = {
    "mae": "Mean absolute error",
    "rmse": "Root mean squared error",
    "bias": "Bias (prediction minus label)",
}


@dataclass(frozen=True)
class Regression:
    """The errors of one model, group by group, in the units of the label."""

    name: str
    attribute: str
    label: str
    rows: int
    found: dict[str, ByGroup]

    @property
    def lines(self) -> list[str]:
        """Who is over- or underestimated, and whether that is more than chance."""
        bias = self.found["bias"]
        e = bias.gap
        known = [(v.value, g) for v, g in zip(bias.values, bias.groups, strict=True) if v.defined]
        (low, worst), (high, best) = min(known), max(known)
        first = (
            f"{self.label} is off by {low:+.4g} on average in group {worst} and by {high:+.4g} in "
            f"group {best} (prediction minus label)."
        )
        if not e.defined:
            return [first, f"The groups of {self.attribute} are not compared: {e.reason}."]
        sure = "more than chance gives" if e.low > 0 else "within what chance gives"
        size = f"differs by {e.value:.4g} ({e.low:.4g} to {e.high:.4g}), {sure}"
        return [first, f"Between the groups of {self.attribute} bias {size} ({p_value(e.p or 0)})."]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "model": self.name,
            "attribute": self.attribute,
            "rows": self.rows,
            "verdict": self.lines,
            "measures": {
                key: {
                    "groups": {
                        g: e.as_dict() for g, e in zip(b.groups, b.values, strict=True)
                    },
                    "gap": b.gap.as_dict(),
                }
                for key, b in self.found.items()
            },
        }  # fmt: skip

    def table(self) -> list[list[str]]:
        """Return a row for each group with every measure, and one of the gaps."""
        groups = self.found["mae"].groups
        rows = [
            [group, f"{self.found['mae'].values[g].support:,}",
             *(_shown(self.found[key].values[g]) for key in MEASURES)]
            for g, group in enumerate(groups)
        ]  # fmt: skip
        return [*rows, ["largest gap", "", *(_shown(self.found[key].gap) for key in MEASURES)]]


def read_regressions(
    path: Path, asked: Columns, drawn: AuditOptions, name: str
) -> list[Regression]:
    """Read the errors of one file by each sensitive attribute."""
    others = (asked.scores, asked.counts, asked.weight, asked.time, asked.slices, drawn.reference)
    if asked.threshold is not None or any(others):
        raise InputError(
            Argument("regression"),
            " takes ",
            Argument("label"),
            ", ",
            Argument("prediction"),
            " and ",
            Argument("sensitive"),
            "; it cannot be used with ",
            Argument("score"),
            ", ",
            Argument("threshold"),
            ", ",
            Argument("counts"),
            ", ",
            Argument("weight"),
            ", ",
            Argument("time"),
            ", ",
            Argument("slices"),
            " or ",
            Argument("reference"),
        )
    source = open_table(path)
    chosen = choose(source, asked)
    if chosen.prediction is None:
        raise InputError(
            f"{source.name} has no prediction; name its column with ", Argument("prediction")
        )
    table = source.read([chosen.label, chosen.prediction, *chosen.sensitive])
    table = without_missing(table, chosen, asked.missing, source.name, None)
    y = numbers_of(table, chosen.label, "label", source.name)
    f = numbers_of(table, chosen.prediction, "prediction", source.name)
    out = []
    for column in chosen.sensitive:
        s, groups = codes_of(table.column(column), column, source.name)
        found = evaluate_regression(
            y, f, s, groups=groups, draws=drawn.draws, seed=drawn.seed, level=drawn.level,
            min_group=drawn.min_group,
        )  # fmt: skip
        out.append(Regression(name, column, chosen.label, len(y), found))
    return out


def print_regression(found: Regression, screen: Screen) -> None:
    """Print the sentences, and the table."""
    screen.print()
    screen.print(f"{found.name}, by {found.attribute}", style="bold")
    for text in found.lines:
        screen.print(text)
    table = Table(title=f"Errors of {found.label}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("group", overflow="fold")
    for name in ("rows", *MEASURES):
        table.add_column(name, justify="right")
    for row in found.table():
        table.add_row(*row)
    screen.print(table)


def write_regression_json(path: Path, found: Sequence[Regression], drawn: AuditOptions) -> None:
    """Write all numbers in a file."""
    content = {
        "intervals": {k: asdict(drawn)[k] for k in ("draws", "seed", "level", "min_group")},
        "regressions": [r.as_dict() for r in found],
    }
    write_named(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_regression_page(
    path: Path, found: Sequence[Regression], drawn: AuditOptions, command: str
) -> None:
    """Write the page: the sentences first, then a table for each attribute."""
    from shasam.report.page import render

    first = found[0]
    write_named(path, render({
        "single": False, "title": f"Audit of {first.name}",
        "kicker": f"shasam audit · {first.rows:,} test rows, errors of {first.label}",
        "verdict": [line for r in found for line in r.lines], "tiles": [], "settings": [],
        "details": [], "unit": "rows", "details_title": "Errors by group",
        "details_left_out": "", "missing": [], "level": f"{100 * drawn.level:g}",
        "method_note": "Intervals of means are Student's; those of gaps come from inverting a test "
        "with normal errors, and start at 0 where chance gives as large a gap in more than one of "
        "twenty cases.",
        "recompute": command,
        "regressions": [
            {"name": f"{r.name}, by {r.attribute}", "heads": list(MEASURES.values()),
             "rows": r.table()}
            for r in found
        ],
    }))  # fmt: skip


def _shown(e: Estimate) -> str:
    if not e.defined:
        return f"– ({e.reason})"
    return f"{e.value:.3g} ({e.low:.3g} – {e.high:.3g})".replace("-", "−")
