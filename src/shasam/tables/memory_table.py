"""Tables that are in memory already: pandas, polars, Arrow, or a mapping of arrays."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shasam.errors import InputError
from shasam.tables.table import TableFile, decoded, slices

KINDS = "a pandas, polars or Arrow table, or a dict of arrays"


@dataclass(frozen=True)
class MemoryTable(TableFile):
    """Columns of any kind; those asked for become Arrow, and no others."""

    path: Path = Path("the table")
    content: bytes | None = field(default=None, repr=False)
    data: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, data: Any, name: str = "the table") -> MemoryTable:
        """What people have in a notebook; anything else is refused with what would do."""
        known = isinstance(data, Mapping | pa.Table | pa.RecordBatch)
        if not known and not (hasattr(data, "columns") and hasattr(data, "__getitem__")):
            raise InputError(
                f"an audit reads {KINDS}; this is {type(data).__name__}. The audit of a file is "
                "`shasam audit FILE` on the command line"
            )
        return cls(Path(name), data=data)

    @property
    def name(self) -> str:
        return str(self.path)

    @cached_property
    def column_names(self) -> list[str]:
        if isinstance(self.data, pa.Table | pa.RecordBatch):
            return list(self.data.schema.names)
        found = self.data if isinstance(self.data, Mapping) else self.data.columns
        return [str(name) for name in found]

    @property
    def metadata(self) -> Mapping[str, str]:
        if isinstance(self.data, pa.Table | pa.RecordBatch):
            return decoded(self.data.schema.metadata)
        return {}

    @property
    def rows(self) -> int | None:
        if isinstance(self.data, pa.Table | pa.RecordBatch):
            return self.data.num_rows
        first = next(iter(self.data.values()), ()) if isinstance(self.data, Mapping) else self.data
        return len(first)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield from slices(self.read(columns))

    def _read(self, columns: list[str], text: Collection[str]) -> pa.Table:
        arrays = {name: _array(self._column(name), name) for name in columns}
        lengths = {name: len(values) for name, values in arrays.items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name!r} has {n:,}" for name, n in lengths.items())
            raise InputError(f"the columns are not of one length: {told} rows")
        return pa.table(arrays)

    def _column(self, name: str) -> Any:
        if isinstance(self.data, pa.Table | pa.RecordBatch):
            return self.data.column(name)
        # a column need not be called by a text
        found = self.data if isinstance(self.data, Mapping) else self.data.columns
        return self.data[next(key for key in found if str(key) == name)]


def _array(values: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """One column as Arrow, without a copy where that is possible."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _plain(values)
    if hasattr(values, "to_arrow"):  # polars
        return _plain(values.to_arrow())
    try:
        if hasattr(values, "dtype") and hasattr(values, "array"):  # a pandas series
            return _plain(pa.Array.from_pandas(values))
        array = np.asarray(values)
        if array.ndim != 1:
            raise InputError(
                f"the column {name!r} has {array.ndim} dimensions; give a column for each class"
            )
        # NaN in a column of objects stands for no value, as it does for pandas
        return _plain(pa.array(array, from_pandas=array.dtype == object))
    except (pa.ArrowException, TypeError) as error:
        raise InputError(
            f"the column {name!r} cannot be used: {error}. Give it one kind of value"
        ) from error


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Texts of any kind as ordinary ones."""
    kind = values.type
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    views = [pa.large_string()] + ([pa.string_view()] if hasattr(pa, "string_view") else [])
    if kind in views or isinstance(values.type, pa.DictionaryType):
        return values.cast(pa.string() if kind in views else kind)
    return values
