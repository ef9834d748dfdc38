"""Draw the charts of a page as SVG that follows its light and dark mode."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from shasam.files import write_atomic
from shasam.metrics import Estimate, by_group, roc_curve, threshold_curves, wilson
from shasam.metrics.counts import right, right_by_class
from shasam.metrics.rates import rate_named
from shasam.metrics.scores import CALIBRATION_BINS
from shasam.report.subject import Subject
from shasam.report.svg import (
    COLOURS,
    element,
    escape,
    line,
    marker,
    number,
    picture,
    polyline,
    standalone,
    text,
    ticks,
)
from shasam.types import Triplet

# -------------------------------------------------------------------------------------------------
# The figures of the page, as SVG that follows the page's light and dark colours.
#
# Each function returns markup to put in a page; `save` writes it as a file of its own.
# -------------------------------------------------------------------------------------------------

WIDTH = 420.0
CROWD = 30  # points from which single seeds step back behind their means


@dataclass(frozen=True)
class Point:
    """A model in the plane of accuracy and EO (fractions); intervals may be NaN."""

    name: str
    accuracy: tuple[float, float, float]  # value, low, high
    eo: tuple[float, float, float]
    kind: int = 0  # colour and shape
    published: bool = False  # somebody else's number: a hollow mark without an interval
    mean: bool = False  # of several seeds: a larger mark
    chance: bool = False  # not shown to have learnt: crossed out

    @property
    def kept_apart(self) -> str:
        """What sets the point apart from the others, in brackets."""
        return " (published)" if self.published else " (not learnt)" if self.chance else ""


def save(figure: Markup, path: Path) -> None:
    """Write a figure as an SVG file."""
    write_atomic(path, standalone(figure))


def tradeoff(
    points: Sequence[Point], title: str = "Accuracy against the average gap between groups"
) -> Markup:
    """Draw the accuracy (up is better) against EO (left is better) with intervals."""
    left, right, top, bottom = 46.0, WIDTH - 12, 14.0, 300.0
    shown = [p for p in points if math.isfinite(p.accuracy[0]) and math.isfinite(p.eo[0])]
    if not shown:
        return Markup("")
    xs = [100 * v for p in shown for v in p.eo if math.isfinite(v)]
    ys = [100 * v for p in shown for v in p.accuracy if math.isfinite(v)]
    x0, x1 = 0.0, max(max(xs) * 1.08, 1.0)
    pad = max(0.12 * (max(ys) - min(ys)), 0.5)
    y0, y1 = max(0.0, min(ys) - pad), min(100.0, max(ys) + pad)

    def px(v: float) -> float:
        return left + (100 * v - x0) / (x1 - x0) * (right - left)

    def py(v: float) -> float:
        return bottom - (100 * v - y0) / (y1 - y0) * (bottom - top)

    body = axes(left, right, top, bottom, (x0, x1), (y0, y1))
    body.append(
        text(
            (left + right) / 2,
            bottom + 34,
            "average gap (EO), points",
            "muted",
            "middle",
        )
    )
    body.append(text(left, top - 3, "Accuracy, %", "muted"))
    for p in sorted(shown, key=lambda p: (not p.published, p.mean)):
        colour = f"c{p.kind % COLOURS}"
        x, y = px(p.eo[0]), py(p.accuracy[0])
        if not p.published:
            faint = "whisker" if p.mean or len(shown) < 8 else "whisker faint"
            if math.isfinite(p.eo[1]):
                body.append(
                    element("g", line(px(p.eo[1]), y, px(p.eo[2]), y, f"{faint} own"), cls=colour)
                )
            if math.isfinite(p.accuracy[1]):
                body.append(
                    element(
                        "g",
                        line(x, py(p.accuracy[1]), x, py(p.accuracy[2]), f"{faint} own"),
                        cls=colour,
                    )
                )
        source = ", published" if p.published else ", not learnt" if p.chance else ""
        told = (
            f"{p.name}{source}: accuracy {100 * p.accuracy[0]:.1f} %, EO {100 * p.eo[0]:.1f} points"
        )
        r = 6.5 if p.mean else 4.5
        look = "open" if p.published else "fill" if p.mean or len(shown) < CROWD else "fill faint"
        body.append(marker(p.kind, x, y, r, f"{colour} {look}", told))
        body += _crossed_out(x, y, r + 2) if p.chance else []
    body += _labels([(px(p.eo[0]), py(p.accuracy[0]), p.name) for p in shown if p.published])
    told = "; ".join(
        f"{p.name}{p.kept_apart} {100 * p.accuracy[0]:.1f} % and {100 * p.eo[0]:.1f} points"
        for p in shown[:20]
    )
    return picture(WIDTH, bottom + 44, body, f"{title}. {told}.")


def _crossed_out(x: float, y: float, r: float) -> list[str]:
    """Draw two lines over a mark."""
    return [line(x - r, y - up * r, x + r, y + up * r, "whisker") for up in (-1, 1)]


def _labels(marks: Sequence[tuple[float, float, str]]) -> list[str]:
    """Return names beside marks, above and below in turn where they would touch.

    It is None if they are too many.
    """
    if len(marks) > 6:
        return []
    body, before, below = [], -math.inf, False
    for x, y, name in sorted(marks):
        below = not below if x - before < 60 else False
        body.append(text(x, y + (18 if below else -9), name, "muted small", "middle", 18))
        before = x
    return body


def largest_groups(subject: Subject) -> list[int]:
    """Return the groups that curves are drawn of: as many as there are colours."""
    order = np.argsort(-subject.counts.sizes_G, kind="stable")[:COLOURS]
    return sorted(order.tolist())


def score_curves(subject: Subject, positive: str) -> Markup:
    """Draw the density of the positive class's score by group."""
    density = subject.density_GB
    if density is None:
        return Markup("")
    left, right, top, bottom = 10.0, WIDTH - 10, 16.0, 190.0
    height = float(density.max()) or 1.0
    bins = density.shape[1]
    body = [line(left, bottom, right, bottom, "axis")]
    for g in largest_groups(subject):
        points = [
            (
                left + (b + 0.5) / bins * (right - left),
                bottom - density[g, b] / height * (bottom - top),
            )
            for b in range(bins)
        ]
        closed = [(points[0][0], bottom), *points, (points[-1][0], bottom)]
        body.append(polyline(closed, f"area c{g % COLOURS}"))
        body.append(polyline(points, f"line c{g % COLOURS}" + (" dashed" if g % 2 else "")))
    for v in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + v * (right - left)
        body.append(line(x, bottom, x, bottom + 4, "axis"))
        body.append(
            text(
                x,
                bottom + 17,
                f"{v:g}",
                "muted small",
                "start" if v == 0 else "end" if v == 1 else "middle",
            )
        )
    body.append(text((left + right) / 2, bottom + 33, f"score for {positive}", "muted", "middle"))
    areas = subject.estimates.get("abcc")
    told = (
        f" The curves differ by {100 * areas.value:.1f} points over all thresholds."
        if areas
        else ""
    )
    return picture(WIDTH, bottom + 40, body, f"Distribution of the score by group.{told}")


