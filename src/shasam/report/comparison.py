"""Compare methods, seeds and published numbers, and recommend a model on the validation split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from shasam.errors import SpecError
from shasam.metrics import Comparison, Estimate, Spread, catalogue, compare_seeds, over_seeds
from shasam.metrics.counts import recalls
from shasam.metrics.learnt import Skill
from shasam.registry import did_you_mean
from shasam.report import charts
from shasam.report.audits import Pairing, baseline_of, is_plain, pairing
from shasam.report.charts import Point
from shasam.report.published import PublishedResult, published
from shasam.report.runs import learnt_of, recorded_subject
from shasam.report.subject import OF_RUNS, AuditOptions, Subject
from shasam.report.svg import COLOURS, line, marker, picture, text
from shasam.report.verdict import comparison_line, interval, joined, p_value, percent
from shasam.runs.directory import RunDirectory

# -------------------------------------------------------------------------------------------------
# Which model to take, and why: decided on the validation split, honest about what is not known.
#
# The rule: of the methods whose validation accuracy is within a point of the highest, the one with
# the smallest gap (EO mean) on validation; its run with the smallest gap is the model.
# -------------------------------------------------------------------------------------------------

TOLERANCE = 0.01  # of accuracy that a smaller gap may cost
FEWEST_SEEDS = 3  # below, nothing is said to be established


@dataclass(frozen=True)
class _Row:
    """A method on validation: its runs, and their accuracy and EO."""

    method: str
    runs: list[RunDirectory]
    accuracy: list[float]
    eo: list[float]

    @property
    def not_learnt(self) -> int:
        return sum(not learnt_of(run).ok for run in self.runs)

    @property
    def mean_accuracy(self) -> float:
        return sum(self.accuracy) / len(self.accuracy)

    @property
    def mean_eo(self) -> float:
        return sum(self.eo) / len(self.eo)


def named_baseline(methods: Sequence[str], asked: str | None) -> str:
    """The method that others are compared with; one that is asked for must be there."""
    if asked is None:
        return baseline_of(methods)
    for method in methods:
        if asked in (method, method.split(" (")[0]):
            return method
    raise SpecError(
        f"--baseline {asked}: no run here is of that method{did_you_mean(asked, methods)}"
    )


def recommendations(runs: Sequence[RunDirectory], baseline: str | None = None) -> list[str]:
    """A sentence or two for each setting that has several methods."""
    settings: dict[str, list[RunDirectory]] = {}
    for run in runs:
        settings.setdefault(run.setting, []).append(run)
    out = []
    for name, members in settings.items():
        methods = list(dict.fromkeys(run.method for run in members))
        if len(methods) > 1:
            where = f"On {name}: " if len(settings) > 1 else ""
            out.append(where + _advice(members, named_baseline(methods, baseline)))
    return out


def _advice(runs: Sequence[RunDirectory], baseline: str) -> str:
    rows = {row.method: row for row in _rows(runs)}
    poor = [method for method, row in rows.items() if row.not_learnt]
    left_out = " ".join(_left_out(rows.pop(method)) for method in poor)
    if poor and len(rows) < 2:
        only = f" What is left is {next(iter(rows))}." if rows else " None can be recommended."
        return left_out + only
    if len(rows) < 2:
        return (
            "Which model to take cannot be said: fewer than two methods have an accuracy and an EO "
            "on the validation split."
        )
    best = max(rows.values(), key=lambda row: row.mean_accuracy)
    near = [r for r in rows.values() if r.mean_accuracy >= best.mean_accuracy - TOLERANCE]
    chosen = min(near, key=lambda row: row.mean_eo)
    model = chosen.runs[min(range(len(chosen.eo)), key=lambda i: chosen.eo[i])]
    why = (
        f"it has the highest accuracy on validation ({percent(best.mean_accuracy)} %) and no other "
        "within a point of it has a smaller EO"
        if chosen is best
        else f"on validation its EO is the smallest ({percent(chosen.mean_eo)} points) of the "
        f"{len(near)} methods within a point of the highest accuracy ({best.method}, "
        f"{percent(best.mean_accuracy)} %)"
    )
    said = f"Take {chosen.method}: {why}. "
    if chosen.method == baseline:
        others = [row for row in rows.values() if row is not chosen]
        said += _established(chosen, min(others, key=lambda row: row.mean_eo))
    elif baseline in rows:
        said += _established(chosen, rows[baseline])
    said += f" The model is {model.path.name}, its run with the smallest EO on validation."
    return f"{said} {left_out}".rstrip()


def _left_out(row: _Row) -> str:
    """A method that cannot be recommended, whatever its gap."""
    return (
        f"{row.method} is left out: {row.not_learnt} of its {len(row.runs)} "
        f"run{'' if len(row.runs) == 1 else 's'} {'has' if row.not_learnt == 1 else 'have'} not "
        "learnt the target."
    )


def _established(a: _Row, b: _Row) -> str:
    """How much smaller the gap of a is than that of b, and whether that is more than chance."""
    seeds_b = {run.seed: value for run, value in zip(b.runs, b.eo, strict=True)}
    pairs = [(x, seeds_b[r.seed]) for r, x in zip(a.runs, a.eo, strict=True) if r.seed in seeds_b]
    if len(pairs) < FEWEST_SEEDS:
        return (
            f"Against {b.method} (EO {percent(b.mean_eo)}) the difference is not established: they "
            f"have {len(pairs)} seed{'' if len(pairs) == 1 else 's'} in common, and "
            f"{FEWEST_SEEDS} or more would tell (--seeds)."
        )
    found: Comparison = compare_seeds([x for x, _ in pairs], [y for _, y in pairs])
    span = f"{percent(found.low)} to {percent(found.high)} points, {p_value(found.p)}"
    if found.p < 0.05 and found.difference < 0:
        return (
            f"Against {b.method} its EO is smaller by {percent(-found.difference)} points "
            f"({span}, paired over {len(pairs)} seeds)."
        )
    return (
        f"Against {b.method} a smaller EO is not established ({span}, paired over {len(pairs)} "
        "seeds)."
    )


def _rows(runs: Sequence[RunDirectory]) -> list[_Row]:
    made: dict[str, _Row] = {}
    for run in runs:
        val = run.metrics().get("val")
        accuracy, eo = (_value(val, key) for key in ("accuracy", "eo_mean"))
        if accuracy is None or eo is None:
            continue
        row = made.setdefault(run.method, _Row(run.method, [], [], []))
        row.runs.append(run)
        row.accuracy.append(accuracy)
        row.eo.append(eo)
    return list(made.values())


def _value(metrics: Any, key: str) -> float | None:
    entry = metrics.get(key) if isinstance(metrics, dict) else None
    value = entry.get("value") if isinstance(entry, dict) else None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


# -------------------------------------------------------------------------------------------------
# Two models on the same images as before and after: sentences and a figure of the gaps.
# -------------------------------------------------------------------------------------------------

MOST_METHODS, MOST_CLASSES = 4, 6  # more rows than this are a table, not a picture


def before_after(baseline: str, by_method: Mapping[str, Sequence[Subject]]) -> list[str]:
    """Sentences where one method stands beside its baseline; none where there are more."""
    if len(by_method) != 2 or baseline not in by_method:
        return []
    (other,) = (name for name in by_method if name != baseline)
    shown = []
    for method in (baseline, other):
        for key in ("eo_mean", "accuracy"):
            mean = over_seeds([e.estimates[key] for e in by_method[method]]).mean
            if not math.isfinite(mean):
                return []
            shown.append(percent(mean))
    unit = by_method[baseline][0].unit
    groups = joined(by_method[baseline][0].counts.groups)
    plain = f"cross-entropy ({baseline})" if baseline.startswith("ce") else baseline
    return [
        f"Before, with {plain}: a gap of {shown[0]} points between {groups}, and {shown[1]} % "
        f"of all {unit} classified correctly.",
        f"After, with {other}: a gap of {shown[2]} points, and {shown[3]} % classified correctly.",
        f"The gap is how much the accuracy on {unit} of the same class differs between the groups "
        "(average gap between groups, EO).",
    ]


def gaps(by_method: Mapping[str, Sequence[Subject]]) -> Markup:
    """For each class and method the accuracy in every group, joined by a line as long as the gap.

    Nothing where there is one method alone, or too many rows for a picture.
    """
    first = next(iter(by_method.values()))[0].counts
    names = (first.classes, first.groups)
    others = (e.counts for members in by_method.values() for e in members)
    alike = all((counts.classes, counts.groups) == names for counts in others)
    if not (alike and 2 <= len(by_method) <= MOST_METHODS and len(first.classes) <= MOST_CLASSES):
        return Markup("")
    rates = {method: _recalls(entries) for method, entries in by_method.items()}
    left, right, y = 96.0, 480.0, 8.0
    body: list[str] = []
    told: list[str] = []
    for c, name in enumerate(first.classes):
        y += 22
        body.append(text(0, y, f"Class {name}", "b", most=50))
        for method, rate_CG in rates.items():
            y += 22
            x_G = left + rate_CG[c] * (right - left)
            gap = percent(float(np.ptp(rate_CG[c])))
            body.append(text(0, y + 4, method, "muted", most=16))
            body.append(line(left, y, right, y, "grid"))
            body.append(line(float(x_G.min()), y, float(x_G.max()), y, "whisker"))
            for g, group in enumerate(first.groups):
                words = f"{method}, {name}, {group}: {percent(rate_CG[c, g])} %"
                body.append(marker(g, float(x_G[g]), y, 5.5, f"fill c{g % COLOURS}", words))
            body.append(text(right + 12, y + 4, f"gap {gap}"))
            told.append(f"{method} on {name}: {gap} points")
        y += 6
    y += 20
    for share in (0, 25, 50, 75, 100):
        x = left + share / 100 * (right - left)
        body.append(text(x, y, f"{share} %", "muted small", "middle"))
    return picture(right + 76, y + 6, body, f"Gaps between the groups. {'; '.join(told)}.")


def _recalls(entries: Sequence[Subject]) -> np.ndarray:
    """Accuracy of each (class, group) cell, its mean where there are several seeds."""
    return np.mean([recalls(e.counts.n_CPG) for e in entries], axis=0)


# -------------------------------------------------------------------------------------------------
# Methods, seeds and published numbers side by side, one block for each setting.
# -------------------------------------------------------------------------------------------------

_COLUMNS = catalogue.SHOWN["run"]
_HEADLINE = catalogue.SHOWN["headline"]


def settings_of(
    runs: Sequence[RunDirectory],
    known: Mapping[Path, Subject],
    *,
    draws: int,
    seed: int,
    baseline: str | None = None,
) -> list[dict[str, Any]]:
    """The blocks of a page: runs that were asked the same, with the paper's numbers beside."""
    blocks: dict[str, list[RunDirectory]] = {}
    for run in runs:
        blocks.setdefault(run.setting, []).append(run)
    out = []
    for i, (name, members) in enumerate(blocks.items()):
        entries = [known.get(r.path) or recorded_subject(r, draws, seed) for r in members]
        printed = published(members[0].protocol)
        against = _against(entries, replace(OF_RUNS, draws=draws, seed=seed), baseline)
        out.append(_setting(f"setting-{i}", name, entries, printed, entries[0].unit, against))
    return out


