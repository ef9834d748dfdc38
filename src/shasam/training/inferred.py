"""Infer the groups of training rows that have none, from vectors, and judge how well that is done.

A logistic regression is fitted to the training rows that have a group. It is fitted again without
each fifth of them; what those fits say of the rows that they have not seen gives its temperature.
A row gets its most probable group where that probability is at least one half, else it stays
without one. Labels of validation and test are read for judging alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from shasam.data.splits import Manifest
from shasam.errors import Argument, DataError, FileError
from shasam.keyed import keyed, text_key
from shasam.metrics import fit_temperature
from shasam.metrics.scores import Reliability
from shasam.runs.directory import table_bytes
from shasam.tables import read_parquet
from shasam.training.inference import TrainingData, linear_head

GROUPS = "groups.parquet"  # of a run whose groups were inferred
FOLDS = 5
LEAST = 0.5  # probability of a group that a row is given
STRENGTH = 0.1  # of the L2 penalty on standardised vectors
_PART = 4096  # rows that are read together
_ABOUT = b"inferred"  # key of the summary in the file's metadata


@dataclass(frozen=True)
class InferredGroups:
    """Groups (n,) that training rows without one are given, and how good they are.

    ``group_n`` is -1 where no group is probable enough.
    """

    rows_n: np.ndarray
    group_n: np.ndarray
    probability_n: np.ndarray  # of the most probable group
    summary: Mapping[str, Any]

    def as_bytes(self, manifest: Manifest) -> bytes:
        """Return the content of ``groups.parquet``: id, sensitive and probability of each of the
        rows.
        """
        table = pa.table(
            {
                "id": manifest.table.column("id").take(pa.array(self.rows_n)),
                "sensitive": self.group_n,
                "probability": self.probability_n,
            }
        )
        about = {k.encode(): v.encode() for k, v in manifest.metadata().items()}
        about[_ABOUT] = json.dumps(self.summary).encode()
        return table_bytes(table.replace_schema_metadata(about))

    @classmethod
    def load(cls, path: Path, manifest: Manifest, within: Path) -> InferredGroups:
        """Read ``groups.parquet``, and check that it is of this manifest."""
        try:
            table = read_parquet(path, within=within)
            about = table.schema.metadata or {}
            rows = unknown_rows(manifest)
            column = table.column("sensitive")
            if not pa.types.is_integer(column.type) or column.null_count:
                raise DataError(f"{path} holds groups that are no whole numbers")
            group = column.to_numpy().astype(np.int64)
            ids = manifest.table.column("id").take(pa.array(rows)).to_pylist()
            fits = about[b"sha256"].decode() == manifest.sha256
            if not fits or table.column("id").to_pylist() != ids:
                raise DataError(f"{path} holds the groups of other rows")
            if len(group) and not (
                -1 <= group.min() <= group.max() < len(manifest.sensitive_names)
            ):
                raise DataError(f"{path} holds groups that there are not")
            summary = json.loads(about[_ABOUT])
            if not isinstance(summary, dict):
                raise DataError(f"{path} does not say how its groups were inferred")
            return cls(rows, group, table.column("probability").to_numpy(), summary)
        except (FileError, ValueError, KeyError, RecursionError) as error:
            raise DataError(f"{path} cannot be read as inferred groups: {error}") from error

    def manifest(self, manifest: Manifest) -> Manifest:
        """Return the manifest with these groups in place of the unknown ones."""
        s_N = manifest.s_N.copy()
        s_N[self.rows_n] = self.group_n
        place = manifest.table.schema.get_field_index("sensitive")
        column = pa.array(s_N, type=manifest.table.schema.field(place).type)
        return replace(manifest, table=manifest.table.set_column(place, "sensitive", column))


@dataclass(frozen=True)
class DataWithGroups:
    """Data as training reads it, with inferred groups; all else is as it was."""

    data: TrainingData = field(repr=False)
    manifest: Manifest

    @property
    def classes(self) -> int:
        return self.data.classes

    @property
    def groups(self) -> int:
        return self.data.groups

    def rows(self, split: str) -> np.ndarray | Tensor:
        return self.data.rows(split)

    def images(self, rows: Any) -> Tensor:
        return self.data.images(rows)


def infer_groups(data: TrainingData, seed: int) -> InferredGroups:
    """Infer the group of every training row that has none; ``seed`` decides the folds."""
    manifest, groups = data.manifest, data.groups
    train = np.asarray(data.rows("train"))
    known = train[manifest.s_N[train] >= 0]
    s_n = torch.from_numpy(manifest.s_N[known].astype(np.int64))
    if len(s_n.unique()) < 2:
        raise DataError(
            f"{len(s_n)} training rows have a group, of {len(s_n.unique())} kinds, and groups are "
            "inferred from rows of two or more; give more rows a group, or say ",
            Argument("data.missing", "use"),
        )
    x_nD = data.images(torch.from_numpy(known)).double()
    scores_nG, fold_n = cross_fitted(x_nD, s_n, groups, text_key(seed, "inferred groups"))
    temperature = fit_temperature(_softmax(scores_nG), s_n.numpy())
    w_GD, b_G = linear_head(x_nD, s_n, groups, STRENGTH)

    def probabilities(rows: np.ndarray) -> np.ndarray:
        parts = torch.from_numpy(rows).split(_PART) if len(rows) else ()
        found = [(data.images(part).double() @ w_GD.T + b_G) / temperature for part in parts]
        return _softmax(torch.cat(found)) if found else np.zeros((0, groups))

    rows = unknown_rows(manifest)
    p_nG = probabilities(rows)
    best_n = p_nG.argmax(1) if len(rows) else np.zeros(0, dtype=np.int64)
    sure_n = p_nG.max(1) if len(rows) else np.zeros(0)
    group_n = np.where(sure_n >= LEAST, best_n, -1)
    val = np.asarray(data.rows("val"))
    val = val[manifest.s_N[val] >= 0]
    summary = {
        "known": len(known),
        "inferred": int((group_n >= 0).sum()),
        "unknown": int((group_n < 0).sum()),
        "temperature": temperature,
        "validation": judged(probabilities(val), manifest.s_N[val]),
        "cross_fitted": judged(_by_other_folds(scores_nG, s_n, fold_n), s_n.numpy()),
    }
    return InferredGroups(rows, group_n, sure_n, summary)


def cross_fitted(x_nD: Tensor, s_n: Tensor, groups: int, key: int) -> tuple[Tensor, np.ndarray]:
    """Return scores (n, G) of every row by a head that has not seen it, and the fold of every row.

    Every fold holds the same share of each group, as far as its rows can be divided.
    """
    orders = [
        np.flatnonzero(s_n.numpy() == g)[keyed(key, g).permutation(int((s_n == g).sum()))]
        for g in range(groups)
    ]
    fold_n = np.empty(len(s_n), dtype=np.int64)
    fold_n[np.concatenate(orders)] = np.arange(len(s_n)) % FOLDS
    scores_nG = torch.empty(len(s_n), groups, dtype=torch.float64)
    for fold in np.unique(fold_n):
        out = torch.from_numpy(fold_n == fold)
        w_GD, b_G = linear_head(x_nD[~out], s_n[~out], groups, STRENGTH)
        scores_nG[out] = x_nD[out] @ w_GD.T + b_G
    return scores_nG, fold_n


def _by_other_folds(scores_nG: Tensor, s_n: Tensor, fold_n: np.ndarray) -> np.ndarray:
    """Return probabilities of cross-fitted scores, each fold with the temperature of the others."""
    out = np.empty(tuple(scores_nG.shape))
    for fold in np.unique(fold_n):
        own = fold_n == fold
        others = torch.from_numpy(~own)
        temperature = fit_temperature(_softmax(scores_nG[others]), s_n[others].numpy())
        out[own] = _softmax(scores_nG[~others] / temperature)
    return out


def judged(p_nG: np.ndarray, s_n: np.ndarray) -> dict[str, float | int] | None:
    """Return accuracy and expected calibration error of probabilities of groups; None without rows.

    ``majority`` is the share of the largest group, what a guess is right in.
    """
    if not len(s_n):
        return None
    right_n, sure_n = p_nG.argmax(1) == s_n, p_nG.max(1)
    bins = Reliability.of(right_n, sure_n, np.zeros(len(s_n), dtype=np.int64), 1)
    return {
        "rows": len(s_n),
        "accuracy": float(right_n.mean()),
        "majority": float(np.bincount(s_n).max() / len(s_n)),
        "ece": float(np.abs(bins.gaps_GB()).sum()),
    }


def unknown_rows(manifest: Manifest) -> np.ndarray:
    """Return the training rows that have no group."""
    train = manifest.rows("train")
    return train[manifest.s_N[train] < 0]


def _softmax(scores_nG: Tensor) -> np.ndarray:
    return torch.softmax(scores_nG, dim=1).numpy()
