"""The gap between groups over time: one value with its interval for each period."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from shasam.metrics import Period, over_time
from shasam.report.drawn import Drawn
from shasam.report.svg import element, line, marker, picture, text, ticks
from shasam.types import Predictions

WIDTH = 420.0


@dataclass(frozen=True)
class Timeline:
    """A metric in every period that has rows."""

    column: str
    period: str
    metric: str
    periods: tuple[Period, ...]

    @classmethod
    def of(cls, rows: Predictions, drawn: Drawn, metric: str) -> Timeline:
        """Of rows with dates."""
        found = over_time(
            rows.target,
            rows.prediction,
            rows.sensitive,
            rows.context.when,
            metric=metric,
            period=drawn.period,
            **drawn.keywords(rows),
        )
        return cls(rows.context.time, drawn.period, metric, tuple(found))

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "column": self.column,
            "period": self.period,
            "metric": self.metric,
            "periods": [p.as_dict() for p in self.periods],
        }

    def figure(self) -> Markup:
        """A mark with its interval for every period that has a value."""
        left, right, top, bottom = 46.0, WIDTH - 12, 14.0, 190.0
        found = [(i, p) for i, p in enumerate(self.periods) if p.estimate.defined]
        if not found:
            return Markup("")
        most = max(100 * p.estimate.high for _, p in found) * 1.05 or 1.0
        step = (right - left) / len(self.periods)
        body = []
        for v in ticks(0.0, most, 5):
            y = bottom - v / most * (bottom - top)
            body.append(line(left, y, right, y, "grid"))
            body.append(text(left - 6, y + 4, f"{v:g}", "muted small", "end"))
        for i, p in found:
            x, e = left + (i + 0.5) * step, p.estimate
            low, y, high = (
                bottom - 100 * v / most * (bottom - top) for v in (e.low, e.value, e.high)
            )
            says = (
                f"{p.name}: {100 * e.value:.1f} points ({100 * e.low:.1f} to {100 * e.high:.1f}), "
                f"{p.rows:,} rows"
            )
            body.append(element("g", line(x, low, x, high, "whisker own"), cls="c0"))
            body.append(marker(0, x, y, 4.2, "fill c0", says))
        every = -(-len(self.periods) // 6)
        for i, p in enumerate(self.periods):
            if i % every == 0:
                middle = left + (i + 0.5) * step
                body.append(text(middle, bottom + 17, p.name, "muted small", "middle"))
        body.append(line(left, bottom, right, bottom, "axis"))
        body.append(text(left, top - 3, "gap, points", "muted"))
        told = "; ".join(f"{p.name} {100 * p.estimate.value:.1f}" for _, p in found[:24])
        return picture(WIDTH, bottom + 26, body, f"Gap in points by {self.period}: {told}.")
