"""A bias audit on the terminal, as CSV, as Markdown and as a page that prints on paper."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.table import Table as ScreenTable

import shasam
from shasam.files import write_atomic
from shasam.metrics.impact import FOUR_FIFTHS, LEAST_SHARE, Category, Impact
from shasam.output import Screen, csv_text, markdown_table, markdown_text, visible
from shasam.report.bias_audit import HEADER, BiasAudit, hash_of
from shasam.report.page import style_hash
from shasam.report.verdict import count, joined, percent

_HEAD = (
    "category", "assessed", "selected", "rate, %", "impact ratio", "95 % interval",
    "bounds over the unknown", "bounds with sampling error", "shortfall", "SD", "Fisher p",
)  # fmt: skip


_NARROW = (1, 2, 3, 4, 7, 8, 10)  # columns on the terminal; files have all


def says(found: BiasAudit, impact: Impact) -> list[str]:
    """What the table of one attribute shows, in sentences."""
    lines = []
    below = [c for c in impact.categories if not c.small and c.ratio.value < FOUR_FIFTHS]
    unsure = [
        c
        for c in impact.categories
        if not c.small and c.ratio.value >= FOUR_FIFTHS and c.both[0] < FOUR_FIFTHS
    ]
    if below:
        named = joined([f"{c.name} ({c.ratio.value:.2f})" for c in below])
        lines.append(f"Below four fifths of the rate of {impact.most_selected}: {named}.")
    else:
        lines.append(f"No category is below four fifths of the rate of {impact.most_selected}.")
    if unsure:
        named = joined([f"{c.name} (as low as {c.both[0]:.2f})" for c in unsure])
        lines.append(
            f"At or above it, but not for sure, given the unknown and sampling error: {named}."
        )
    small = [f"{c.name} ({count(c.assessed)})" for c in impact.categories if c.small]
    if small:
        lines.append(
            f"Under {100 * LEAST_SHARE:g} % of the people and in no comparison: {joined(small)}."
        )
    share = impact.unknown / found.rows
    lines.append(
        f"Left out because {impact.attribute} is unknown: {count(impact.unknown)} of "
        f"{count(found.rows)} people ({percent(share)} %), {count(impact.unknown_selected)} of "
        "them selected."
    )
    return lines


def _cells(c: Category, most: str) -> list[str]:
    small = " (under 2 %)" if c.small else ""
    numbers = [c.name + small, count(c.assessed), count(c.selected), percent(c.rate)]
    if c.small:
        return [*numbers, *["–"] * 7]
    if c.name == most:
        return [*numbers, "1.00", "most selected", _span(c.bounds), _span(c.both), "", "", ""]
    p = "< 0.001" if c.fisher < 0.001 else f"{c.fisher:.3f}"
    return [
        *numbers, f"{c.ratio.value:.2f}", _span((c.ratio.low, c.ratio.high)), _span(c.bounds),
        _span(c.both), count(c.shortfall), f"{c.deviations:.1f}".replace("-", "−"), p,
    ]  # fmt: skip


def _span(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.2f} – {ends[1]:.2f}"


def _header_rows(found: BiasAudit) -> list[tuple[str, str]]:
    rows = [(label, found.header.get(key, "not given")) for key, label in HEADER.items()]
    rate = "selection rate"
    if found.median is not None:
        rate = f"scoring rate: share above the median score of the sample, {found.median:g}"
    return [
        *rows,
        ("People assessed", count(found.rows)),
        ("Rate", rate),
        ("Made by", f"shasam {shasam.__version__}"),
        ("SHA-256 of the data", found.data_sha256),
        ("SHA-256 of the result", hash_of(found.result)),
    ]


def print_bias_audit(found: BiasAudit, screen: Screen) -> None:
    """Header, sentences and tables on the terminal."""
    for label, value in _header_rows(found):
        screen.print(f"{label}: {value}")
    for impact in found.impacts:
        screen.print()
        screen.print(f"By {impact.attribute}", style="bold")
        for line in says(found, impact):
            screen.print(line)
        shown = ScreenTable(box=box.SIMPLE_HEAD)
        shown.add_column(_HEAD[0], overflow="fold", min_width=16)
        for i in _NARROW:
            shown.add_column(_HEAD[i], justify="right")
        for c in impact.categories:
            cells = _cells(c, impact.most_selected)
            narrow = [cells[0], *(cells[i] for i in _NARROW)]
            shown.add_row(*narrow, style="dim" if c.small else None)
        screen.print(shown)


def bias_audit_csv(found: BiasAudit) -> str:
    """A line for each category of each table."""
    head: list[Any] = ["attribute"]
    head += [k for k in found.impacts[0].categories[0].as_dict()]
    lines: list[list[Any]] = [head]
    for impact in found.impacts:
        for c in impact.categories:
            values = [
                " to ".join(str(x) for x in v if x is not None) if isinstance(v, list) else v
                for v in c.as_dict().values()
            ]
            lines.append([impact.attribute, *values])
    for impact in found.impacts:
        lines.append([impact.attribute, "(unknown)", impact.unknown, impact.unknown_selected])
    return csv_text(lines)


def bias_audit_markdown(found: BiasAudit) -> str:
    """The form as Markdown."""
    lines = ["# Bias audit (NYC Local Law 144)", ""]
    lines += markdown_table(
        ["", ""], [[markdown_text(a), markdown_text(b)] for a, b in _header_rows(found)]
    )
    for impact in found.impacts:
        lines += ["", f"## By {markdown_text(impact.attribute)}", ""]
        lines += [f"- {markdown_text(line)}" for line in says(found, impact)]
        rows = [
            [markdown_text(x) for x in _cells(c, impact.most_selected)] for c in impact.categories
        ]
        lines += ["", *markdown_table([markdown_text(h) for h in _HEAD], rows)]
    return "\n".join(lines) + "\n"


def bias_audit_page(found: BiasAudit) -> str:
    """The form as one page that loads nothing and prints on paper."""
    folder = files("shasam.report").joinpath("templates")
    style = folder.joinpath("form.css").read_text(encoding="utf-8").strip()
    environment = Environment(
        loader=PackageLoader("shasam.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("form.html.j2").render(
        style=Markup(style),  # noqa: S704 - our own file
        csp=style_hash(style),
        version=shasam.__version__,
        header=_header_rows(found),
        head=_HEAD,
        tables=[
            {
                "title": f"By {impact.attribute}",
                "says": says(found, impact),
                "rows": [
                    {"cells": _cells(c, impact.most_selected), "small": c.small}
                    for c in impact.categories
                ],
            }
            for impact in found.impacts
        ],
    )


def write_bias_audit(
    found: BiasAudit, *, json_file: Path | None, html: Path | None, csv: Path | None,
    markdown: Path | None,
) -> list[str]:  # fmt: skip
    """Write the files that were asked for; returns lines that say where they are."""
    text = json.dumps(found.as_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    made = (
        ("numbers", json_file, lambda: text),
        ("page", html, lambda: bias_audit_page(found)),
        ("table", csv, lambda: bias_audit_csv(found)),
        ("text", markdown, lambda: bias_audit_markdown(found)),
    )
    lines = []
    for what, file, content in made:
        if file is not None:
            write_atomic(file, content())
            lines.append(f"{what}: {file}")
    return lines
