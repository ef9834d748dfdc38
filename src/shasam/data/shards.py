"""Vectors from a folder of Parquet files, as clusters write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shasam.data.features import PARQUET, Features, open_features
from shasam.errors import InputError
from shasam.memory import available_memory, readable
from shasam.tables import open_table


def open_shards(folder: Path, key: str | None = None) -> Features:
    """All rows of a folder with its subfolders, in the order of the files' names, as float32.

    ``open_table`` reads the other columns of the folder in the same order. One file is decoded at
    a time, into one array whose size is known before it is made.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in PARQUET)
    if not paths:
        raise InputError(f"{folder} holds no Parquet files (.parquet)")
    counts = [open_table(path).rows or 0 for path in paths]
    ends = np.cumsum(counts)
    matrix: np.ndarray | None = None
    for path, count, end in zip(paths, counts, ends, strict=True):
        if not count:
            continue  # as a task without rows leaves it
        shard = open_features(path, key)
        if matrix is None:
            key, matrix = shard.key, _room(folder, int(ends[-1]), shard.dim)
        if (len(shard), shard.dim) != (count, matrix.shape[1]):
            raise InputError(
                f"{path} has {len(shard)} vectors of {shard.dim} numbers and should have {count} "
                f"of {matrix.shape[1]}, as the files before it"
            )
        with np.errstate(over="ignore"):
            matrix[end - count : end] = shard.parts[0]
    if matrix is None:
        raise InputError(f"the Parquet files of {folder} have no rows")
    return Features([matrix], key)


def _room(folder: Path, rows: int, dim: int) -> np.ndarray:
    needed, free = 4 * rows * dim, available_memory()
    if free is not None and needed > 0.8 * free:
        raise InputError(
            f"the vectors of {folder} take {readable(needed)} as float32 and {readable(free)} are "
            "free; save them as a float32 .npy file, which is not read whole"
        )
    return np.empty((rows, dim), np.float32)