def calibration(subject: Subject) -> Markup:
    """Draw the share of right answers against confidence by group; the dashed line is perfect."""
    r = subject.reliability
    if r is None:
        return Markup("")
    left, right, top, bottom = 40.0, WIDTH - 12, 14.0, 250.0
    chance = 1.0 / len(subject.counts.classes)
    start = math.floor(10 * chance) / 10
    low = [start]
    for g in range(len(r.n_GB)):
        enough = r.n_GB[g] >= 10
        low += list(r.right_GB[g][enough] / r.n_GB[g][enough])
    y0 = 100 * math.floor(10 * min(low)) / 10

    def px(v: float) -> float:
        return left + (v - start) / (1 - start) * (right - left)

    def py(v: float) -> float:
        return bottom - (100 * v - y0) / (100 - y0) * (bottom - top)

    body = axes(left, right, top, bottom, (100 * start, 100.0), (y0, 100.0))
    corner = max(start, y0 / 100)
    body.append(line(px(corner), py(corner), px(1), py(1), "diagonal"))
    for g in largest_groups(subject):
        points = []
        for b in range(CALIBRATION_BINS):
            n = int(r.n_GB[g, b])
            if n >= 10:  # a share of fewer says nothing
                points.append((px(r.confidence_GB[g, b] / n), py(r.right_GB[g, b] / n), n))
        body.append(polyline([(x, y) for x, y, _ in points], f"line c{g % COLOURS}"))
        for x, y, n in points:
            body.append(marker(g, x, y, 3.6, f"fill c{g % COLOURS}", f"{n:,} {subject.unit}"))
    body.append(text((left + right) / 2, bottom + 34, "confidence, %", "muted", "middle"))
    body.append(text(left, top - 3, "right, %", "muted"))
    told = "; ".join(
        f"{name}: calibration error {100 * subject.estimates[f'ece_{name}'].value:.1f} points"
        for name in subject.counts.groups
        if f"ece_{name}" in subject.estimates
    )
    return picture(WIDTH, bottom + 42, body, f"Calibration by group. {told}.")


