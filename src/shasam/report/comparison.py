"""Show methods, seeds and published numbers side by side: tables, figures and sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from shasam.metrics import Estimate, Spread, catalogue, over_seeds
from shasam.metrics.counts import recalls
from shasam.metrics.learnt import Skill
from shasam.metrics.odds import ModelFront, fronts_of
from shasam.metrics.resampling import average
from shasam.report import charts
from shasam.report.advice import advise
from shasam.report.audits import Limit, Pairing, is_plain
from shasam.report.charts import Point
from shasam.report.fronts import Choice, front
from shasam.report.published import PublishedResult, published
from shasam.report.runs import on_common_seeds, recorded_subject
from shasam.report.subject import OF_RUNS, Subject
from shasam.report.svg import COLOURS, line, marker, picture, text
from shasam.report.verdict import interval, joined, percent
from shasam.runs.directory import RunDirectory

# -------------------------------------------------------------------------------------------------
# Two models on the same images as before and after: sentences and a figure of the gaps.
# -------------------------------------------------------------------------------------------------

MOST_METHODS, MOST_CLASSES = 4, 6  # more rows than this are a table, not a picture


def before_after(baseline: str, by_method: Mapping[str, Sequence[Subject]]) -> list[str]:
    """Say how one method stands beside its baseline; nothing if there are more."""
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
    """Draw the accuracy in every group for each class and method, and a line as long as the gap.

    Over several seeds the line runs from the mean of the lowest to the mean of the highest group,
    so that gaps of opposite sign do not cancel. The number is the average gap between two groups,
    and its mean over classes is the EO of the table. Nothing is drawn where there is one method
    alone, or too many rows for a picture.
    """
    first = next(iter(by_method.values()))[0].counts
    names = (first.classes, first.groups)
    others = (e.counts for members in by_method.values() for e in members)
    alike = all((counts.classes, counts.groups) == names for counts in others)
    if not (alike and 2 <= len(by_method) <= MOST_METHODS and len(first.classes) <= MOST_CLASSES):
        return Markup("")
    rates = {m: np.stack([recalls(e.counts.n_CPG) for e in es]) for m, es in by_method.items()}
    left, right, y = 96.0, 480.0, 8.0
    body: list[str] = []
    told: list[str] = []
    for c, name in enumerate(first.classes):
        y += 22
        body.append(text(0, y, f"Class {name}", "b", most=50))
        for method, rate_SCG in rates.items():
            y += 22
            x_SG = left + rate_SCG[:, c] * (right - left)
            gap = percent(float(np.mean([average(rate_G[None]) for rate_G in rate_SCG[:, c]])))
            body.append(text(0, y + 4, method, "muted", most=16))
            body.append(line(left, y, right, y, "grid"))
            ends = float(x_SG.min(1).mean()), float(x_SG.max(1).mean())
            body.append(line(ends[0], y, ends[1], y, "whisker"))
            body += _group_marks(method, name, first.groups, rate_SCG[:, c], x_SG, y)
            body.append(text(right + 12, y + 4, f"gap {gap}"))
            told.append(f"{method} on {name}: {gap} points")
        y += 6
    y += 20
    for share in (0, 25, 50, 75, 100):
        x = left + share / 100 * (right - left)
        body.append(text(x, y, f"{share} %", "muted small", "middle"))
    return picture(right + 76, y + 6, body, f"Gaps between the groups. {'; '.join(told)}.")


def _group_marks(
    method: str, name: str, groups: Sequence[str], rate_SG: np.ndarray, x_SG: np.ndarray, y: float
) -> list[str]:
    """Return a mark for every group, or a small one for every seed of it."""
    r, faint = (5.5, "") if len(rate_SG) == 1 else (3.5, " faint")
    return [
        marker(
            g, float(x_SG[i, g]), y, r, f"fill c{g % COLOURS}{faint}",
            f"{method}, {name}, {group}: {percent(rate_SG[i, g])} %",
        )
        for g, group in enumerate(groups)
        for i in range(len(rate_SG))
    ]  # fmt: skip


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
    limits: Sequence[Limit] = (),
    fronts: Mapping[str, Mapping[str, ModelFront]] | None = None,
) -> list[dict[str, Any]]:
    """Return the blocks of a page.

    Runs that were asked the same, with the paper's numbers beside.
    """
    blocks: dict[str, list[RunDirectory]] = {}
    for run in runs:
        blocks.setdefault(run.setting, []).append(run)
    out = []
    drawn = replace(OF_RUNS, draws=draws, seed=seed)
    for i, (name, members) in enumerate(blocks.items()):
        entries = [known.get(r.path) or recorded_subject(r, draws, seed) for r in members]
        printed = published(members[0].protocol)
        by_method = _by_method(entries)
        compared: tuple[str, list[str]] = ("", [])
        by_seeds = 0
        if len(by_method) > 1:
            paths = {run.name: run.path for run in members}
            found = advise(by_method, baseline, runs=paths, limits=limits, drawn=drawn)
            compared = found.baseline, [v.line for v in found.against]
            by_seeds = max((v.seeds for v in found.against), default=0)
            where = [f"On {name}:"] if len(blocks) > 1 else []
            said = [*where, *found.lines]
        else:
            said = _standing(name, by_method)
        unit = entries[0].unit
        own = None if fronts is None else fronts[name]
        block = _setting(f"setting-{i}", name, entries, printed, unit, compared, said, own)
        out.append({**block, "by_seeds": by_seeds})
    return out


def _by_method(entries: Sequence[Subject]) -> dict[str, list[Subject]]:
    out: dict[str, list[Subject]] = {}
    for entry in entries:
        out.setdefault(entry.method, []).append(entry)
    return out


def audit_settings(
    subjects: Sequence[Sequence[Subject]], pairs: Sequence[Pairing]
) -> list[dict[str, Any]]:
    """Return the blocks of an audit: one for each sensitive attribute, the files side by side."""
    blocks: dict[str, list[Subject]] = {}
    for of_file in subjects:
        for s in of_file:
            blocks.setdefault(s.attribute, []).append(s)
    out = []
    for i, (name, entries) in enumerate(blocks.items()):
        own = [p for p in pairs if p.attribute == name]
        against = (own[0].b, [p.line for p in own]) if own else ("", [])
        title = f"by {name}"
        said = [*_standing(title, _by_method(entries)), *against[1][:3]]
        out.append(_setting(f"setting-{i}", title, entries, [], "rows", against, said))
    return out


def _setting(
    key: str,
    name: str,
    entries: Sequence[Subject],
    printed: Sequence[PublishedResult],
    unit: str,
    compared: tuple[str, list[str]],
    said: Sequence[str],
    fronts: Mapping[str, ModelFront] | None = None,
) -> dict[str, Any]:
    by_method, _ = on_common_seeds(_by_method(entries))
    methods = list(by_method)
    baseline, against = compared
    fronts = fronts_by_method(by_method) if fronts is None else fronts
    told = before_after(baseline, by_method) if is_plain(baseline) else []
    return {
        "id": key,
        "name": name,
        "short": f"Accuracy and EO, {name}" if len(name) < 30 else "Accuracy and EO",
        "legend": methods,
        "figure": charts.tradeoff(_points(by_method, printed)),
        "rows": [_row(method, members, fronts) for method, members in by_method.items()],
        "areas": AREA if fronts else "",
        "published": [
            {"method": p.method, "accuracy": f"{p.accuracy:.1f}", "eo": f"{p.eo:.1f}"}
            for p in printed
        ],
        "source": joined(sorted({p.source for p in printed})),
        "caption": _caption(entries, unit),
        "many_seeds": any(len(m) > 1 for m in by_method.values()),
        "baseline": baseline,
        "against": [line for line in against if line not in said],
        "by_seeds": 0,
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
        "verdict": [*_chance(by_method), *said, *told],
        "gaps": gaps(by_method),
        "front": front(_choices(by_method, fronts)),
        "front_says": _front_says(by_method, fronts),
        "groups": entries[0].counts.groups,
    }


def fronts_by_method(by_method: Mapping[str, Sequence[Subject]]) -> dict[str, ModelFront]:
    """Return what thresholds per group could do for the models of methods.

    None of one method alone.
    """
    if len(by_method) < 2:
        return {}
    return fronts_of({method: [e.rows for e in es] for method, es in by_method.items()})


def fronts_of_runs(runs: Sequence[RunDirectory]) -> dict[str, dict[str, ModelFront]]:
    """Return the fronts of every setting's methods, on the seeds that all have."""
    settings: dict[str, list[Subject]] = {}
    for run in runs:
        settings.setdefault(run.setting, []).append(recorded_subject(run))
    return {
        name: fronts_by_method(on_common_seeds(_by_method(entries))[0])
        for name, entries in settings.items()
    }


