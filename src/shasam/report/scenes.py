"""A picture of mining in two dimensions: a row for each miner, a column for each mined set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from shasam.report.svg import element, line, marker, number, picture, text, ticks
from shasam.types import Triplet

PANEL, GAP, LEFT, TOP = 300.0, 22.0, 34.0, 62.0
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
    """Points of two clusters, each panel with one set that one miner picked among them.

    Rings mark the anchors in the panels of positives and negatives, which are hard for these.
    """
    xs, ys = zip(*points, strict=True)
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    scale = (PANEL - 16) / (x1 - x0)
    height = scale * (y1 - y0) + 16

    def place(x: float, y: float) -> tuple[float, float]:
        return 8 + scale * (x - x0), 8 + scale * (y1 - y)

    ground = _ground(points, clusters, place) + _frame((x0, x1), (y0, y1), height, place)
    body = [
        element("defs", element("g", ground, id="ground")),
        text(LEFT, 22, title, "b", most=200),
    ]
    for row, (miner, triplet) in enumerate(mined.items()):
        for column, (field, mined_title, _, _) in enumerate(_SETS):
            x, y = LEFT + column * (PANEL + GAP), TOP + row * (height + 44)
            shown = f"{miner}: {field if miner == 'random' else mined_title}"
            marks = _marks(points, triplet, field, place)
            inner = text(0, -8, shown) + element("use", href="#ground") + marks
            body.append(element("g", inner, transform=f"translate({number(x)} {number(y)})"))
    width = LEFT + 3 * (PANEL + GAP)
    return picture(width, TOP + len(mined) * (height + 44), body, title)


def _ground(points: Sequence[Sequence[float]], clusters: Sequence[int], place: Place) -> str:
    """All points, drawn once: a line of no length with a round end is a dot."""
    drawn = ""
    for cluster, colour in enumerate(_CLUSTERS):
        places = [place(*p) for p, c in zip(points, clusters, strict=True) if c == cluster]
        d = "".join(f"M{number(x)} {number(y)}h0" for x, y in places)
        drawn += element("path", d=d, cls=f"dots {colour}", stroke_width=4, opacity=0.4)
    return drawn


def _frame(
    across: tuple[float, float], up: tuple[float, float], height: float, place: Place
) -> str:
    """The border of a panel with its ticks."""
    parts = [element("rect", x=0.0, y=0.0, width=PANEL, height=height, cls="axis")]
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
