"""Numbers in words: percentages, points, intervals, and the verdict that opens a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from shasam.metrics import Claim, Comparison, Estimate
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
    acc, eo = subject.estimates["accuracy"], subject.estimates["eo_mean"]
    lines = [
        f"Of {count(subject.counts.total)} test {subject.unit}, {percent(acc.value)} % are "
        f"classified correctly ({100 * subject.drawn.level:g} % interval {interval(acc)})."
    ]
    if not eo.defined:
        lines.append(f"Equalized odds has no value here: {eo.reason}.")
    if subject.claim is not None:
        lines += claimed(subject.claim, subject)
    if subject.small:
        few, many = len(subject.small) == 1, len(subject.small) > 5
        names = joined([*subject.small[:5], *(["others"] if many else [])])
        lines.append(
            f"{'One group has' if few else f'{len(subject.small)} groups have'} fewer than "
            f"{subject.drawn.min_group} {subject.unit} ({names}): shown, but not compared."
        )
    return lines


def claimed(claim: Claim, subject: Subject) -> list[str]:
    """The sentences about a gap: its size, who makes it, and whether it is more than chance."""
    e, contrast = claim.estimate, claim.contrast
    groups = len(subject.counts.groups) - len(subject.small)
    between = "the two groups" if groups == 2 else f"pairs of the {groups} groups"
    if claim.metric == "eo_mean":
        lines = [
            f"Between {between} of {subject.attribute}, accuracy on the same class differs by "
            f"{percent(e.value)} points on average (EO mean, {interval(e)})."
        ]
    else:
        lines = [
            f"Between the groups of {subject.attribute}, accuracy differs by up to "
            f"{percent(e.value)} points ({interval(e)})."
        ]
    if contrast is not None and contrast.gap.value > 0:
        on = f" is on {contrast.rate}" if contrast.rate else ""
        lines.append(
            f"The widest gap{on}: {percent(contrast.low.value)} % right in group "
            f"{contrast.low_group}, {percent(contrast.high.value)} % in group "
            f"{contrast.high_group}, {percent(contrast.gap.value)} points apart "
            f"({interval(contrast.gap)}, allowing for its choice as the widest)."
        )
    several = f", allowing for {claim.attributes} attributes" if claim.attributes > 1 else ""
    sure = f"{p_value(claim.p)}{several}"
    if claim.real:
        lines.append(
            f"That is more than what chance gives ({sure}): the gap is real, and at least "
            f"{percent(e.low)} points."
        )
    else:
        lines.append(
            f"That is within what chance alone gives ({sure}; {count(e.support)} {subject.unit} in "
            f"the smallest {'cell' if claim.metric == 'eo_mean' else 'group'}): no gap is shown, "
            f"but it could be up to {percent(e.high)} points."
        )
    return lines


def comparison_line(a: str, b: str, found: Mapping[str, Comparison]) -> str:
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
    line = f"{a} against {b}: {'; '.join(parts)}."
    return f"{line} {LEVELLED}" if levelled_down(found) else line


LEVELLED = (
    "Levelling down: the gap is smaller because the better-served got worse; the worst-served "
    "(class, group) did not gain."
)


def levelled_down(found: Mapping[str, Comparison]) -> bool:
    """Whether a smaller gap was bought by those who were served well, to nobody's gain."""
    eo, worst, acc = (found.get(k) for k in ("eo_mean", "worst_group_accuracy", "accuracy"))
    if eo is None or worst is None or acc is None or eo.reason or worst.reason:
        return False
    return eo.difference < 0 and eo.p < 0.05 and worst.difference <= 0 and acc.difference < 0


def joined(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