def audit_settings(
    subjects: Sequence[Sequence[Subject]], pairs: Sequence[Pairing]
) -> list[dict[str, Any]]:
    """The blocks of an audit: one for each sensitive attribute, the files side by side."""
    blocks: dict[str, list[Subject]] = {}
    for of_file in subjects:
        for s in of_file:
            blocks.setdefault(s.attribute, []).append(s)
    out = []
    for i, (name, entries) in enumerate(blocks.items()):
        own = [p for p in pairs if p.attribute == name]
        against = (own[0].b, [p.line for p in own]) if own else ("", [])
        out.append(_setting(f"setting-{i}", f"by {name}", entries, [], "rows", against))
    return out


def _setting(
    key: str,
    name: str,
    entries: Sequence[Subject],
    printed: Sequence[PublishedResult],
    unit: str,
    compared: tuple[str, list[str]],
) -> dict[str, Any]:
    methods = list(dict.fromkeys(e.method for e in entries))
    by_method = {m: [e for e in entries if e.method == m] for m in methods}
    baseline, against = compared
    told = before_after(baseline, by_method) if is_plain(baseline) else []
    return {
        "id": key,
        "name": name,
        "short": f"Accuracy and EO, {name}" if len(name) < 30 else "Accuracy and EO",
        "legend": methods,
        "figure": charts.tradeoff(_points(by_method, printed)),
        "rows": [_row(method, members) for method, members in by_method.items()],
        "published": [
            {"method": p.method, "accuracy": f"{p.accuracy:.1f}", "eo": f"{p.eo:.1f}"}
            for p in printed
        ],
        "source": joined(sorted({p.source for p in printed})),
        "caption": _caption(entries, unit),
        "many_seeds": any(len(m) > 1 for m in by_method.values()),
        "baseline": baseline,
        "against": against,
        "methods": methods,
        "columns": [m.label for m in catalogue.shown("headline").values()],
        "runs": [
            {
                "name": e.name,
                "method": methods.index(e.method),
                "cells": [e.estimates.get(k) for k in _HEADLINE],
            }
            for e in entries
        ],
        "verdict": [
            *_chance(by_method),
            *([*told, *against[:3]] if told else _verdict(name, by_method, against)),
        ],
        "gaps": gaps(by_method),
        "groups": entries[0].counts.groups,
    }


