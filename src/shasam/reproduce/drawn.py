"""The figure of an artefact as SVG: a plane for each setting, bars, or lines; and as PNG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from markupsafe import Markup

from shasam.files import write_atomic
from shasam.metrics import catalogue
from shasam.output.terminal import say
from shasam.report.svg import (
    COLOURS,
    FONT,
    element,
    line,
    marker,
    picture,
    polyline,
    standalone,
    text,
    ticks,
)
from shasam.reproduce.filled import Filled

PANEL, HEIGHT, GAP, LEFT, TOP = 260.0, 190.0, 56.0, 48.0, 58.0
ACROSS = 4  # panels beside each other
# resvg knows fonts by their names alone; some of these are on every desktop and most servers
FONTS_BY_NAME = "DejaVu Sans,Liberation Sans,Noto Sans,Arial,Helvetica,Segoe UI,sans-serif"

Scale = Callable[[float], float]


def draw(filled: Filled) -> Markup | None:
    """The figure, or None where no run has ended yet."""
    if not any(entry.ours for entry in filled.entries.values()):
        return None
    return {"plane": _planes, "bars": _bars, "lines": _lines}[filled.artefact.figure](filled)


def save(figure: Markup, path: Path) -> list[Path]:
    """Write ``path`` as SVG, and beside it a PNG where ``resvg-py`` is installed (extra png)."""
    svg = standalone(figure)
    write_atomic(path, svg)
    if find_spec("resvg_py") is None:
        return [path]
    if not _draws_words():
        say(f"no PNG of {path.name}: this system has no fonts; install one, such as DejaVu Sans")
        return [path]
    write_atomic(path.with_suffix(".png"), _png(svg, zoom=2))
    return [path, path.with_suffix(".png")]


def _png(svg: str, zoom: float = 1) -> bytes:
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg.replace(FONT, FONTS_BY_NAME), zoom=zoom))


@cache
def _draws_words() -> bool:
    """False where resvg finds no font: it then leaves all words out and says nothing."""
    empty, word = (standalone(picture(20, 20, [text(2, 15, t)], "")) for t in ("", "a"))
    return _png(empty) != _png(word)


def _planes(filled: Filled) -> Markup:
    """Accuracy against EO, a panel for each setting; hollow marks are the paper's numbers."""
    a = filled.artefact
    across, up = (
        ("eo_mean", "accuracy") if "eo_mean" in a.metrics else (a.metrics[-1], a.metrics[0])
    )
    panels = []
    for column in a.columns:
        marks = []
        for kind, row in enumerate(a.rows()):
            x, y = filled.get(row, column, across), filled.get(row, column, up)
            if x.printed is not None and y.printed is not None:
                marks.append((kind, x.printed.value, y.printed.value, "open", f"{row}, paper"))
            if x.mean is not None and y.mean is not None:
                marks.append((kind, x.mean, y.mean, "fill", row))
        panels.append((column, _plane(marks)))
    words = f"{catalogue.label_of(up)} (up) against {catalogue.label_of(across)} (across)"
    note = f"{words}; filled: ours, hollow: the paper's" if a.printed else words
    return _page(filled, panels, note)


def _plane(marks: Sequence[tuple[int, float, float, str, str]]) -> str:
    if not marks:
        return _frame() + text(PANEL / 2, HEIGHT / 2, "no run yet", "muted", "middle")
    px, across = _scale([m[1] for m in marks], 0.0, PANEL)
    py, up = _scale([m[2] for m in marks], HEIGHT, 0.0)
    body = _frame() + _ticks(across, px, up, py)
    for kind, x, y, look, name in sorted(marks, key=lambda m: m[3] != "open"):
        told = f"{name}: {y:.1f} and {x:.1f}"
        body += marker(kind, px(x), py(y), 4.5, f"c{kind % COLOURS} {look}", told)
    return body