def _choices(
    by_method: Mapping[str, Sequence[Subject]], fronts: Mapping[str, ModelFront]
) -> list[Choice]:
    """Average over seeds what has learnt; runs of one method are one family."""
    families = list(dict.fromkeys(method.split(" (")[0] for method in by_method))
    out = []
    for method, es in by_method.items():
        if _at_chance(es):
            continue
        accuracy, gap = (
            over_seeds([e.estimates[k] for e in es]).mean for k in ("accuracy", "eo_mean")
        )
        family = method.split(" (")[0]
        found = fronts.get(method)
        out.append(Choice(family, method, accuracy, gap, found, families.index(family)))
    return out


def _front_says(
    by_method: Mapping[str, Sequence[Subject]], fronts: Mapping[str, ModelFront]
) -> list[str]:
    """Say how to read the front: only of what is in it."""
    many = any(len(es) > 1 for es in by_method.values())
    lines = [
        "What each gap costs: up is more accurate, left is a smaller gap. Marks are methods as "
        f"they decide{', means over seeds' if many else ''}; grey ones are dominated."
    ]
    if len({method.split(" (")[0] for method in by_method}) < len(by_method):
        lines.append("A dashed line joins the values of one method's dial.")
    if any(f.thresholds for f in fronts.values()):
        lines.append(
            "A thin line is the same model with thresholds per group, which need the group at "
            "prediction; each row is decided by a rule that was fitted on others. Chance in few "
            "rows widens the gap of a mark, and less that of a line, whose rules are fitted on "
            "rows of the same split."
        )
    if fronts:
        drawn = "rows and seeds" if many else "rows"
        lines.append(
            f"Nothing seen lies above the stairs. The band (95 %, resampled {drawn}) holds for all "
            "of the stairs at once."
        )
    if reasons := {f.reason: m for m, f in fronts.items() if f.reason}:
        lines += [f"{m} has no thin line: {why}." for why, m in reasons.items()]
    return lines


