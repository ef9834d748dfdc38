"""What an audit prints: the verdict, the accuracy of every cell, every metric with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table

from shasam.metrics import Estimate, Slices, catalogue
from shasam.metrics.scores import SCORE_BINS
from shasam.output import Screen
from shasam.report.along import NumberSubject, print_number
from shasam.report.audits import AnySubject, Pairing
from shasam.report.fronts import ThresholdFront
from shasam.report.subject import Reference, Subject, Timeline
from shasam.report.verdict import count, found_slices, percent, verdict

_PRINTED_RATES = ("selection", "fpr", "fnr")
WIDE = 100  # columns from which a metric's label fits beside its name


def print_audit(
    subjects: Sequence[AnySubject],
    pairs: Sequence[Pairing],
    also: Sequence[str] | None,
    abstain: bool = False,
) -> None:
    """All subjects and comparisons; ``also`` as in ``print_subject``."""
    screen = Screen()
    for subject in subjects:
        if isinstance(subject, NumberSubject):
            print_number(subject, screen)
            continue
        print_subject(subject, screen, also)
        if abstain:
            screen.print(_abstention(subject))
    for pair in pairs:
        print_pairing(pair, screen)


def print_subject(subject: Subject, screen: Screen, also: Sequence[str] | None = ()) -> None:
    """One model through one attribute; ``also`` are metrics beside the usual ten, None all."""
    screen.print()
    screen.print(f"{subject.name}, by {subject.attribute}", style="bold")
    for line in verdict(subject):
        screen.print(line)
    screen.print(_cells(subject))
    names = [*subject.estimates]
    if also is not None:
        names = [k for k in names if k in subject.shown_metrics or k in also]
    screen.print(_metrics(subject, names, screen.width >= WIDE))
    for why in dict.fromkeys(subject.approximate.values()):
        rows = [k for k in names if subject.approximate.get(k) == why]
        if rows:
            screen.print(f"≈ approximate ({', '.join(rows)}): {why}", style="dim")
    if subject.binning is not None:
        screen.print(_binned(subject.binning), style="dim")
    if len(names) < len(subject.estimates):
        more = len(subject.estimates) - len(names)
        screen.print(f"{more} more metrics: --all-metrics, or --json", style="dim")
    if subject.reference is not None:
        screen.print(_against(subject, subject.reference))
        screen.print(subject.reference.four_fifths(subject.drawn.min_group))
    if subject.timeline is not None:
        screen.print(_over_time(subject.timeline))
    if (front := ThresholdFront.of(subject)) is not None:
        for line in front.says:
            screen.print(line)
        if front.rows:
            screen.print(_front(front))
    if subject.slices is not None:
        screen.print(_slices(subject.slices))
        screen.print(found_slices(subject.slices))


def _binned(errors: Mapping[str, float]) -> str:
    """How far binned scores can be off, metric by metric."""
    told = ", ".join(f"{name} {error:.1g}" for name, error in errors.items() if error)
    return (
        f"scores were counted in {SCORE_BINS:,} bins, so that metrics of scores may be off by as "
        f"much as: {told}; calibration errors are exact"
    )


def print_pairing(pair: Pairing, screen: Screen) -> None:
    """Two files on the same rows: the sentence, and every metric's difference."""
    screen.print()
    screen.print(f"{pair.a} against {pair.b}, by {pair.attribute}", style="bold")
    screen.print(pair.line)
    if pair.found is None:
        return
    title = f"{pair.a} minus {pair.b}, in points"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("metric", overflow="fold", min_width=_longest())
    for name in ("difference", "interval", "p"):
        table.add_column(name, justify="right")
    for key, c in pair.found.items():
        if c.reason:
            table.add_row(key, "–", c.reason, "")
            continue
        span = f"{percent(c.low, 2)} – {percent(c.high, 2)}"
        table.add_row(key, percent(c.difference, 2), span, f"{c.p:.3f}")
    screen.print(table)


def _longest() -> int:
    """Letters of the longest metric, and its arrow."""
    return max(map(len, catalogue.metrics())) + 2


