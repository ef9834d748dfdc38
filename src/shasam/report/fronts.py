"""The front: what accuracy each gap costs, over methods and their dials or thresholds per group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from shasam.metrics.odds import FrontPoint, ModelFront, Reach, ScoreFront
from shasam.metrics.paired import Comparison
from shasam.report.charts import axes
from shasam.report.subject import Subject
from shasam.report.svg import COLOURS, element, line, marker, picture, polyline, text
from shasam.report.verdict import percent

# -------------------------------------------------------------------------------------------------
# The front of a comparison: methods and their dials.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """A method at one value of its dial: mean accuracy and gap over seeds."""

    family: str  # the method
    name: str  # with the value
    accuracy: float
    gap: float
    found: ModelFront | None = None  # with thresholds per group
    kind: int = 0  # of its colour and mark

    @property
    def thresholds(self) -> list[Reach]:
        """Gaps and accuracies with thresholds per group, those that none of them dominates."""
        return stairs([(p.gap, p.accuracy) for p in self.found.thresholds] if self.found else [])


def undominated(choices: Sequence[Choice]) -> list[Choice]:
    """Return those that no other beats in accuracy or gap without losing in the other.

    In order of the gap; of equal ones the first is kept.
    """
    out: list[Choice] = []
    for c in sorted(choices, key=lambda c: (c.gap, -c.accuracy)):
        if not out or c.accuracy > out[-1].accuracy:
            out.append(c)
    return out


def stairs(points: Iterable[Reach]) -> list[Reach]:
    """Return gaps and accuracies that no other point dominates, in order of the gap."""
    out: list[Reach] = []
    for gap, accuracy in sorted(points, key=lambda p: (p[0], -p[1])):
        if not out or accuracy > out[-1][1]:
            out.append((gap, accuracy))
    return out


WIDTH, LEFT, RIGHT, TOP, BOTTOM = 440.0, 40.0, 316.0, 18.0, 300.0
NAMES, APART = 334.0, 15.0  # where names begin, and how far two are apart
MOST_NAMES = int((BOTTOM - TOP) / APART) + 1


EO = "average gap (EO), points"


def front(choices: Sequence[Choice], gap: str = EO) -> Markup:
    """Draw what accuracy each gap costs: methods as marks, thresholds per group as lines.

    A method is grey if it is nowhere on the front of all, nor on that of methods as they decide.
    Names stand in a column of their own, in the order of the marks, so that none covers another.
    """
    shown = [c for c in choices if math.isfinite(c.accuracy) and math.isfinite(c.gap)]
    if len(shown) < 2:
        return Markup("")
    every = [(c.gap, c.accuracy) for c in shown] + [p for c in shown for p in c.thresholds]
    ys = [100 * accuracy for _, accuracy in every]
    pad = max(0.12 * (max(ys) - min(ys)), 0.5)
    x1 = max(108 * max(gap for gap, _ in every), 1.0)
    y0, y1 = max(0.0, min(ys) - pad), min(100.0, max(ys) + pad)

    def place(p: Reach) -> tuple[float, float]:
        x = LEFT + min(100 * p[0] / x1, 1.0) * (RIGHT - LEFT)
        y = BOTTOM - (100 * p[1] - y0) / (y1 - y0) * (BOTTOM - TOP)
        return x, min(max(y, TOP), BOTTOM)

    body = axes(LEFT, RIGHT, TOP, BOTTOM, (0.0, x1), (y0, y1))
    middle = (LEFT + RIGHT) / 2
    body.append(text(middle, BOTTOM + 34, gap, "muted", "middle"))
    body.append(text(0, TOP - 6, "Accuracy, %", "muted"))
    best, top = undominated(shown), stairs(every)
    on = {c.family for c in best} | {c.family for c in shown if set(c.thresholds) & set(top)}
    body += _band(shown, place)
    body.append(polyline(_steps(top, place), "front"))
    families = list(dict.fromkeys(c.family for c in shown))
    for family in sorted(families, key=lambda f: f in on):  # what is grey lies below
        members = sorted((c for c in shown if c.family == family), key=lambda c: c.gap)
        colour = f"c{members[0].kind % COLOURS}"
        line_look, look = (f"line {colour}", f"{colour} fill") if family in on else ("axis", "off")
        for c in members:
            body.append(polyline(map(place, c.thresholds), f"{line_look} thin"))
        if len(members) > 1:
            body.append(
                polyline((place((c.gap, c.accuracy)) for c in members), line_look + " dashed")
            )
        for c in members:
            told = f"{c.name}: accuracy {100 * c.accuracy:.1f} %, EO {100 * c.gap:.1f} points"
            body.append(marker(c.kind, *place((c.gap, c.accuracy)), 5.0, look, told))
    body += _names(shown, families, on, place)
    told = "; ".join(f"{c.name} {100 * c.accuracy:.1f} % at {100 * c.gap:.1f}" for c in best)
    ruled = "; ".join(f"{100 * accuracy:.1f} % at {100 * gap:.1f}" for gap, accuracy in top)
    said = f"Accuracy against the gap. Not dominated: {told}."
    if any(c.thresholds for c in shown):
        said += f" With thresholds per group: {ruled}."
    return picture(WIDTH, BOTTOM + 44, body, said)


def _steps(points: Sequence[Reach], place: Callable[[Reach], Reach]) -> list[Reach]:
    """Return the staircase through points, on to the right edge."""
    out: list[Reach] = []
    for x, y in map(place, points):
        out += [(x, out[-1][1]), (x, y)] if out else [(x, y)]
    return [*out, (RIGHT, out[-1][1])]


def _band(choices: Sequence[Choice], place: Callable[[Reach], Reach]) -> list[str]:
    """Return the band between the fronts of all lower and of all upper ends, which hold at once."""
    found = [p for c in choices if c.found for p in (c.found.own, *c.found.thresholds)]
    if not found:
        return []
    upper = _steps(stairs([p.best for p in found]), place)
    lower = _steps(stairs([p.worst for p in found]), place)
    foot = [(lower[0][0], BOTTOM), (upper[0][0], BOTTOM)]  # below its first gap nothing is known
    return [polyline([*upper, *reversed(lower), *foot], "area c7")]


def _names(
    choices: Sequence[Choice],
    families: Sequence[str],
    on: set[str],
    place: Callable[[Reach], Reach],
) -> list[str]:
    """Return every method's name beside the picture, with a line to its most accurate mark."""
    if len(families) > MOST_NAMES:
        families = [f for f in families if f in on][:MOST_NAMES]
    leaders = [
        max((c for c in choices if c.family == f), key=lambda c: c.accuracy) for f in families
    ]
    marks = sorted(((*place((c.gap, c.accuracy)), c) for c in leaders), key=lambda m: (m[1], m[0]))
    heights: list[float] = []
    for _, y, _ in marks:
        heights.append(max(y, heights[-1] + APART) if heights else max(y, TOP))
    over, last = BOTTOM, len(heights)
    for k in reversed(range(last)):  # what hangs out below is pushed up
        heights[k] = min(heights[k], over)
        over = heights[k] - APART
    body = []
    for (x, y, c), at in zip(marks, heights, strict=True):
        body.append(polyline([(x + 7, y), (RIGHT + 4, at), (NAMES - 5, at)], "leader"))
        look = "small" if c.family in on else "muted small"
        body.append(text(NAMES, at + 4, c.family, look, most=16))
    return body