def curve(
    series: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    label: str,
    *,
    floor: float | None = None,
) -> Markup:
    """Draw lines over steps: (name, steps, values)."""
    left, right, top, bottom = 46.0, WIDTH - 12, 12.0, 170.0
    xs = [x for _, steps, _ in series for x in steps]
    ys = [y for _, _, values in series for y in values if math.isfinite(y)]
    if not xs or not ys:
        return Markup("")
    y0 = min(ys) if floor is None else min(floor, *ys)
    y1 = max(ys)
    if y1 - y0 < 1e-9:
        y0, y1 = y0 - 0.5, y1 + 0.5
    y1 += 0.05 * (y1 - y0)
    x0, x1 = float(min(xs)), float(max(max(xs), min(xs) + 1))
    body = axes(left, right, top, bottom, (x0, x1), (y0, y1))
    for i, (name, steps, values) in enumerate(series):
        points = [
            (
                left + (x - x0) / (x1 - x0) * (right - left),
                bottom - (y - y0) / (y1 - y0) * (bottom - top),
            )
            for x, y in zip(steps, values, strict=True)
            if math.isfinite(y)
        ]
        body.append(polyline(points, f"line c{i % COLOURS}"))
        if points:
            x, y = points[-1]
            body.append(marker(i, x, y, 3.2, f"fill c{i % COLOURS}", f"{name}: {values[-1]:.4g}"))
    body.append(text((left + right) / 2, bottom + 32, "step", "muted small", "middle"))
    last = "; ".join(
        f"{name} ends at {values[-1]:.3g}" for name, _, values in series if len(values)
    )
    return picture(WIDTH, bottom + 38, body, f"{label} over training steps. {last}.")


def axes(
    left: float,
    right: float,
    top: float,
    bottom: float,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
) -> list[str]:
    body = []
    (x0, x1), (y0, y1) = x_range, y_range
    for v in ticks(y0, y1, 5):
        y = bottom - (v - y0) / (y1 - y0) * (bottom - top)
        body.append(line(left, y, right, y, "grid"))
        body.append(text(left - 6, y + 4, _tick(v), "muted small", "end"))
    for v in ticks(x0, x1, 6):
        x = left + (v - x0) / (x1 - x0) * (right - left)
        body.append(line(x, bottom, x, bottom + 4, "axis"))
        anchor = "end" if x > right - 12 else "middle"
        body.append(
            text(x + (6 if anchor == "end" else 0), bottom + 17, _tick(v), "muted small", anchor)
        )
    body.append(line(left, bottom, right, bottom, "axis"))
    return body


def _tick(value: float) -> str:
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{round(value, 6):g}"


# -------------------------------------------------------------------------------------------------
# Many groups in one figure: a dot with its interval for each, sorted by value.
#
# Bars in eight colours stop telling groups apart after eight of them; a sorted list does not.
# -------------------------------------------------------------------------------------------------

DOTS_WIDTH, DOTS_LEFT, DOTS_RIGHT = 420.0, 138.0, 366.0
ROW, DOTS_HEAD = 17.0, 26.0
BESIDE, TALL = 20, 29.0  # letters of a name that fit beside its line; height where they do not
MOST_ROWS = 24  # of one heading; of more groups the middle ones are left out


@dataclass(frozen=True)
class DotRow:
    """A group: its rate, and whether it is large enough to be compared."""

    group: str
    rate: Estimate
    small: bool = False


@dataclass(frozen=True)
class DotBlock:
    """Groups under a heading; ``note`` stands at the right."""

    heading: str
    note: str
    rows: Sequence[DotRow]


