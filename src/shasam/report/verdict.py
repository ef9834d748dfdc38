"""Sentences about numbers: percentages, points, intervals, and the verdict of a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from shasam.metrics import Claim, Comparison, Estimate, Slices, widest
from shasam.metrics.counts import right_by_class
from shasam.metrics.rates import smallest_gap
from shasam.metrics.resampling import compared_rates
from shasam.report.subject import Subject


def percent(value: float, digits: int = 1) -> str:
    """Write 0.8437 as '84.4', and '–' where there is no value."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.{digits}f}".replace("-", "−")


def interval(estimate: Estimate | Comparison) -> str:
    """Write an interval: '82.1 to 86.4'.

    An end that only rounds to 0 is 'above 0' or 'below 0', so that no sentence seems to claim a gap
    that its own interval allows to be none.
    """
    low, high = (
        f"{'above' if end > 0 else 'below'} 0" if end and abs(end) < 0.0005 else percent(end)
        for end in (estimate.low, estimate.high)
    )
    return f"{low} to {high}"


def count(n: int) -> str:
    return f"{n:,}"


def p_value(p: float) -> str:
    if not math.isfinite(p):
        return "–"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def verdict(subject: Subject) -> list[str]:
    """Say who is harmed and how, how sure that is, how accurate the model is: sentences."""
    acc, eo = subject.estimates["accuracy"], subject.estimates["eo_mean"]
    claim, lines = subject.claim, []
    if not eo.defined:
        lines.append(f"Equalized odds has no value here: {eo.reason}.")
    if claim is not None:
        lines += [*harms(subject), sureness(claim, subject)] if claim.real else [
            sureness(claim, subject), *harms(subject)
        ]  # fmt: skip
        if claim.metric in subject.approximate:
            lines.append(f"The interval is approximate: {subject.approximate[claim.metric]}.")
    lines.append(
        f"Of {count(subject.rows.total)} test {subject.unit}, {percent(acc.value)} % are "
        f"classified correctly ({100 * subject.drawn.level:g} % interval {interval(acc)})."
    )
    lines += weighing(subject)
    lines += left_out(subject)
    lines += detectable(subject)
    return lines


CLAIMED = {
    "eo_mean": "Average gap between groups (EO)",
    "accuracy_gap": "Largest gap in accuracy",
}


def in_short(subject: Subject) -> tuple[list[str], list[str]]:
    """Cut the verdict in two: who is harmed most and how sure that is; and all other sentences."""
    whole, claim = verdict(subject), subject.claim
    first = [] if subject.estimates["eo_mean"].defined else whole[:1]
    if claim is not None:
        first += harms(subject)[:1] if claim.real else []
        first.append(sureness(claim, subject))
    return first or whole[:1], [line for line in whole if line not in (first or whole[:1])]


def verdict_over(subjects: Sequence[Subject]) -> list[str]:
    """Say what holds through several attributes: the widest real gaps first, then the rest."""
    claimed = [(s, s.claim) for s in subjects if s.claim is not None]
    real = sorted((x for x in claimed if x[1].real), key=lambda x: -x[1].estimate.value)
    told = [(s, line) for s, _ in real[:4] for line in harms(s)[:1]]
    lines = [f"By {s.attribute}: {line[0].lower()}{line[1:]}" for s, line in told]
    if real:
        gaps = "gaps is" if len(real) == 1 else "gaps are"
        said = (
            f"{len(real)} of {len(claimed)} {gaps} real, more than chance gives even among "
            f"{len(claimed)} attributes."
        )
        for metric, what in CLAIMED.items():  # where a cell is empty, EO has no value
            sizes = [
                f"{s.attribute} ({percent(c.estimate.value)} points, {interval(c.estimate)})"
                for s, c in real
                if c.metric == metric
            ]
            said += f" {what} by {joined(sizes)}." if sizes else ""
        lines.append(said)
    hidden = [
        f"{s.attribute} (up to {percent(c.estimate.high)} points)" for s, c in claimed if not c.real
    ]
    if hidden:
        lines.append(f"No gap is shown by {joined(hidden)}; a gap up to that size is possible.")
    silent = [s.attribute for s in subjects if s.claim is None]
    if silent:
        lines.append(f"Groups cannot be compared by {joined(silent)}.")
    first, acc = subjects[0], subjects[0].estimates["accuracy"]
    lines.append(
        f"Of {count(first.rows.total)} test {first.unit}, {percent(acc.value)} % are "
        f"classified correctly ({100 * first.drawn.level:g} % interval {interval(acc)})."
    )
    lines += weighing(first)
    few = [f"{len(s.small)} of {s.attribute}" for s in subjects if s.small]
    if few:
        lines.append(
            f"Groups with fewer than {first.drawn.min_group} {first.unit} of a class are shown in "
            f"grey, but not compared in it: {joined(few)}."
        )
    return lines


