"""The front: what accuracy each gap costs, over methods and their dials or thresholds per group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from shasam.metrics.odds import FrontPoint, ScoreFront
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


def undominated(choices: Sequence[Choice]) -> list[Choice]:
    """Those that no other beats in one of accuracy and gap without losing in the other.

    In order of the gap; of equal ones the first is kept.
    """
    out: list[Choice] = []
    for c in sorted(choices, key=lambda c: (c.gap, -c.accuracy)):
        if not out or c.accuracy > out[-1].accuracy:
            out.append(c)
    return out


def front(choices: Sequence[Choice]) -> Markup:
    """What accuracy each gap costs: methods as lines over their dials, and the front of all.

    What is dominated is faint; every method is named once, at its most accurate value.
    """
    shown = [c for c in choices if math.isfinite(c.accuracy) and math.isfinite(c.gap)]
    if len(shown) < 2:
        return Markup("")
    width, left, right, top, bottom = 640.0, 46.0, 628.0, 16.0, 320.0
    ys = [100 * c.accuracy for c in shown]
    pad = max(0.12 * (max(ys) - min(ys)), 0.5)
    x1 = max(108 * max(c.gap for c in shown), 1.0)
    y0, y1 = max(0.0, min(ys) - pad), min(100.0, max(ys) + pad)

    def place(c: Choice) -> tuple[float, float]:
        x = left + 100 * c.gap / x1 * (right - left)
        return x, bottom - (100 * c.accuracy - y0) / (y1 - y0) * (bottom - top)

    body = axes(left, right, top, bottom, (0.0, x1), (y0, y1))
    middle = (left + right) / 2
    body.append(text(middle, bottom + 34, "average gap (EO), points", "muted", "middle"))
    body.append(text(left, top - 3, "Accuracy, %", "muted"))
    best = undominated(shown)
    stairs: list[tuple[float, float]] = []
    for c in best:
        x, y = place(c)
        stairs += [(x, stairs[-1][1]), (x, y)] if stairs else [(x, y)]
    body.append(polyline([*stairs, (right, stairs[-1][1])], "axis"))
    families = list(dict.fromkeys(c.family for c in shown))
    taken: list[tuple[float, float, float]] = []
    for kind, family in enumerate(families):
        members = sorted((c for c in shown if c.family == family), key=lambda c: c.gap)
        colour = f"c{kind % COLOURS}"
        if len(members) > 1:
            body.append(polyline(map(place, members), f"line {colour} dashed"))
        for c in members:
            told = f"{c.name}: accuracy {100 * c.accuracy:.1f} %, EO {100 * c.gap:.1f} points"
            look = "fill" if c in best else "fill faint"
            body.append(marker(kind, *place(c), 5.5, f"{colour} {look}", told))
        x, y = place(max(members, key=lambda c: c.accuracy))
        wide = 6.5 * min(len(family), 18)
        x = min(x + 9, right - wide)
        step = 0
        while any(abs(y - v) < 12 and x < u + w and u < x + wide for u, v, w in taken):
            step += 1
            y += (-1) ** step * 6 * step  # up and down in turn, farther each time
        taken.append((x, y, wide))
        on = any(c in best for c in members)
        body.append(text(x, y + 4, family, "small" if on else "muted small", most=18))
    told = "; ".join(f"{c.name} {100 * c.accuracy:.1f} % at {100 * c.gap:.1f}" for c in best)
    return picture(width, bottom + 44, body, f"Accuracy against the gap. Not dominated: {told}.")


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
        """The front of a subject; None where it was not asked for."""
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
        """Plain JSON."""
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
        """Accuracy against the gap: the rules with a band, and the model as it decides."""
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
    """Whether the interval of a difference lies below 0."""
    return not c.reason and c.shown and c.high < 0
