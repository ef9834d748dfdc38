"""The rows of a prediction file for vectors, read and predicted a part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from shasam.data.features import open_features
from shasam.data.vectors import NOT_FINITE
from shasam.errors import InputError
from shasam.output.csv_text import Cell
from shasam.pipeline.load import Model

_PART = 4096  # vectors that are predicted together


def predicted_rows(model: Model, path: Path) -> Iterator[list[Cell]]:
    """id or row number, label, probabilities and what is wrong with the vector, a row each."""
    dim = model.spec.data.features_dim
    if dim is None:
        raise InputError(f"this model reads images, and {path.name} holds vectors")
    data = model.spec.data
    same = data.features is not None and data.features.suffix == path.suffix
    key = data.features_key if same else None
    features = open_features(path, key, (data.id_column,) if data.id_column else ("id", "ids"))
    if features.dim != dim:
        raise InputError(
            f"{path.name} has vectors of {features.dim} numbers and this model was trained on {dim}"
        )
    for start in range(0, len(features), _PART):
        rows = np.arange(start, min(start + _PART, len(features)))
        x = features.take(rows)
        good = np.isfinite(x).all(1)
        answer = model.predict(x[good])
        found = zip(answer.labels, answer.scores, strict=True)
        for row, ok in zip(rows.tolist(), good.tolist(), strict=True):
            name = str(row) if features.ids is None else features.ids[row]
            if not ok:
                yield [name, "", *("" for _ in model.classes), NOT_FINITE]
                continue
            label, scores = next(found)
            yield [name, label, *(f"{p:.6f}" for p in scores), ""]
