"""Parquet tables from untrusted files: their size in memory is checked before they are read.

A file stores a repeated value once. A few kilobytes can therefore stand for gigabytes, such as one
long text in a million rows. The number of rows is in the file's footer and is checked first.
Texts are then read as they are stored, which costs no more than the file, and their lengths summed.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shasam.errors import FileError, MemoryLimitError
from shasam.files import open_regular
from shasam.memory import available_memory, readable

_FEW = 1024  # rows that are read at a time where a column holds lists


def read_parquet(
    path: str | Path | bytes, *, columns: Sequence[str] | None = None, within: Path | None = None
) -> pa.Table:
    """The table of a regular Parquet file, if it fits in half of the free memory.

    Instead of a path, the bytes of the file can be given. With ``columns`` only those are read and
    counted.
    """
    free = available_memory()
    limit = 8 << 30 if free is None else free // 2
    content = io.BytesIO(path) if isinstance(path, bytes) else None
    path = "standard input" if isinstance(path, bytes) else path
    with content or open_regular(path, within=within) as file:
        try:
            # nothing else is asked of the footer: pyarrow aborts the process on damaged statistics
            source = pq.ParquetFile(file)
            wanted = len(source.schema_arrow) if columns is None else len(columns)
            _check(path, 8 * source.metadata.num_rows * wanted, limit)
            schema = source.schema_arrow
            texts = [f.name for f in schema if pa.types.is_string(f.type)]
            stored = _batches(path, file, columns, texts, limit)
            stored.validate(full=True)  # texts that are not UTF-8 fail here and not later
            return stored.cast(
                pa.schema([schema.field(n) for n in stored.column_names], schema.metadata)
            )
        except (OSError, ValueError, pa.ArrowException) as error:
            raise FileError(path, f"cannot be read as Parquet: {error}") from error


def _batches(
    path: str | Path,
    file: BinaryIO,
    columns: Sequence[str] | None,
    texts: list[str],
    limit: int,
) -> pa.Table:
    """The rows, few at a time because lists can be of any length, until they are too many."""
    source = pq.ParquetFile(file, read_dictionary=texts)
    nested = any(f.type.num_fields for f in source.schema_arrow)
    rows = _FEW if nested else max(1, source.metadata.num_rows)
    batches, size = [], 0
    for batch in source.iter_batches(rows, columns=columns):
        size += sum(_size(column) for column in batch.columns)
        _check(path, size, limit)
        batches.append(batch)
    if not batches:
        return pq.read_table(file, columns=columns, read_dictionary=texts)
    return pa.Table.from_batches(batches)


def _check(path: str | Path, size: int, limit: int) -> None:
    if size > limit:
        raise MemoryLimitError(
            f"{path}: its rows take {readable(size)} and {readable(limit)} may be used"
        )


def _size(column: pa.Array) -> int:
    """Bytes of a column once every text is written out."""
    if not isinstance(column, pa.DictionaryArray) or not len(column.dictionary):
        return column.nbytes
    lengths = pc.binary_length(column.dictionary).to_numpy(zero_copy_only=False)
    used = np.bincount(column.indices.drop_null(), minlength=len(lengths))
    return int(lengths.astype(np.int64) @ used) + 8 * len(column)
