"""Read tables of users: CSV, TSV, Parquet, Arrow; files, folders, or frames in memory.

Files are untrusted: their size in memory is checked before they are read.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import struct
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.ipc
import pyarrow.parquet as pq

from shasam.errors import (
    Argument,
    DataError,
    FileError,
    InputError,
    MemoryLimitError,
    ShasamWarning,
)
from shasam.files import open_regular
from shasam.memory import available_memory, readable
from shasam.registry import did_you_mean

if TYPE_CHECKING:
    import pyarrow.dataset as pds


# -------------------------------------------------------------------------------------------------
# A table whose head has been read: its columns by name, and the rows of those asked for.
# -------------------------------------------------------------------------------------------------

BATCH = 1 << 19  # rows
MOST_AS_GROUPS = 20  # different numbers; a column of more is followed as it is


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
        """Return the columns asked for (all, if none are named); those in ``text`` stay as written.

        ``text`` matters for a CSV, where 007 would be the number 7.
        """
        try:
            return self._read(self._wanted(columns), text)
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise DataError(f"{self.name} cannot be read as a table: {error}") from error

    def _wanted(self, columns: Sequence[str] | None) -> list[str]:
        """Return each column once; one that is there twice, or not at all, cannot be asked for."""
        wanted = list(dict.fromkeys(self.column_names if columns is None else columns))
        for column in wanted:
            found = self.column_names.count(column)
            if not found:
                known = did_you_mean(column, self.column_names)
                raise DataError(f"{self.name} has no column {column!r}{known}")
            if found > 1:
                raise DataError(
                    f"{self.name} has {found} columns called {column!r}; rename all but one of them"
                )
        return wanted

    @property
    def rows(self) -> int | None:
        """How many there are, where the head says so."""
        return None

    def batches(self, columns: Sequence[str], *, text: Collection[str] = ()) -> Iterator[pa.Table]:
        """Yield the columns asked for, at most half a million rows at a time.

        ``text`` as in ``read``.
        """
        yield from slices(self.read(columns, text=text))

    @property
    def about_rows(self) -> int | None:
        """How many rows there may be, where ``stream`` can read them and nobody says."""
        return None

    def stream(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Return the columns of a large text, piece by piece.

        Raises ``pa.ArrowException`` at a piece that is not like the first one: then ``read`` the
        table, which finds types that suit all rows, or says what is wrong.
        """
        raise NotImplementedError

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
    """Yield pieces of a table that is in memory."""
    for start in range(0, table.num_rows, BATCH):
        yield table.slice(start, BATCH)


