"""Give a trained run thresholds that keep a limit, without training it again.

The rule is chosen and fitted on validation alone. Thresholds per group need the run's recorded
predictions: no image is opened. Those by the group that a head infers need its features as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shasam.extras import need

need("torch", __name__)

import pyarrow.parquet as pq
import torch
from safetensors.torch import save

from shasam.errors import Argument, InputError
from shasam.export import description
from shasam.files import make_folder, write_atomic
from shasam.methods.posthoc import deciding_by_group, inferring_group
from shasam.metrics import Comparison, Estimate, catalogue, compare, evaluate
from shasam.metrics.limits import ChosenOffsets, ChosenRule, rule_for
from shasam.pipeline.load import CONFIG, WEIGHTS, Model, load
from shasam.pipeline.results import data_of_run, open_test, spread_rows, times_opened
from shasam.report.predictions import Columns, read_predictions
from shasam.report.verdict import joined, percent
from shasam.runs.directory import RunDirectory, RunLog, predictions_table, table_bytes
from shasam.training.inference import TrainingData, linear_head, read_rows
from shasam.types import Predictions

MOST_ROWS = 50_000  # of training, that the head for the group learns from
VALIDATION, TEST, RULE = "predictions.val.parquet", "predictions.parquet", "rule.json"


@dataclass(frozen=True)
class ThresholdRun:
    """A trained model with a rule for limits, and what the rule does on the test split."""

    model: Model
    chosen: ChosenRule | ChosenOffsets
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
        judged = "on validation, each row decided by a rule of other rows"
        which = (
            f"of the thresholds that kept it {judged}, the most accurate"
            if self.chosen.kept
            else f"no thresholds kept it {judged}; those that came nearest"
        )
        lines = [
            f"{limits}: {which} {self._kind}; they were then fitted on all "
            f"{self.validation_rows:,} validation rows."
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
        return [*lines, *self._needs]

    @property
    def _kind(self) -> str:
        """Which thresholds were taken."""
        if isinstance(self.chosen, ChosenOffsets):
            unchanged = not self.chosen.offset_GC.any()
            return "are none at all" if unchanged else "follow the group that a head infers"
        t = self.chosen.tolerance
        if t is None:
            return "were searched for the limit itself"
        allowed = "by any amount" if t >= 1 else f"by {percent(t)} points"
        return f"let the rates of two groups differ {allowed}"

    @property
    def _needs(self) -> list[str]:
        """What it takes to predict, and how well the group is inferred."""
        if isinstance(self.chosen, ChosenRule):
            return ["It needs the group of every row at prediction."]
        assert self.test.inferred is not None
        guess, groups = self.test.inferred.argmax(1), self.test.sensitive
        found = [(guess[groups == g] == g).mean() for g in np.unique(groups[groups >= 0])]
        return [
            f"It needs no group at prediction; on test the head infers {percent(np.mean(found))} % "
            f"of the rows of a group, on average ({percent(1 / len(self.test.groups))} is chance)."
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return the rule and its numbers, as plain JSON."""
        return {
            "limits": dict(self.limits),
            "kept_on_validation": self.chosen.kept,
            "validation_rows": self.validation_rows,
            "groups": list(self.model.groups),
            **_table(self.chosen),
            "test": {m: e.as_dict() for m, e in self.found.items()},
            "price": self.price.as_dict(),
            "says": self.says,
        }

    def write(self, out: Path, metadata: Mapping[bytes, bytes]) -> None:
        """Write a folder that ``predict``, ``export`` and ``shasam.load`` take like a run."""
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


def _table(chosen: ChosenRule | ChosenOffsets) -> dict[str, Any]:
    """Return the numbers of a rule, and what they are."""
    if isinstance(chosen, ChosenOffsets):
        what = "added to the score of a class, by P(group)"
        return {"infers_group": True, "rule": chosen.offset_GC.tolist(), "columns": what}
    table = chosen.rule.table
    if chosen.rule.classes == 2:
        columns = ["p_ignore", "constant", "p0", "threshold0", "p1", "threshold1"]
        return {
            "tolerance": chosen.tolerance,
            "rule": table.clip(-1.0, 2.0).tolist(),
            "columns": columns,
        }
    what = "P(decided class | arg max), by group"
    return {"tolerance": chosen.tolerance, "rule": table.tolist(), "columns": what}


