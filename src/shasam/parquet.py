"""Parquet tables of strangers: how much memory their rows take is known before they are built.

A file stores a repeated value once. A few kilobytes can therefore stand for gigabytes, such as one
long text in a million rows. The number of values is in the file's footer and is checked first.
Texts are then read as they are stored, which costs no more than the file, and their lengths summed.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shasam.errors import FileError, MemoryLimitError
from shasam.files import open_regular
from shasam.memory import available_memory, readable


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
            source = pq.ParquetFile(file)
            footer = source.metadata
            groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
            wanted = [
                c
                for c in range(footer.num_columns)
                if columns is None or footer.schema.column(c).path.split(".")[0] in columns
            ]
            values = sum(g.column(c).num_values for g in groups for c in wanted)
            _check(path, 8 * values, limit)
            schema = source.schema_arrow
            texts = [f.name for f in schema if pa.types.is_string(f.type)]
            stored = pq.read_table(file, columns=columns, read_dictionary=texts)
            _check(path, sum(_size(column) for column in stored.columns), limit)
            return stored.cast(
                pa.schema([schema.field(n) for n in stored.column_names], schema.metadata)
            )
        except (OSError, ValueError, pa.ArrowException) as error:
            raise FileError(path, f"cannot be read as Parquet: {error}") from error


def _check(path: str | Path, size: int, limit: int) -> None:
    if size > limit:
        raise MemoryLimitError(
            f"{path}: its rows take {readable(size)} and {readable(limit)} may be used"
        )


def _size(column: pa.ChunkedArray) -> int:
    """Bytes of a column once every text is written out."""
    total = 0
    for chunk in column.chunks:
        if isinstance(chunk, pa.DictionaryArray) and len(chunk.dictionary):
            lengths = pc.binary_length(chunk.dictionary).to_numpy(zero_copy_only=False)
            used = np.bincount(chunk.indices.drop_null(), minlength=len(lengths))
            total += int(lengths.astype(np.int64) @ used) + 8 * len(chunk)
        else:
            total += chunk.nbytes
    return total
