"""Results of a trained method on validation and test: predictions, metrics, probes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import torch

from shasam.methods.base import Method
from shasam.metrics import as_json, evaluate
from shasam.pipeline.plane import plane, spread_rows
from shasam.pipeline.representation import leakage, natural_heads
from shasam.runs.directory import RunDirectory
from shasam.runs.log import RunLog
from shasam.runs.predictions import predictions_table, table_bytes
from shasam.training.fabric import Fabric
from shasam.training.inference import TrainingData, read_rows
from shasam.training.test_split import open_test
from shasam.types import Predictions


def metrics_of(predictions: Predictions, data: TrainingData) -> dict[str, Any]:
    """Every metric of ``shasam.metrics`` as JSON."""
    names = data.manifest
    estimates = evaluate(
        predictions.target,
        predictions.prediction,
        predictions.sensitive,
        predictions.scores,
        classes=names.target_names,
        groups=names.sensitive_names,
    )
    return as_json(estimates)


def evaluate_run(
    run: RunDirectory, method: Method, data: TrainingData, fabric: Fabric, log: RunLog, reason: str
) -> dict[str, Any]:
    """Fit what is fitted on validation, open the test split, write all results of the run."""
    metrics: dict[str, Any] = {}
    val_rows = torch.as_tensor(data.rows("val"))
    val_features, val = read_rows(method, data, val_rows, fabric)
    primary = next(iter(val))
    method.after_training(val[primary])
    _write(run, "val", method, val, data, metrics)
    rows = open_test(data, log, reason)
    features, test = read_rows(method, data, rows, fabric)
    _write(run, "test", method, test, data, metrics)
    read = {"val": (val_rows, val_features), "test": (rows, features)}
    metrics["probe"] = leakage(data, *read.values())
    spec = run.spec()
    if spec.train.natural_head:
        heads = natural_heads(method, data, fabric, spec.seed, read)
        metrics["natural_head"] = {
            kind: {split: metrics_of(own, data) for split, own in found.items()}
            for kind, found in heads.items()
        }
    metrics = {"test": metrics.pop("test"), "val": metrics.pop("val"), **metrics}
    run.write_json("metrics.json", metrics)
    shown = features.get(primary, next(iter(features.values())))
    picks = spread_rows(len(rows))
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


def _write(
    run: RunDirectory,
    split: str,
    method: Method,
    found: dict[str, Predictions],
    data: TrainingData,
    metrics: dict[str, Any],
) -> None:
    """Predictions and metrics of a split: the method's own, and by feature kind if it has many."""
    middle = "" if split == "test" else f".{split}"
    primary = next(iter(found))
    own = method.decide(replace(found[primary]))
    about = data.manifest.metadata()
    run.write(f"predictions{middle}.parquet", table_bytes(predictions_table(own, about)))
    metrics[split] = metrics_of(own, data)
    if len(found) > 1:
        for kind, predictions in found.items():
            content = table_bytes(predictions_table(predictions, about))
            run.write(f"predictions{middle}.{kind}.parquet", content)
            same = kind == primary and not method.has_rule  # as the method's own, computed above
            metrics[f"{split}.{kind}"] = metrics[split] if same else metrics_of(predictions, data)