def dots(subject: Subject) -> Markup:
    """Draw the accuracy of every group, class by class, the best first."""
    blocks = []
    for name in subject.counts.classes:
        rates = [r for r in subject.cells if r.name == name and r.estimate.defined]
        rows = [DotRow(r.group, r.estimate, subject.few(r.estimate)) for r in rates]
        blocks.append(DotBlock(f"Class {name}", _gap(rows), rows))
    return _figure(blocks, "Accuracy, %", "Accuracy by class and group, sorted")


def forest(subjects: Sequence[Subject], c: int | None) -> Markup:
    """Draw how often each group of each attribute is wronged, the worst first.

    ``c`` is the class whose errors are counted; None stands for all classes together.
    """
    blocks = []
    for subject in subjects:
        table = right if c is None else right_by_class
        right_G, wrong_G = subject.counts.outcomes(table, subject.positive)[c or 0]
        rows = []
        for group, right_n, wrong_n in zip(subject.counts.groups, right_G, wrong_G, strict=True):
            if not right_n + wrong_n:
                continue
            rate = wilson(wrong_n, right_n + wrong_n, subject.drawn.level)
            rows.append(DotRow(group, rate, subject.few(rate)))
        blocks.append(DotBlock(subject.attribute, _gap(rows), rows))
    first = subjects[0]
    if c is None:
        axis, says = "wrong, %", "Share of wrong predictions"
    else:
        classes = first.counts.classes
        error = f"called {classes[1 - c]}" if len(classes) == 2 else "wrong"
        axis = f"{error}, %"
        says = f"Where {first.outcome or 'the true class'} is {classes[c]}: {error}"
    return _figure(blocks, axis, f"{says}, by attribute and group, sorted")


def _gap(rows: Sequence[DotRow]) -> str:
    values = [r.rate.value for r in rows if not r.small]
    return f"gap {100 * (max(values) - min(values)):.1f} points" if len(values) > 1 else ""


def _figure(blocks: Sequence[DotBlock], axis: str, says: str) -> Markup:
    highest = max((r.rate.high for b in blocks for r in b.rows), default=1.0)
    lowest = min((r.rate.low for b in blocks for r in b.rows), default=0.0)
    x0 = 0.0 if lowest < 0.4 else 0.1 * int(10 * lowest)
    x1 = 1.0 if highest > 0.8 else min(1.0, 0.1 * (int(10 * highest) + 1))

    stacked = max((len(r.group) for b in blocks for r in b.rows), default=0) > BESIDE
    left, height = (0.0, TALL) if stacked else (DOTS_LEFT, ROW)

    def px(v: float) -> float:
        return left + (v - x0) / (x1 - x0) * (DOTS_RIGHT - left)

    body: list[str] = []
    y, told = 2.0, []
    for block in blocks:
        y += DOTS_HEAD
        body.append(text(0, y - 8, block.heading, "b", most=38))
        body.append(text(DOTS_WIDTH, y - 8, block.note, "muted small", "end"))
        rows = sorted(block.rows, key=lambda r: -r.rate.value)
        left_out = max(0, len(rows) - MOST_ROWS)
        if left_out:
            half = MOST_ROWS // 2
            rows = [*rows[:half], *rows[-half:]]
        for i, row in enumerate(rows):
            if left_out and i == MOST_ROWS // 2:
                body.append(text(left, y + 11, f"… {left_out} between …", "muted small"))
                y += height
            body += _drawn(row, y + height - ROW / 2, px, stacked)
            y += height
        told += [f"{block.heading}, {r.group} {100 * r.rate.value:.1f} %" for r in rows[:12]]
        y += 4
    grid = []
    for v in ticks(100 * x0, 100 * x1, 5):
        x = px(v / 100)
        grid.append(line(x, 6, x, y, "grid"))
        at_edge = x < 4  # half of a centred number would be outside of the picture
        body.append(text(x, y + 14, f"{v:g}", "muted small", "start" if at_edge else "middle"))
    body.append(text((left + DOTS_RIGHT) / 2, y + 30, axis, "muted small", "middle", most=44))
    return picture(DOTS_WIDTH, y + 36, [*grid, *body], f"{says}: {'; '.join(told[:30])}.")


