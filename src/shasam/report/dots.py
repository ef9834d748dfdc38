"""Many groups in one figure: a dot with its interval for each, sorted by value.

Bars in eight colours stop telling groups apart after eight of them; a sorted list does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from shasam.metrics import Estimate, wilson
from shasam.report.subject import Subject
from shasam.report.svg import element, escape, line, marker, picture, text, ticks

WIDTH, LEFT, RIGHT = 420.0, 138.0, 366.0
ROW, HEAD = 17.0, 26.0
MOST_ROWS = 24  # of one heading; of more groups the middle ones are left out


@dataclass(frozen=True)
class Row:
    """A group: its rate, and whether it is large enough to be compared."""

    group: str
    rate: Estimate
    small: bool = False


@dataclass(frozen=True)
class Block:
    """Groups under a heading; ``note`` stands at the right."""

    heading: str
    note: str
    rows: Sequence[Row]


def dots(subject: Subject) -> Markup:
    """Accuracy of every group, class by class, the best first."""
    blocks = []
    for name in subject.counts.classes:
        rates = [r for r in subject.cells if r.name == name and r.estimate.defined]
        rows = [Row(r.group, r.estimate, r.group in subject.small) for r in rates]
        blocks.append(Block(f"Class {name}", _gap(rows), rows))
    return _figure(blocks, "Accuracy, %", "Accuracy by class and group, sorted")


def forest(subjects: Sequence[Subject], c: int | None) -> Markup:
    """How often each group of each attribute is wronged, the worst first.

    ``c`` is the class whose errors are counted; None stands for all classes together.
    """
    blocks = []
    for subject in subjects:
        n_CPG = subject.counts.n_CPG
        rows = []
        for g, group in enumerate(subject.counts.groups):
            of = range(len(n_CPG)) if c is None else (c,)
            whole = sum(n_CPG[k, :, g].sum() for k in of)
            if not whole:
                continue
            wrong = whole - sum(n_CPG[k, k, g] for k in of)
            rate = wilson(wrong, whole, subject.drawn.level)
            rows.append(Row(group, rate, group in subject.small))
        blocks.append(Block(subject.attribute, _gap(rows), rows))
    first = subjects[0]
    if c is None:
        axis, says = "wrong, %", "Share of wrong predictions"
    else:
        classes = first.counts.classes
        error = f"called {classes[1 - c]}" if len(classes) == 2 else "wrong"
        axis = f"{error}, %"
        says = f"Where {first.outcome or 'the true class'} is {classes[c]}: {error}"
    return _figure(blocks, axis, f"{says}, by attribute and group, sorted")


def _gap(rows: Sequence[Row]) -> str:
    values = [r.rate.value for r in rows if not r.small]
    return f"gap {100 * (max(values) - min(values)):.1f} points" if len(values) > 1 else ""


def _figure(blocks: Sequence[Block], axis: str, says: str) -> Markup:
    highest = max((r.rate.high for b in blocks for r in b.rows), default=1.0)
    lowest = min((r.rate.low for b in blocks for r in b.rows), default=0.0)
    x0 = 0.0 if lowest < 0.4 else 0.1 * int(10 * lowest)
    x1 = 1.0 if highest > 0.8 else min(1.0, 0.1 * (int(10 * highest) + 1))

    def px(v: float) -> float:
        return LEFT + (v - x0) / (x1 - x0) * (RIGHT - LEFT)

    body: list[str] = []
    y, told = 2.0, []
    for block in blocks:
        y += HEAD
        body.append(text(0, y - 8, block.heading, "b", most=38))
        body.append(text(WIDTH, y - 8, block.note, "muted small", "end"))
        rows = sorted(block.rows, key=lambda r: -r.rate.value)
        left_out = max(0, len(rows) - MOST_ROWS)
        if left_out:
            half = MOST_ROWS // 2
            rows = [*rows[:half], *rows[-half:]]
        for i, row in enumerate(rows):
            if left_out and i == MOST_ROWS // 2:
                body.append(text(LEFT, y + 11, f"… {left_out} between …", "muted small"))
                y += ROW
            body += _drawn(row, y + ROW / 2, px)
            y += ROW
        told += [f"{block.heading}, {r.group} {100 * r.rate.value:.1f} %" for r in rows[:12]]
        y += 4
    grid = []
    for v in ticks(100 * x0, 100 * x1, 5):
        x = px(v / 100)
        grid.append(line(x, 6, x, y, "grid"))
        body.append(text(x, y + 14, f"{v:g}", "muted small", "middle"))
    body.append(text((LEFT + RIGHT) / 2, y + 30, axis, "muted small", "middle", most=44))
    return picture(WIDTH, y + 36, [*grid, *body], f"{says}: {'; '.join(told[:30])}.")


def _drawn(row: Row, y: float, px: Callable[[float], float]) -> list[str]:
    e, faint = row.rate, " faint" if row.small else ""
    says = (
        f"{row.group}: {100 * e.value:.1f} % ({100 * e.low:.1f} to {100 * e.high:.1f}), "
        f"{e.support:,} rows" + (", too few to compare" if row.small else "")
    )
    return [
        text(LEFT - 8, y + 4, row.group, f"small{' muted' if row.small else ''}", "end", most=21),
        element(
            "g",
            element("title", escape(says))
            + line(px(e.low), y, px(e.high), y, f"whisker own{faint}")
            + marker(0, px(e.value), y, 4.2, f"fill c0{faint}"),
            cls="c0",
        ),
        text(
            WIDTH, y + 4, f"{100 * e.value:.1f}", f"num small{' muted' if row.small else ''}", "end"
        ),
    ]
