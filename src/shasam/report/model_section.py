"""Collect what a page shows of one model: figures, tables, training curves, mined triplets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import yaml

from shasam.metrics import by_group, catalogue
from shasam.metrics.rates import RATES, rate_named
from shasam.report import charts
from shasam.report.charts import RATES as SHOWN
from shasam.report.charts import DecisionScores, bars, embedding
from shasam.report.fronts import ThresholdFront
from shasam.report.runs import finite
from shasam.report.subject import Subject
from shasam.report.verdict import count, found_slices, percent, verdict
from shasam.runs.directory import RunDirectory

# -------------------------------------------------------------------------------------------------
# What a page says about the frozen features of a run: leakage, and the natural head.
# -------------------------------------------------------------------------------------------------


def representation(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a row for each kind of feature; what was not recorded is a dash."""
    probes, heads = (_mapping(metrics.get(key)) for key in ("probe", "natural_head"))
    rows = []
    for kind in dict.fromkeys([*probes, *heads]):
        probe = probes.get(kind)
        # before 0.1 a probe was its accuracy alone
        probe = probe if isinstance(probe, Mapping) else {"accuracy": probe}
        head = _mapping(_mapping(heads.get(kind)).get("test"))
        row = {
            "name": str(kind),
            "chance": _share(probe.get("chance")),
            "linear": _share(probe.get("accuracy", probe.get("value"))),
            "linear_within": _share(probe.get("linear_within_class")),
            "mlp_within": _share(probe.get("mlp_within_class")),
            "accuracy": _estimate(head.get("accuracy")),
            "eo": _estimate(head.get("eo_mean")),
        }
        if any(row[key] != "–" for key in ("linear", "accuracy")):
            rows.append(row)
    return rows