def _drawn(row: DotRow, y: float, px: Callable[[float], float], stacked: bool) -> list[str]:
    e, faint = row.rate, " faint" if row.small else ""
    says = (
        f"{row.group}: {100 * e.value:.1f} % ({100 * e.low:.1f} to {100 * e.high:.1f}), "
        f"{e.support:,} rows" + (", too few to compare" if row.small else "")
    )
    shade = f"small{' muted' if row.small else ''}"
    name = (
        text(0, y - 9, row.group, shade, most=62)  # above its own line, where names are long
        if stacked
        else text(DOTS_LEFT - 8, y + 4, row.group, shade, "end", most=BESIDE)
    )
    return [
        name,
        element(
            "g",
            element("title", escape(says))
            + line(px(e.low), y, px(e.high), y, f"whisker own{faint}")
            + marker(0, px(e.value), y, 4.2, f"fill c0{faint}"),
            cls="c0",
        ),
        text(
            DOTS_WIDTH,
            y + 4,
            f"{100 * e.value:.1f}",
            f"num small{' muted' if row.small else ''}",
            "end",
        ),
    ]


# -------------------------------------------------------------------------------------------------
# Accuracy of every (class, group) cell as bars with Wilson intervals.
# -------------------------------------------------------------------------------------------------

BARS_LEFT, BARS_RIGHT = 0.0, WIDTH - 64
HEIGHT = 13.0  # of a bar


def bars(subject: Subject) -> Markup:
    """Draw the figure of one subject, class by class; many groups are dots."""
    if len(subject.counts.groups) > COLOURS:
        return dots(subject)
    y = 0.0
    body: list[str] = []
    for name in subject.counts.classes:
        y += 20
        own = [r.estimate for r in subject.cells if r.name == name and r.estimate.defined]
        values = [e.value for e in own if not subject.few(e)]
        body.append(text(BARS_LEFT, y, f"Class {name}", "b", most=36))
        if len(values) > 1:
            gap = f"gap {100 * (max(values) - min(values)):.1f} points"
            body.append(text(WIDTH, y, gap, "muted", "end"))
        for g, group in enumerate(subject.counts.groups):
            rate = next(r for r in subject.cells if r.name == name and r.group == group)
            few = subject.few(rate.estimate)
            support = f"{group} · {rate.estimate.support:,} {subject.unit}"
            support += ", too few to compare" if few else ""
            body.append(text(BARS_LEFT, y + 19, support, "muted small", most=58))
            body += _bar(rate.estimate, group, g, y + 24, few)
            y += 38
        y += 8
    for v in (0.0, 25.0, 50.0, 75.0, 100.0):
        anchor = "middle" if v > 0 else "start"
        body.append(text(_bar_x(v / 100), y + 10, f"{v:g}", "muted small", anchor))
    label = "Accuracy by class and group: " + "; ".join(
        f"class {r.name}, group {r.group} {100 * r.estimate.value:.1f} %"
        for r in subject.cells[:24]
    )
    return picture(WIDTH, y + 14, body, label)


def _bar(e: Estimate, group: str, colour: int, y: float, few: bool) -> list[str]:
    """Draw the bar of a cell, its interval and its value; "none" where the cell is empty."""
    track = element(
        "rect", x=BARS_LEFT, y=y, width=BARS_RIGHT - BARS_LEFT, height=HEIGHT, cls="track", rx=2.0
    )
    if not e.defined:
        return [track, text(BARS_RIGHT + 8, y + 11, "none", "muted")]
    told = f"{group}: {100 * e.value:.1f} % ({100 * e.low:.1f} to {100 * e.high:.1f})"
    title = element("title", escape(told))
    width, cls = (
        max(_bar_x(e.value) - BARS_LEFT, 0.5),
        f"bar c{colour % COLOURS}{' faint' if few else ''}",
    )
    return [
        track,
        element("rect", title, x=BARS_LEFT, y=y, width=width, height=HEIGHT, cls=cls, rx=2.0),
        line(_bar_x(e.low), y + 6.5, _bar_x(e.high), y + 6.5, "whisker"),
        *(line(_bar_x(v), y + 3, _bar_x(v), y + 10, "whisker") for v in (e.low, e.high)),
        text(BARS_RIGHT + 8, y + 11, f"{100 * e.value:.1f} %", "num"),
    ]


def _bar_x(share: float) -> float:
    return BARS_LEFT + share * (BARS_RIGHT - BARS_LEFT)


