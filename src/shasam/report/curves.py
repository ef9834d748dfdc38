"""The curves of training that a page shows: loss, validation, and signs of a collapse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shasam.report import figures
from shasam.report.runs import finite
from shasam.runs.directory import RunDirectory

Epoch = Mapping[str, Any]  # an epoch line of the log
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
    """The variables of the template for each curve that the log has two points of."""
    epochs = [line for line in run.log() if line["event"] == "epoch"]
    stages: dict[str, list[Epoch]] = {}
    for epoch in epochs:
        stages.setdefault(str(epoch.get("stage", "training")), []).append(epoch)
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
                    "figure": figures.curve(lines, curve.title, floor=curve.floor),
                }
            )
    return out


def _name(word: str, stage: str, stages: int) -> str:
    if not word:
        return stage
    return f"{word}, {stage}" if stages > 1 else word


def _series(read: Callable[[Epoch], Any], stages: Mapping[str, Sequence[Epoch]]) -> list[Line]:
    """The finite values of each stage that has at least two."""
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
