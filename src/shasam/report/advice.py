"""Say which method to take and at what price: claims that the seeds show, and no others.

Everything is judged on the test split, which nothing was fitted on (thresholds and last layers are
fitted on validation). Methods are paired with the baseline over the seeds that all have. Intervals
and p allow for the number of methods (Bonferroni): all hold at once, so that choosing by them does
not make them too narrow. A claim and its interval are one test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shasam.errors import Argument, SpecError
from shasam.metrics import (
    Comparison,
    Estimate,
    catalogue,
    compare_seeds,
    evaluate,
    over_seeds,
    values,
)
from shasam.metrics.intervals import quantile
from shasam.metrics.learnt import Skill
from shasam.metrics.limits import lowest_shown, rows_to_show
from shasam.metrics.resampling import Gap
from shasam.registry import did_you_mean
from shasam.report.audits import Limit, baseline_of, pairing
from shasam.report.fronts import Choice, undominated
from shasam.report.runs import ByMethod, on_common_seeds, recorded_subject
from shasam.report.subject import OF_RUNS, AuditOptions, Subject
from shasam.report.verdict import comparison_line, count, joined, p_value, percent
from shasam.runs.directory import RunDirectory

# Of accuracy: a smaller gap for no more than that is taken without asking. Of a gap: a difference
# below it is not worth more seeds.
TOLERANCE = 0.01
FEWEST_SEEDS = 3  # below, nothing is said to be established
MOST_SEEDS = 100  # more are not asked for
NEEDS_GROUP = ("posthoc",)  # methods whose decisions read the group of a row
METRICS = ("accuracy", "eo_mean", "worst_group_accuracy")  # compared between methods

# -------------------------------------------------------------------------------------------------
# Which runs may be compared: the seeds that all methods have, against one baseline.
# -------------------------------------------------------------------------------------------------


def named_baseline(methods: Sequence[str], asked: str | None) -> str:
    """Return the method that others are compared with; one that is asked for must be there."""
    if asked is None:
        return baseline_of(methods)
    for wanted in (asked, asked.partition("@")[0]):  # an encoder that all have is not in the name
        for method in methods:
            if wanted in (method, method.split(" (")[0]):
                return method
    raise SpecError(
        Argument("baseline", asked),
        f": no run here is of that method{did_you_mean(asked, methods)}",
    )


def _s(number: int) -> str:
    return "" if number == 1 else "s"


# -------------------------------------------------------------------------------------------------
# Every method against the baseline.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Versus:
    """A method minus the baseline, and whether seeds or the rows of one run tell it."""

    method: str
    found: dict[str, Comparison]
    seeds: int  # paired; 0 where rows of one run each are
    line: str

    @property
    def established(self) -> bool:
        """Whether there are enough seeds to claim anything of the method."""
        eo, accuracy = (self.found.get(key) for key in ("eo_mean", "accuracy"))
        told = eo is not None and accuracy is not None and not eo.reason and not accuracy.reason
        return self.seeds >= FEWEST_SEEDS and told

    @property
    def fairer(self) -> bool:
        return self.established and self.gap.shown and self.gap.difference < 0

    @property
    def gap(self) -> Comparison:
        return self.found["eo_mean"]

    @property
    def accuracy(self) -> Comparison:
        return self.found["accuracy"]


def versus(by_method: ByMethod, baseline: str, drawn: AuditOptions) -> list[Versus]:
    """Compare every other method with the baseline, with intervals that hold for all at once."""
    others = [method for method in by_method if method != baseline]
    return [
        _versus(method, by_method[method], baseline, by_method[baseline], len(others), drawn)
        for method in others
    ]


def _versus(
    a: str,
    of_a: Sequence[Subject],
    b: str,
    of_b: Sequence[Subject],
    comparisons: int,
    drawn: AuditOptions,
) -> Versus:
    """Compare over seeds where three are in common, else over the rows of one run each."""
    seeds_b = {e.seed: e for e in of_b}
    pairs = [(e, seeds_b[e.seed]) for e in of_a if e.seed in seeds_b]
    if len(pairs) >= FEWEST_SEEDS:
        known = [k for k in METRICS if all(k in e.estimates for pair in pairs for e in pair)]
        found = {
            k: compare_seeds(
                [x.estimates[k] for x, _ in pairs],
                [y.estimates[k] for _, y in pairs],
                drawn.level,
                comparisons=comparisons,
            )
            for k in known
        }
        return Versus(a, found, len(pairs), comparison_line(a, b, found))
    each = replace(drawn, level=1 - (1 - drawn.level) / comparisons)
    for x, y in pairs or [(of_a[0], of_b[0])]:
        made = pairing(x, y, "", each)
        if made.found is not None:
            found = {k: replace(c, p=min(1.0, c.p * comparisons)) for k, c in made.found.items()}
            seeded = " One run each: other seeds may differ." if x.seed is not None else ""
            return Versus(a, found, 0, comparison_line(a, b, found) + seeded)
    return Versus(a, {}, 0, made.line)


# -------------------------------------------------------------------------------------------------
# The verdict of a comparison.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Advice:
    """Sentences, and the method that they name; None where none can be named."""

    lines: list[str]
    method: str | None = None
    baseline: str = ""
    against: Sequence[Versus] = ()


def advise(
    by_method: ByMethod,
    asked: str | None = None,
    *,
    runs: Mapping[str, Path] | None = None,
    limits: Sequence[Limit] = (),
    drawn: AuditOptions = OF_RUNS,
) -> Advice:
    """Advise which method of one setting to take, what it costs, and what cannot be told.

    ``runs`` are the directories by the names of their subjects.
    """
    poor = {m: n for m, members in by_method.items() if (n := _not_learnt(members))}
    left_out = [_left_out(m, n, len(by_method[m])) for m, n in poor.items()]
    learnt = {m: members for m, members in by_method.items() if m not in poor}
    if len(learnt) < 2:
        last = f"What is left is {next(iter(learnt))}." if learnt else "None can be recommended."
        return Advice([*left_out, last] if poor else [])
    kept, note = on_common_seeds(learnt)
    asked = None if asked in poor else asked
    base = named_baseline(list(kept), asked)
    found = versus(kept, base, drawn)
    opening = [note] if note else []
    advice = _verdict(kept, base, found, unlimited=not limits)
    lines = [*opening, *advice.lines, *left_out]
    chosen = advice.method or base
    if limits:
        limited = _limited(kept, base, found, limits, drawn)
        lines += limited.lines
        chosen = limited.method or chosen
    lines += _delivered(chosen, kept[chosen], runs or {})
    return Advice(lines, chosen, base, found)


def _verdict(by_method: ByMethod, base: str, found: Sequence[Versus], *, unlimited: bool) -> Advice:
    told = [v for v in found if v.established]
    about = _standing(base, by_method[base])
    if not told:
        seeds = max((len({e.seed for e in by_method[base]} & {e.seed for e in by_method[v.method]})
                     for v in found), default=0)  # fmt: skip
        return Advice([
            *about,
            f"Whether a method is fairer than {base} is not established: they have {seeds} "
            f"seed{_s(seeds)} in common, and {FEWEST_SEEDS} or more would tell (--seeds "
            f"{FEWEST_SEEDS}). Until then keep {base}.",
        ])  # fmt: skip
    fairer = sorted((v for v in told if v.fairer), key=lambda v: v.gap.high)
    free = [v for v in fairer if v.accuracy.difference >= -TOLERANCE - 1e-9]
    if free:
        lines = [f"Take {_price(free[0], by_method)}", *about]
    elif fairer:
        lines = [
            f"No method is shown to be fairer than {base} within a point of its accuracy; keep "
            f"{base} unless a smaller gap is worth the price.",
            *about,
        ]
    else:
        lines = [
            f"No method is shown to be fairer than {base}; keep {base}; {_smallest(told)}.",
            *about,
            *(_no_gap(base, by_method[base]) or _nearest(told, by_method)),
            *(_too_few(_first(by_method[base])) if unlimited else []),
        ]
    best = {c.name for c in undominated([_choice(v.method, by_method) for v in fairer])}
    told_of = [v for v in fairer if v.method in best or v in free[:1]]
    lines += [_price(v, by_method) for v in told_of if v not in free[:1]]
    beaten = [v.method for v in fairer if v not in told_of]
    if beaten:
        lines.append(
            f"{joined(beaten)}: also shown to have a smaller gap than {base}, but others here are "
            "seen to have a smaller one at no less accuracy."
        )
    worse = [v for v in told if v.gap.shown and v.gap.difference > 0]
    lines += [
        f"{v.method} is shown to have a larger gap than {base}, by {_size(v.gap)}." for v in worse
    ]
    rest = [v.method for v in told if v not in fairer and v not in worse]
    if rest and fairer:
        least = min(_half(v.gap) for v in told if v.method in rest)
        lines.append(
            f"No other gap is shown to differ from that of {base} ({joined(rest)}); of these, a "
            f"difference below {percent(least)} points could not be shown."
        )
    dear = [v for v in told if v.method in rest and v.accuracy.shown and v.accuracy.difference < 0]
    lines += [f"{v.method} is shown to be less accurate, by {_size(v.accuracy)}." for v in dear]
    silent = [v.method for v in found if not v.established]
    if silent:
        lines.append(f"Nothing is established of {joined(silent)}: too few seeds, or no value.")
    lines.append(
        f"Differences are paired over {told[0].seeds} seeds on the test split"
        + (f"; intervals and p allow for {len(found)} methods." if len(found) > 1 else ".")
    )
    return Advice(lines, free[0].method if free else base)


def _choice(method: str, by_method: ByMethod) -> Choice:
    accuracy, gap = (_mean(by_method[method], key) for key in ("accuracy", "eo_mean"))
    return Choice(method, method, accuracy, gap)


def _standing(method: str, members: Sequence[Subject]) -> list[str]:
    """Return the accuracy and gap of the baseline: the numbers of the table."""
    accuracy, gap = (_mean(members, key) for key in ("accuracy", "eo_mean"))
    if not (math.isfinite(accuracy) and math.isfinite(gap)):
        return []
    over = f", the mean of {len(members)} seeds" if len(members) > 1 else ""
    return [f"{method}: {percent(accuracy)} % accuracy, gap (EO) {percent(gap)} points{over}."]


def _smallest(told: Sequence[Versus]) -> str:
    """Say how small a difference can be shown: of the method whose seeds agree most, and least."""
    halves = sorted((_half(v.gap), v.method) for v in told)
    (least, first), (most, last) = halves[0], halves[-1]
    said = f"the smallest difference this comparison can show is {percent(least)} points"
    if percent(least) == percent(most):
        return said
    return f"{said}, of the gap of {first} ({percent(most)} of that of {last})"


def _too_few(subject: Subject) -> list[str]:
    """Say below what no gap can be shown on the rows of one test split, whatever the model."""
    n_CPG = subject.counts.n_CPG
    shown = lowest_shown(subject.counts, "eo_mean", positive=subject.positive)
    if not math.isfinite(shown):
        return []
    return [
        f"A test split of one seed has {count(round(n_CPG.sum(1).min()))} {subject.unit} in its "
        f"smallest class and group, and cannot show a gap below {percent(shown)} points: half of "
        "the models without a gap have a higher upper end."
    ]


def _price(v: Versus, by_method: ByMethod) -> str:
    """Return what a method that is shown to be fairer brings and costs."""
    gap = percent(_mean(by_method[v.method], "eo_mean"))
    cost = v.accuracy
    if not cost.shown:
        paid = f"its accuracy is not shown to differ ({_span(cost)})"
    elif cost.difference < 0:
        paid = f"it costs {_size(cost)} of accuracy"
    else:
        paid = f"it is more accurate by {_size(cost)}"
    group = "; it needs the group of every row at prediction" if _by_group(v.method) else ""
    return f"{v.method}: gap {gap}, smaller by {_size(v.gap)}; {paid}{group}."


def _no_gap(method: str, members: Sequence[Subject]) -> list[str]:
    """Say so where no run has a gap that chance could not make.

    There is none to be made smaller.
    """
    if any(not e.estimates["eo_mean"].defined or e.estimates["eo_mean"].low > 0 for e in members):
        return []
    runs = f"in any of its {len(members)} runs" if len(members) > 1 else "in its run"
    return [
        f"That {method} has a gap at all is not shown {runs}: chance makes gaps as large where "
        "there is none."
    ]


def _nearest(told: Sequence[Versus], by_method: ByMethod) -> list[str]:
    """Return the method with the smallest gap, where none is shown to be fairer, and what would
    show it.

    Nothing where the number of seeds that it would take is out of reach, or for less than a point.
    """
    v = min(told, key=lambda v: v.gap.difference)
    seeds = _seeds_needed(v, len(told))
    if v.gap.difference > -TOLERANCE or seeds is None:
        return []
    cost = v.accuracy
    paid = (
        f", {'for' if cost.difference < 0 else 'with a gain of'} {_size(cost)} of accuracy"
        if cost.shown
        else ""
    )
    group = "; it needs the group of every row at prediction" if _by_group(v.method) else ""
    return [
        f"Nearest is {v.method}, with a gap of {percent(_mean(by_method[v.method], 'eo_mean'))} "
        f"(difference {_span(v.gap)}){paid}{group}. If it stays so, {seeds} seeds would show it "
        f"(--seeds {seeds})."
    ]


def _seeds_needed(v: Versus, comparisons: int, level: float = 0.95) -> int | None:
    """Return how many seeds would exclude 0 if difference and spread stayed.

    It is None if they are too many.
    """
    each = 1 - (1 - level) / comparisons
    sd = _half(v.gap) * math.sqrt(v.seeds) / quantile(each, v.seeds - 1)
    for n in range(v.seeds + 1, MOST_SEEDS + 1):
        if quantile(each, n - 1) * sd / math.sqrt(n) < abs(v.gap.difference):
            return n
    return None


def _delivered(method: str, members: Sequence[Subject], runs: Mapping[str, Path]) -> list[str]:
    """Return the run that is the model: the first seed, known before its results."""
    first = _first(members)
    if first.name not in runs:
        return []
    several = (
        f"its first seed; seeds have splits of their own, so that none of the {len(members)} is "
        "chosen by its result"
        if len(members) > 1
        else "its only run"
    )
    return [f"The model is {runs[first.name].name} ({method}): {several}."]


def _first(members: Sequence[Subject]) -> Subject:
    return min(members, key=lambda e: -1 if e.seed is None else e.seed)


def _left_out(method: str, poor: int, runs: int) -> str:
    """Say which method cannot be recommended, whatever its gap."""
    return (
        f"{method} is left out: {poor} of its {runs} run{_s(runs)} "
        f"{'has' if poor == 1 else 'have'} not learnt the target."
    )


def _not_learnt(members: Sequence[Subject]) -> int:
    return sum(not Skill.of(e.counts).learnt for e in members)


def _mean(members: Sequence[Subject], key: str) -> float:
    return over_seeds([e.estimates[key] for e in members]).mean


def _half(c: Comparison) -> float:
    return (c.high - c.low) / 2


def _size(c: Comparison) -> str:
    """Write the size of a difference that is shown: '5.4 points (1.9 to 8.9, p = 0.022)'."""
    ends = sorted((abs(c.low), abs(c.high)))
    return (
        f"{percent(abs(c.difference))} points ({percent(ends[0])} to {percent(ends[1])}, "
        f"{p_value(c.p)})"
    )


def _span(c: Comparison) -> str:
    return f"{percent(c.low)} to {percent(c.high)} points"


def _by_group(method: str) -> bool:
    return method.split(" (")[0].split("@")[0] in NEEDS_GROUP


# -------------------------------------------------------------------------------------------------
# A limit on a metric: the most accurate model that is shown to keep it, and what that costs.
# -------------------------------------------------------------------------------------------------


def _limited(
    by_method: ByMethod,
    base: str,
    found: Sequence[Versus],
    limits: Sequence[Limit],
    drawn: AuditOptions,
) -> Advice:
    """Return the most accurate method whose model is shown to keep every limit, else the best
    effort.

    Judged by the interval of the model that would be delivered, at a level that allows for all
    methods and limits. The best effort is the nearest by its mean over seeds, so that no seed's
    luck names it.
    """
    level = 1 - (1 - drawn.level) / (len(by_method) * len(limits))
    asked = joined([limit.words for limit in limits])
    judged = {
        method: _ends(_first(members), limits, replace(drawn, level=level))
        for method, members in by_method.items()
    }
    known = {m: ends for m, ends in judged.items() if all(e.defined for e in ends)}
    if not known:
        reason = next(iter(judged.values()))[0].reason
        return Advice([f"Whether {asked} is kept cannot be told: {reason}."])
    excess = {m: max(_excess(x, e) for x, e in zip(limits, ends, strict=True))
              for m, ends in known.items()}  # fmt: skip
    keeping = [m for m in known if excess[m] <= 0]
    it = "it" if len(limits) == 1 else "them"
    if keeping:
        best = max(keeping, key=lambda m: _mean(by_method[m], "accuracy"))
        ends = joined([_shown_end(x, e) for x, e in zip(limits, known[best], strict=True)])
        lines = [
            f"{asked}: of {len(by_method)} methods, {len(keeping)} "
            f"{'is' if len(keeping) == 1 else 'are'} shown to keep {it}; the most accurate is "
            f"{best} ({_its_model(by_method[best])}{ends}). {_paid(best, base, found)}"
        ]
        return Advice(lines, best)
    best = min(known, key=lambda m: _mean_excess(by_method[m], limits))
    worst = max(zip(limits, known[best], strict=True), key=lambda pair: _excess(*pair))
    lines = [
        f"{asked}: no model is shown to keep {it}, so what is said above stands. The best effort "
        f"is {best} ({_its_model(by_method[best])}{_shown_end(*worst)}), {percent(excess[best])} "
        f"points from the limit. {_paid(best, base, found)}"
    ]
    few = _not_measurable(_first(by_method[best]), limits, level)
    return Advice([*lines, *few], None)


def _its_model(members: Sequence[Subject]) -> str:
    """Say whose numbers follow, where they are not the table's: one seed's, not the mean."""
    return f"its model, seed {_first(members).seed}: " if len(members) > 1 else ""


def _mean_excess(members: Sequence[Subject], limits: Sequence[Limit]) -> float:
    """Return how far the mean over seeds lies beyond the limits, at the worst of them."""
    worst = -math.inf
    for limit in limits:
        found = [values(e.counts, [limit.metric], positive=e.rows.positive) for e in members]
        known = [one[limit.metric] for one in found if limit.metric in one]
        mean = sum(known) / len(known) if known else math.nan  # a metric of scores has no count
        over = limit.bound - mean if _high_is_good(limit) else mean - limit.bound
        worst = max(worst, over if math.isfinite(over) else math.inf)
    return worst


def _ends(subject: Subject, limits: Sequence[Limit], drawn: AuditOptions) -> list[Estimate]:
    """Return the metrics of the limits for one model, with intervals of that level."""
    rows = subject.rows
    for limit in limits:
        catalogue.named(limit.metric)
    made = evaluate(
        rows.target,
        rows.prediction,
        rows.sensitive,
        rows.scores if rows.scored else None,
        metrics=[limit.metric for limit in limits],
        **drawn.keywords(rows),
    )
    missing = Estimate.undefined("it was not computed")
    return [made.get(limit.metric, missing) for limit in limits]


def _excess(limit: Limit, e: Estimate) -> float:
    """Return how far the end of the interval that must keep the limit lies beyond it."""
    return limit.bound - e.low if _high_is_good(limit) else e.high - limit.bound


def _shown_end(limit: Limit, e: Estimate) -> str:
    side, end = ("lower", e.low) if _high_is_good(limit) else ("upper", e.high)
    label = catalogue.named(limit.metric).label
    return f"{label} {percent(e.value)}, {side} end {percent(end)}"


def _high_is_good(limit: Limit) -> bool:
    return catalogue.named(limit.metric).better == "high"


def _paid(method: str, base: str, found: Sequence[Versus]) -> str:
    """Return the price in accuracy against the baseline, with its interval, and what it needs."""
    needs = " It needs the group of every row at prediction." if _by_group(method) else ""
    return _price_against(method, base, found) + needs


def _price_against(method: str, base: str, found: Sequence[Versus]) -> str:
    if method == base:
        return f"It is {base} itself, so it costs nothing."
    accuracy = next(v.found.get("accuracy") for v in found if v.method == method)
    if accuracy is None or accuracy.reason:
        return "What it costs in accuracy is not known."
    against = f"against {base}"
    if not accuracy.shown:
        return f"Its accuracy {against} is not shown to differ ({_span(accuracy)})."
    word = "costs" if accuracy.difference < 0 else "gains"
    return f"It {word} {_size(accuracy)} of accuracy {against}."


def _not_measurable(subject: Subject, limits: Sequence[Limit], level: float) -> list[str]:
    """Say where the rows are too few for a limit, whatever the model, and how many would do."""
    out = []
    for limit in limits:
        metric = catalogue.named(limit.metric)
        if not isinstance(metric.value, Gap) or limit.bound <= 0:
            continue
        shown = lowest_shown(
            subject.counts,
            limit.metric,
            positive=subject.positive,
            level=level,
            min_group=subject.drawn.min_group,
        )
        if not shown > limit.bound:
            continue
        rows = rows_to_show(
            subject.counts, limit.metric, limit.bound, positive=subject.positive, level=level
        )
        name = "a gap" if limit.metric == "eo_mean" else metric.label
        out.append(
            f"This test set cannot show {name} below {percent(shown)} points: half of the models "
            f"without a gap have a higher upper end. {count(rows)} {subject.unit} in each class of "
            f"each group would show {percent(limit.bound)}."
        )
    return out


# -------------------------------------------------------------------------------------------------
# Advice for every setting of some runs.
# -------------------------------------------------------------------------------------------------


def recommendations(
    runs: Sequence[RunDirectory], baseline: str | None = None, limits: Sequence[Limit] = ()
) -> list[str]:
    """Return a paragraph for each setting that has several methods."""
    settings: dict[str, list[RunDirectory]] = {}
    for run in runs:
        settings.setdefault(run.setting, []).append(run)
    out = []
    for name, members in settings.items():
        by_method: dict[str, list[Subject]] = {}
        for run in members:
            by_method.setdefault(run.method, []).append(recorded_subject(run))
        if len(by_method) > 1:
            paths = {run.name: run.path for run in members}
            found = advise(by_method, baseline, runs=paths, limits=limits)
            where = [f"On {name}:"] if len(settings) > 1 else []
            out.append(" ".join([*where, *found.lines]))
    return out