def decoded(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Return metadata of a schema as text."""
    return {
        key.decode("utf-8", "replace"): value.decode("utf-8", "replace")
        for key, value in (metadata or {}).items()
    }


# -------------------------------------------------------------------------------------------------
# Comma, semicolon or tab separated text.
# -------------------------------------------------------------------------------------------------

_HEAD = 1 << 20  # bytes in which the first line has to end
_SEPARATORS = ",;\t"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_TYPED = 8 << 20  # bytes that tell the types of a text that is read piece by piece
_PIECE = 1 << 20  # bytes of a piece; of larger ones the allocator keeps ten times as much
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
        self._check_size()
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
        if encoding != "utf-16":
            self._check_quotes()
        return table

    @property
    def about_rows(self) -> int | None:
        """From the length of the first lines; None for standard input, and if not UTF-8."""
        if self.content is not None or self._head[2] != "utf-8":
            return None
        with self._opened() as file:
            start = file.read(_HEAD)
            return os.fstat(file.fileno()).st_size * start.count(b"\n") // max(len(start), 1)

    def stream(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield pieces of 1 MiB, of the types that suit the first 8."""
        wanted = self._wanted(columns)
        self._check_quotes()
        schema = self._reader(wanted, {}, _TYPED).schema
        if any(pa.types.is_binary(field.type) for field in schema):
            raise pa.ArrowInvalid("not UTF-8")
        types = {field.name: field.type for field in schema}
        for batch in self._reader(wanted, types, _PIECE):
            yield pa.Table.from_batches([batch])

    def _reader(
        self, columns: list[str], types: dict[str, pa.DataType], block: int
    ) -> pacsv.CSVStreamingReader:
        return pacsv.open_csv(
            self._for_arrow(),
            read_options=pacsv.ReadOptions(block_size=block, use_threads=False),
            parse_options=self._parsing(),
            convert_options=_converting(columns, types),
        )

    def _for_arrow(self, encoding: str = "utf-8") -> pa.NativeFile:
        """Open the text as UTF-8 for the threads of Arrow, which are given no Python object.

        They let go of it when they come to it. Where Python ends at that moment, the process is
        aborted. For the same reason Arrow itself closes the file.
        """
        with self._opened() as file:  # which is no pipe
            if self.content is None and encoding == "utf-8":
                return pa.OSFile(os.fsencode(self.path))
            content = file.read()
        if encoding != "utf-8":
            content = content.decode(encoding).encode()
        held = pa.allocate_buffer(len(content))
        memoryview(held).cast("B")[:] = content
        return pa.BufferReader(held)

    def _parsing(
        self, bad_row: Callable[[pacsv.InvalidRow], str] | None = None
    ) -> pacsv.ParseOptions:
        return pacsv.ParseOptions(
            delimiter=self._head[1], newlines_in_values=True, invalid_row_handler=bad_row
        )

    def _check_size(self) -> None:
        """Refuse a text that is read whole and is larger than half of the free memory."""
        with self._opened() as file:
            size = file.seek(0, os.SEEK_END)
        limit = _half_of_the_free_memory()
        if size > limit:
            raise MemoryLimitError(
                f"{self.name} has {readable(size)} of text and {readable(limit)} may be used, half "
                "of the free memory; save the columns that are needed as Parquet"
            )

    def _check_quotes(self) -> None:
        """Refuse a quote that is never closed: all lines after it would be one cell."""
        with self._opened() as file:
            if sum(piece.count(b'"') for piece in iter(lambda: file.read(_HEAD), b"")) % 2 == 0:
                return
        # a quote opens a cell only at its start; \xbf is the end of UTF-8's mark
        starts = (b"", b"\n", b"\r", b"\xbf", self._head[1].encode())
        inside, began, before = False, 0, b""
        with self._opened() as file:
            for number, text in enumerate(file, 1):
                place = 0
                while (found := text.find(b'"', place)) >= 0:
                    place = found + 1
                    if not inside:
                        inside = (text[found - 1 : found] if found else before) in starts
                        began = number
                    elif text[place : place + 1] == b'"':
                        place += 1  # two stand for one that is meant
                    else:
                        inside = False
                before = text[-1:]
        if inside:
            raise DataError(
                f"{self.name} ends inside a quoted cell that begins in line {began:,}; close the "
                "quote, or leave it out"
            )

    def _parsed(self, columns: list[str], types: dict[str, pa.DataType], encoding: str) -> pa.Table:
        bad: list[pacsv.InvalidRow] = []

        def note(row: pacsv.InvalidRow) -> str:
            bad.append(row)
            return "skip"

        converting = _converting(columns, types)
        try:
            return pacsv.read_csv(
                self._for_arrow(encoding),
                parse_options=self._parsing(),
                convert_options=converting,
            )
        except pa.ArrowInvalid as error:
            if "UTF8" in str(error):
                raise
        # rows have numbers only where one thread, which is this one, reads them in order
        table = pacsv.read_csv(
            self._for_arrow(encoding),
            read_options=pacsv.ReadOptions(use_threads=False),
            parse_options=self._parsing(note),
            convert_options=converting,
        )
        if bad:
            rows = [f"row {r.number} has {r.actual_columns}: {r.text[:60]!r}" for r in bad]
            raise DataError(
                f"{len(bad)} rows of {self.name} do not have {bad[0].expected_columns} cells like "
                f"the header (row 1): {'; '.join(rows[:_SHOWN])}. Quote cells that hold the "
                f"separator {self._head[1]!r}, or leave those rows out"
            )
        return table


def _converting(columns: list[str], types: dict[str, pa.DataType]) -> pacsv.ConvertOptions:
    return pacsv.ConvertOptions(
        include_columns=columns,
        column_types=types,
        strings_can_be_null=True,  # NA is a missing value,
        quoted_strings_can_be_null=False,  # "NA" in quotes is a name
    )


# -------------------------------------------------------------------------------------------------
# Arrow IPC files.
# -------------------------------------------------------------------------------------------------


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
        with self._opened() as file:
            return read_arrow(file, self.name, fields=sorted(places)).select(columns)


def read_arrow(
    source: BinaryIO | pa.NativeFile, name: str, *, fields: Sequence[int] | None = None
) -> pa.Table:
    """Return the rows of an Arrow IPC file or stream, if they fit in half of the free memory.

    A compressed column can stand for a thousand times its size, so its size is read from the file
    before a buffer is unpacked. An IPC file is read as the stream that it begins with: its footer
    could name other places than those that were measured.
    """
    start = 8 if source.read(8).startswith(b"ARROW1") else 0
    limit = _half_of_the_free_memory()
    source.seek(start)
    size = 0
    for message in pa.ipc.MessageReader.open_stream(source):
        size += _unpacked(message)
        _check(name, size, limit)
    source.seek(start)
    options = pa.ipc.IpcReadOptions(included_fields=None if fields is None else list(fields))
    table = pa.ipc.open_stream(source, options=options).read_all()
    table.validate(full=True)  # offsets of a damaged file would lead outside of it
    return table


def _unpacked(message: pa.ipc.Message) -> int:
    """Count the bytes that compressed buffers of an Arrow message say they unpack to; else 0.

    Reads the message's flatbuffer: pyarrow shows neither the compression nor the buffers.
    """
    header, body = memoryview(message.metadata), message.body
    kind = {"dictionary": 1, "record batch": 0}.get(message.type)
    if kind is None or body is None:
        return 0
    try:
        (root,) = struct.unpack_from("<I", header)
        batch = _field(header, root, 2)
        if batch and kind:  # the batch of a dictionary is the second field of its table
            batch = _field(header, batch, 1)
        if not batch or not _field(header, batch, 3):  # not compressed
            return 0
        vector = _field(header, batch, 2)
        (count,) = struct.unpack_from("<I", header, vector)
        total, content = 0, memoryview(body)
        for place in range(count):
            offset, length = struct.unpack_from("<qq", header, vector + 4 + 16 * place)
            if length:  # a buffer begins with its unpacked size; -1: stored as it is
                total += max(0, *struct.unpack_from("<q", content, offset))
        return total
    except struct.error as error:
        raise pa.ArrowInvalid("a damaged message") from error


def _field(flat: memoryview, table: int, number: int) -> int:
    """Find where the value that field ``number`` of a flatbuffer's table points to begins.

    Else 0.
    """
    (back,) = struct.unpack_from("<i", flat, table)
    (size,) = struct.unpack_from("<H", flat, table - back)
    if 4 + 2 * number >= size:
        return 0
    (offset,) = struct.unpack_from("<H", flat, table - back + 4 + 2 * number)
    if not offset:
        return 0
    (ahead,) = struct.unpack_from("<I", flat, table + offset)
    return int(table + offset + ahead)


# -------------------------------------------------------------------------------------------------
# Parquet tables from untrusted files: their size in memory is checked before they are read.
#
# A file stores a repeated value once. A few kilobytes can therefore stand for gigabytes, such as
# one long text in a million rows. The number of rows is in the file's footer and is checked first.
# Texts are then read as they are stored, which costs no more than the file, and their lengths
# summed.
# -------------------------------------------------------------------------------------------------

_FEW = 1024  # rows that are read at a time where a column holds lists


def read_parquet(
    path: str | Path | bytes, *, columns: Sequence[str] | None = None, within: Path | None = None
) -> pa.Table:
    """Return the table of a regular Parquet file, if it fits in half of the free memory.

    Instead of a path, the bytes of the file can be given. With ``columns`` only those are read and
    counted.
    """
    limit = _half_of_the_free_memory()
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
    """Read the rows, few at a time because lists can be of any length, until they are too many."""
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


def _half_of_the_free_memory() -> int:
    free = available_memory()
    return 8 << 30 if free is None else free // 2


def _check(path: str | Path, size: int, limit: int) -> None:
    if size > limit:
        raise MemoryLimitError(
            f"{path}: its rows take {readable(size)} and {readable(limit)} may be used"
        )


def _size(column: pa.Array) -> int:
    """Count the bytes of a column once every text is written out."""
    if not isinstance(column, pa.DictionaryArray) or not len(column.dictionary):
        return column.nbytes
    lengths = pc.binary_length(column.dictionary).to_numpy(zero_copy_only=False)
    used = np.bincount(column.indices.drop_null(), minlength=len(lengths))
    return int(lengths.astype(np.int64) @ used) + 8 * len(column)


# -------------------------------------------------------------------------------------------------
# Parquet: one file, or many that are one table.
# -------------------------------------------------------------------------------------------------

SUFFIXES = {".parquet", ".pq"}


class ParquetTable(TableFile):
    """A Parquet file."""

    @cached_property
    def _footer(self) -> tuple[pa.Schema, int]:
        with self._opened() as file:
            try:
                found = pq.ParquetFile(file)
                _ = found.schema_arrow.names  # raises where a name is not UTF-8
                return found.schema_arrow, found.metadata.num_rows
            except (pa.ArrowException, OSError, ValueError) as error:
                raise DataError(f"{self.name} cannot be read as Parquet: {error}") from error

    @cached_property
    def column_names(self) -> list[str]:
        return list(self._footer[0].names)

    @property
    def metadata(self) -> Mapping[str, str]:
        return decoded(self._footer[0].metadata)

    @property
    def rows(self) -> int | None:
        return self._footer[1]

    def batches(self, columns: Sequence[str], *, text: Collection[str] = ()) -> Iterator[pa.Table]:
        wanted = self._wanted(columns)
        schema = self._footer[0]
        texts = [c for c in wanted if pa.types.is_string(schema.field(c).type)]
        with self._opened() as file, _reading(self.name):
            source = pq.ParquetFile(file, read_dictionary=texts, pre_buffer=False)
            for batch in source.iter_batches(BATCH, columns=wanted):
                batch.validate(full=True)  # texts that are not UTF-8 fail here and not later
                yield pa.Table.from_batches([batch]).select(wanted)

    def _read(self, columns: list[str], text: Collection[str]) -> pa.Table:
        return read_parquet(self.path if self.content is None else self.content, columns=columns)


class ParquetFolder(TableFile):
    """Files that are one table: a folder with its subfolders, or a pattern such as d/*.parquet.

    Folders called ``key=value`` are columns, as Spark and others write them.
    """

    @cached_property
    def _files(self) -> list[Path]:
        if self.path.is_dir():
            found = sorted(p for p in self.path.rglob("*") if p.suffix.lower() in SUFFIXES)
        else:
            found = sorted(map(Path, glob.glob(str(self.path), recursive=True)))
        if not found:
            raise DataError(f"{self.path} holds no Parquet files (.parquet)")
        for path in found:
            open_regular(path).close()  # a pipe would never end
        return found

    @cached_property
    def _dataset(self) -> pds.Dataset:
        return self._made([])

    def _made(self, dictionaries: list[str]) -> pds.Dataset:
        """Make a column; ``dictionaries`` are columns of text that stay as they are stored."""
        import pyarrow.dataset as pds  # takes a while to load, and single files do not need it

        with _reading(self.name):
            return pds.dataset(
                [str(path) for path in self._files],
                format=pds.ParquetFileFormat(pre_buffer=False, dictionary_columns=dictionaries),
                partitioning=pds.HivePartitioning.discover(),
                partition_base_dir=str(self.path if self.path.is_dir() else self.path.anchor),
            )

    @property
    def name(self) -> str:
        return self.path.name if self.path.is_dir() else str(self.path)

    @cached_property
    def column_names(self) -> list[str]:
        return list(self._dataset.schema.names)

    @property
    def metadata(self) -> Mapping[str, str]:
        return decoded(self._dataset.schema.metadata)

    @cached_property
    def rows(self) -> int | None:
        return self._dataset.count_rows()

    def batches(self, columns: Sequence[str], *, text: Collection[str] = ()) -> Iterator[pa.Table]:
        wanted = self._wanted(columns)
        schema = self._dataset.schema
        texts = [c for c in wanted if pa.types.is_string(schema.field(c).type)]
        dataset = self._made(texts)
        with _reading(self.name):
            for fragment in dataset.get_fragments():
                scanner = fragment.scanner(
                    schema=dataset.schema, columns=wanted, batch_size=BATCH, batch_readahead=1
                )
                for batch in scanner.to_batches():
                    batch.validate(full=True)
                    yield pa.Table.from_batches([batch])

    def _read(self, columns: list[str], text: Collection[str]) -> pa.Table:
        return pa.concat_tables(self.batches(columns))


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{name} cannot be read as Parquet: {error}") from error


# -------------------------------------------------------------------------------------------------
# Tables of users: CSV, TSV, semicolons, Parquet, Arrow; files, folders, standard input.
#
# `open_table` looks at the head of a file alone. `read` then reads the columns that are asked for
# and no others, so a hundred spare columns cost nothing, and two spare columns of one name or a
# strange character in one of them do not matter. `batches` reads the same columns piece by piece,
# for tables that are larger than memory. pyarrow does the parsing.
# -------------------------------------------------------------------------------------------------

__all__ = ["TableFile", "open_table"]
STDIN = "-"
_PARQUET, _ARROW, _ZIP = b"PAR1", b"ARROW1", b"PK\x03\x04"


def open_table(path: str | Path) -> TableFile:
    """Return the table in a file, or on standard input where the path is ``-``."""
    path = Path(path)
    if str(path) == STDIN:
        content = _standard_input()
        return _kind(content, "")(path, content)
    if path.is_dir() or (not path.exists() and glob.has_magic(str(path))):
        return ParquetFolder(path)
    if not path.exists():
        raise DataError(f"there is no file {path}; give a CSV, Parquet or Arrow file")
    try:
        with open_regular(path) as file:
            kind = _kind(file.read(8), path.suffix.lower())
    except (FileError, OSError) as error:  # OSError: of what only looks like a regular file
        where = "" if isinstance(error, FileError) else f"{path}: "
        raise DataError(f"{where}{error}; give a CSV, Parquet or Arrow file") from error
    return kind(path)


def _kind(start: bytes, suffix: str) -> type[TableFile]:
    """Tell the kind by the first bytes, or by the name of a file that is damaged."""
    if start.startswith(_PARQUET) or suffix in SUFFIXES:
        return ParquetTable
    if start.startswith(_ARROW) or suffix in {".arrow", ".feather"}:
        return ArrowTable
    if start.startswith(_ZIP):
        raise DataError("this is a zip archive or an Excel file; save the table as CSV or Parquet")
    return CsvTable


def _standard_input() -> bytes:
    limit = _half_of_the_free_memory()
    content = sys.stdin.buffer.read(limit + 1)
    if len(content) > limit:
        raise MemoryLimitError(
            f"standard input is longer than {readable(limit)}, half of the free memory; give a file"
        )
    return content


# -------------------------------------------------------------------------------------------------
# What is done with rows that lack a label or a group: the same words for training and audits.
# -------------------------------------------------------------------------------------------------

Missing = Literal["error", "drop", "group"]
MissingInTraining = Literal["error", "drop", "group", "use", "infer"]
UNKNOWN = ("use", "infer")  # rows may stay without a group
NO_VALUE = "(missing)"  # the group of the rows without one, where that is asked for
# what people write into a cell that has no value; a reader of CSV knows some of them already
MISSING_WORDS = frozenset(
    ("", "-", "--", ".", "?", "#n/a", "missing", "n/a", "na", "nan", "nil", "none", "null")
)


def advice(
    column: str, rows: int, total: int, where: str, first: str = "", groups: bool = True
) -> list[object]:
    """Return the parts of a sentence about missing values, and ways out; a number has no groups."""
    ways: list[object] = [
        f"{rows:,} of {total:,} rows of {where} have no value in the column {column!r}{first}. "
        "Fill them in, leave them out with ",
        Argument("missing", "drop"),
    ]
    if groups:
        ways += [
            ", or, for a sensitive attribute, make them a group with ",
            Argument("missing", "group"),
        ]
    return ways


# -------------------------------------------------------------------------------------------------
# Tables that are in memory already: pandas, polars, Arrow, or a mapping of arrays.
# -------------------------------------------------------------------------------------------------

KINDS = "a pandas, polars or Arrow table, or a dict of arrays"


@dataclass(frozen=True)
class MemoryTable(TableFile):
    """Columns of any kind; those asked for become Arrow, and no others."""

    path: Path = Path("the table")
    content: bytes | None = field(default=None, repr=False)
    data: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, data: Any, name: str = "the table") -> MemoryTable:
        """Return what people have in a notebook; anything else is refused with what would do."""
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

    def batches(self, columns: Sequence[str], *, text: Collection[str] = ()) -> Iterator[pa.Table]:
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
    """Return one column as Arrow, without a copy where that is possible."""
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
    """Return texts of any kind as ordinary ones."""
    kind = values.type
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    views = [pa.large_string()] + ([pa.string_view()] if hasattr(pa, "string_view") else [])
    if kind in views or isinstance(values.type, pa.DictionaryType):
        return values.cast(pa.string() if kind in views else kind)
    return values
