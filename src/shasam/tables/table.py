"""A table whose head has been read: its columns by name, and the rows of those asked for."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from shasam.errors import DataError
from shasam.files import open_regular

BATCH = 1 << 19  # rows


@dataclass(frozen=True)
class TableFile:
    """A table whose head has been read."""

    path: Path
    content: bytes | None = field(default=None, repr=False)  # of standard input

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.path.name if self.content is None else "standard input"

    @cached_property
    def column_names(self) -> list[str]:
        """As they stand in the head, a name that is there twice included."""
        raise NotImplementedError

    @property
    def metadata(self) -> Mapping[str, str]:
        """What the schema says besides columns; a CSV says nothing."""
        return {}

    def read(self, columns: Sequence[str] | None = None, *, text: Collection[str] = ()) -> pa.Table:
        """The columns asked for (all, if none are named); those in ``text`` stay as written.

        ``text`` matters for a CSV, where 007 would be the number 7.
        """
        try:
            return self._read(self._wanted(columns), text)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise DataError(f"{self.name} cannot be read as a table: {error}") from error

    def _wanted(self, columns: Sequence[str] | None) -> list[str]:
        """Each column once; one that is there twice, or not at all, cannot be asked for."""
        wanted = list(dict.fromkeys(self.column_names if columns is None else columns))
        for column in wanted:
            found = self.column_names.count(column)
            if found != 1:
                problem = f"has {found} columns called" if found else "has no column"
                raise DataError(f"{self.name} {problem} {column!r}; rename all but one of them")
        return wanted

    @property
    def rows(self) -> int | None:
        """How many there are, where the head says so."""
        return None

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The columns asked for, at most half a million rows at a time."""
        yield from slices(self.read(columns))

    def _read(self, columns: list[str], text: Collection[str]) -> pa.Table:
        raise NotImplementedError

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        if self.content is not None:
            yield io.BytesIO(self.content)
        else:
            with open_regular(self.path) as file:
                yield file


def slices(table: pa.Table) -> Iterator[pa.Table]:
    """Pieces of a table that is in memory."""
    for start in range(0, table.num_rows, BATCH):
        yield table.slice(start, BATCH)


def decoded(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Metadata of a schema as text."""
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for key, value in (metadata or {}).items()
    }