def _points(
    by_method: Mapping[str, Sequence[Subject]], printed: Sequence[PublishedResult]
) -> list[Point]:
    """Each run, the mean of several seeds, and published numbers, as marks of the figure."""
    points, alone = [], math.nan
    for kind, (method, members) in enumerate(by_method.items()):
        for e in members:
            acc, eo = _triple(e, "accuracy"), _triple(e, "eo_mean")
            points.append(Point(e.name, acc, eo, kind, chance=_at_chance([e]) > 0))
        if len(members) > 1:
            means = [
                over_seeds([e.estimates[k] for e in members]).mean for k in ("accuracy", "eo_mean")
            ]
            acc, eo = ((mean, alone, alone) for mean in means)
            name = f"{method}, mean of {len(members)} seeds"
            chance = _at_chance(members) > 0
            points.append(Point(name, acc, eo, kind, mean=True, chance=chance))
    for p in printed:
        kind = _same_method(p.method, list(by_method))
        acc, eo = ((value / 100, alone, alone) for value in (p.accuracy, p.eo))
        points.append(Point(p.method, acc, eo, kind, published=True))
    return points


def _row(method: str, members: Sequence[Subject]) -> dict[str, Any]:
    spreads = {k: over_seeds([e.estimates[k] for e in members]) for k in _COLUMNS}
    many = len(members) > 1
    cells = [_cell(members[0].estimates[k], spreads[k], many) for k in _COLUMNS]
    poor = _at_chance(members)
    mark = "" if not poor else f"{poor} of {len(members)} not learnt" if many else "not learnt"
    return {"name": method, "seeds": len(members), "cells": cells, "mark": mark}


