"""``table``: your own images, listed in a CSV or Parquet file with a path column and attributes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pyarrow as pa

from shasam.data.folder import (
    FileSource,
    Folder,
    check_named,
    path_column,
    read_own,
    split_and_identity,
    text,
)
from shasam.data.source import Exclusion, Listing
from shasam.data.splits import all_of, label_problems
from shasam.errors import Argument, DataError
from shasam.files import file_sha256
from shasam.registry import register
from shasam.spec.fields import DataSpec
from shasam.tables import open_table


@register("table", kind="source")
class TableSource(FileSource):
    """Rows of a table; paths are relative to ``root``, or to the folder of the table."""

    summary = "your own images: a CSV or Parquet with a path column"

    @cached_property
    def folder(self) -> Folder:
        root = self.spec.root or self._file().parent
        if not root.is_dir():
            raise DataError(
                f"{root} is not a folder; give the folder of the images as ", Argument("data.root")
            )
        return Folder(root)

    def _file(self) -> Path:
        if self.spec.csv is None:
            raise DataError(
                "the source 'table' needs a table: give csv (",
                Argument("data.csv", "people.csv"),
                ")",
            )
        if not self.spec.csv.is_file():
            raise DataError(
                f"{self.spec.csv} is not a file; give the table as ", Argument("data.csv")
            )
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

    @classmethod
    def completed(cls, spec: DataSpec) -> DataSpec:
        spec = super().completed(spec)
        if spec.csv is None or not spec.csv.is_file():
            return spec
        found = path_column(spec.path_column, open_table(spec.csv).column_names)
        return spec.model_copy(update={"path_column": found})

    @cached_property
    def _path_column(self) -> str:
        return path_column(self.spec.path_column, open_table(self._file()).column_names)

    def pixels_key(self) -> str:
        # two tables over one folder list other rows, so each has its own store
        spec = self.spec
        root = self.folder.root.as_posix()
        return f"{root}\n{self._digest}\n{self._path_column}\n{spec.id_column}"

    def list_images(self) -> Listing:
        spec, source = self.spec, open_table(self._file())
        known = source.column_names
        named = {
            "path": self._path_column,
            "id": spec.id_column,
            **split_and_identity(spec, known),
        }
        check_named(named, known, self._file().name)
        listed = [name for name in (named["path"], named["id"]) if name]
        keys = source.read(listed, text=listed)
        paths = [text(v) for v in keys.column(self._path_column).to_pylist()]
        ids = paths
        if named["id"]:
            ids = [text(v) for v in keys.column(named["id"]).to_pylist()]
        first: dict[str, object] = {"id": ids, "path": [self.folder.relative(p) for p in paths]}
        made = read_own(source, spec, named, first)
        keep, excluded, conflicts = self._distinct(ids, made)
        notes = []
        if self._path_column != spec.path_column:
            notes.append(f"paths are read from the column {self._path_column!r}")
        listing = Listing(made.take(pa.array(keep, pa.int64())), excluded, notes)
        problems = [] if conflicts is None else [DataError(conflicts)]
        try:
            found = self.without_missing(listing)
        except DataError as error:
            problems.append(error)
        else:
            if not problems:
                return found
        # somebody who has to mend the table wants to know what else is wrong with it
        asked = [("target", spec.target)]
        asked += [("sensitive attribute", rule) for rule in spec.sensitive or ()]
        rules = [(what, rule) for what, rule in asked if rule]
        problems += label_problems(self, listing.table, rules)[1]
        raise all_of(problems, self._file().name)

    def _distinct(
        self, ids: list[str], table: pa.Table
    ) -> tuple[list[int], list[Exclusion], str | None]:
        """Return one row for each id, and a sentence where rows are repeated with other values."""
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
        problem = None
        if conflicts:
            problem = (
                f"{len(conflicts)} ids are listed twice with different values: "
                f"{', '.join(conflicts[:3])}. Keep one row for each"
            )
        return keep, excluded, problem
