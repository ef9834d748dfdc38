"""Tables that people bring: CSV, TSV, semicolons, Parquet, Arrow; from a file or standard input.

``open_table`` looks at the head of a file alone. ``read`` then reads the columns that are asked for
and no others, so a hundred spare columns cost nothing, and two spare columns of one name or a
strange character in one of them do not matter. pyarrow does the parsing.
"""

from __future__ import annotations

import csv
import io
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.ipc
import pyarrow.parquet as pq

from shasam.errors import DataError, FileError, MemoryLimitError, ShasamWarning
from shasam.files import open_regular
from shasam.memory import available_memory, readable
from shasam.parquet import read_parquet

STDIN = "-"
_HEAD = 1 << 20  # bytes in which the first line of a CSV has to end
_SEPARATORS = ",;\t"
_PARQUET, _ARROW, _ZIP = b"PAR1", b"ARROW1", b"PK\x03\x04"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SHOWN = 3  # bad rows that a message names


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
        wanted = list(dict.fromkeys(self.column_names if columns is None else columns))
        for column in wanted:
            found = self.column_names.count(column)
            if found != 1:
                problem = f"has {found} columns called" if found else "has no column"
                raise DataError(f"{self.name} {problem} {column!r}; rename all but one of them")
        try:
            return self._read(wanted, text)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise DataError(f"{self.name} cannot be read as a table: {error}") from error

    def _read(self, columns: list[str], text: Collection[str]) -> pa.Table:
        raise NotImplementedError

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        if self.content is not None:
            yield io.BytesIO(self.content)
        else:
            with open_regular(self.path) as file:
                yield file


class CsvTable(TableFile):
    """Text with a header; comma, semicolon or tab; UTF-8, UTF-16 or Windows-1252."""

    @cached_property
    def column_names(self) -> list[str]:
        return self._head[0]

    @cached_property
    def _head(self) -> tuple[list[str], str, str]:
        """Names, separator and encoding."""
        with self._opened() as file:
            start = file.read(_HEAD)
        if not start.strip():
            raise DataError(f"{self.name} is empty; it needs a line of column names and rows")
        encoding = "utf-16" if start.startswith(_UTF16) else "utf-8"
        names, separator = self._names(start.decode(encoding, "replace"))
        if "\ufffd" in "".join(names):
            encoding = "cp1252"
            names, separator = self._names(start.decode(encoding, "replace"))
        return names, separator, encoding

    def _names(self, text: str) -> tuple[list[str], str]:
        text = text.removeprefix("\ufeff")
        separator = max(_SEPARATORS, key=next(iter(text.splitlines()), "").count)
        if self.path.suffix.lower() in {".tsv", ".tab"}:
            separator = "\t"
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        try:
            return next(lines, []), separator
        except csv.Error as error:  # a name of 100,000 characters, a NUL
            raise DataError(f"{self.name} has no readable line of names: {error}") from error

    def _read(self, columns: list[str], text: Collection[str]) -> pa.Table:
        encoding = self._head[2]
        types = {name: pa.string() for name in columns if name in text}
        try:
            table = self._parsed(columns, types, encoding)
            strange = [f.name for f in table.schema if pa.types.is_binary(f.type)]
        except pa.ArrowInvalid as error:
            if "UTF8" not in str(error):
                raise
            strange = columns
        if strange and encoding == "utf-8":
            encoding = "cp1252"
            table = self._parsed(columns, types, encoding)
        if encoding == "cp1252":
            warnings.warn(
                f"{self.name} is not UTF-8; it was read as Windows-1252. Look at its names, and "
                "save it as UTF-8 if they are wrong",
                ShasamWarning,
                stacklevel=4,
            )
        return table

    def _parsed(
        self, columns: list[str], types: dict[str, pa.DataType], encoding: str, *, fast: bool = True
    ) -> pa.Table:
        bad: list[pacsv.InvalidRow] = []

        def note(row: pacsv.InvalidRow) -> str:
            bad.append(row)
            return "skip"

        with self._opened() as file:
            table = pacsv.read_csv(
                file,
                read_options=pacsv.ReadOptions(encoding=encoding, use_threads=fast),
                parse_options=pacsv.ParseOptions(
                    delimiter=self._head[1], newlines_in_values=True, invalid_row_handler=note
                ),
                convert_options=pacsv.ConvertOptions(
                    include_columns=columns,
                    column_types=types,
                    strings_can_be_null=True,  # NA is a missing value,
                    quoted_strings_can_be_null=False,  # "NA" in quotes is a name
                ),
            )
        if bad and fast:  # rows have numbers only where one thread reads them in order
            return self._parsed(columns, types, encoding, fast=False)
        if bad:
            rows = [f"row {r.number} has {r.actual_columns}: {r.text[:60]!r}" for r in bad]
            raise DataError(
                f"{len(bad)} rows of {self.name} do not have {bad[0].expected_columns} cells like "
                f"the header (row 1): {'; '.join(rows[:_SHOWN])}. Quote cells that hold the "
                f"separator {self._head[1]!r}, or leave those rows out"
            )
        return table


