"""Methods, seeds and published numbers side by side, one block for each setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shasam.metrics import (
    Estimate,
    Spread,
    catalogue,
    compare_seeds,
    over_seeds,
)
from shasam.report import figures
from shasam.report.before_after import before_after, gaps
from shasam.report.figures import Point
from shasam.report.paired import Pairing, is_plain, pairing
from shasam.report.published import Published, published
from shasam.report.recommend import named_baseline
from shasam.report.runs import recorded_subject
from shasam.report.subject import OF_RUNS, Drawn, Subject
from shasam.report.words import comparison_line, interval, joined, percent
from shasam.runs.directory import RunDirectory

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
    printed: Sequence[Published],
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
        "figure": figures.tradeoff(_points(by_method, printed)),
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
    by_method: Mapping[str, Sequence[Subject]], printed: Sequence[Published]
) -> list[Point]:
    """Each run, the mean of several seeds, and published numbers, as marks of the figure."""
    points, alone = [], math.nan
    for kind, (method, members) in enumerate(by_method.items()):
        for e in members:
            points.append(Point(e.name, _triple(e, "accuracy"), _triple(e, "eo_mean"), kind))
        if len(members) > 1:
            means = [
                over_seeds([e.estimates[k] for e in members]).mean for k in ("accuracy", "eo_mean")
            ]
            acc, eo = ((mean, alone, alone) for mean in means)
            name = f"{method}, mean of {len(members)} seeds"
            points.append(Point(name, acc, eo, kind, mean=True))
    for p in printed:
        kind = _same_method(p.method, list(by_method))
        acc, eo = ((value / 100, alone, alone) for value in (p.accuracy, p.eo))
        points.append(Point(p.method, acc, eo, kind, published=True))
    return points


def _row(method: str, members: Sequence[Subject]) -> dict[str, Any]:
    spreads = {k: over_seeds([e.estimates[k] for e in members]) for k in _COLUMNS}
    many = len(members) > 1
    cells = [_cell(members[0].estimates[k], spreads[k], many) for k in _COLUMNS]
    return {"name": method, "seeds": len(members), "cells": cells}


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
    entries: Sequence[Subject], drawn: Drawn, baseline: str | None
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


def _paired(a: str, of_a: list[Subject], b: str, of_b: list[Subject], drawn: Drawn) -> str:
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
    """Who is no better than always naming the most common class: their gaps say nothing."""
    counts = next(iter(by_method.values()))[0].counts
    chance = float(counts.n_CPG.sum((1, 2)).max() / counts.total)
    poor = [
        method
        for method, entries in by_method.items()
        if all(e.estimates["accuracy"].low <= chance for e in entries)
    ]
    if not poor:
        return []
    some = f"{joined(poor)} {'is' if len(poor) == 1 else 'are'} not"
    who = "No method is" if len(poor) == len(by_method) else some
    return [
        f"{who} shown to be more accurate than always predicting the most common class "
        f"({percent(chance)} %); a small gap is meaningless in that case."
    ]


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
