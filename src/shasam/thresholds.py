"""Give a trained run thresholds per group that keep a limit, without training it again.

The rule is chosen and fitted on the run's validation predictions alone. What it does is read off
the recorded test predictions: no image is opened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shasam.extras import need

need("torch", __name__)

import pyarrow.parquet as pq
from safetensors.torch import save

from shasam.errors import Argument, InputError
from shasam.export import description
from shasam.files import make_folder, write_atomic
from shasam.methods.posthoc import deciding_by_group
from shasam.metrics import Comparison, Estimate, catalogue, compare, evaluate
from shasam.metrics.odds import ChosenRule, rule_for
from shasam.pipeline.load import CONFIG, WEIGHTS, Model, load
from shasam.report.predictions import Columns, read_predictions
from shasam.report.verdict import joined, percent
from shasam.runs.directory import RunDirectory, predictions_table, table_bytes
from shasam.types import Predictions

VALIDATION, TEST, RULE = "predictions.val.parquet", "predictions.parquet", "rule.json"


@dataclass(frozen=True)
class Rethresholded:
    """A trained model with a rule for limits, and what the rule does on the test split."""

    model: Model
    chosen: ChosenRule
    limits: Mapping[str, float]
    validation_rows: int
    test: Predictions  # decided by the rule
    found: dict[str, Estimate]  # on the test split
    before: dict[str, Estimate]
    price: Comparison  # of accuracy: the rule minus the model as it was

    @property
    def kept(self) -> dict[str, bool]:
        """Which limits the test split shows to be kept: by the end of the interval."""
        return {m: _keeps(m, self.found[m], bound) for m, bound in self.limits.items()}

    @property
    def says(self) -> list[str]:
        """How the rule was chosen, what it does, what it costs and what it needs."""
        limits = joined([f"{m}={bound:g}" for m, bound in self.limits.items()])
        how = "kept it" if self.chosen.kept else "came nearest; none kept it"
        t = self.chosen.tolerance
        allowed = "by any amount" if t >= 1 else f"by {percent(t)} points"
        lines = [
            f"{limits}: of the thresholds that {how} on validation, each row decided by a rule "
            f"of other rows, the most accurate let the rates of two groups differ {allowed}; they "
            f"were then fitted on all {self.validation_rows:,} validation rows."
        ]
        for metric in self.limits:
            now, was = self.found[metric], self.before[metric]
            label = catalogue.named(metric).label
            shown = "shown to keep the limit" if self.kept[metric] else "not shown to keep it"
            lines.append(
                f"On test, {label} is {percent(now.value)} ({percent(now.low)} to "
                f"{percent(now.high)}) instead of {percent(was.value)}: {shown}."
            )
        cost = self.price
        span = f"{percent(cost.low)} to {percent(cost.high)} points"
        if cost.shown:
            word = "costs" if cost.difference < 0 else "gains"
            lines.append(f"It {word} {percent(abs(cost.difference))} points of accuracy ({span}).")
        else:
            lines.append(f"Its accuracy is not shown to differ ({span}).")
        return [*lines, "It needs the group of every row at prediction."]

    def as_dict(self) -> dict[str, Any]:
        """The rule and its numbers, as plain JSON."""
        rule = self.chosen.rule
        return {
            "limits": dict(self.limits),
            "tolerance": self.chosen.tolerance,
            "kept_on_validation": self.chosen.kept,
            "validation_rows": self.validation_rows,
            "groups": list(self.model.groups),
            "rule": rule.table.clip(-1.0, 2.0).tolist()
            if rule.classes == 2
            else rule.table.tolist(),
            "columns": ["p_ignore", "constant", "p0", "threshold0", "p1", "threshold1"]
            if rule.classes == 2
            else "P(decided class | arg max), by group",
            "test": {m: e.as_dict() for m, e in self.found.items()},
            "price": self.price.as_dict(),
            "says": self.says,
        }

    def write(self, out: Path, metadata: Mapping[bytes, bytes]) -> None:
        """A folder that ``predict``, ``export`` and ``shasam.load`` take like a run."""
        if out.is_symlink():
            raise InputError(f"{out} is a link; give another folder as ", Argument("out"))
        if out.is_dir() and not (out / RULE).is_file() and any(out.iterdir()):
            raise InputError(f"{out} holds other things; give an empty folder as ", Argument("out"))
        make_folder(out)
        tensors = {k: v.cpu().contiguous() for k, v in self.model.method.state_dict().items()}
        weights = save(tensors, metadata={"format": "pt"})
        body = description(self.model, hashlib.sha256(weights).hexdigest())
        about = {k.decode(): v.decode() for k, v in metadata.items()}
        table = predictions_table(self.test, about)
        write_atomic(out / WEIGHTS, weights, within=out)
        write_atomic(out / CONFIG, json.dumps(body, indent=1) + "\n", within=out)
        write_atomic(out / TEST, table_bytes(table), within=out)
        write_atomic(out / RULE, json.dumps(self.as_dict(), indent=1) + "\n", within=out)


def rethreshold(
    run: RunDirectory, limits: Mapping[str, float], *, draws: int = 2000
) -> Rethresholded:
    """Choose and fit the rule of a run for limits, and measure it on the recorded test split."""
    if not limits:
        raise InputError("give a limit, such as ", Argument("limit"), " eo_mean=0.05")
    validation, test = (_rows(run, name) for name in (VALIDATION, TEST))
    model = load(run)
    chosen = rule_for(validation, limits)
    method = deciding_by_group(model.method)
    method.take_rule(chosen.rule)
    model = replace(
        model, method=method, rule={"limits": dict(limits), "tolerance": chosen.tolerance}
    )
    decided = method.decide(test)
    wanted = list(dict.fromkeys([*limits, "accuracy"]))
    keywords: dict[str, Any] = {
        "classes": test.classes, "groups": test.groups, "positive": test.positive, "draws": draws,
        "strata": "cell", "metrics": wanted,
    }  # fmt: skip
    found, before = (
        evaluate(rows.target, rows.prediction, rows.sensitive, **keywords)
        for rows in (decided, test)
    )
    price = compare(
        test.target, decided.prediction, test.prediction, test.sensitive,
        **{**keywords, "metrics": ["accuracy"]},
    )["accuracy"]  # fmt: skip
    return Rethresholded(model, chosen, limits, len(validation), decided, found, before, price)


def metadata_of(run: RunDirectory) -> Mapping[bytes, bytes]:
    """What the recorded predictions say of their data."""
    return pq.read_schema(run.file(TEST)).metadata or {}


def _rows(run: RunDirectory, name: str) -> Predictions:
    if not run.file(name).is_file():
        raise InputError(f"{run.path} has no {name}; `shasam evaluate {run.path}` writes it")
    whole = Columns(sensitive=("sensitive",))  # of several attributes their intersection
    return read_predictions(run.file(name), whole, run.name)[0]


def _keeps(metric: str, e: Estimate, bound: float) -> bool:
    if not e.defined:
        return False
    return e.low >= bound if catalogue.named(metric).better == "high" else e.high <= bound


def limits_from(texts: Sequence[str]) -> dict[str, float]:
    """``["eo_mean=0.05"]`` as a mapping; an end of the interval cannot be chosen here."""
    from shasam.report.audits import limits_of

    found = limits_of(texts)
    for limit in found:
        if limit.end != "value":
            raise InputError(
                Argument("limit"), f" {limit.words}: write {limit.metric}={limit.bound:g}"
            )
    return {limit.metric: limit.bound for limit in found}