class ParquetTable(TableFile):
    """A Parquet file."""

    @cached_property
    def _schema(self) -> pa.Schema:
        with self._opened() as file:
            try:
                return pq.ParquetFile(file).schema_arrow
            except (pa.ArrowException, OSError, ValueError) as error:
                raise DataError(f"{self.name} cannot be read as Parquet: {error}") from error

    @cached_property
    def column_names(self) -> list[str]:
        return list(self._schema.names)

    @property
    def metadata(self) -> Mapping[str, str]:
        return _decoded(self._schema.metadata)

    def _read(self, columns: list[str], text: Collection[str]) -> pa.Table:
        return read_parquet(self.path if self.content is None else self.content, columns=columns)


class ArrowTable(TableFile):
    """An Arrow IPC file (Feather 2)."""

    @cached_property
    def _schema(self) -> pa.Schema:
        with self._opened() as file:
            try:
                return pa.ipc.open_file(file).schema
            except (pa.ArrowException, OSError, ValueError) as error:
                raise DataError(f"{self.name} cannot be read as an Arrow file: {error}") from error

    @cached_property
    def column_names(self) -> list[str]:
        return list(self._schema.names)

    @property
    def metadata(self) -> Mapping[str, str]:
        return _decoded(self._schema.metadata)

    def _read(self, columns: list[str], text: Collection[str]) -> pa.Table:
        places = [self.column_names.index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=sorted(places))
        with self._opened() as file:
            table = pa.ipc.open_file(file, options=options).read_all()
        table.validate(full=True)  # offsets of a damaged file would lead outside of it
        return table.select(columns)


def open_table(path: str | Path) -> TableFile:
    """The table in a file, or on standard input where the path is ``-``."""
    path = Path(path)
    if str(path) == STDIN:
        content = _standard_input()
        return _kind(content, "")(path, content)
    if not path.exists():
        raise DataError(f"there is no file {path}; give a CSV, Parquet or Arrow file")
    try:
        with open_regular(path) as file:
            kind = _kind(file.read(8), path.suffix.lower())
    except FileError as error:
        raise DataError(f"{error}; give a CSV, Parquet or Arrow file") from error
    return kind(path)


def _kind(start: bytes, suffix: str) -> type[TableFile]:
    """By the first bytes, or by the name of a file that is damaged."""
    if start.startswith(_PARQUET) or suffix in {".parquet", ".pq"}:
        return ParquetTable
    if start.startswith(_ARROW) or suffix in {".arrow", ".feather"}:
        return ArrowTable
    if start.startswith(_ZIP):
        raise DataError("this is a zip archive or an Excel file; save the table as CSV or Parquet")
    return CsvTable


def _standard_input() -> bytes:
    free = available_memory()
    limit = (8 << 30) if free is None else free // 2
    content = sys.stdin.buffer.read(limit + 1)
    if len(content) > limit:
        raise MemoryLimitError(
            f"standard input is longer than {readable(limit)}, half of the free memory; give a file"
        )
    return content


def _decoded(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for key, value in (metadata or {}).items()
    }
