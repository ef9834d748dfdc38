"""A small SVG writer: elements with escaped text, colours by CSS class, no style attributes.

The classes ``c0`` ... ``c7`` are colours of groups that the page's stylesheet sets for light and
dark; a figure saved as a file carries its own short stylesheet.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from markupsafe import Markup

from shasam.output import visible

COLOURS = 8
_INKS = (
    "#0b62c4",
    "#c9480b",
    "#0a7f57",
    "#9c27a5",
    "#8a6a00",
    "#0b7285",
    "#c2255c",
    "#4b5563",
)
FONT = "system-ui,sans-serif"
# looks that take the colour of their class c0 ... c7: class -> declarations with {c} for the colour
_LOOKS = {
    "fill": "fill:{c}",
    "line": "stroke:{c};fill:none;stroke-width:1.75",
    "area": "fill:{c};fill-opacity:.16",
    "dots": "stroke:{c};stroke-linecap:round;fill:none",
    "open": "stroke:{c};fill:#fff;stroke-width:1.5",
    "bar": "fill:{c};fill-opacity:.82",
}
# no custom properties: programs that draw SVG files outside a browser do not know them
_STANDALONE = (
    f"svg{{font:12px {FONT};fill:#1b1f24;background:#fff}}"
    ".axis,.grid{stroke:#d5dae1;fill:none}.muted{fill:#5b6470}.whisker{stroke:#1b1f24;fill:none}"
    ".diagonal{stroke:#8a93a0;stroke-dasharray:3 3;fill:none}.hollow{fill:#fff}"
    ".small{font-size:11px}.b{font-weight:600}.front{stroke:#1b1f24;fill:none}.faint{opacity:.35}"
    ".leader{stroke:#d5dae1;fill:none}.off{fill:#8a93a0}.dashed{stroke-dasharray:5 3}"
    + "".join(
        f".c{i}.{look},.c{i} .{look}{{{rule.replace('{c}', colour)}}}"
        for i, colour in enumerate(_INKS)
        for look, rule in _LOOKS.items()
    )
)


def escape(text: str) -> str:
    """Escape text or an attribute's value; a control character would make the XML invalid."""
    return html.escape(visible(text), quote=True)


def number(value: float) -> str:
    """Write a coordinate: one decimal, no trailing zero."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """Write ``<name a="...">content</name>``; ``cls`` is class, ``_`` in names becomes ``-``."""
    parts = []
    for key, value in attributes.items():
        if value is None:
            continue
        key = "class" if key == "cls" else key.replace("_", "-")
        shown = number(value) if isinstance(value, float) else str(value)
        parts.append(f' {key}="{escape(shown)}"')
    return (
        f"<{name}{''.join(parts)}>{content}</{name}>" if content else f"<{name}{''.join(parts)}/>"
    )


def text(
    x: float, y: float, label: str, /, cls: str = "", anchor: str = "start", most: int = 34
) -> str:
    """Write text, shortened to ``most`` letters with the whole in its title."""
    short = label if len(label) <= most else label[: most - 1] + "…"
    inner = escape(short)
    if short != label:
        inner += element("title", escape(label))
    return element(
        "text",
        inner,
        x=float(x),
        y=float(y),
        cls=cls or None,
        text_anchor=None if anchor == "start" else anchor,
    )


def line(x1: float, y1: float, x2: float, y2: float, cls: str) -> str:
    return element("path", d=f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}", cls=cls)


def polyline(points: Iterable[tuple[float, float]], cls: str) -> str:
    d = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return element("path", d=f"M{d}", cls=cls) if d else ""


def marker(kind: int, x: float, y: float, r: float, cls: str, title: str = "") -> str:
    """Return a point whose shape tells groups apart without colour.

    It is a circle, square, diamond or triangle.

    Shapes move on by one with each round of colours, so that 4 x COLOURS kinds look different.
    """
    inner = element("title", escape(title)) if title else ""
    shape = (kind + kind // COLOURS) % 4
    if shape == 0:
        return element("circle", inner, cx=float(x), cy=float(y), r=float(r), cls=cls)
    corners = {
        1: ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        2: ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
        3: ((0, -1.2), (1.15, 0.9), (-1.15, 0.9)),
    }[shape]
    d = "L".join(f"{number(x + r * a)} {number(y + r * b)}" for a, b in corners)
    return element("path", inner, d=f"M{d}Z", cls=cls)


def picture(width: float, height: float, body: Sequence[str], label: str) -> Markup:
    """Return the whole figure: one image for a screen reader, with its description."""
    return Markup(  # noqa: S704 - every text and attribute in body went through escape
        element(
            "svg",
            "".join(body),
            viewBox=f"0 0 {number(width)} {number(height)}",
            role="img",
            aria_label=label,
            cls="figure",
        )
    )


def standalone(figure: Markup) -> str:
    """Return the same figure as a file of its own."""
    head, rest = str(figure).split(">", 1)
    head += ' xmlns="http://www.w3.org/2000/svg"'
    return f"{head}><style>{_STANDALONE}</style>{rest}\n"


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between low and high."""
    span = max(high - low, 1e-9)
    step = 10.0**-6
    for exponent in range(-6, 7):
        for factor in (1, 2, 5):
            step = factor * 10.0**exponent
            if span / step <= most:
                first = int(-(-low // step))
                return [k * step for k in range(first, int(high / step + 1e-9) + 1)]
    return [low, high]


FRAME = 620  # pixels of a notebook cell; the page scrolls inside


def framed(page: str, title: str) -> str:
    """Return a whole page inside a cell of a notebook, so that its style and the notebook's do not
    mix.
    """
    return (
        f'<iframe title="{escape(title)}" sandbox="" width="100%" height="{FRAME}" '
        f'style="border:0;border-radius:12px" srcdoc="{escape(page)}"></iframe>'
    )
