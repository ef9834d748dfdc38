"""Comma, semicolon or tab separated text."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Collection
from functools import cached_property

import pyarrow as pa
import pyarrow.csv as pacsv

from shasam.errors import DataError, ShasamWarning
from shasam.tables.table import TableFile

_HEAD = 1 << 20  # bytes in which the first line has to end
_SEPARATORS = ",;\t"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_SHOWN = 3  # bad rows that a message names


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