def left_out(subject: Subject) -> list[str]:
    """Return which groups are not compared, because a class has too few rows in them."""
    if not subject.small:
        return []
    number, many = len(subject.small), len(subject.small) > 5
    names = joined([*subject.small[:5], *(["others"] if many else [])])
    return [
        f"{'One group has' if number == 1 else f'{number} groups have'} fewer than "
        f"{subject.drawn.min_group} {subject.unit} of a class ({names}): shown in grey, but not "
        "compared there."
    ]


def detectable(subject: Subject) -> list[str]:
    """Return the smallest gap that the table would show, so that 'no gap' can be judged."""
    found = smallest_gap(subject.counts, subject.drawn.min_group, subject.drawn.level)
    if found is None:
        return []
    return [
        f"The smallest gap that this table shows with 80 % probability is {percent(found.gap)} "
        f"points, between {found.low_group} and {found.high_group}"
        + (f" where the class is {found.name}." if found.name else ".")
    ]


def weighing(subject: Subject) -> list[str]:
    """Return what weights do to the numbers, where there are some."""
    context = subject.rows.context
    if context.weights is None:
        return []
    scores = (
        " Metrics of scores do not take weights and are left out." if subject.rows.scored else ""
    )
    return [
        f"Rows are weighted by {context.weight}: for intervals, {count(subject.rows.total)} rows "
        f"are worth {count(round(subject.counts.n_CPG.sum()))} of equal weight within the groups, "
        f"and supports count those.{scores}"
    ]


def harms(subject: Subject) -> list[str]:
    """Return which error hits which group how often, the widest difference first.

    Two classes have two errors, and both are told; of more classes only the widest is.
    """
    least, counts = subject.drawn.min_group, subject.counts
    rates_CG, _ = compared_rates(counts, right_by_class, subject.positive, least)
    compared_C = (~np.isnan(rates_CG)).sum(1)
    if compared_C.min() < 2 or (least <= 0 and counts.empty_cells()):
        return _harm_over_classes(subject)
    two = len(counts.classes) == 2
    found = []
    for c in range(len(counts.classes)):
        level = subject.drawn.level
        pair = widest(counts, "eo_mean", positive=subject.positive, level=level, least=least, row=c)
        if pair is not None:
            found.append((c, pair))
    found.sort(key=lambda x: -x[1].gap.value)
    lines = []
    for c, pair in found[: 2 if two else 1]:
        error = counts.classes[1 - c] if two else "wrong"
        number = int(compared_C[c])
        sure = pair.gap.low > 0
        most = "that surely differ most" if sure else "furthest apart, perhaps by chance"
        of = "" if number == 2 else f" (of {number} groups, the two {most})"
        opening = f"Where {subject.outcome or 'the true class'} is {counts.classes[c]}, "
        lines.append(
            f"{opening}the prediction was {error} in "
            f"{_twice(pair.low.value, pair.low_group, pair.high.value, pair.high_group)}{of}."
        )
        lines += _largest_two(
            subject, c, {pair.low_group, pair.high_group}, f"{opening}it was {error} in "
        )
    return lines


def _twice(worse: float, worse_group: str, better: float, better_group: str) -> str:
    """Say how often the prediction was wrong in two groups, from how often it was right."""
    high, low = 1 - worse, 1 - better
    times = f", {high / low:.1f} times as often" if low > 0 and high >= 1.25 * low else ""
    return (
        f"{percent(high)} % of cases in group {worse_group} and {percent(low)} % in group "
        f"{better_group}{times}"
    )


def _largest_two(subject: Subject, c: int, told: set[str], opening: str) -> list[str]:
    """Say the same of the two largest groups, where others were named: most people are in those."""
    counts = subject.counts
    order = np.argsort(-counts.sizes_G, kind="stable")[:2].tolist()
    names = {counts.groups[g] for g in order}
    rates_CG, _ = compared_rates(counts, right_by_class, subject.positive, subject.drawn.min_group)
    if len(counts.groups) < 3 or names == told or np.isnan(rates_CG[c, order]).any():
        return []
    worse, better = sorted(order, key=lambda g: rates_CG[c, g])
    sizes = _twice(
        float(rates_CG[c, worse]), counts.groups[worse],
        float(rates_CG[c, better]), counts.groups[better],
    )  # fmt: skip
    return [f"{opening}{sizes} (the two largest groups)."]


