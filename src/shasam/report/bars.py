"""Accuracy of every (class, group) cell as bars with Wilson intervals."""

from __future__ import annotations

from markupsafe import Markup

from shasam.metrics import Estimate
from shasam.report.dots import dots
from shasam.report.figures import WIDTH
from shasam.report.subject import Subject
from shasam.report.svg import COLOURS, element, escape, line, picture, text

LEFT, RIGHT = 0.0, WIDTH - 64
HEIGHT = 13.0  # of a bar


def bars(subject: Subject) -> Markup:
    """The figure of one subject, class by class; many groups are dots."""
    if len(subject.counts.groups) > COLOURS:
        return dots(subject)
    y = 0.0
    body: list[str] = []
    for name in subject.counts.classes:
        y += 20
        values = [r.estimate.value for r in subject.cells if r.name == name and r.estimate.defined]
        body.append(text(LEFT, y, f"Class {name}", "b", most=36))
        if len(values) > 1:
            gap = f"gap {100 * (max(values) - min(values)):.1f} points"
            body.append(text(WIDTH, y, gap, "muted", "end"))
        for g, group in enumerate(subject.counts.groups):
            rate = next(r for r in subject.cells if r.name == name and r.group == group)
            support = f"{group} · {rate.estimate.support:,} {subject.unit}"
            body.append(text(LEFT, y + 19, support, "muted small", most=58))
            body += _bar(rate.estimate, group, g, y + 24)
            y += 38
        y += 8
    for v in (0.0, 25.0, 50.0, 75.0, 100.0):
        anchor = "middle" if v > 0 else "start"
        body.append(text(_x(v / 100), y + 10, f"{v:g}", "muted small", anchor))
    label = "Accuracy by class and group: " + "; ".join(
        f"class {r.name}, group {r.group} {100 * r.estimate.value:.1f} %"
        for r in subject.cells[:24]
    )
    return picture(WIDTH, y + 14, body, label)


def _bar(e: Estimate, group: str, colour: int, y: float) -> list[str]:
    """The bar of a cell, its interval and its value; "none" where the cell is empty."""
    track = element("rect", x=LEFT, y=y, width=RIGHT - LEFT, height=HEIGHT, cls="track", rx=2.0)
    if not e.defined:
        return [track, text(RIGHT + 8, y + 11, "none", "muted")]
    told = f"{group}: {100 * e.value:.1f} % ({100 * e.low:.1f} to {100 * e.high:.1f})"
    title = element("title", escape(told))
    width, cls = max(_x(e.value) - LEFT, 0.5), f"bar c{colour % COLOURS}"
    return [
        track,
        element("rect", title, x=LEFT, y=y, width=width, height=HEIGHT, cls=cls, rx=2.0),
        line(_x(e.low), y + 6.5, _x(e.high), y + 6.5, "whisker"),
        *(line(_x(v), y + 3, _x(v), y + 10, "whisker") for v in (e.low, e.high)),
        text(RIGHT + 8, y + 11, f"{100 * e.value:.1f} %", "num"),
    ]


def _x(share: float) -> float:
    return LEFT + share * (RIGHT - LEFT)
