"""Compute the results of a trained method: predictions, metrics, and what its features reveal.

The test split is opened here, once, and every opening is written down.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from torch import Tensor

from shasam.data.rules import apply_rule
from shasam.errors import Argument, DataError, ShasamWarning
from shasam.keyed import text_key
from shasam.methods.base import Method
from shasam.metrics import (
    Counts,
    Estimate,
    adjusted,
    as_json,
    evaluate,
    evaluate_curves,
    fit_temperature,
)
from shasam.metrics.intervals import draws_of_runs
from shasam.metrics.learnt import Learnt, Skill, log_losses
from shasam.models import Classifier
from shasam.runs.directory import (
    RunDirectory,
    RunLog,
    predictions_table,
    table_bytes,
)
from shasam.spec import RunSpec
from shasam.training.inference import (
    TrainingData,
    features_of,
    linear_guess,
    linear_probe,
    mlp_guess,
    read_rows,
    to_predictions,
    within_class,
)
from shasam.training.inferred import GROUPS, InferredGroups
from shasam.training.runtime import Fabric
from shasam.types import Head, Predictions, attribute_columns

# -------------------------------------------------------------------------------------------------
# Features projected to two dimensions, for the figure on the page.
# -------------------------------------------------------------------------------------------------

LIMIT = 2000


def plane(features: Tensor) -> np.ndarray:
    """Return the first two principal components (n, 2), with signs that do not depend on the
    solver.
    """
    centred = features.double() - features.double().mean(0)
    _, _, components = torch.linalg.svd(centred, full_matrices=False)
    components = components[:2]
    largest = components.abs().argmax(1, keepdim=True)
    components = components * components.gather(1, largest).sign()
    points = (centred @ components.T).numpy()
    return points if points.shape[1] == 2 else np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def spread_rows(n: int, limit: int = LIMIT) -> np.ndarray:
    """Return at most ``limit`` of n rows, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, limit)).astype(np.int64))


# -------------------------------------------------------------------------------------------------
# Fairness of the representation: heads and probes on frozen features, without mitigation.
#
# The **natural head** is the classifier of the contrastive methods' second stage (one hidden layer
# of 256, ten epochs, AdamW 1e-3), trained on the features of the biased training split as it is,
# without the sensitive attribute. It leans on the group wherever the features show it. Beside it
# stands leakage: how well the group is read from the features, over all images and within each
# class.
# -------------------------------------------------------------------------------------------------

Featured = tuple[Tensor, Mapping[str, Tensor]]  # rows, and their features by kind
HIDDEN, EPOCHS, BATCH, RATE = 256, 10, 256, 1e-3
# of heads for other targets: units of the hidden layer, epochs
STRENGTHS: dict[str, tuple[int | None, int]] = {
    "linear": (None, 10),
    "small": (64, 10),
    "large": (512, 30),
}


def leakage(
    data: TrainingData,
    val: tuple[Tensor, Mapping[str, Tensor]],
    test: tuple[Tensor, Mapping[str, Tensor]],
) -> dict[str, Any]:
    """Return how well the group is read from each kind of feature: fitted on validation, read on
    test.
    """
    val, test = (_with_group(data, *of_split) for of_split in (val, test))
    if len(val[0]) < 2:
        return {}
    t_N, s_N = data.manifest.t_N, data.manifest.s_N
    (fit_t, fit_s), (t, s) = ((t_N[r.numpy()], s_N[r.numpy()]) for r in (val[0], test[0]))
    out = {}
    for kind, x in test[1].items():
        fit, read = (val[1][kind], fit_t, fit_s), (x, t, s)
        out[kind] = {
            "accuracy": linear_probe(fit[0], fit_s, x, s, data.groups),
            "linear_within_class": within_class(linear_guess, fit, read, data.groups),
            "mlp_within_class": within_class(mlp_guess, fit, read, data.groups),
            "chance": 1.0 / data.groups,
        }
    return out