def _harm_over_classes(subject: Subject) -> list[str]:
    """Say the widest difference in accuracy over all classes, where single ones have no value."""
    contrast = None if subject.claim is None else subject.claim.contrast
    if contrast is None or not contrast.gap.value > 0:
        return []
    return [
        f"The prediction was right in {percent(contrast.low.value)} % of cases in group "
        f"{contrast.low_group} and {percent(contrast.high.value)} % in group "
        f"{contrast.high_group}."
    ]


def sureness(claim: Claim, subject: Subject) -> str:
    """Return the size of the gap, and whether it is more than chance."""
    e, attribute = claim.estimate, subject.attribute
    several = f", allowing for {claim.attributes} attributes" if claim.attributes > 1 else ""
    sure = f"{p_value(claim.p)}{several}"
    if claim.metric == "eo_mean":
        size = (
            f"the same class is recognised {percent(e.value)} points better in one group of "
            f"{attribute} than in another on average (average gap between groups, EO; "
            f"{100 * claim.level:g} % interval {interval(e)})"
        )
    else:
        size = (
            f"between the groups of {attribute}, accuracy differs by up to {percent(e.value)} "
            f"points ({interval(e)})"
        )
    if claim.real:
        least = percent(e.low)
        how_small = f", so at least {least} points" if least != percent(0.0) else ""
        return f"The gap is real, more than chance gives ({sure}): {size}{how_small}."
    cell = "cell" if claim.metric == "eo_mean" else "group"
    return (
        f"Between the groups of {attribute} no gap is shown, but it could be up to "
        f"{percent(e.high)} points: what is seen, {percent(e.value)} points, is within what chance "
        f"alone gives ({sure}; {count(e.support)} {subject.unit} in the smallest {cell})."
    )


def found_slices(slices: Slices) -> str:
    """Return what was searched, how, and how many slices stand out."""
    number = len(slices.reported)
    stand_out = (
        "No slice is" if not number else f"{number} of those shown {'is' if number == 1 else 'are'}"
    )
    return (
        f"{stand_out} worse than the rest of the rows beyond chance: {count(slices.searched)} "
        f"slices of at least {count(slices.min_support)} rows were searched, and at most "
        f"{100 * slices.false_finds:g} % of what is reported is expected to be false (q, Benjamini "
        "and Hochberg)."
    )


def probed(attribute: str, unit: str, accuracy: float, chance: float | None) -> str:
    """Return what a linear probe reads from the features of a run."""
    tail = "" if chance is None else f" (chance {percent(chance)} %)"
    if chance is not None and accuracy <= chance + 0.02:
        return (
            f"A linear probe cannot read {attribute} from the features: it is right for "
            f"{percent(accuracy)} % of the {unit}{tail}."
        )
    return (
        f"{attribute} can still be read from the features: a linear probe is right for "
        f"{percent(accuracy)} % of the {unit}{tail}."
    )


def comparison_line(a: str, b: str, found: Mapping[str, Comparison]) -> str:
    """Compare one model with another on the same images, in a sentence."""
    eo, acc = found["eo_mean"], found["accuracy"]
    parts = []
    for metric, c, up, down in (
        ("the gap between groups (EO)", eo, "a larger gap (EO)", "a smaller gap (EO)"),
        ("accuracy", acc, "more accurate", "less accurate"),
    ):
        if c.reason:
            parts.append(f"{metric} has no value ({c.reason})")
            continue
        size = f"{percent(abs(c.difference))} points"
        span = interval(c)
        if c.shown or c.p >= 0.05:  # else p stands alone against the interval, and says nothing
            span += f", {p_value(c.p)}"
        if c.shown:
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
    """Return whether the gap shrank only because the better-served groups lost accuracy."""
    eo, worst, acc = (found.get(k) for k in ("eo_mean", "worst_group_accuracy", "accuracy"))
    if eo is None or worst is None or acc is None or eo.reason or worst.reason:
        return False
    return eo.difference < 0 and eo.shown and worst.difference <= 0 and acc.difference < 0


def joined(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
