"""What a page shows of one model: figures, tables and, for a run, training and mining."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml

from shasam.metrics import by_group, catalogue
from shasam.metrics.confusion import RATES, rate_named
from shasam.report import figures
from shasam.report.bars import bars
from shasam.report.curves import training_curves
from shasam.report.explorer import Budget, explorer
from shasam.report.maps import embedding
from shasam.report.representation import representation
from shasam.report.runs import finite
from shasam.report.subject import Subject
from shasam.report.thresholds import RATES as SHOWN
from shasam.report.thresholds import Decided
from shasam.report.words import count, found_slices, percent, verdict
from shasam.runs.directory import RunDirectory


def detail(
    subject: Subject,
    run: RunDirectory | None,
    key: str,
    budget: Budget,
    *,
    brief: bool,
    dots: int = 2000,
) -> dict[str, Any]:
    """The variables of the template for one model."""
    classes, groups = subject.counts.classes, subject.counts.groups
    positive = classes[1] if len(classes) == 2 else ""
    out: dict[str, Any] = {
        "key": key,
        "name": subject.name,
        "brief": brief,
        "attribute": subject.attribute,
        "classes": classes,
        "groups": groups,
        "estimates": subject.estimates,
        "verdict": verdict(subject),
        "tiles": tiles(subject),
        "metrics": [
            {
                "key": k,
                "label": catalogue.named(k).plain or catalogue.label_of(k),
                "e": e,
                "says": catalogue.named(k).meaning,
                "approximate": subject.approximate.get(k, ""),
            }
            for k, e in subject.estimates.items()
        ],
        "bars": bars(subject),
        "scores": figures.score_curves(subject, positive),
        "calibration": figures.calibration(subject),
        "confusion": _confusion(subject),
        "unit": subject.unit,
        "curved": [groups[g] for g in figures.largest_groups(subject)],
        "curves_of": figures.largest_groups(subject),
        "selected": (classes[1],) if len(classes) == 2 else classes[:6],
        "by_group": _by_group(subject, (classes[1],) if len(classes) == 2 else classes[:6]),
        "rates": _rates(subject),
        "reference": _reference(subject),
        "timeline": _timeline(subject),
        "slices": _slices(subject),
        "decided": _decided(subject) if run is None else None,
        "curves": [],
        "maps": [],
        "probe": [],
        "mining": None,
        "facts": [],
        "spec": "",
    }
    if run is None:
        return out
    out["curves"] = training_curves(run)
    out["maps"], out["map_says"] = _maps(run, subject, dots)
    out["probe"] = representation(run.metrics())
    out["mining"] = explorer(run, subject, budget)
    out["facts"] = _facts(run)
    spec = run.settings
    out["spec"] = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True) if spec else ""
    return out


def tiles(subject: Subject) -> list[dict[str, Any]]:
    """The headline numbers."""
    return [
        {"label": m.title, "unit": m.unit, "e": subject.estimates[k], "says": m.meaning}
        for k, m in catalogue.shown("headline").items()
    ]


def _by_group(subject: Subject, selected: Sequence[str]) -> list[dict[str, Any]]:
    out = []
    for group in subject.counts.groups:
        own = [r for r in subject.groups if r.group == group]
        rates = [r.estimate for r in own if r.kind == "accuracy" or r.name in selected]
        few = group in subject.small
        out.append({"group": group, "n": rates[0].support, "rates": rates, "small": few})
    return out


def _rates(subject: Subject) -> dict[str, Any] | None:
    """Error rates by name, group by group, with the gap and the ratio of each."""
    found = by_group(subject.counts, positive=subject.positive, level=subject.drawn.level)
    if not found or "fpr_gap" not in subject.estimates:
        return None
    positive = subject.counts.classes[subject.positive or 0]
    return {
        "positive": positive,
        "heads": [{"label": r.label, "says": r.meaning} for r in RATES],
        "rows": [
            {
                "group": group,
                "small": group in subject.small,
                "cells": [found[r.name][g] for r in RATES],
            }
            for g, group in enumerate(subject.counts.groups)
        ],
        "gaps": [subject.estimates[f"{r.name}_gap"] for r in RATES],
        "ratios": [subject.estimates[f"{r.name}_ratio"] for r in RATES],
    }


def _reference(subject: Subject) -> dict[str, Any] | None:
    """Differences and ratios of every group to the reference group."""
    found = subject.reference
    if found is None or "fpr_gap" not in subject.estimates:
        return None
    others = [a.group for a in found.rates[RATES[0].name]]
    return {
        "says": found.says,
        "rule": found.four_fifths(subject.small),
        "heads": [{"label": r.label, "says": r.meaning} for r in RATES],
        "rows": [
            {
                "group": group,
                "small": group in subject.small,
                "differences": [found.rates[r.name][i].difference for r in RATES],
                "ratios": [found.rates[r.name][i].ratio for r in RATES],
            }
            for i, group in enumerate(others)
        ],
    }


def _timeline(subject: Subject) -> dict[str, Any] | None:
    found = subject.timeline
    if found is None:
        return None
    metric = catalogue.named(found.metric)
    return {
        "title": f"{metric.title} by {found.period}",
        "figure": found.figure(),
        "period": found.period,
        "rows": found.periods,
    }


def _slices(subject: Subject) -> dict[str, Any] | None:
    found = subject.slices
    if found is None:
        return None
    return {
        "says": found_slices(found),
        "rows": [{"s": s, "reported": s.q <= found.false_finds} for s in found.found],
    }


def _decided(subject: Subject) -> dict[str, Any] | None:
    """ROC curves and rates against the threshold, where there are scores of two classes."""
    decided = Decided.of(subject)
    if decided is None:
        return None
    return {
        "roc": decided.roc(),
        "rates": [{"title": rate_named(r).label, "figure": decided.rate(r)} for r in SHOWN],
        "says": decided.says,
    }


def _confusion(subject: Subject) -> list[dict[str, Any]]:
    out = []
    for g, group in enumerate(subject.counts.groups):
        rows = []
        for c, name in enumerate(subject.counts.classes):
            n_P = subject.counts.n_CPG[c, :, g]
            whole = n_P.sum()
            cells = [
                {
                    "n": round(n),
                    "share": f"{percent(n / whole)} %" if whole else "–",
                    "shade": round(5 * n / whole) if whole else 0,
                }
                for n in n_P.tolist()
            ]
            rows.append({"name": name, "cells": cells})
        out.append({"group": group, "rows": rows})
    return out


def _maps(run: RunDirectory, subject: Subject, dots: int) -> tuple[list[dict[str, Any]], str]:
    found = run.embedding()
    if found is None:
        return [], ""
    # drawn at random: every second row may be of one class
    rows = np.sort(np.random.default_rng(0).permutation(len(found["x"]))[:dots])
    x, y, t, s = (found[k][rows] for k in ("x", "y", "target", "sensitive"))
    maps, outside, unit = [], 0, subject.unit
    for by, names, codes in (
        ("class", subject.counts.classes, t),
        (subject.attribute, subject.counts.groups, s),
    ):
        figure, outside = embedding(x, y, codes.astype(int), names, by, unit)
        maps.append({"by": by, "figure": figure})
    says = (
        f"A two-dimensional projection of the features of {count(len(x))} test {unit}, with a "
        "panel for each class and each group; all others are in grey. Classes should be separate. "
        "Where the panels of the groups differ, the group can be read from the features."
        + (f" {count(outside)} distant {unit} are outside of the panels." if outside else "")
    )
    return maps, says


def _facts(run: RunDirectory) -> list[dict[str, str]]:
    """What two runs of one specification have in common; times and commands stay in their file."""
    p = run.provenance()
    rows: list[tuple[str, Any]] = [
        ("Run", run.path.name),
        ("Method", run.method),
        ("Data", run.setting),
        ("Seed", run.seed),
        ("Manifest SHA-256", run.manifest_sha256),
        ("Views seen", _whole(p.get("images_seen"))),
        ("Parameters", _whole(p.get("parameters"))),
        ("Device", p.get("device")),
        ("CPU", p.get("cpu")),
        ("Instruction set", p.get("instructions")),
        ("Threads", p.get("threads")),
        ("Image decoder", p.get("decoder") if run.unit == "images" else None),
        ("Test split opened", _opened(p.get("test_opened"))),
    ]
    versions = p.get("versions")
    if isinstance(versions, dict):
        rows.append(("Versions", ", ".join(f"{k} {v}" for k, v in versions.items())))
    warnings = [e for e in run.log() if e.get("event") in ("collapse", "warning")]
    for e in warnings[:5]:
        rows.append((str(e["event"]).capitalize(), e.get("message") or e.get("text") or _rest(e)))
    if p:
        rows.append(("Times and commands", "provenance.json in the run's folder"))
    return [{"name": name, "value": str(value)} for name, value in rows if value not in (None, "")]


def _rest(entry: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in entry.items() if k != "event")


def _opened(times: Any) -> str | None:
    number = len(times) if isinstance(times, list) else times
    if not isinstance(number, int):
        return None
    return f"{number} time{'' if number == 1 else 's'}"


def _whole(value: Any) -> str | None:
    number = finite(value)
    return None if number is None else count(int(np.round(number)))