def _points(
    by_method: Mapping[str, Sequence[Subject]], printed: Sequence[PublishedResult]
) -> list[Point]:
    """Return each run, the mean of several seeds, and published numbers, as marks of the figure."""
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


def _row(
    method: str, members: Sequence[Subject], fronts: Mapping[str, ModelFront]
) -> dict[str, Any]:
    spreads = {k: over_seeds([e.estimates[k] for e in members]) for k in _COLUMNS}
    many = len(members) > 1
    cells = [_cell(members[0].estimates[k], spreads[k], many) for k in _COLUMNS]
    if fronts:
        cells.append(_area(fronts.get(method)))
    poor = _at_chance(members)
    mark = "" if not poor else f"{poor} of {len(members)} not learnt" if many else "not learnt"
    return {"name": method, "seeds": len(members), "cells": cells, "mark": mark}


AREA = (
    "the best accuracy that a model reaches with a gap of at most 0 to 20 points, averaged over "
    "these gaps: as it decides, with thresholds per group, or with a constant answer"
)


def area_in_words(found: ModelFront) -> str:
    """Write an area in per cent: '72.3 [69.2, 74.4]'."""
    value, low, high = map(percent, found.area)
    return f"{value} [{low}, {high}]"


def areas_in_words(fronts: Mapping[str, Mapping[str, ModelFront]]) -> list[str]:
    """Return a line for each setting that has fronts."""
    return [
        f"Area under the front{f' on {name}' if len(fronts) > 1 else ''}, %: "
        + "; ".join(f"{method} {area_in_words(found)}" for method, found in own.items())
        + f". It is {AREA}; the intervals hold at once."
        for name, own in fronts.items()
        if own
    ]


def _area(found: ModelFront | None) -> dict[str, str]:
    if found is None:
        return {"value": "–", "ci": "a class in one group only"}
    value, low, high = found.area
    return {"value": percent(value), "ci": f"{percent(low)} – {percent(high)}"}


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
    """Return the colour of our method of that name, or the last colour for others."""
    plain = _letters(name)
    for i, method in enumerate(methods):
        if _letters(method) == plain or _letters(method) == _letters(name.split()[0]):
            return i
    return 7


def _letters(name: str) -> str:
    return "".join(c for c in name.lower().replace("+", "plus") if c.isalnum())


def _chance(by_method: Mapping[str, Sequence[Subject]]) -> list[str]:
    """Name the models that have not learnt, by ``shasam.metrics.learnt``.

    Their gaps say nothing.
    """
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
    """Return how many of these models are not shown to have learnt their target."""
    return sum(not Skill.of(e.counts).learnt for e in members)


def _standing(name: str, by_method: Mapping[str, Sequence[Subject]]) -> list[str]:
    """Return the accuracy and gap of every model as they are, where nothing is recommended."""
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
    return [
        f"On {name}, the highest accuracy of {len(usable)} is seen with {best} "
        f"({percent(usable[best][0])} %, gap {percent(usable[best][1])} points) and the smallest "
        f"gap (EO) with {fair} ({percent(usable[fair][1])} points, accuracy "
        f"{percent(usable[fair][0])} %)."
    ]
