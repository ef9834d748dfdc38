"""What a page shows of one model: figures, tables and, for a run, training and mining."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from shasam.metrics import catalogue
from shasam.report import figures
from shasam.report.bars import bars
from shasam.report.curves import training_curves
from shasam.report.representation import representation
from shasam.report.runs import finite
from shasam.report.subject import Subject
from shasam.report.words import count, percent, verdict
from shasam.runs.directory import RunDirectory

_IMAGE = re.compile(r"data:image/(png|jpeg|webp);base64,[A-Za-z0-9+/]+={0,2}\Z")
_SETS = (
    ("anchors", "Anchors", "one class, one group"),
    ("positives", "Hard positives", "same class, other groups"),
    ("negatives", "Hard negatives", "other class, same group"),
)
_RANDOM = (
    ("random_anchors", "Random anchors", "from the same pool"),
    ("random_positives", "Random positives", "from the same pool"),
    ("random_negatives", "Random negatives", "from the same pool"),
)


@dataclass
class Budget:
    """Bytes of thumbnails that a page may still take."""

    left: int
    wanted: bool = True  # False: none at all

    def take(self, thumb: str) -> bool:
        if len(thumb) > self.left:
            return False
        self.left -= len(thumb)
        return True


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
                "label": catalogue.label_of(k),
                "e": e,
                "says": catalogue.named(k).meaning,
            }
            for k, e in subject.estimates.items()
        ],
        "bars": bars(subject),
        "scores": figures.score_curves(subject, positive),
        "calibration": figures.calibration(subject),
        "confusion": _confusion(subject),
        "selected": (classes[1],) if len(classes) == 2 else classes[:6],
        "by_group": _by_group(subject, (classes[1],) if len(classes) == 2 else classes[:6]),
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
    out["mining"] = _mining(run, subject, budget)
    out["facts"] = _facts(run)
    spec = run.settings
    out["spec"] = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True) if spec else ""
    return out


def tiles(subject: Subject) -> list[dict[str, Any]]:
    """The headline numbers."""
    return [
        {"label": m.label, "unit": m.unit, "e": subject.estimates[k]}
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


def _confusion(subject: Subject) -> list[dict[str, Any]]:
    out = []
    for g, group in enumerate(subject.counts.groups):
        rows = []
        for c, name in enumerate(subject.counts.classes):
            n_P = subject.counts.n_CPG[c, :, g]
            whole = int(n_P.sum())
            cells = [
                {
                    "n": int(n),
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
    every = max(1, -(-len(found["x"]) // dots))
    x, y, t, s = (found[k][::every] for k in ("x", "y", "target", "sensitive"))
    maps = [
        {"by": by, "names": names, "figure": figures.embedding(x, y, codes.astype(int), names, by)}
        for by, names, codes in (
            ("class", subject.counts.classes, t),
            (subject.attribute, subject.counts.groups, s),
        )
    ]
    says = (
        f"A two-dimensional projection of the features of {count(len(x))} test images. Classes "
        "should come apart in the first map; if groups come apart in the second, the features "
        "tell them."
    )
    return maps, says


def _mining(run: RunDirectory, subject: Subject, budget: Budget) -> dict[str, Any] | None:
    mining = run.mining()
    if not mining:
        return None
    classes, groups = subject.counts.classes, subject.counts.groups
    # the step that the page opens with, the last one, takes its pictures from the budget first
    places = sorted(range(len(mining)), key=lambda i: -_integer(mining[i].get("step")))
    shown = {i: _iteration(mining[i], classes, groups, budget) for i in places}
    iterations = [shown[i][0] for i in range(len(mining))]
    dropped = sum(lost for _, lost in shown.values())
    left_out = (
        f"{count(dropped)} thumbnails were left out to keep the page small." if dropped else ""
    )
    return {
        "iterations": iterations,
        "steps": sorted({i["step"] for i in iterations}),
        "targets": _options(iterations, "target"),
        "groups": _options(iterations, "group"),
        "left_out": left_out,
    }


def _iteration(
    found: dict[str, Any], classes: Sequence[str], groups: Sequence[str], budget: Budget
) -> tuple[dict[str, Any], int]:
    """The mined sets of one step beside random ones, and how many pictures did not fit."""
    step, target, group = (_integer(found.get(k)) for k in ("step", "target", "sensitive"))
    sides, dropped = [], 0
    for side in (_SETS, _RANDOM):
        sets = []
        for key, title, says in side:
            given = found["sets"].get(key)
            raw = [i for i in given if isinstance(i, dict)] if isinstance(given, list) else []
            items = []
            for item in raw:
                shown, lost = _item(item, budget)
                dropped += lost
                items.append(shown)
            if not items:
                continue
            near = [x for i in raw if (x := finite(i.get("similarity"))) is not None]
            mean = f", mean cosine {np.mean(near):.2f}" if near else ""
            if side is _SETS and all(i.get("gain") is None for i in raw):
                title = title.removeprefix("Hard ").capitalize()
                mean += ", drawn at random by this method"
            sets.append({"title": title, "says": says + mean, "items": items})
        if sets:
            sides.append({"sets": sets})
    shown_step = {
        "step": step,
        "target": target,
        "group": group,
        "target_name": classes[target] if 0 <= target < len(classes) else target,
        "group_name": groups[group] if 0 <= group < len(groups) else group,
        "sides": sides,
    }
    return shown_step, dropped


def _item(item: dict[str, Any], budget: Budget) -> tuple[dict[str, Any], int]:
    thumb = item.get("thumb") if budget.wanted else None
    fits = isinstance(thumb, str) and bool(_IMAGE.match(thumb)) and budget.take(thumb)
    gain, similarity = finite(item.get("gain")), finite(item.get("similarity"))
    shown = {
        "id": str(item.get("id", "")),
        "thumb": thumb if fits else None,
        "gain": None if gain is None else f"{gain:.2f}",
        "similarity": None if similarity is None else f"{similarity:.2f}",
    }
    return shown, int(isinstance(thumb, str) and not fits)


def _options(iterations: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    names = {i[key]: i[f"{key}_name"] for i in iterations}
    return [{"code": code, "name": names[code]} for code in sorted(names)]


def _integer(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def _facts(run: RunDirectory) -> list[dict[str, str]]:
    """What two runs of one specification have in common; times and commands stay in their file."""
    p = run.provenance()
    rows: list[tuple[str, Any]] = [
        ("Run", run.path.name),
        ("Method", run.method),
        ("Data", run.setting),
        ("Seed", run.seed),
        ("Manifest SHA-256", run.manifest_sha256),
        ("Images seen", _whole(p.get("images_seen"))),
        ("Parameters", _whole(p.get("parameters"))),
        ("Device", p.get("device")),
        ("CPU", p.get("cpu")),
        ("Instruction set", p.get("instructions")),
        ("Threads", p.get("threads")),
        ("Image decoder", p.get("decoder")),
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
