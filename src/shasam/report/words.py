"""Numbers in words: percentages, points, intervals, and the verdict that opens a page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shasam.metrics import Comparison, Estimate
from shasam.report.subject import Subject


def percent(value: float, digits: int = 1) -> str:
    """0.8437 -> '84.4', and '–' where there is no value."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.{digits}f}".replace("-", "−")


def interval(estimate: Estimate) -> str:
    """'82.1 to 86.4'."""
    return f"{percent(estimate.low)} to {percent(estimate.high)}"


def count(n: int) -> str:
    return f"{n:,}"


def p_value(p: float) -> str:
    if not math.isfinite(p):
        return "–"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def verdict(subject: Subject) -> list[str]:
    """How accurate, how unequal, how sure: sentences for one model."""
    e, n = subject.estimates, subject.counts.total
    acc, eo = e["accuracy"], e["eo_mean"]
    groups, unit = len(subject.counts.groups), subject.unit
    lines = [
        f"Of {count(n)} test {unit}, {percent(acc.value)} % are classified correctly "
        f"({100 * subject.level:g} % interval {interval(acc)})."
    ]
    if not eo.defined:
        lines.append(f"Equalized odds has no value here: {eo.reason}.")
        return lines
    between = "the two groups" if groups == 2 else f"pairs of the {groups} groups"
    lines.append(
        f"Between {between} of {subject.attribute}, accuracy on the same class differs by "
        f"{percent(eo.value)} points on average (EO mean, {interval(eo)})."
    )
    pair = subject.widest
    if pair is not None and e["eo_max"].value > 0:
        low, high = pair
        lines.append(
            f"The widest gap is on {low.name}: {percent(low.estimate.value)} % right in group "
            f"{low.group}, {percent(high.estimate.value)} % in group {high.group}."
        )
    smallest = eo.support
    if eo.low <= 0:
        lines.append(
            f"That is within what chance alone gives with {count(smallest)} {unit} in the smallest "
            "cell: this test set cannot tell the model from one without a gap."
        )
    else:
        sure = "far beyond" if eo.low > 0.5 * eo.value else "more than"
        lines.append(
            f"That is {sure} what chance gives with {count(smallest)} {unit} in the smallest "
            f"cell: the gap is real, and at least {percent(eo.low)} points."
        )
    return lines


def comparison_line(a: str, b: str, found: dict[str, Comparison]) -> str:
    """One model against another on the same images, in a sentence."""
    eo, acc = found["eo_mean"], found["accuracy"]
    parts = []
    for metric, c, up, down in (
        ("EO (mean)", eo, "more unequal", "less unequal"),
        ("accuracy", acc, "more accurate", "less accurate"),
    ):
        if c.reason:
            parts.append(f"{metric} has no value ({c.reason})")
            continue
        size = f"{percent(abs(c.difference))} points"
        span = f"{percent(c.low)} to {percent(c.high)}, {p_value(c.p)}"
        if c.p < 0.05:
            parts.append(f"{up if c.difference > 0 else down} by {size} ({span})")
        else:
            parts.append(f"not clearly different in {metric} ({span})")
    return f"{a} against {b}: {'; '.join(parts)}."


def joined(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
