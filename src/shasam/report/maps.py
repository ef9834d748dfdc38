"""Maps of features: a small panel for each class or group, all others grey behind it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from shasam.report.svg import COLOURS, element, number, picture, text

PANEL, GAP, HEAD, PAD = 136.0, 10.0, 20.0, 6.0
COLUMNS, MOST, BEHIND = 3, 9, 350  # panels in a row, panels in all, grey points behind each


def embedding(
    x: np.ndarray, y: np.ndarray, codes: np.ndarray, names: Sequence[str], by: str, unit: str
) -> tuple[Markup, int]:
    """Panels of a 2-D projection, and how many points lie outside of them and are not drawn.

    The middle 99 % are shown: one far point must not press all the others together.
    """
    (a, b), (c, d) = (np.quantile(v, [0.005, 0.995]) for v in (x, y))
    inside = (x >= a) & (x <= b) & (y >= c) & (y <= d)
    span = max(b - a, d - c, 1e-9)
    u = PAD + (x - (a + b - span) / 2) / span * (PANEL - 2 * PAD)
    v = PANEL - PAD - (y - (c + d - span) / 2) / span * (PANEL - 2 * PAD)
    largest = sorted(np.argsort(-np.bincount(codes, minlength=len(names)), kind="stable")[:MOST])
    shown = np.flatnonzero(inside)
    every = max(1, -(-len(shown) // BEHIND))
    body = []
    for place, k in enumerate(int(k) for k in largest):
        left = (place % COLUMNS) * (PANEL + GAP)
        top = (place // COLUMNS) * (PANEL + HEAD + GAP) + HEAD
        inner = text(0, -6, names[k], "small b", most=20)
        inner += element(
            "rect", x=0.5, y=0.5, width=PANEL - 1, height=PANEL - 1, cls="frame", rx=5.0
        )
        inner += _dots(u, v, shown[::every], "dots behind")
        inner += _dots(u, v, np.flatnonzero(inside & (codes == k)), f"dots c{k % COLOURS}")
        body.append(element("g", inner, transform=f"translate({number(left)} {number(top)})"))
    rows = -(-len(largest) // COLUMNS)
    label = f"Map of the features of {len(x):,} test {unit}, a panel for each {by}."
    width = COLUMNS * (PANEL + GAP) - GAP
    return picture(width, rows * (PANEL + HEAD + GAP), body, label), int((~inside).sum())


def _dots(u: np.ndarray, v: np.ndarray, rows: np.ndarray, cls: str) -> str:
    d = "".join(f"M{number(u[i])} {number(v[i])}h0" for i in rows)
    return element("path", d=d, cls=cls) if d else ""
