"""Tables of users: CSV, TSV, semicolons, Parquet, Arrow; files, folders, standard input.

``open_table`` looks at the head of a file alone. ``read`` then reads the columns that are asked for
and no others, so a hundred spare columns cost nothing, and two spare columns of one name or a
strange character in one of them do not matter. ``batches`` reads the same columns piece by piece,
for tables that are larger than memory. pyarrow does the parsing.
"""

from __future__ import annotations

import glob
import sys
from pathlib import Path

from shasam.errors import DataError, FileError, MemoryLimitError
from shasam.files import open_regular
from shasam.memory import available_memory, readable
from shasam.tables.arrow_table import ArrowTable
from shasam.tables.csv_table import CsvTable
from shasam.tables.parquet_table import SUFFIXES, ParquetFolder, ParquetTable
from shasam.tables.table import TableFile

__all__ = ["TableFile", "open_table"]
STDIN = "-"
_PARQUET, _ARROW, _ZIP = b"PAR1", b"ARROW1", b"PK\x03\x04"


def open_table(path: str | Path) -> TableFile:
    """The table in a file, or on standard input where the path is ``-``."""
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
    except FileError as error:
        raise DataError(f"{error}; give a CSV, Parquet or Arrow file") from error
    return kind(path)


def _kind(start: bytes, suffix: str) -> type[TableFile]:
    """By the first bytes, or by the name of a file that is damaged."""
    if start.startswith(_PARQUET) or suffix in SUFFIXES:
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