def transfers(metrics: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a row for each other target, kind of feature and strength of the head that read it."""
    rows = []
    for word, found in _mapping(metrics.get("transfer")).items():
        for kind, heads in _mapping(found).items():
            for strength, splits in _mapping(heads).items():
                test = _mapping(_mapping(splits).get("test"))
                rows.append(
                    {
                        "target": str(word),
                        "name": str(kind),
                        "strength": str(strength),
                        "majority": _share(_mapping(found).get("majority")),
                        "accuracy": _estimate(test.get("accuracy")),
                        "eo": _estimate(test.get("eo_mean")),
                    }
                )
    return rows


def strongest(metrics: Mapping[str, Any]) -> tuple[float, float | None] | None:
    """Return the accuracy and chance of the linear probe that reads most, if one was recorded."""
    found = []
    for entry in _mapping(metrics.get("probe")).values():
        probe = entry if isinstance(entry, Mapping) else {"accuracy": entry}
        accuracy = probe.get("accuracy", probe.get("value"))
        value = finite(accuracy.get("value") if isinstance(accuracy, Mapping) else accuracy)
        if value is not None:
            found.append((value, finite(probe.get("chance"))))
    return max(found, key=lambda pair: pair[0], default=None)


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _share(value: Any) -> str:
    number = finite(value.get("value") if isinstance(value, Mapping) else value)
    return "–" if number is None else percent(number)


def _estimate(entry: Any) -> str:
    value, low, high = (finite(_mapping(entry).get(key)) for key in ("value", "low", "high"))
    if value is None:
        return "–"
    bounds = "" if low is None or high is None else f" ({percent(low)} to {percent(high)})"
    return percent(value) + bounds


# -------------------------------------------------------------------------------------------------
# The mining explorer: what was picked at chosen steps, random picks beside it, and how near.
# -------------------------------------------------------------------------------------------------

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
    """Return the variables of the template, None if nothing was mined."""
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
    """Return the mean largest cosine to the anchors over the steps, mined against random."""
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
    return {"names": [n for n, _, _ in series], "figure": charts.curve(series, "Nearest anchor")}


def _iteration(
    found: dict[str, Any], classes: Sequence[str], groups: Sequence[str], budget: Budget
) -> tuple[dict[str, Any], int]:
    """Return the mined sets of one step beside random ones, and how many pictures did not fit."""
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


# -------------------------------------------------------------------------------------------------
# The curves of training that a page shows: loss, validation, and signs of a collapse.
# -------------------------------------------------------------------------------------------------

Epoch = Mapping[str, Any]  # an epoch line of the log
MOST_POINTS = 4_000  # of a stage; a screen has fewer, and a foreign log could have a million
MOST_STAGES = 20
Line = tuple[str, list[float], list[float]]  # name, steps, values


@dataclass(frozen=True)
class Curve:
    """A figure: its title, what it says, its lines (name and how to read one), its lowest value."""

    title: str
    says: str
    lines: tuple[tuple[str, Callable[[Epoch], Any]], ...]
    floor: float | None = 0.0


def _key(name: str) -> Callable[[Epoch], Any]:
    return lambda epoch: epoch.get(name)


def _val(metric: str) -> Callable[[Epoch], Any]:
    return lambda epoch: epoch["val"].get(metric) if isinstance(epoch.get("val"), dict) else None


CURVES = (
    Curve("Loss", "By stage.", (("", _key("loss")),), None),
    Curve(
        "Validation accuracy and gap (EO)",
        "Fractions, on the validation split.",
        (("accuracy", _val("accuracy")), ("gap (EO)", _val("eo_mean"))),
    ),
    Curve(
        "Effective rank",
        "How many directions the features use. A fall towards 1 means collapse.",
        (("", _key("effective_rank")),),
    ),
    Curve(
        "Mean cosine between features",
        "Near 1, all features are the same, which means collapse.",
        (("", _key("mean_cosine")),),
    ),
    Curve(
        "Share of active terms",
        "Terms of the loss that still have a gradient.",
        (("", _key("active")),),
    ),
    Curve(
        "Share of terms on the wrong side",
        "Anchors that are nearer to their negatives than to their positives.",
        (("", _key("wrong_side")),),
    ),
)


def training_curves(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the variables of the template for each curve that the log has two points of."""
    found: dict[str, _EpochSample] = {}
    for line in run.log():
        stage = str(line.get("stage", "training"))
        if line["event"] == "epoch" and (stage in found or len(found) < MOST_STAGES):
            found.setdefault(stage, _EpochSample()).add(line)
    stages = {name: kept.epochs() for name, kept in found.items()}
    out = []
    for curve in CURVES:
        lines = [
            (_name(word, stage, len(stages)), steps, values)
            for word, read in curve.lines
            for stage, steps, values in _series(read, stages)
        ]
        if lines:
            out.append(
                {
                    "title": curve.title,
                    "says": curve.says,
                    "names": [name for name, _, _ in lines],
                    "figure": charts.curve(lines, curve.title, floor=curve.floor),
                }
            )
    return out


class _EpochSample:
    """At most MOST_POINTS epochs of a stage, evenly spread, and its last one."""

    def __init__(self) -> None:
        self._kept: list[Epoch] = []
        self._every, self._count = 1, 0
        self._last: Epoch | None = None

    def add(self, epoch: Epoch) -> None:
        if self._count % self._every == 0:
            self._kept.append(epoch)
        self._count, self._last = self._count + 1, epoch
        if len(self._kept) > MOST_POINTS:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def epochs(self) -> list[Epoch]:
        if self._last is None or self._kept[-1] is self._last:
            return self._kept
        return [*self._kept, self._last]


def _name(word: str, stage: str, stages: int) -> str:
    if not word:
        return stage
    return f"{word}, {stage}" if stages > 1 else word


def _series(read: Callable[[Epoch], Any], stages: Mapping[str, Sequence[Epoch]]) -> list[Line]:
    """Return the finite values of each stage that has at least two."""
    found = []
    for stage, epochs in stages.items():
        steps, values = [], []
        for i, epoch in enumerate(epochs):
            value = finite(read(epoch))
            if value is not None:
                steps.append(finite(epoch.get("step")) or float(i))
                values.append(value)
        if len(values) > 1:
            found.append((stage, steps, values))
    return found


# -------------------------------------------------------------------------------------------------
# What a page shows of one model: figures, tables and, for a run, training and mining.
# -------------------------------------------------------------------------------------------------


def detail(
    subject: Subject,
    run: RunDirectory | None,
    key: str,
    budget: Budget,
    *,
    brief: bool,
    dots: int = 2000,
) -> dict[str, Any]:
    """Return the variables of the template for one model."""
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
        "shown": subject.shown_metrics,
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
        "scores": charts.score_curves(subject, positive),
        "calibration": charts.calibration(subject),
        "abstention": subject.abstention,
        "confusion": _confusion(subject),
        "unit": subject.unit,
        "curved": [groups[g] for g in charts.largest_groups(subject)],
        "curves_of": charts.largest_groups(subject),
        "selected": (classes[1],) if len(classes) == 2 else classes[:6],
        "by_group": _by_group(subject, (classes[1],) if len(classes) == 2 else classes[:6]),
        "rates": _rates(subject),
        "reference": _reference(subject),
        "timeline": _timeline(subject),
        "slices": _slices(subject),
        "decided": _decided(subject) if run is None else None,
        "front": ThresholdFront.of(subject),
        "curves": [],
        "maps": [],
        "probe": [],
        "probe_says": "",
        "transfer": [],
        "mining": None,
        "facts": [],
        "spec": "",
    }
    if run is None:
        return out
    out["curves"] = training_curves(run)
    out["maps"], out["map_says"] = _maps(run, subject, dots)
    out["probe"] = representation(run.metrics())
    out["transfer"] = transfers(run.metrics())
    out["mining"] = explorer(run, subject, budget)
    out["facts"] = _facts(run)
    spec = run.settings
    out["spec"] = yaml.safe_dump(spec, sort_keys=False, allow_unicode=True) if spec else ""
    return out


def tiles(subject: Subject) -> list[dict[str, Any]]:
    """Return the headline numbers."""
    return [
        {
            "label": m.title,
            "unit": m.unit,
            "e": subject.estimates[k],
            "says": m.meaning,
            "who": subject.worst_served if k == "worst_group_accuracy" else "",
        }
        for k, m in catalogue.shown("headline").items()
    ]


def _by_group(subject: Subject, selected: Sequence[str]) -> list[dict[str, Any]]:
    out = []
    for group in subject.counts.groups:
        own = [r for r in subject.groups if r.group == group]
        rates = [r.estimate for r in own if r.kind == "accuracy" or r.name in selected]
        few = subject.few(rates[0])
        out.append({"group": group, "n": rates[0].support, "rates": rates, "small": few})
    return out


def _rates(subject: Subject) -> dict[str, Any] | None:
    """Return error rates by name, group by group, with the gap and the ratio of each."""
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
    """Return differences and ratios of every group to the reference group."""
    found = subject.reference
    if found is None or "fpr_gap" not in subject.estimates:
        return None
    others = [a.group for a in found.rates[RATES[0].name]]
    return {
        "says": found.says,
        "rule": found.four_fifths(subject.drawn.min_group),
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
    """Return ROC curves and rates against the threshold, where there are scores of two classes."""
    decided = DecisionScores.of(subject)
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
    """Return what two runs of one specification have in common: no times, no commands."""
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
    warnings = (e for e in run.log() if e.get("event") in ("collapse", "warning"))
    for e in islice(warnings, 5):
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
