"""Parquet: one file, or many that are one table."""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from shasam.errors import DataError
from shasam.files import open_regular
from shasam.parquet import read_parquet
from shasam.tables.table import BATCH, TableFile, decoded

if TYPE_CHECKING:
    import pyarrow.dataset as pds

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

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
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
        """``dictionaries`` are columns of text that stay as they are stored."""
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

    def batches(self, columns: Sequence[str]) -> Iterator[pa.Table]:
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
