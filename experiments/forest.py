"""Differences with their intervals as a picture: ``python -m experiments.forest out.svg``.

One panel for each question, one line for each setting: the fifteen seeds on images first, then the
settings on embeddings. An interval that leaves out 0 is drawn in colour.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from experiments.paired import both
from experiments.settings import HERE, SETTINGS
from shasam.metrics.paired import Comparison
from shasam.runs.records import by_label, read_records

ROWS = {"earns-its-keep": "UTKFace images, α = 4 (15 seeds)", **SETTINGS}
# title -> row, the row it is compared with, metric, half of the axis in points, below 0, above 0
PANELS = {
    "EO of a classifier trained later on the features": (
        ("shasam:natural.projection", "balanced-hidden:natural.hidden", "eo_mean"),
        (20, "SHaSaM fairer", "hidden layer fairer"),
    ),
    "Accuracy: mined minus random sets": (
        ("shasam", "shasam nothing mined", "accuracy"),
        (2, "random better", "mined better"),
    ),
}
LEFT, WIDE, GAP, TOP, STEP = 250, 300, 70, 56, 30
GREY, COLOUR = "#5f6368", "#b3261e"


def comparisons(on: str, off: str, metric: str) -> list[tuple[str, Comparison]]:
    """A comparison for every setting that was run."""
    return [
        (name, both(by_label(read_records(HERE / folder)), on, off, metric)[0])
        for folder, name in ROWS.items()
        if (HERE / folder / "records.parquet").is_file()
    ]


def text(x: float, y: float, words: str, anchor: str = "start", weight: str = "400") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="#202124">{escape(words)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"/>'
    )


def panel(x: float, title: str, found: list[tuple[str, Comparison]]) -> list[str]:
    """A title, an axis with its ends named, and a dot with its interval for each setting."""
    half, below, above = PANELS[title][1]
    middle, bottom = x + WIDE / 2, TOP + STEP * len(found)

    def at(points: float) -> float:
        return middle + max(-half, min(half, points)) / half * WIDE / 2

    out = [
        text(middle, 22, title, "middle", "600"),
        line(middle, TOP - 12, middle, bottom, GREY, 1),
    ]
    out += [text(x, bottom + 36, f"← {below}"), text(x + WIDE, bottom + 36, f"{above} →", "end")]
    for points in (-half, -half / 2, 0, half / 2, half):
        out.append(
            text(
                at(points),
                bottom + 16,
                f"{points:+g}".replace("-", "−") if points else "0",
                "middle",
            )
        )
    for place, (_, c) in enumerate(found):
        y = TOP + STEP * place
        colour = COLOUR if c.low > 0 or c.high < 0 else GREY
        out.append(line(at(c.low), y, at(c.high), y, colour, 2.5))
        out.append(f'<circle cx="{at(c.difference):.1f}" cy="{y}" r="4.5" fill="{colour}"/>')
    return out


def draw() -> str:
    """The picture as SVG."""
    body: list[str] = []
    for place, (title, (sides, _)) in enumerate(PANELS.items()):
        found = comparisons(*sides)
        if place == 0:
            names = enumerate(name for name, _ in found)
            body += [text(12, TOP + STEP * i + 5, name) for i, name in names]
        body += panel(LEFT + place * (WIDE + GAP), title, found)
    width, height = LEFT + len(PANELS) * (WIDE + GAP), TOP + STEP * len(found) + 50
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="13">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