def _bars(filled: Filled) -> Markup:
    """A panel for each metric: bars grouped by setting, whiskers are one standard deviation."""
    a = filled.artefact
    panels = []
    for metric in a.metrics:
        found = [filled.get(row, c, metric) for c in a.columns for row in a.rows()]
        tops = [e.mean + (e.deviation or 0) for e in found if e.mean is not None]
        low = 50.0 if catalogue.named(metric).better == "high" and min(tops) > 50 else 0.0
        py, up = _scale([low, *tops], HEIGHT, 0.0, pad=False)
        body = _frame(2) + _ticks([], px=lambda v: v, up=up, py=py)
        group = 2 * PANEL / len(a.columns)
        width = 0.86 * group / len(a.rows())
        for c, column in enumerate(a.columns):
            for kind, row in enumerate(a.rows()):
                entry = filled.get(row, column, metric)
                if entry.mean is None:
                    continue
                x, y = c * group + 0.07 * group + kind * width, py(entry.mean)
                bar = element("title", f"{row}, {column}: {entry.mean:.1f}")
                body += element(
                    "rect", bar, x=x, y=y, width=0.9 * width, height=max(0.0, HEIGHT - y),
                    cls=f"c{kind % COLOURS} bar",
                )  # fmt: skip
                middle = x + 0.45 * width  # the mark of the legend stands on the foot of the bar
                body += marker(kind, middle, HEIGHT - 9, 4, f"c{kind % COLOURS} open")
                if entry.deviation:
                    ends = (
                        py(entry.mean + entry.deviation),
                        py(max(low, entry.mean - entry.deviation)),
                    )
                    body += line(middle, ends[0], middle, ends[1], "whisker")
            body += text((c + 0.5) * group, HEIGHT + 17, column, "muted small", "middle")
        panels.append((catalogue.label_of(metric), body))
    return _page(filled, panels, "bars: mean over seeds, whiskers: one standard deviation", wide=2)


def _lines(filled: Filled) -> Markup:
    """A panel for each metric: its mean against the views that stage 1 has seen."""
    a = filled.artefact
    panels = []
    for metric in a.metrics:
        curves = {
            kind: [
                (filled.views[row, c], e.mean)
                for c in a.columns
                if (e := filled.get(row, c, metric)).mean is not None
            ]
            for kind, row in enumerate(a.rows())
        }
        points = [p for curve in curves.values() for p in curve]
        px, across = _scale([0.0, *(x for x, _ in points)], 0.0, 2 * PANEL)
        py, up = _scale([y for _, y in points if y is not None], HEIGHT, 0.0)
        body = _frame(2) + _ticks(across, px, up, py)
        for kind, curve in curves.items():
            places = [(px(x), py(y)) for x, y in curve if y is not None]
            body += element("g", polyline(places, "line"), cls=f"c{kind % COLOURS}")
            body += "".join(marker(kind, x, y, 4, f"c{kind % COLOURS} fill") for x, y in places)
        panels.append((f"{catalogue.label_of(metric)} against views", body))
    return _page(filled, panels, "mean over seeds", wide=2)


def _page(filled: Filled, panels: Sequence[tuple[str, str]], note: str, *, wide: int = 1) -> Markup:
    """Panels in rows, the title above and the legend below."""
    a = filled.artefact
    columns = min(len(panels), ACROSS // wide)
    step = wide * PANEL + GAP
    body = [text(LEFT, 22, a.title, "b", most=120), text(LEFT, 40, note, "muted small", most=160)]
    for i, (title, drawn) in enumerate(panels):
        x = LEFT + (i % columns) * step
        y = TOP + 16 + (i // columns) * (HEIGHT + GAP)
        inner = text(0, -8, title, "b") + drawn
        body.append(element("g", inner, transform=f"translate({x:.1f} {y:.1f})"))
    rows = -(-len(panels) // columns)
    width = LEFT + columns * step
    y = TOP + 16 + rows * (HEIGHT + GAP)
    x = LEFT
    for kind, row in enumerate(a.rows()):
        need = 30 + 6.6 * len(row)
        if x + need > width and x > LEFT:
            x, y = LEFT, y + 20
        body.append(marker(kind, x + 5, y - 4, 4.5, f"c{kind % COLOURS} fill"))
        body.append(text(x + 15, y, row, "small", most=60))
        x += need
    return picture(max(width, 520.0), y + 16, body, f"{a.title}: {note}")


def _frame(wide: int = 1) -> str:
    return element("rect", x=0.0, y=0.0, width=wide * PANEL, height=HEIGHT, cls="axis")


def _ticks(across: Sequence[float], px: Scale, up: Sequence[float], py: Scale) -> str:
    body = ""
    for v in across:
        body += line(px(v), HEIGHT, px(v), HEIGHT + 4, "axis")
        shown = f"{v / 1000:g}k" if v >= 10_000 else f"{v:g}"
        body += text(px(v), HEIGHT + 17, shown, "muted small", "middle")
    for v in up:
        body += line(-4, py(v), 0, py(v), "axis") + text(
            -7, py(v) + 4, f"{v:g}", "muted small", "end"
        )
    return body


def _scale(
    values: Sequence[float], start: float, end: float, *, pad: bool = True
) -> tuple[Scale, list[float]]:
    """From numbers to a stretch of pixels, and round numbers for its ticks."""
    low, high = min(values), max(values)
    room = max(0.08 * (high - low), 0.5)
    low, high = (low - room if pad and low != 0 else low), high + room

    def place(value: float) -> float:
        return start + (value - low) / (high - low) * (end - start)

    return place, ticks(low, high, 5)
