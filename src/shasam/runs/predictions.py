"""Predictions as Parquet: id, target, prediction, sensitive, score_0 ... score_{C-1}."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shasam.errors import FileError, InputError
from shasam.parquet import read_parquet
from shasam.types import Predictions


def predictions_table(predictions: Predictions, metadata: Mapping[str, str]) -> pa.Table:
    """The table; ``metadata`` is that of the manifest: its hash, names and protocol."""
    columns = {
        "id": pa.array(predictions.ids, pa.string()),
        "target": pa.array(predictions.target, pa.int64()),
        "prediction": pa.array(predictions.prediction, pa.int64()),
        "sensitive": pa.array(predictions.sensitive, pa.int64()),
    }
    for c in range(predictions.scores.shape[1]):
        columns[f"score_{c}"] = pa.array(predictions.scores[:, c], pa.float32())
    return pa.table(columns).replace_schema_metadata(dict(metadata))


def table_bytes(table: pa.Table) -> bytes:
    """Parquet in memory, to be written atomically."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def read_predictions(path: str | Path) -> Predictions:
    """Predictions from a file of a run."""
    try:
        table = read_parquet(path)
        scores = [n for n in table.column_names if n.startswith("score_")]
        scores.sort(key=lambda name: int(name.removeprefix("score_")))
        return Predictions(
            ids=table.column("id").to_numpy(zero_copy_only=False),
            target=table.column("target").to_numpy(),
            prediction=table.column("prediction").to_numpy(),
            sensitive=table.column("sensitive").to_numpy(),
            scores=np.stack([table.column(n).to_numpy() for n in scores], axis=1),
        )
    except (FileError, KeyError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path} does not hold predictions: {error}") from error
