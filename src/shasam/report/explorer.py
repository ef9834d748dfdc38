"""The mining explorer: what was picked at chosen steps, random picks beside it, and how near."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shasam.report import figures
from shasam.report.runs import finite
from shasam.report.subject import Subject
from shasam.report.words import count
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


def explorer(run: RunDirectory, subject: Subject, budget: Budget) -> dict[str, Any] | None:
    """The variables of the template, None where nothing was mined."""
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
        "similarity": _similarity(run),
    }


def _similarity(run: RunDirectory) -> dict[str, Any] | None:
    """Mean largest cosine to the anchors over the steps, mined against random."""
    series = []
    for key, name in (
        ("positives", "mined positives"),
        ("random_positives", "random positives"),
        ("negatives", "mined negatives"),
        ("random_negatives", "random negatives"),
    ):
        at: dict[int, list[float]] = {}
        for found in run.mining():
            items = found["sets"].get(key)
            for item in items if isinstance(items, list) else []:
                near = finite(item.get("similarity")) if isinstance(item, dict) else None
                if near is not None:
                    at.setdefault(_integer(found.get("step")), []).append(near)
        steps = sorted(at)
        if len(steps) > 1:
            series.append((name, [float(s) for s in steps], [float(np.mean(at[s])) for s in steps]))
    if not series:
        return None
    return {"names": [n for n, _, _ in series], "figure": figures.curve(series, "Nearest anchor")}


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