def _cells(subject: Subject) -> Table:
    table = Table(title="Accuracy by class and group", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("class", overflow="fold")
    table.add_column("group", overflow="fold")
    for name in (subject.unit, "correct, %", "interval"):
        table.add_column(name, justify="right")
    for rate in subject.cells:
        value, span = _shown(rate.estimate, 1)
        small = "dim" if subject.few(rate.estimate) else None
        support = count(rate.estimate.support)
        table.add_row(str(rate.name), rate.group, support, value, span, style=small)
    return table


def _metrics(subject: Subject, names: Sequence[str], wide: bool) -> Table:
    """The name of a metric is what --fail-over takes, so it is folded rather than cut off."""
    table = Table(title="Metrics, in % and points", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("metric", overflow="fold", min_width=_longest())
    if wide:
        table.add_column("", overflow="fold")
    for name in ("value", f"{100 * subject.drawn.level:g} % interval", "support"):
        table.add_column(name, justify="right")
    for key, e in ((key, subject.estimates[key]) for key in names):
        better = {"high": "↑", "low": "↓"}[catalogue.named(key).better]
        value, span = _shown(e, 2)
        span = f"≈ {span}" if key in subject.approximate else span
        label = [_label(subject, key)] if wide else []
        table.add_row(f"{key} {better}", *label, value, span, count(e.support))
    return table


def _label(subject: Subject, key: str) -> str:
    served = subject.worst_served if key == "worst_group_accuracy" else ""
    return f"{catalogue.label_of(key)}: {served}" if served else catalogue.label_of(key)


def _against(subject: Subject, reference: Reference) -> Table:
    """Three rates of every group against the reference; JSON and the page have all six."""
    table = Table(title=f"Against {reference.says}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("rate", overflow="fold")
    table.add_column("group", overflow="fold")
    for name in ("difference, points", "ratio, %"):
        table.add_column(name, justify="right")
    for rate in _PRINTED_RATES:
        for a in reference.rates[rate]:
            ends = ["{} ({})".format(*_shown(e, 1)) for e in (a.difference, a.ratio)]
            faint = subject.few(a.difference)
            table.add_row(rate, a.group, *ends, style="dim" if faint else None)
    return table


def _over_time(timeline: Timeline) -> Table:
    title = f"{timeline.metric} by {timeline.period} of {timeline.column}, in points"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(timeline.period)
    for name in ("rows", "value", "interval", "support"):
        table.add_column(name, justify="right")
    for p in timeline.periods:
        table.add_row(p.name, count(p.rows), *_shown(p.estimate, 2), count(p.estimate.support))
    return table


def _abstention(subject: Subject) -> Table | str:
    """Share of every group that is answered, and accuracy of those answers."""
    if not subject.abstention:
        return "--abstain needs probabilities; name their column with --score"
    title = "Answering only where it is sure: % of each group answered (% of answers right)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("answered", "confidence from", *subject.rows.groups):
        table.add_column(name, justify="right", overflow="fold")
    for a in subject.abstention:
        cells = [
            f"{percent(a.coverage[g].value)} ({_shown(a.accuracy[g], 1)[0]})"
            for g in subject.rows.groups
        ]
        table.add_row(f"{percent(a.share)} %", percent(a.confidence), *cells)
    return table


def _front(front: ThresholdFront) -> Table:
    title = "Thresholds per group: rates may differ by so much; all intervals hold at once"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("may differ by")
    for name in ("gap (EO)", "accuracy, %", "against now"):
        table.add_column(name, justify="right")
    for row in front.rows:
        cells = (f"{row[k]} ({row[f'{k}_ci']})" for k in ("gap", "accuracy", "price"))
        table.add_row(row["tolerance"], *cells)
    return table


def _slices(found: Slices) -> Table:
    table = Table(title="Worst slices", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("slice", overflow="fold")
    for name in ("rows", "wrong, %", "interval", "rest, %", "q"):
        table.add_column(name, justify="right")
    for s in found.found:
        numbers = [*_shown(s.rate, 1), percent(s.rest), f"{s.q:.3f}" if s.q >= 0.001 else "<0.001"]
        known = None if s.q <= found.false_finds else "dim"
        table.add_row(s.name, count(s.rate.support), *numbers, style=known)
    return table


def _shown(e: Estimate, digits: int) -> tuple[str, str]:
    """Value and interval, or a dash and the reason why there is none."""
    if not e.defined:
        return "–", e.reason or ""
    return percent(e.value, digits), f"{percent(e.low, digits)} – {percent(e.high, digits)}"