def _caption(entries: Sequence[Subject], unit: str) -> str:
    n = {e.counts.total for e in entries}
    size = f"{min(n):,}" if len(n) == 1 else f"{min(n):,} to {max(n):,}"
    return f"{size} test {unit}; small: interval, or the standard deviation over seeds"


def _cell(e: Estimate, spread: Spread, many: bool) -> dict[str, str]:
    if many:
        if spread.reason:
            return {"value": "–", "ci": spread.reason}
        return {"value": percent(spread.mean), "ci": f"± {percent(spread.sd)}"}
    if not e.defined:
        return {"value": "–", "ci": e.reason or ""}
    return {"value": percent(e.value), "ci": f"{percent(e.low)} – {percent(e.high)}"}


def _triple(e: Subject, name: str) -> tuple[float, float, float]:
    x = e.estimates[name]
    return x.value, x.low, x.high


def _same_method(name: str, methods: Sequence[str]) -> int:
    """The colour of our method of that name, or the last colour for others."""
    plain = _letters(name)
    for i, method in enumerate(methods):
        if _letters(method) == plain or _letters(method) == _letters(name.split()[0]):
            return i
    return 7


def _letters(name: str) -> str:
    return "".join(c for c in name.lower().replace("+", "plus") if c.isalnum())


def _against(
    entries: Sequence[Subject], drawn: AuditOptions, baseline: str | None
) -> tuple[str, list[str]]:
    """Each method against the baseline: cross-entropy (or the first) where none is asked for."""
    by_method: dict[str, list[Subject]] = {}
    for entry in entries:
        by_method.setdefault(entry.method, []).append(entry)
    if len(by_method) < 2:
        return "", []
    base = named_baseline(list(by_method), baseline)
    return base, [
        _paired(name, members, base, by_method[base], drawn)
        for name, members in by_method.items()
        if name != base
    ]


