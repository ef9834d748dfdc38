"""``bad_batch.json``: the images of the batch that made a loss or a gradient infinite."""

from __future__ import annotations

import json
from pathlib import Path

from shasam.errors import TrainingError
from shasam.files import write_atomic
from shasam.training.inference import TrainingData
from shasam.types import Batch


def name_batch(
    error: TrainingError, batch: Batch, data: TrainingData, first: bool, directory: Path | None
) -> TrainingError:
    """The same error with the images of its batch; rank 0 writes them into the run directory."""
    rows = batch.rows_B.tolist()
    ids = data.manifest.table.column("id").take(rows).to_pylist()
    if directory is not None and first:
        body = {"message": str(error), "rows": rows, "ids": ids}
        write_atomic(directory / "bad_batch.json", json.dumps(body, indent=1))
    shown = ", ".join(map(str, ids[:6])) + (f" and {len(ids) - 6} more" if len(ids) > 6 else "")
    return TrainingError(f"{error}. The batch: {shown} (rows {rows[:6]}...)")
