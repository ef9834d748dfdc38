"""Audits along a sensitive number, such as age in years: sentences, table, curves and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from markupsafe import Markup
from rich import box
from rich.table import Table

from shasam.errors import Argument, InputError
from shasam.metrics import Curves, Estimate, RateCurve, evaluate_curves
from shasam.metrics.curves import GRID, MEASURES, OVERALL, adjusted_along, measure_of
from shasam.output import Screen, markdown_code, markdown_table, markdown_text
from shasam.report.charts import axes
from shasam.report.subject import AuditOptions
from shasam.report.svg import line, marker, picture, polyline, text
from shasam.report.verdict import count, interval, p_value, percent
from shasam.types import Predictions

MOST_FIGURES = 12  # curves of a page; of more classes those with the largest gaps
MOST_PRINTED = 4  # curves on the terminal
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # at which a curve is read out
WIDTH = 420.0
HEADS = ("largest gap", "mean gap", "slope", "dependence")
_SHORT = {"tpr": "TPR", "fpr": "FPR", "selection": "selection rate"}


@dataclass(frozen=True)
class NumberSubject:
    """One model along one sensitive number: its curves, their metrics, and what to say of them."""

    rows: Predictions = field(repr=False)
    found: Curves
    drawn: AuditOptions
    unit: str = "rows"

    @classmethod
    def of(cls, rows: Predictions, drawn: AuditOptions) -> NumberSubject:
        """Measure predictions whose attribute is a number."""
        if rows.numbers is None:
            raise InputError(f"{rows.attribute!r} is no number")
        if rows.context.weights is not None:
            raise InputError(
                Argument("weight"),
                f" needs groups, and {rows.attribute!r} is followed as a number. Make groups by a "
                "rule, such as ",
                Argument("sensitive", f"{rows.attribute}<35"),
            )
        found = evaluate_curves(
            rows.target, rows.prediction, rows.numbers, classes=rows.classes,
            positive=rows.positive, draws=drawn.draws, seed=drawn.seed, level=drawn.level,
            min_group=drawn.min_group, repeats=rows.repeats,
        )  # fmt: skip
        return cls(rows, found, drawn)

    @property
    def name(self) -> str:
        """The model."""
        return self.rows.name

    @property
    def attribute(self) -> str:
        """The sensitive number."""
        return self.rows.attribute

    @property
    def estimates(self) -> dict[str, Estimate]:
        return self.found.estimates

    @property
    def defined(self) -> list[RateCurve]:
        return [c for c in self.found.curves if c.defined]

    @property
    def taken(self) -> str:
        """How the attribute was taken."""
        different = len(np.unique(self.rows.numbers)) if self.rows.numbers is not None else 0
        return (
            f"{self.attribute} has {count(different)} different values and is followed as a "
            "number, without groups."
        )

    @cached_property
    def whole(self) -> bool:
        """Whether the number is always a whole one, such as years."""
        x = self.rows.numbers
        return x is not None and bool((x == np.rint(x)).all())

    def shown(self, value: float) -> str:
        """Return a number of the attribute, short: years and incomes without fractions."""
        return f"{value:,.0f}" if self.whole or abs(value) >= 100 else f"{value:.3g}"

    def missing(self, metric: str) -> str:
        """Return why a metric is not among the estimates."""
        if measure_of(metric) is not None:
            return f"there are: {', '.join(k for k in self.estimates if measure_of(k))}"
        return (
            f"it compares groups, and {self.attribute} is followed as a number; limit "
            "curve_mean_gap, or make groups by a rule"
        )

    @property
    def lines(self) -> list[str]:
        """Sentences: what happens along the number in each class, and how sure that is."""
        acc = self.estimates["accuracy"]
        share = (
            f"Of {count(self.rows.total)} test {self.unit}, {percent(acc.value)} % are classified "
            f"correctly ({100 * self.drawn.level:g} % interval {interval(acc)})."
        )
        return [*self.of_classes, share, self.taken]

    @property
    def of_classes(self) -> list[str]:
        """A sentence for each class: what happens to it along the number."""
        said = [self._line(c) for c in self.found.curves if not c.rate.startswith("selection")]
        return said[:MOST_FIGURES]

    @property
    def headline(self) -> str | None:
        """The sentence of the largest gap that is shown; None where none is."""
        gaps = {c.rate: self.estimates[f"curve_gap_{c.rate}"] for c in self.defined}
        sure = [c for c in self.defined if gaps[c.rate].low > 0 and c.rate != "selection"]
        if not sure:
            return None
        return f"By {self.attribute}: {self._line(max(sure, key=lambda c: gaps[c.rate].value))}"

    @property
    def in_short(self) -> list[str]:
        """Of a run: the widest gap that is shown, and what the groups beside it are."""
        none = f"No rate is shown to change along {self.attribute} by more than chance gives."
        taken = self.taken.removesuffix(", without groups.")
        return [
            self.headline or none,
            f"{taken}; where groups are named, they are quarters of the {self.unit}.",
        ]

    def _line(self, c: RateCurve) -> str:
        who, _, called = c.says.partition(", ")
        if not c.defined:
            return f"Class {who} has no curve along {self.attribute}: {c.reason}."
        e = self.estimates[f"curve_gap_{c.rate}"]
        sure = "more than chance gives" if e.low > 0 else "within what chance gives"
        high, low = self.extremes(c)
        return (
            f"Class {who} is {called} for {percent(c.curve[high])} % at {self.attribute} "
            f"{self.shown(c.values[high])} and for {percent(c.curve[low])} % at "
            f"{self.shown(c.values[low])}: a gap of {percent(e.value)} points ({interval(e)}), "
            f"{sure} ({p_value(e.p or 0.0)})."
        )

    @staticmethod
    def extremes(c: RateCurve) -> tuple[int, int]:
        """Return where a curve is highest and lowest."""
        return int(c.curve.argmax()), int(c.curve.argmin())

    def table(self) -> list[list[str]]:
        """Return a row for each rate, and one for all classes."""
        rows = [
            [f"{c.says} ({_SHORT.get(c.rate, c.rate)})", count(c.rows),
             *([f"– {c.reason}", "", "", ""] if not c.defined else
               [_cell(self.estimates[f"{m}_{c.rate}"]) for m in MEASURES])]
            for c in self.found.curves
        ]  # fmt: skip
        cells = [_cell(self.estimates[m]) if m in OVERALL else "" for m in MEASURES]
        return [*rows, ["all classes", "", *cells]]

    def drawn_curves(self) -> list[RateCurve]:
        """Return the curves of the page, those with the largest gaps where there are many."""
        shown_ones = self.defined
        if len(shown_ones) <= MOST_FIGURES:
            return shown_ones
        order = sorted(shown_ones, key=lambda c: -self.estimates[f"curve_gap_{c.rate}"].value)
        return order[:MOST_FIGURES]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "model": self.name,
            "attribute": self.attribute,
            "rows": self.rows.total,
            "classes": list(self.rows.classes),
            "verdict": self.lines,
            **self.found.as_dict(),
        }

    def section(self) -> dict[str, Any]:
        """Return the variables of the template."""
        drawn = self.drawn_curves()
        left = len(self.defined) - len(drawn)
        return {
            "name": f"{self.name}, by {self.attribute}",
            "attribute": self.attribute,
            "taken": self.taken,
            "verdict": self.lines,
            "figures": [
                {"title": title(c), "figure": self.figure(c), "says": self._caption(c)}
                for c in drawn
            ],
            "left_out": f"{left} more curves are in the JSON file." if left > 0 else "",
            "heads": HEADS,
            "rows": self.table(),
        }

    def _caption(self, c: RateCurve) -> str:
        slope = self.estimates[f"curve_slope_{c.rate}"]
        return (
            f"{count(c.rows)} {self.unit}. From the first to the third quartile of "
            f"{self.attribute} a straight line changes by {percent(slope.value)} points "
            f"({interval(slope)})."
        )

    def figure(self, c: RateCurve) -> Markup:
        """Draw a curve in its band over the number; ticks below are quantiles of the rows."""
        left, right, top, bottom = 46.0, WIDTH - 14, 16.0, 216.0
        x0, x1 = float(c.values[0]), float(c.values[-1])
        y0, y1 = _window(100 * float(c.low.min()), 100 * float(c.high.max()))

        def place(i: int, rate: float) -> tuple[float, float]:
            across = (float(c.values[i]) - x0) / max(x1 - x0, 1e-300)
            return left + across * (right - left), bottom - (100 * rate - y0) / (y1 - y0) * (
                bottom - top
            )

        points = range(len(c.values))
        body = axes(left, right, top, bottom, (x0, x1), (y0, y1))
        upper = [place(i, float(c.high[i])) for i in points]
        lower = [place(i, float(c.low[i])) for i in points]
        body.append(polyline([*upper, *reversed(lower)], "area c0"))
        body.append(polyline([place(i, float(c.curve[i])) for i in points], "line c0"))
        body += [line(place(i, 0)[0], bottom + 1, place(i, 0)[0], bottom + 7, "whisker faint")
                 for i in points]  # fmt: skip
        for quantile in QUANTILES:
            i = int(np.abs(GRID - quantile).argmin())
            said = (
                f"{100 * quantile:g} % quantile, {self.attribute} {self.shown(c.values[i])}: "
                f"{percent(c.curve[i])} % ({percent(c.low[i])} – {percent(c.high[i])})"
            )
            body.append(marker(0, *place(i, float(c.curve[i])), 3.6, "fill c0", said))
        body.append(text((left + right) / 2, bottom + 36, self.attribute, "muted", "middle"))
        body.append(text(left, top - 4, f"{_SHORT.get(c.rate, c.says)}, %", "muted", most=60))
        high, low = self.extremes(c)
        told = (
            f"{c.says}, in % along {self.attribute}: highest {percent(c.curve[high])} at "
            f"{self.shown(c.values[high])}, lowest {percent(c.curve[low])} at "
            f"{self.shown(c.values[low])}."
        )
        return picture(WIDTH, bottom + 44, body, told)


def title(c: RateCurve) -> str:
    """Name a rate: 'yes, called yes (TPR)'."""
    return f"{c.says} ({_SHORT[c.rate]})" if c.rate in _SHORT else c.says


def _window(low: float, high: float) -> tuple[float, float]:
    """Return a part of 0 to 100 % that holds the band, at least twenty points high."""
    middle, half = (low + high) / 2, max((high - low) / 2 + 2, 10.0)
    y0, y1 = middle - half, middle + half
    y0, y1 = y0 - max(y1 - 100, 0.0), min(y1, 100.0)
    y0, y1 = max(y0, 0.0), y1 - min(y0, 0.0)
    return 5 * math.floor(y0 / 5), min(5 * math.ceil(y1 / 5), 100)


def _cell(e: Estimate) -> str:
    if not e.defined:
        return f"– {e.reason}"
    p = "" if e.p is None else f", {p_value(e.p)}"
    return f"{percent(e.value)} ({percent(e.low)} – {percent(e.high)}{p})"


def numbers_of_audit(tables: Sequence[Predictions], drawn: AuditOptions) -> list[NumberSubject]:
    """Return a subject for each attribute that is followed as a number, the p-values of all
    adjusted.
    """
    found = [NumberSubject.of(rows, drawn) for rows in tables if rows.numbers is not None]
    if found and len(found) == len(tables):
        _check_groups(found[0], drawn)
    if len(found) < 2:
        return found
    adjusted = adjusted_along([s.estimates for s in found], drawn.level)
    return [
        NumberSubject(s.rows, Curves(s.found.curves, e), s.drawn, s.unit)
        for s, e in zip(found, adjusted, strict=True)
    ]


def _check_groups(first: NumberSubject, drawn: AuditOptions) -> None:
    """Refuse what only groups have where there are none."""
    context = first.rows.context
    given = (("reference", drawn.reference), ("time", context.time), ("front", drawn.front),
             ("slices", context.columns))  # fmt: skip
    for argument, value in given:
        if value:
            raise InputError(
                Argument(argument),
                f" needs groups, and {first.attribute!r} is followed as a number. Add groups by a "
                "rule, such as ",
                Argument("sensitive", f"{first.attribute}<35"),
            )


def print_number(subject: NumberSubject, screen: Screen) -> None:
    """Print the sentences, and the table of every curve."""
    screen.print()
    screen.print(f"{subject.name}, by {subject.attribute}", style="bold")
    for said in subject.lines:
        screen.print(said)
    screen.print(f"Groups instead: --discrete {subject.attribute}, or a rule such as "
                 f"--sensitive '{subject.attribute}<35'", style="dim")  # fmt: skip
    screen.print(_metrics(subject))
    screen.print(_at_quantiles(subject))


def _metrics(subject: NumberSubject) -> Table:
    """Return every metric under the name that a limit takes; of many classes the widest gaps."""
    kept = {c.rate for c in subject.drawn_curves()} | {
        c.rate for c in subject.found.curves if not c.defined
    }
    title_ = f"Along {subject.attribute}, in % and points"
    table = Table(title=title_, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("metric", overflow="fold")
    for name in ("value", f"{100 * subject.drawn.level:g} % interval", "p", "support"):
        table.add_column(name, justify="right")
    for key, e in subject.estimates.items():
        measure = measure_of(key)
        if measure and key not in OVERALL and key[len(measure.key) + 1 :] not in kept:
            continue
        cells = [percent(e.value), f"{percent(e.low)} – {percent(e.high)}"]
        p = "" if e.p is None else p_value(e.p).removeprefix("p ").removeprefix("= ")
        table.add_row(key, *(cells if e.defined else ["–", e.reason or ""]), p, count(e.support))
    return table


def _at_quantiles(subject: NumberSubject) -> Table:
    """Return the widest curves at five quantiles, with the band."""
    title_ = f"Rates in % at quantiles of {subject.attribute}; a band holds its whole curve"
    table = Table(title=title_, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("rate", overflow="fold")
    for name in ("quantile", subject.attribute, "rate, %", "band"):
        table.add_column(name, justify="right")
    for c in subject.drawn_curves()[:MOST_PRINTED]:
        for quantile in QUANTILES:
            i = int(np.abs(GRID - quantile).argmin())
            name = title(c) if quantile == QUANTILES[0] else ""
            band = f"{percent(c.low[i])} – {percent(c.high[i])}"
            place = f"{100 * quantile:g} %"
            table.add_row(name, place, subject.shown(c.values[i]), percent(c.curve[i]), band)
    return table


def number_summary(subject: NumberSubject) -> list[str]:
    """Return verdict and headline metrics as Markdown."""
    rows = [
        [markdown_code(key), percent(e.value), interval(e) if e.defined else
         markdown_text(e.reason or ""), count(e.support)]
        for key, e in subject.estimates.items()
        if key in OVERALL or key == "accuracy"
    ]  # fmt: skip
    return [
        f"### {markdown_text(subject.name)}, by {markdown_text(subject.attribute)}",
        "",
        markdown_text(" ".join(subject.lines)),
        "",
        *markdown_table(["metric, % and points", "value", "interval", "support"], rows),
        "",
    ]


NOTE = (
    "A curve is a local-linear smoother over the quantiles of the number among the rows of its "
    "class; half of its window is n^(-1/5)/2 of them, from 0.03 to 0.25. The shaded band holds the "
    "whole smoothed curve at once. Each tick below a curve is a fortieth of the rows. Gaps are "
    "between the 5 % and the 95 % quantile; their intervals are inverted tests and start at 0 "
    "where shuffling the rows of a class gives as much in more than one of twenty cases. "
    "Dependence is a distance correlation. p-values are adjusted for the classes (Holm)."
)
