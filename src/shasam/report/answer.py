"""Say what came of a run: the model beside plain cross-entropy, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shasam.errors import ShasamError
from shasam.metrics import Estimate
from shasam.metrics.paired import Comparison, compare
from shasam.report.runs import by_number, predictions_of, recorded_subject
from shasam.report.subject import Subject
from shasam.report.verdict import comparison_line, count, percent
from shasam.runs.directory import RunDirectory
from shasam.spec.fields import DataSpec, ModelSpec
from shasam.spec.layers import OWN
from shasam.tables import UNKNOWN

PLAIN = "ce"  # what a fairer model is held against
_OF_DATA_AND_MODEL = frozenset(
    name.replace("_", "-") for part in (DataSpec, ModelSpec) for name in part.model_fields
) | {"data", "split-seed", "seed", "profile", "out"}
_SIBLINGS = 200  # runs of a folder that are looked at for the plain one
_SHOWN = ("accuracy", "eo_mean", "worst_group_accuracy")
# experiments/pretrained; docs/results.md has the rows
WORTH = (
    "starting from ImageNet weights was worth 7.6 points of accuracy on UTKFace, more than any "
    "method"
)


@dataclass(frozen=True)
class RunAnswer:
    """A run, the plain model on the same rows if there is one, and their difference."""

    run: RunDirectory
    subject: Subject
    plain: Subject | None
    found: dict[str, Comparison] | None

    @classmethod
    def of(cls, run: RunDirectory, plain: RunDirectory | None = None) -> RunAnswer:
        """Return the recorded numbers.

        The plain run is looked for beside the run if none is given.
        """
        subject = recorded_subject(run)
        plain = plain or plain_beside(run)
        if plain is None:
            return cls(run, subject, None, None)
        mine, other = predictions_of(run), predictions_of(plain)
        if mine.ids.tolist() != other.ids.tolist():
            return cls(run, subject, None, None)
        found = compare(
            mine.target,
            mine.prediction,
            other.prediction,
            mine.sensitive,
            classes=mine.classes,
            groups=mine.groups,
            metrics=_SHOWN,
        )
        return cls(run, subject, recorded_subject(plain), found)

    def lines(self) -> list[str]:
        """Return the model, and the plain one beside it."""
        unit, total = self.subject.unit, count(self.subject.rows.total)
        said = [
            f"Your model ({_method(self.run)}): {_numbers(self.subject)}, on {total} test {unit}."
        ]
        if unknown := self.run.metrics().get("without_group", {}).get("test"):
            several = "attributes" in self.run.metadata
            what = "group" if several else self.run.metadata.get("number", "group")
            said.append(
                f"{count(unknown)} more test {unit} have no {what} and are not in these numbers."
            )
        with suppress(KeyError, TypeError, ValueError):  # none, or not as this package writes it
            said.append(inferred_line(self.run.metrics()["inferred_groups"], unit))
        if (along := by_number(self.run)) is not None:
            said += along.in_short
        if of_each := gaps_by_attribute(self.run):
            said.append(of_each)
        if self.plain is not None and self.found is not None:
            said.append(f"Plain cross-entropy ({PLAIN}): {_numbers(self.plain)}.")
            said.append(comparison_line("Your model", "the plain one", self.found))
        if calibration := self.run.metrics().get("calibration"):
            said.append(_calibrated(calibration))
        return said

    def to_do(self) -> list[str]:
        """Say what to do first, the most useful before the others."""
        run, said = self.run, []
        own = run.settings.get("model")
        scratch = isinstance(own, dict) and own.get("encoder") == "resnet18" and not own.get("init")
        if run.unit == "images" and scratch and run.protocol.get("source") in OWN:
            said.append(
                f"Start from a pretrained network: {WORTH}. pip install 'shasam[pretrained]', "
                "and the same command takes it."
            )
        if self.plain is None and _method(run) != PLAIN:
            said.append(
                f"See what fairness costs: shasam train {PLAIN} with the same flags gives the "
                "plain model, and shasam compare several methods over seeds."
            )
        if self.found is not None:
            said.append(self._which())
        worst = self.subject.worst_served
        if worst:
            said.append(
                f"The worst-served are {worst}: more {run.unit} of them help if no method does."
            )
        return said

    def _which(self) -> str:
        gap = (self.found or {})["eo_mean"]
        if gap.reason is None and gap.shown:
            if gap.difference < 0:
                return "The gap is shown to be smaller: check that its accuracy is enough for you."
            return (
                "The plain model has the smaller gap: take it, or try shasam compare --methods "
                f"{self._others()}."
            )
        return (
            "One run does not show that this model is fairer than the plain one: shasam compare "
            f"--methods {self._others()} tries others over several seeds."
        )

    def _others(self) -> str:
        """Name methods to try that can take the groups of this run."""
        data = self.run.settings.get("data")
        special = isinstance(data, dict) and (
            data.get("missing") in UNKNOWN
            or data.get("groups") == "each"
            or data.get("sensitive_as") == "number"
        )
        return f"{PLAIN},balanced,{'gap,mmd' if special else 'groupdro,posthoc'}"


def inferred_line(found: Mapping[str, Any], unit: str) -> str:
    """Return how many groups were inferred for training, and how good they are."""
    given, left, known = found["inferred"], found["unknown"], found["known"]
    of, where = found["validation"], f"validation {unit}"
    if of is None:
        of, where = found["cross_fitted"], f"training {unit} (cross-fitted)"
    right, guess, error = (percent(of[key]) for key in ("accuracy", "majority", "ece"))
    return (
        f"Trained with the groups of {count(known)} {unit} and {count(given)} inferred ones, "
        f"{count(left)} left unknown: of {count(of['rows'])} {where} with a group the inference is "
        f"right in {right} % (the largest group: {guess} %), its calibration error is {error} "
        "points."
    )


def gaps_by_attribute(run: RunDirectory) -> str:
    """Return the gap by each of several attributes and their intersection, the widest first.

    It is "" of one attribute.
    """
    recorded = run.metrics().get("attributes", {}).get("test", {})
    found = {name: Estimate.from_dict(entry["eo_mean"]) for name, entry in recorded.items()}
    ranked = sorted((n for n in found if found[n].defined), key=lambda n: -found[n].value)
    parts = [
        f"{name} {percent(found[name].value)} ({percent(found[name].low)} to "
        f"{percent(found[name].high)})"
        for name in ranked
    ]
    parts += [f"{name}: undefined ({e.reason})" for name, e in found.items() if not e.defined]
    return f"Gap by attribute, in points: {'; '.join(parts)}." if parts else ""


def next_command(run: RunDirectory) -> str:
    """Return the command that most people type after training."""
    new = "new_photos/" if run.unit == "images" else "new.npy"
    return f"shasam predict {shlex.quote(str(run.path))} {new} --out predictions.csv"


def plain_command(words: Sequence[str], method: str) -> str:
    """Return the command of a plain run on the same data.

    It has the flags of data, model, seed, profile and place.

    Options belong to the method, and how a run is printed to the run that was typed.
    """
    typed = _typed(words[1:])
    if list(words[:1]) != ["train"] or any(name == "config" for name, _ in typed):
        return f"shasam train {PLAIN} with the same data and model"
    kept: list[str] = []
    for name, own in typed:
        values = [word for word in own[1:] if word != method]
        if name == "set":
            values = [word for word in values if word.partition(".")[0] in ("data", "model")]
            kept += [word for value in values for word in ("--set", value)]
        elif name in _OF_DATA_AND_MODEL:
            kept += [own[0], *values]
    return shlex.join(["shasam", "train", PLAIN, *kept])


def _typed(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the flags that were typed, each by its plain name, with its values; other words go."""
    found: list[tuple[str, list[str]]] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            plain = name.removeprefix("--").partition(".")[0]
            found.append((plain, [name, value] if equals else [name]))
        elif word.startswith("-") and word[1:2].isalpha():
            found.append(("", [word]))
        elif found:
            found[-1][1].append(word)
    return found


