"""Arrow IPC files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property

import pyarrow as pa
import pyarrow.ipc

from shasam.errors import DataError
from shasam.tables.table import TableFile, decoded


class ArrowTable(TableFile):
    """An Arrow IPC file (Feather 2)."""

    @cached_property
    def _schema(self) -> pa.Schema:
        with self._opened() as file:
            try:
                schema = pa.ipc.open_file(file).schema
                _ = schema.names  # raises where a name is not UTF-8
                return schema
            except (pa.ArrowException, OSError, ValueError) as error:
                raise DataError(f"{self.name} cannot be read as an Arrow file: {error}") from error

    @cached_property
    def column_names(self) -> list[str]:
        return list(self._schema.names)

    @property
    def metadata(self) -> Mapping[str, str]:
        return decoded(self._schema.metadata)

    def _read(self, columns: list[str], text: Collection[str]) -> pa.Table:
        places = [self.column_names.index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=sorted(places))
        with self._opened() as file:
            table = pa.ipc.open_file(file, options=options).read_all()
        table.validate(full=True)  # offsets of a damaged file would lead outside of it
        return table.select(columns)