def _paired(a: str, of_a: list[Subject], b: str, of_b: list[Subject], drawn: AuditOptions) -> str:
    """Over seeds where there are three in common, else over the rows of one run each."""
    seeds_b = {e.seed: e for e in of_b}
    pairs = [(e, seeds_b[e.seed]) for e in of_a if e.seed in seeds_b]
    if len(pairs) >= 3:
        found = {
            k: compare_seeds([x.estimates[k] for x, _ in pairs], [y.estimates[k] for _, y in pairs])
            for k in ("accuracy", "eo_mean")
        }
        return comparison_line(a, b, found)[:-1] + f" (paired over {len(pairs)} seeds)."
    for x, y in pairs or [(of_a[0], of_b[0])]:
        made = pairing(x, y, "", drawn)
        if made.found is not None:
            seeded = " One run each: other seeds may differ." if x.seed is not None else ""
            return made.line + seeded
    return made.line


def _chance(by_method: Mapping[str, Sequence[Subject]]) -> list[str]:
    """Who has not learnt, by the rule of ``shasam.metrics.learnt``: their gaps say nothing."""
    poor = {m: n for m, members in by_method.items() if (n := _at_chance(members))}
    if not poor:
        return []
    runs = {method: len(members) for method, members in by_method.items()}
    named = [m if n == runs[m] else f"{n} of {runs[m]} runs of {m}" for m, n in poor.items()]
    whole = named == list(by_method)
    some = f"{joined(named)} {'is' if sum(poor.values()) == 1 else 'are'} not"
    counts = next(iter(by_method.values()))[0].counts
    share = float(counts.n_CPG.sum((1, 2)).max() / counts.n_CPG.sum())
    return [
        f"{'No method is' if whole else some} shown to have learnt the target, beyond guessing "
        f"(the most common class: {percent(share)} %); a small gap is meaningless in that case."
    ]


def _at_chance(members: Sequence[Subject]) -> int:
    """How many of these models are not shown to have learnt their target."""
    return sum(not Skill.of(e.counts).learnt for e in members)


def _verdict(name: str, by_method: dict[str, list[Subject]], against: list[str]) -> list[str]:
    means = {
        m: tuple(over_seeds([e.estimates[k] for e in es]).mean for k in ("accuracy", "eo_mean"))
        for m, es in by_method.items()
    }
    usable = {m: v for m, v in means.items() if all(map(math.isfinite, v))}
    if not usable:
        return [f"On {name}, no method has both an accuracy and an EO."]
    if len(usable) == 1:
        method, (acc, eo) = next(iter(usable.items()))
        e = by_method[method][0].estimates
        return [
            f"{method} on {name}: {percent(acc)} % accuracy ({interval(e['accuracy'])}), average "
            f"gap between groups (EO) {percent(eo)} points ({interval(e['eo_mean'])})."
        ]
    best = max(usable, key=lambda m: usable[m][0])
    fair = min(usable, key=lambda m: usable[m][1])
    acc, eo = usable[best]
    if best == fair:
        return [
            f"On {name}, {best} has the highest mean accuracy ({percent(acc)} %) and the smallest "
            f"mean gap between groups (EO, {percent(eo)} points) of {len(usable)}.",
            *against[:3],
        ]
    return [
        f"On {name}, {best} has the highest mean accuracy of {len(usable)} ({percent(acc)} %, with "
        f"a gap between groups (EO) of {percent(eo)} points); {fair} has the smallest gap "
        f"({percent(usable[fair][1])} points, with an accuracy of {percent(usable[fair][0])} %).",
        *against[:3],
    ]
