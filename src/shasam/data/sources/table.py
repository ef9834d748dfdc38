"""``table``: your own images, listed in a CSV or Parquet file with a path column and attributes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pyarrow as pa

from shasam.data.folder import FileSource, Folder, check_named, read_own, split_and_identity, text
from shasam.data.source import Exclusion, Listing
from shasam.errors import DataError
from shasam.files import file_sha256
from shasam.registry import register
from shasam.tables import open_table


@register("table", kind="source")
class TableSource(FileSource):
    """Rows of a table; paths are relative to ``root``, or to the folder of the table."""

    summary = "your own images: a CSV or Parquet with a path column"

    @cached_property
    def folder(self) -> Folder:
        root = self.spec.root or self._file().parent
        if not root.is_dir():
            raise DataError(f"{root} is not a folder; give the folder of the images as --root")
        return Folder(root)

    def _file(self) -> Path:
        if self.spec.csv is None:
            raise DataError("the source 'table' needs a table: give csv (--csv people.csv)")
        if not self.spec.csv.is_file():
            raise DataError(f"{self.spec.csv} is not a file; give the table as --csv")
        return self.spec.csv

    @cached_property
    def _digest(self) -> str:
        digest, asked = file_sha256(self._file()), self.spec.csv_sha256
        if asked not in (None, digest):
            raise DataError(
                f"{self._file()} has changed since this specification was made: its hash was "
                f"{str(asked)[:12]} and is now {digest[:12]}; bring the old table back, or train "
                "again with the new one"
            )
        return digest

    def pixels_key(self) -> str:
        # two tables over one folder list other rows, so each has its own store
        spec = self.spec
        return (
            f"{self.folder.root.as_posix()}\n{self._digest}\n{spec.path_column}\n{spec.id_column}"
        )

    def list_images(self) -> Listing:
        spec, source = self.spec, open_table(self._file())
        known = source.column_names
        named = {
            "path": spec.path_column,
            "id": spec.id_column,
            **split_and_identity(spec, known),
        }
        check_named(named, known, self._file().name)
        listed = [name for name in (named["path"], named["id"]) if name]
        keys = source.read(listed, text=listed)
        paths = [text(v) for v in keys.column(spec.path_column).to_pylist()]
        ids = paths
        if named["id"]:
            ids = [text(v) for v in keys.column(named["id"]).to_pylist()]
        first: dict[str, object] = {"id": ids, "path": [self.folder.relative(p) for p in paths]}
        made = read_own(source, spec, named, first)
        keep, excluded = self._distinct(ids, made)
        return self.without_missing(Listing(made.take(pa.array(keep, pa.int64())), excluded))

    def _distinct(self, ids: list[str], table: pa.Table) -> tuple[list[int], list[Exclusion]]:
        """One row for each id; rows that are repeated with other values are an error."""
        first: dict[str, int] = {}
        keep, excluded, conflicts = [], [], []
        rows = table.to_pylist()
        for row, name in enumerate(ids):
            if not name:
                excluded.append(Exclusion(f"row {row + 1}", "no path"))
            elif name not in first:
                first[name] = row
                keep.append(row)
            elif rows[row] == rows[first[name]]:
                excluded.append(Exclusion(name, f"row {row + 1} repeats row {first[name] + 1}"))
            else:
                conflicts.append(f"{name} (rows {first[name] + 1} and {row + 1})")
        if conflicts:
            raise DataError(
                f"{len(conflicts)} ids are listed twice with different values: "
                f"{', '.join(conflicts[:3])}. Keep one row for each"
            )
        return keep, excluded