# -------------------------------------------------------------------------------------------------
# Maps of features: a small panel for each class or group, all others grey behind it.
# -------------------------------------------------------------------------------------------------

MAP_PANEL, MAP_GAP, MAP_HEAD, PAD = 136.0, 10.0, 20.0, 6.0
COLUMNS, MOST, BEHIND = 3, 9, 350  # panels in a row, panels in all, grey points behind each


def embedding(
    x: np.ndarray, y: np.ndarray, codes: np.ndarray, names: Sequence[str], by: str, unit: str
) -> tuple[Markup, int]:
    """Draw panels of a 2-D projection, and how many points lie outside of them and are not drawn.

    The middle 99 % are shown: one far point must not press all the others together.
    """
    (a, b), (c, d) = (np.quantile(v, [0.005, 0.995]) for v in (x, y))
    inside = (x >= a) & (x <= b) & (y >= c) & (y <= d)
    span = max(b - a, d - c, 1e-9)
    u = PAD + (x - (a + b - span) / 2) / span * (MAP_PANEL - 2 * PAD)
    v = MAP_PANEL - PAD - (y - (c + d - span) / 2) / span * (MAP_PANEL - 2 * PAD)
    largest = sorted(np.argsort(-np.bincount(codes, minlength=len(names)), kind="stable")[:MOST])
    shown = np.flatnonzero(inside)
    every = max(1, -(-len(shown) // BEHIND))
    body = []
    for place, k in enumerate(int(k) for k in largest):
        left = (place % COLUMNS) * (MAP_PANEL + MAP_GAP)
        top = (place // COLUMNS) * (MAP_PANEL + MAP_HEAD + MAP_GAP) + MAP_HEAD
        inner = text(0, -6, names[k], "small b", most=20)
        inner += element(
            "rect", x=0.5, y=0.5, width=MAP_PANEL - 1, height=MAP_PANEL - 1, cls="frame", rx=5.0
        )
        inner += _dots(u, v, shown[::every], "dots behind")
        inner += _dots(u, v, np.flatnonzero(inside & (codes == k)), f"dots c{k % COLOURS}")
        body.append(element("g", inner, transform=f"translate({number(left)} {number(top)})"))
    rows = -(-len(largest) // COLUMNS)
    label = f"Map of the features of {len(x):,} test {unit}, a panel for each {by}."
    width = COLUMNS * (MAP_PANEL + MAP_GAP) - MAP_GAP
    return picture(width, rows * (MAP_PANEL + MAP_HEAD + MAP_GAP), body, label), int(
        (~inside).sum()
    )


def _dots(u: np.ndarray, v: np.ndarray, rows: np.ndarray, cls: str) -> str:
    d = "".join(f"M{number(u[i])} {number(v[i])}h0" for i in rows)
    return element("path", d=d, cls=cls) if d else ""


# -------------------------------------------------------------------------------------------------
# Scores as decisions: ROC curves by group, and group rates against the threshold.
# -------------------------------------------------------------------------------------------------

RATES = ("selection", "fpr", "fnr")
MOST_POINTS = 200  # of a curve; a screen shows no more
CURVE_LEFT, CURVE_RIGHT, CURVE_TOP, BOTTOM = 40.0, WIDTH - 12, 14.0, 250.0


@dataclass(frozen=True)
class DecisionScores:
    """Scores of the positive class with what decided: a threshold, where there is one."""

    subject: Subject
    score: np.ndarray
    hit: np.ndarray  # rows of the positive class
    positive: int
    threshold: float | None

    @classmethod
    def of(cls, subject: Subject) -> DecisionScores | None:
        """Read the scores of a subject; None without scores, and for more than two classes."""
        rows = subject.rows
        if not subject.scored or len(rows.classes) != 2:
            return None
        positive = 1 if rows.positive is None else rows.positive
        score = rows.scores[:, positive]
        threshold = rows.threshold
        if threshold is not None and rows.span is not None:
            low, high = rows.span
            threshold = (threshold - low) / max(high - low, 1e-300)
        if threshold is None:
            threshold = _between(score, rows.prediction == positive)
        return cls(subject, score, rows.target == positive, positive, threshold)

    @property
    def says(self) -> str:
        """Which threshold is drawn."""
        if self.threshold is None:
            return "The predictions do not follow one threshold of the score, so none is drawn."
        return f"The upright line is the threshold in use, {self._shown(self.threshold):.3g}."

    def _shown(self, share: float) -> float:
        """Return a score as it is in the table.

        Those that are no probabilities were scaled to 0..1.
        """
        low, high = self.subject.rows.span or (0.0, 1.0)
        return low + share * (high - low)

    def roc(self) -> Markup:
        """Draw the curve of each group; a mark is the decision in use."""
        rows = self.subject.rows
        rates = by_group(self.subject.counts, positive=self.positive)
        body = axes(CURVE_LEFT, CURVE_RIGHT, CURVE_TOP, BOTTOM, (0.0, 100.0), (0.0, 100.0))
        body.append(line(_curve_x(0), _y(0), _curve_x(1), _y(1), "diagonal"))
        told = []
        for g in largest_groups(self.subject):
            own = rows.sensitive == g
            times = None if rows.repeats is None else rows.repeats[own]
            if not self.hit[own].any() or self.hit[own].all():
                continue  # one class alone has no curve
            curve = roc_curve(self.hit[own], self.score[own], times)
            kept = _thinned(len(curve.fpr))
            points = [
                (_curve_x(a), _y(b)) for a, b in zip(curve.fpr[kept], curve.tpr[kept], strict=True)
            ]
            body.append(polyline(points, f"line c{g % COLOURS}"))
            fpr, tpr = rates["fpr"][g].value, rates["tpr"][g].value
            says = f"{rows.groups[g]}: FPR {100 * fpr:.1f} %, TPR {100 * tpr:.1f} %"
            body.append(marker(g, _curve_x(fpr), _y(tpr), 5.0, f"fill c{g % COLOURS}", says))
            told.append(says)
        body.append(_below("false positive rate, %"))
        body.append(text(CURVE_LEFT, CURVE_TOP - 3, "true positive rate, %", "muted"))
        return picture(WIDTH, BOTTOM + 42, body, f"ROC by group. In use: {'; '.join(told)}.")

    def rate(self, name: str) -> Markup:
        """Draw one rate of each group against the threshold, with the threshold in use."""
        rows, label = self.subject.rows, rate_named(name).label
        curves = threshold_curves(
            self.hit, self.score, rows.sensitive, rows.groups, chosen=self.threshold,
            repeats=rows.repeats,
        )  # fmt: skip
        span = (self._shown(0.0), self._shown(1.0))
        body = axes(CURVE_LEFT, CURVE_RIGHT, CURVE_TOP, BOTTOM, span, (0.0, 100.0))
        for g in largest_groups(self.subject):
            share_T = curves.value[name][:, g]
            points = [
                (_curve_x(t), _y(v))
                for t, v in zip(curves.thresholds, share_T, strict=True)
                if np.isfinite(v)
            ]
            body.append(polyline(points, f"line c{g % COLOURS}" + (" dashed" if g % 2 else "")))
        if self.threshold is not None and 0 <= self.threshold <= 1:
            x = _curve_x(self.threshold)
            body.append(line(x, CURVE_TOP, x, BOTTOM, "whisker"))
            left = self.threshold < 0.75
            at = f"in use: {self._shown(self.threshold):.3g}"
            body.append(text(x + (4 if left else -4), CURVE_TOP + 10, at, "small",
                             "start" if left else "end"))  # fmt: skip
        body.append(_below("threshold of the score"))
        body.append(text(CURVE_LEFT, CURVE_TOP - 3, f"{label}, %", "muted"))
        return picture(
            WIDTH, BOTTOM + 42, body, f"{label} of each group against the threshold. {self.says}"
        )


def _between(score: np.ndarray, called: np.ndarray) -> float | None:
    """Return the threshold that gives these predictions.

    It is 0.5 if that does, else the lowest positive one.
    """
    if not called.any() or called.all():
        return None
    above, below = float(score[called].min()), float(score[~called].max())
    if below >= above:
        return None
    return 0.5 if below < 0.5 <= above else above


def _thinned(points: int) -> np.ndarray:
    return np.unique(np.linspace(0, points - 1, min(points, MOST_POINTS)).round().astype(int))


def _curve_x(v: float) -> float:
    return CURVE_LEFT + v * (CURVE_RIGHT - CURVE_LEFT)


def _y(v: float) -> float:
    return BOTTOM - v * (BOTTOM - CURVE_TOP)


def _below(label: str) -> str:
    return text((CURVE_LEFT + CURVE_RIGHT) / 2, BOTTOM + 34, label, "muted", "middle")


# -------------------------------------------------------------------------------------------------
# A picture of mining in two dimensions: a row for each miner, a column for each mined set.
# -------------------------------------------------------------------------------------------------

SCENE_PANEL, SCENE_GAP, SCENE_LEFT, SCENE_TOP = 300.0, 22.0, 34.0, 62.0
_CLUSTERS = ("c0", "c4")  # colours of cluster A, the target, and of cluster B
# field of a Triplet, title where it was mined, colour, kind of marker
_SETS = (
    ("anchors", "diverse anchors", "c0", 0),
    ("positives", "hard positives", "c2", 3),
    ("negatives", "hard negatives", "c6", 1),
)

Place = Callable[[float, float], tuple[float, float]]


def scene(
    title: str,
    points: Sequence[Sequence[float]],
    clusters: Sequence[int],
    mined: Mapping[str, Triplet],
) -> Markup:
    """Draw points of two clusters, each panel with one set that one miner picked among them.

    Rings mark the anchors in the panels of positives and negatives, which are hard for these.
    """
    xs, ys = zip(*points, strict=True)
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    scale = (SCENE_PANEL - 16) / (x1 - x0)
    height = scale * (y1 - y0) + 16

    def place(x: float, y: float) -> tuple[float, float]:
        return 8 + scale * (x - x0), 8 + scale * (y1 - y)

    ground = _ground(points, clusters, place) + _frame((x0, x1), (y0, y1), height, place)
    body = [
        element("defs", element("g", ground, id="ground")),
        text(SCENE_LEFT, 22, title, "b", most=200),
    ]
    for row, (miner, triplet) in enumerate(mined.items()):
        for column, (field, mined_title, _, _) in enumerate(_SETS):
            x, y = SCENE_LEFT + column * (SCENE_PANEL + SCENE_GAP), SCENE_TOP + row * (height + 44)
            shown = f"{miner}: {field if miner == 'random' else mined_title}"
            marks = _marks(points, triplet, field, place)
            inner = text(0, -8, shown) + element("use", href="#ground") + marks
            body.append(element("g", inner, transform=f"translate({number(x)} {number(y)})"))
    width = SCENE_LEFT + 3 * (SCENE_PANEL + SCENE_GAP)
    return picture(width, SCENE_TOP + len(mined) * (height + 44), body, title)


def _ground(points: Sequence[Sequence[float]], clusters: Sequence[int], place: Place) -> str:
    """Draw all points once: a line of no length with a round end is a dot."""
    drawn = ""
    for cluster, colour in enumerate(_CLUSTERS):
        places = [place(*p) for p, c in zip(points, clusters, strict=True) if c == cluster]
        d = "".join(f"M{number(x)} {number(y)}h0" for x, y in places)
        drawn += element("path", d=d, cls=f"dots {colour}", stroke_width=4, opacity=0.4)
    return drawn


def _frame(
    across: tuple[float, float], up: tuple[float, float], height: float, place: Place
) -> str:
    """Draw the border of a panel with its ticks."""
    parts = [element("rect", x=0.0, y=0.0, width=SCENE_PANEL, height=height, cls="axis")]
    for value in ticks(*across):
        x, _ = place(value, up[0])
        parts.append(line(x, height, x, height + 4, "axis"))
        parts.append(text(x, height + 16, f"{value:g}", "muted small", "middle"))
    for value in ticks(*up):
        _, y = place(across[0], value)
        parts.append(line(-4, y, 0, y, "axis"))
        parts.append(text(-7, y + 4, f"{value:g}", "muted small", "end"))
    return "".join(parts)


def _marks(points: Sequence[Sequence[float]], triplet: Triplet, field: str, place: Place) -> str:
    parts = []
    if field != "anchors":
        for row in triplet.anchors.tolist():
            x, y = place(*points[row])
            parts.append(element("circle", cx=x, cy=y, r=4.5, cls="line c0"))
    _, _, colour, kind = next(entry for entry in _SETS if entry[0] == field)
    for row in getattr(triplet, field).tolist():
        x, y = place(*points[row])
        parts.append(marker(kind, x, y, 5.0, f"fill {colour}", f"row {row}"))
    return "".join(parts)