def _with_group(
    data: TrainingData, rows: Tensor, features: Mapping[str, Tensor]
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the rows that have a group, and their features."""
    known = torch.from_numpy(data.manifest.s_N[rows.numpy()] >= 0)
    return rows[known], {kind: x[known] for kind, x in features.items()}


def natural_heads(
    method: Method,
    data: TrainingData,
    fabric: Fabric,
    seed: int,
    read: Mapping[str, Featured],
) -> dict[str, dict[str, Predictions]]:
    """Return predictions of a natural head for each kind of feature, by the names of ``read``."""
    rows = torch.as_tensor(data.rows("train")).clone()
    if not len(rows):
        return {}
    t_n = torch.from_numpy(data.manifest.t_N[rows.numpy()].astype("int64"))
    out: dict[str, dict[str, Predictions]] = {}
    for kind, x_nD in features_of(method, data, rows, fabric).items():
        head = fit_head(x_nD, t_n, data.classes, text_key(f"{seed}/natural_head/{kind}"))
        with torch.no_grad():
            out[kind] = {
                name: to_predictions(head(features[kind]), data, at)
                for name, (at, features) in read.items()
            }
    return out


def other_labels(data: TrainingData, word: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return codes (N,) of another column of the data, or of a rule over it, and their names.

    A column may be written in small letters: ``young`` is CelebA's Young.
    """
    table = getattr(data, "attributes", None)
    if table is None:
        raise DataError("train.transfer needs a table with other columns; leave it out here")
    near = {name.lower(): name for name in table.column_names}
    found = apply_rule(near.get(word.lower(), word), table, what="transfer")
    return found.codes, found.names


def transfer_heads(
    method: Method,
    data: TrainingData,
    fabric: Fabric,
    seed: int,
    words: Sequence[str],
    strengths: Sequence[str],
    read: Mapping[str, Featured],
) -> dict[str, Any]:
    """Return heads for other targets on the frozen features: what somebody else may use them for.

    By column, kind of feature and strength: accuracy and EO on validation and test, of rows that
    have a value; ``majority`` is the share of the column's largest class in the test split.
    """
    rows = torch.as_tensor(data.rows("train")).clone()
    features = features_of(method, data, rows, fabric)
    s_N = data.manifest.s_N.astype(np.int64)
    out: dict[str, Any] = {}
    for word in words:
        code_N, names = other_labels(data, word)
        kept = torch.from_numpy(code_N[rows.numpy()] >= 0)
        t_n = torch.from_numpy(code_N[rows.numpy()].astype(np.int64))[kept]
        test = code_N[read["test"][0].numpy()]
        out[word] = {"majority": float(np.bincount(test[test >= 0]).max() / max(1, sum(test >= 0)))}
        for kind, x_nD in features.items():
            found: dict[str, Any] = {}
            for strength in strengths:
                hidden, epochs = STRENGTHS[strength]
                key = text_key(f"{seed}/transfer/{word}/{kind}/{strength}")
                head = fit_head(x_nD[kept], t_n, len(names), key, hidden, epochs)
                found[strength] = {
                    split: _read_head(head, x[kind], code_N[at.numpy()], s_N[at.numpy()])
                    for split, (at, x) in read.items()
                }
            out[word][kind] = found
    return out


def _read_head(head: Classifier, x_nD: Tensor, t_n: np.ndarray, s_n: np.ndarray) -> dict[str, Any]:
    """Return accuracy and EO of a head, with intervals, on rows that have a value."""
    known = (t_n >= 0) & (s_n >= 0)
    with torch.no_grad():
        guess = head(x_nD).argmax(1).numpy()
    found = as_json(evaluate(t_n[known].astype(np.int64), guess[known], s_n[known]))
    return {name: found[name] for name in ("accuracy", "eo_mean")}


def fit_head(
    x_nD: Tensor,
    t_n: Tensor,
    classes: int,
    key: int,
    hidden: int | None = HIDDEN,
    epochs: int = EPOCHS,
) -> Classifier:
    """Return a classifier on features, all rows weighed alike."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key)
        head = Classifier(x_nD.shape[1], hidden, classes, standardise=True).train()
        optimizer = torch.optim.AdamW(head.parameters(), lr=RATE)
        for _ in range(epochs):
            for rows in torch.randperm(len(x_nD)).split(BATCH):
                if len(rows) < 2:  # a batch norm needs two
                    continue
                loss = F.cross_entropy(head(x_nD[rows]), t_n[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return head.eval()


# -------------------------------------------------------------------------------------------------
# The test split is opened here and nowhere else, and every opening is written to the log.
# -------------------------------------------------------------------------------------------------


def data_of_run(
    run: RunDirectory,
    spec: RunSpec,
    *,
    root: Path | None = None,
    csv: Path | None = None,
    store: Path | None = None,
) -> TrainingData:
    """Return the data that a run was trained on, opened again.

    ``root`` and ``csv`` where it has moved.
    """
    from shasam.data import open_data

    # the run may be somebody else's: where stores are written is not theirs to say
    moved = {"root": root, "csv": csv}
    changes: dict[str, Any] = {k: v for k, v in moved.items() if v is not None} | {"store": store}
    data = open_data(spec.data.model_copy(update=changes))
    expected = str(run.json("provenance.json").get("manifest_sha256"))
    if data.manifest.sha256 != expected:
        raise DataError(
            f"the data is not what {run.path} was trained on: its manifest was {expected[:12]} and "
            f"is now {data.manifest.sha256[:12]}. Bring the old data back, or give its place with ",
            Argument("root"), " and ", Argument("csv"),
        )  # fmt: skip
    return data


def open_test(data: TrainingData, log: RunLog, reason: str) -> Tensor:
    """Return the rows of the test split; the opening is logged before they are handed out."""
    log.write("test_opened", reason=reason)
    return torch.as_tensor(data.rows("test"))


def times_opened(log: RunLog) -> int:
    """Count how often the test split of a run has been opened."""
    return sum(line["event"] == "test_opened" for line in log.whole())


# -------------------------------------------------------------------------------------------------
# Results of a trained method on validation and test: predictions, metrics, probes.
# -------------------------------------------------------------------------------------------------


def metrics_of(predictions: Predictions, data: TrainingData) -> dict[str, Any]:
    """Return every metric of ``shasam.metrics`` as JSON."""
    return as_json(_estimates(predictions, data, data.manifest.sensitive_names))


def _estimates(
    predictions: Predictions, data: TrainingData, groups: Sequence[str]
) -> dict[str, Estimate]:
    classes, predictions = data.manifest.target_names, predictions.with_group
    draws, scored = draws_of_runs(len(classes), len(groups))
    return evaluate(
        predictions.target,
        predictions.prediction,
        predictions.sensitive,
        predictions.scores if scored else None,
        classes=classes,
        groups=groups,
        draws=draws,
    )


def metrics_of_attributes(
    predictions: Predictions, data: TrainingData, rows: np.ndarray
) -> dict[str, Any]:
    """Compute every metric by each of several attributes and their intersection, Holm-adjusted."""
    manifest = data.manifest
    found = {str(manifest.protocol.get("sensitive")): _estimates(
        predictions, data, manifest.sensitive_names
    )}  # fmt: skip
    seen = zip(manifest.attributes, manifest.attribute_codes, strict=True)
    of_each = {
        a.name: _estimates(replace(predictions, sensitive=s_N[rows]), data, a.groups)
        for a, s_N in seen
    }
    found = {**of_each, **found}
    return dict(zip(found, map(as_json, adjusted(list(found.values()))), strict=True))


def names_by_attribute(data: TrainingData, rows: np.ndarray) -> dict[str, pa.Array]:
    """Return the names of the groups of rows by each of several attributes, by column; {} of one.

    A sensitive number is there as it is, under its name.
    """
    manifest = data.manifest
    columns = attribute_columns([a.name for a in manifest.attributes])
    number = {}
    if manifest.number_N is not None:
        number_n = manifest.number_N[rows]
        kept = pa.array(number_n, pa.float64(), mask=np.isnan(number_n))
        number = {attribute_columns([manifest.number])[0]: kept}
    return number | {
        column: pa.array(
            [a.groups[code] if code >= 0 else None for code in s_N[rows].tolist()], pa.string()
        )
        for column, a, s_N in zip(
            columns, manifest.attributes, manifest.attribute_codes, strict=True
        )
    }


def curves_of(predictions: Predictions, data: TrainingData, number_n: np.ndarray) -> dict[str, Any]:
    """Compute the rates along the sensitive number and their metrics, of the rows that have one."""
    known = ~np.isnan(number_n)
    found = evaluate_curves(
        predictions.target[known],
        predictions.prediction[known],
        number_n[known],
        classes=data.manifest.target_names,
    )
    return {"attribute": data.manifest.number, **found.as_dict()}


def cells_of(predictions: Predictions, data: TrainingData) -> dict[str, list[list[int]]]:
    """Return rows of each (target, group) cell, and how many of them were predicted right."""
    shape, predictions = (data.classes, data.groups), predictions.with_group
    cell = predictions.target * data.groups + predictions.sensitive
    right = cell[predictions.prediction == predictions.target]

    def table(found: np.ndarray) -> list[list[int]]:
        counts = np.bincount(found, minlength=shape[0] * shape[1])
        return [[int(count) for count in line] for line in counts.reshape(shape)]

    return {"rows": table(cell), "right": table(right)}


def evaluate_run(
    run: RunDirectory, method: Method, data: TrainingData, fabric: Fabric, log: RunLog, reason: str
) -> dict[str, Any]:
    """Fit what is fitted on validation, open the test split, write all results of the run."""
    metrics: dict[str, Any] = {}
    if not draws_of_runs(data.classes, data.groups)[1]:
        warnings.warn(
            f"{data.groups} groups are too many for the curves of scores of every two of them; "
            "metrics of scores are left out, `shasam audit` computes them from the predictions",
            ShasamWarning,
            stacklevel=2,
        )
    val_rows = torch.as_tensor(data.rows("val"))
    val_features, val = read_rows(method, data, val_rows, fabric)
    primary = next(iter(val))
    method.after_training(val[primary].with_group)
    if type(method).after_training is not Method.after_training and not method.has_rule:
        val = read_rows(method, data, val_rows, fabric)[1]  # what was fitted changes the scores
    if method.temperature_fitted is not None:
        val = _calibrate(method, data, val_rows, fabric)
    _write(run, "val", method, val, data, metrics)
    rows = open_test(data, log, reason)
    features, test = read_rows(method, data, rows, fabric)
    _write(run, "test", method, test, data, metrics)
    if method.temperature_fitted is not None:
        metrics["calibration"] = _calibration(method, test[primary], data, metrics["test"])
    read = {"val": (val_rows, val_features), "test": (rows, features)}
    spec = run.spec()
    metrics["probe"] = leakage(data, *read.values()) if spec.train.group_probes else {}
    if spec.train.natural_head:
        heads = natural_heads(method, data, fabric, spec.seed, read)
        metrics["natural_head"] = {
            kind: {split: metrics_of(own, data) for split, own in found.items()}
            for kind, found in heads.items()
        }
    if spec.data.missing == "infer" and (path := run.file(GROUPS)).is_file():
        inferred = InferredGroups.load(path, data.manifest, run.path)
        metrics["inferred_groups"] = dict(inferred.summary)
    probed = _probed(data, primary, *read.values())
    metrics["learnt"] = _learnt(method, test, probed, data).as_dict()
    if spec.train.transfer:
        metrics["transfer"] = transfer_heads(
            method, data, fabric, spec.seed, spec.train.transfer, spec.train.transfer_heads, read
        )
    metrics = {"test": metrics.pop("test"), "val": metrics.pop("val"), **metrics}
    run.write_json("metrics.json", metrics)
    shown = features.get(primary, next(iter(features.values())))
    known = np.flatnonzero(test[primary].sensitive >= 0)
    picks = known[spread_rows(len(known))]
    points = plane(shown[torch.from_numpy(picks)])
    own = test[primary]
    table = pa.table(
        {
            "id": pa.array(own.ids[picks], pa.string()),
            "x": pa.array(points[:, 0], pa.float32()),
            "y": pa.array(points[:, 1], pa.float32()),
            "target": own.target[picks],
            "sensitive": own.sensitive[picks],
        }
    ).replace_schema_metadata(data.manifest.metadata())
    run.write("embedding.parquet", table_bytes(table))
    return metrics


def _calibrate(
    method: Method, data: TrainingData, rows: Tensor, fabric: Fabric
) -> dict[str, Predictions]:
    """Fit the temperature on validation; returns its predictions with it."""
    assert method.temperature_fitted is not None
    if not len(rows):
        raise DataError(
            Argument("train.calibrate"),
            " fits a temperature on validation, and that split is empty",
        )
    method.temperature_fitted.fill_(1.0)  # of an evaluation before this one
    found = next(iter(read_rows(method, data, rows, fabric)[1].values()))
    method.temperature_fitted.fill_(fit_temperature(found.scores, found.target))
    return read_rows(method, data, rows, fabric)[1]


def _calibration(
    method: Method, test: Predictions, data: TrainingData, after: Mapping[str, Any]
) -> dict[str, Any]:
    """Fit the temperature; measure every group's calibration error on test without and with it."""
    assert method.temperature_fitted is not None
    temperature = float(method.temperature_fitted)
    raised = np.log(np.clip(test.scores.astype(np.float64), 1e-30, None)) * temperature
    raised = np.exp(raised - raised.max(1, keepdims=True))
    scores = (raised / raised.sum(1, keepdims=True)).astype(np.float32)
    before = metrics_of(replace(test, scores=scores), data)
    return {
        "temperature": temperature,
        "without": {key: found for key, found in before.items() if key.startswith("ece")},
        "with": {key: found for key, found in after.items() if key.startswith("ece")},
    }


def _probed(
    data: TrainingData,
    primary: str,
    val: tuple[Tensor, dict[str, Tensor]],
    test: tuple[Tensor, dict[str, Tensor]],
) -> Skill | None:
    """Return how well a linear probe reads the target off what the method's own classifier reads.

    Fitted on validation and read on test; None where validation has fewer than two classes.
    """
    fit, read = (data.manifest.t_N[rows.numpy()].astype(np.int64) for rows in (val[0], test[0]))
    if len(np.unique(fit)) < 2:
        return None
    kind = Head.named(primary).features
    kind = kind if kind in test[1] else next(iter(test[1]))
    guess = linear_guess(val[1][kind], torch.from_numpy(fit), test[1][kind], data.classes)
    return Skill.from_codes(read, guess.numpy(), data.classes)


def _learnt(
    method: Method, found: dict[str, Predictions], probed: Skill | None, data: TrainingData
) -> Learnt:
    """Return the verdict on the method's own predictions, and what its other classifiers do."""
    names = data.manifest.target_names, data.manifest.sensitive_names

    def skill(p: Predictions) -> Skill:
        p = p.with_group
        return Skill.of(Counts.from_codes(p.target, p.prediction, p.sensitive, *names))

    own, *others = found
    decided = method.decide(replace(found[own]))
    losses = (None, None) if decided.scores is None else log_losses(decided.target, decided.scores)
    return Learnt(skill(decided), {kind: skill(found[kind]) for kind in others}, probed, *losses)


def _write(
    run: RunDirectory,
    split: str,
    method: Method,
    found: dict[str, Predictions],
    data: TrainingData,
    metrics: dict[str, Any],
) -> None:
    """Write predictions and metrics of a split: the method's own, and by feature kind if many."""
    middle = "" if split == "test" else f".{split}"
    primary = next(iter(found))
    own = method.decide(replace(found[primary]))
    about, rows = data.manifest.metadata(), np.asarray(data.rows(split))
    groups = names_by_attribute(data, rows)
    run.write(f"predictions{middle}.parquet", table_bytes(predictions_table(own, about, groups)))
    metrics[split] = metrics_of(own, data)
    if (unknown := int((own.sensitive < 0).sum())) > 0:
        metrics.setdefault("without_group", {})[split] = unknown
    if split == "test" and data.manifest.number_N is not None:
        metrics["along"] = {split: curves_of(own, data, data.manifest.number_N[rows])}
    if data.manifest.attributes:
        metrics.setdefault("attributes", {})[split] = metrics_of_attributes(own, data, rows)
    cells = metrics.setdefault("cells", {})
    cells[split] = cells_of(own, data)
    if len(found) > 1:
        for kind, predictions in found.items():
            content = table_bytes(predictions_table(predictions, about, groups))
            run.write(f"predictions{middle}.{kind}.parquet", content)
            same = kind == primary and not method.has_rule  # as the method's own, computed above
            cells[f"{split}.{kind}"] = cells_of(predictions, data)
            metrics[f"{split}.{kind}"] = metrics[split] if same else metrics_of(predictions, data)
