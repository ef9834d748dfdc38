"""The figures of the page, as SVG that follows the page's light and dark colours.

Each function returns markup to put in a page; ``save`` writes it as a file of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from shasam.files import write_atomic
from shasam.metrics.calibration import BINS
from shasam.report.subject import Subject
from shasam.report.svg import (
    COLOURS,
    element,
    line,
    marker,
    picture,
    polyline,
    standalone,
    text,
    ticks,
)

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


def save(figure: Markup, path: Path) -> None:
    """Write a figure as an SVG file."""
    write_atomic(path, standalone(figure))


def tradeoff(
    points: Sequence[Point], title: str = "Accuracy against the average gap between groups"
) -> Markup:
    """Accuracy (up is better) against EO (left is better) with intervals."""
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
        source = ", published" if p.published else ""
        told = (
            f"{p.name}{source}: accuracy {100 * p.accuracy[0]:.1f} %, EO {100 * p.eo[0]:.1f} points"
        )
        r = 6.5 if p.mean else 4.5
        look = "open" if p.published else "fill" if p.mean or len(shown) < CROWD else "fill faint"
        body.append(marker(p.kind, x, y, r, f"{colour} {look}", told))
    body += _labels([(px(p.eo[0]), py(p.accuracy[0]), p.name) for p in shown if p.published])
    told = "; ".join(
        f"{p.name}{' (published)' if p.published else ''} {100 * p.accuracy[0]:.1f} % and "
        f"{100 * p.eo[0]:.1f} points"
        for p in shown[:20]
    )
    return picture(WIDTH, bottom + 44, body, f"{title}. {told}.")


def _labels(marks: Sequence[tuple[float, float, str]]) -> list[str]:
    """Names beside marks, above and below in turn where they would touch; none where too many."""
    if len(marks) > 6:
        return []
    body, before, below = [], -math.inf, False
    for x, y, name in sorted(marks):
        below = not below if x - before < 60 else False
        body.append(text(x, y + (18 if below else -9), name, "muted small", "middle", 18))
        before = x
    return body


def largest_groups(subject: Subject) -> list[int]:
    """The groups that curves are drawn of: as many as there are colours."""
    order = np.argsort(-subject.counts.sizes_G, kind="stable")[:COLOURS]
    return sorted(order.tolist())


def score_curves(subject: Subject, positive: str) -> Markup:
    """Density of the positive class's score by group."""
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
    """Share of right answers against confidence by group; the dashed line is perfect."""
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
        for b in range(BINS):
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
    """Lines over steps: (name, steps, values)."""
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