def plain_beside(run: RunDirectory) -> RunDirectory | None:
    """Return a finished plain run in the same folder, on the same rows, with the same seed and
    encoder.
    """
    if _method(run) == PLAIN:
        return None
    try:
        siblings = sorted(Path(run.path).parent.glob(f"{PLAIN}-*"))[:_SIBLINGS]
        for path in siblings:
            found = RunDirectory(path)
            if found.done and _kind(found) == _kind(run):
                return found
    except (ShasamError, OSError):  # somebody else's folder
        return None
    return None


def _method(run: RunDirectory) -> str:
    """Return the method as it was asked for; a run's own name may tell its encoder too."""
    return str(run.settings.get("method") or run.method)


def _kind(run: RunDirectory) -> tuple[object, ...]:
    return run.manifest_sha256, run.seed, run.settings.get("model")


def _numbers(subject: Subject) -> str:
    accuracy, gap = (subject.estimates[key] for key in ("accuracy", "eo_mean"))
    return f"{_shown(accuracy, ' %')} right, gap between groups {_shown(gap, ' points')}"


def _calibrated(found: Mapping[str, Any]) -> str:
    """Return what a temperature has done to the calibration error of every group."""
    errors = {
        key.removeprefix("ece_"): (found["without"][key]["value"], after["value"])
        for key, after in found["with"].items()
        if key.startswith("ece_") and key != "ece_max" and after["value"] is not None
    }
    shown = ", ".join(f"{name} {percent(a)} to {percent(b)}" for name, (a, b) in errors.items())
    return (
        f"Temperature {found['temperature']:.2f}, fitted on validation; calibration error on test "
        f"without and with it, in points: {shown}."
    )


def _shown(e: Estimate, unit: str) -> str:
    if not e.defined:
        return f"undefined ({e.reason})"
    return f"{percent(e.value)}{unit} ({percent(e.low)} to {percent(e.high)})"