# -------------------------------------------------------------------------------------------------
# The front of an audit: what thresholds per group could do for the scores of one model.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ThresholdFront:
    """Words, table and picture of a model's front; ``reason`` where there is none."""

    found: ScoreFront | None
    unit: str = "rows"
    reason: str = ""

    @classmethod
    def of(cls, subject: Subject) -> ThresholdFront | None:
        """Return the front of a subject; None if it was not asked for."""
        found = subject.front
        if found is None:
            return None
        if isinstance(found, str):
            return cls(None, subject.unit, found)
        if not found.gap.defined:
            return cls(None, subject.unit, found.gap.reason or "the gap has no value")
        return cls(found, subject.unit)

    @property
    def says(self) -> list[str]:
        """What could be had, at what price; nothing that an interval does not show."""
        if self.found is None:
            return [f"What thresholds per group could do cannot be told: {self.reason}."]
        own = (
            f"As it decides: accuracy {percent(self.found.accuracy.value)} %, gap (EO) "
            f"{percent(self.found.gap.value)} points."
        )
        fairer = [p for p in self.found.points if _below(p.relief)]
        if not fairer:
            return [own, "No thresholds per group are shown to make the gap smaller here."]
        best = min(fairer, key=lambda p: p.gap.value)
        lines = [own, f"Thresholds per group could bring the gap to {self._words(best)}"]
        cheap = [p for p in fairer if not _below(p.price) and p.gap.value > best.gap.value]
        if cheap and _below(best.price):
            mild = min(cheap, key=lambda p: p.gap.value)
            lines.append(f"A milder rule brings it to {self._words(mild)}")
        return [*lines, f"Such rules need the group of all {self.unit} at prediction."]

    def _words(self, p: FrontPoint) -> str:
        gap = f"{percent(p.gap.value)} points ({percent(p.gap.low)} to {percent(p.gap.high)})"
        cost = p.price
        span = f"{percent(cost.low)} to {percent(cost.high)} points"
        if _below(cost):
            ends = f"{percent(-cost.high)} to {percent(-cost.low)}"
            return f"{gap}, for {percent(-cost.difference)} points of accuracy ({ends})."
        if cost.low > 0:
            return f"{gap}, with {percent(cost.difference)} points more accuracy ({span})."
        return f"{gap}; accuracy is not shown to differ ({span})."

    @property
    def rows(self) -> list[dict[str, str]]:
        """The table: a line for each tolerance."""
        if self.found is None:
            return []

        def span(low: float, high: float) -> str:
            return f"{percent(low)} – {percent(high)}"

        return [
            {
                "tolerance": _tolerance(p),
                "gap": percent(p.gap.value),
                "gap_ci": span(p.gap.low, p.gap.high),
                "accuracy": percent(p.accuracy.value),
                "accuracy_ci": span(p.accuracy.low, p.accuracy.high),
                "price": percent(p.price.difference),
                "price_ci": span(p.price.low, p.price.high),
            }
            for p in self.found.points
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        if self.found is None:
            return {"reason": self.reason}
        return {
            "level": self.found.level,
            "accuracy": self.found.accuracy.as_dict(),
            "gap": self.found.gap.as_dict(),
            "points": [
                {
                    "tolerance": p.tolerance,
                    "accuracy": p.accuracy.as_dict(),
                    "gap": p.gap.as_dict(),
                    "price": p.price.as_dict(),
                    "relief": p.relief.as_dict(),
                }
                for p in self.found.points
            ],
        }

    def figure(self) -> Markup:
        """Draw the accuracy against the gap: the rules with a band, and the model as it decides."""
        if self.found is None:
            return Markup("")
        points = sorted(self.found.points, key=lambda p: p.gap.value)
        own = self.found
        every = [(p.gap, p.accuracy) for p in points] + [(own.gap, own.accuracy)]
        xs = [100 * v for gap, _ in every for v in (gap.value, gap.high) if math.isfinite(v)]
        ys = [100 * v for _, acc in every for v in (acc.low, acc.high)]
        width, left, right, top, bottom = 640.0, 46.0, 628.0, 16.0, 300.0
        x1, pad = max(1.05 * max(xs), 1.0), max(0.05 * (max(ys) - min(ys)), 0.3)
        y0, y1 = max(0.0, min(ys) - pad), min(100.0, max(ys) + pad)

        def px(v: float) -> float:
            return left + 100 * v / x1 * (right - left)

        def py(v: float) -> float:
            return bottom - (100 * v - y0) / (y1 - y0) * (bottom - top)

        body = axes(left, right, top, bottom, (0.0, x1), (y0, y1))
        middle = (left + right) / 2
        body.append(text(middle, bottom + 34, "average gap (EO), points", "muted", "middle"))
        body.append(text(left, top - 3, "Accuracy, %", "muted"))
        steps = [(px(p.gap.value), py(p.accuracy.value)) for p in points]
        body.append(polyline(steps, "line c0"))
        for kind, gap, acc, name in [
            *((0, p.gap, p.accuracy, f"rates may differ by {_tolerance(p)}") for p in points),
            (1, own.gap, own.accuracy, "the model as it decides"),
        ]:
            x, y = px(gap.value), py(acc.value)
            whiskers = line(px(gap.low), y, px(gap.high), y, "whisker faint own") + line(
                x, py(acc.low), x, py(acc.high), "whisker faint own"
            )
            body.append(element("g", whiskers, cls=f"c{kind}"))
            told = f"{name}: accuracy {percent(acc.value)} %, gap {percent(gap.value)} points"
            body.append(marker(kind, x, y, 4.5 + 1.5 * kind, f"c{kind} fill", told))
        x, y = px(own.gap.value), py(own.accuracy.value)
        side = "end" if x > middle else "start"
        body.append(text(x + (-10 if side == "end" else 10), y - 9, "as it decides", "small", side))
        told = "; ".join(f"{percent(p.accuracy.value)} % at {percent(p.gap.value)}" for p in points)
        says = f"Thresholds per group: accuracy against the gap. {told}."
        return picture(width, bottom + 44, body, says)


def _tolerance(p: FrontPoint) -> str:
    return "any amount" if p.tolerance >= 1 else f"{100 * p.tolerance:g} points"


def _below(c: Comparison) -> bool:
    """Return whether the interval of a difference lies below 0."""
    return not c.reason and c.shown and c.high < 0