def rethreshold(
    run: RunDirectory,
    limits: Mapping[str, float],
    *,
    infer_group: bool = False,
    draws: int = 2000,
    data: TrainingData | None = None,
) -> ThresholdRun:
    """Choose and fit the rule of a run for limits, and measure it on the test split.

    With ``infer_group`` it decides by the group that a linear head infers from the features; they
    are computed again, from ``data`` or where the run says that it lies.
    """
    if not limits:
        raise InputError("give a limit, such as ", Argument("limit"), " eo_mean=0.05")
    validation, test = (_rows(run, name) for name in (VALIDATION, TEST))
    model = load(run)
    changed, chosen, decided = (
        _inferring(run, model, limits, test, data)
        if infer_group
        else _by_group(model, rule_for(validation, limits), limits, test)
    )
    return _measured(changed, chosen, limits, len(validation), (test, decided), draws)


def _by_group(
    model: Model, chosen: ChosenRule, limits: Mapping[str, float], test: Predictions
) -> tuple[Model, ChosenRule | ChosenOffsets, Predictions]:
    method = deciding_by_group(model.method)
    method.take_rule(chosen.rule)
    rule = {"limits": dict(limits), "tolerance": chosen.tolerance}
    return replace(model, method=method, rule=rule), chosen, method.decide(test)


def _inferring(
    run: RunDirectory,
    model: Model,
    limits: Mapping[str, float],
    test: Predictions,
    data: TrainingData | None,
) -> tuple[Model, ChosenRule | ChosenOffsets, Predictions]:
    """Return a head for the group of training rows, offsets chosen on validation, decisions on
    test.
    """
    data = data_of_run(run, model.spec) if data is None else data
    train, val = (torch.as_tensor(data.rows(split)) for split in ("train", "val"))
    train = train[torch.from_numpy(data.manifest.s_N[train.numpy()] >= 0)]  # others teach no group
    train = train[torch.from_numpy(spread_rows(len(train), MOST_ROWS))]
    x = read_rows(model.method, data, train, model.fabric)[0]["encoder"]
    method = inferring_group(model.method, x.shape[1])
    s_n = torch.from_numpy(data.manifest.s_N[train.numpy()].astype(np.int64))
    weight, bias = linear_head(x, s_n, len(model.groups))
    with torch.no_grad():
        method.group_head.out.weight.copy_(weight)
        method.group_head.out.bias.copy_(bias)
    method.requires_grad_(False)
    read = next(iter(read_rows(method, data, val, model.fabric)[1].values()))
    named = replace(
        read.with_group, classes=test.classes, groups=test.groups, positive=test.positive
    )
    chosen = method.fit_offsets(named, limits)
    with run.lock():
        log = RunLog(run.file("log.jsonl"))
        rows = open_test(data, log, "shasam threshold --infer-group")
        told = run.json("provenance.json") | {"test_opened": times_opened(log)}
        run.write_json("provenance.json", told)
    found = next(iter(read_rows(method, data, rows, model.fabric)[1].values()))
    place = {name: i for i, name in enumerate(found.ids.tolist())}
    order = [place.get(name, -1) for name in test.ids.tolist()]  # the rows as they were recorded
    if -1 in order or len(set(order)) < len(order):
        raise InputError(
            f"{run.file(TEST)} has other rows than the test split; `shasam evaluate {run.path}` "
            "writes it anew"
        )
    assert found.inferred is not None
    decided = replace(
        test, prediction=found.prediction[order].astype(test.prediction.dtype),
        scores=found.scores[order], inferred=found.inferred[order],
    )  # fmt: skip
    rule = {"limits": dict(limits), "width": x.shape[1]}
    return replace(model, method=method, rule=rule), chosen, decided


def _measured(
    model: Model,
    chosen: ChosenRule | ChosenOffsets,
    limits: Mapping[str, float],
    validation_rows: int,
    splits: tuple[Predictions, Predictions],
    draws: int,
) -> ThresholdRun:
    """Return what the rule does on the test split, against the model as it was."""
    test, decided = splits
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
    return ThresholdRun(model, chosen, limits, validation_rows, decided, found, before, price)


def metadata_of(run: RunDirectory) -> Mapping[bytes, bytes]:
    """Return what the recorded predictions say of their data."""
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
    """Return ``["eo_mean=0.05"]`` as a mapping; an end of the interval cannot be chosen here."""
    from shasam.report.audits import limits_of

    found = limits_of(texts)
    for limit in found:
        if limit.end != "value":
            raise InputError(
                Argument("limit"), f" {limit.words}: write {limit.metric}={limit.bound:g}"
            )
    return {limit.metric: limit.bound for limit in found}
