"""``table``: a CSV or Parquet with a path column and any attributes; everybody's own data."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pyarrow as pa

from shasam.data.files import FileSource, Folder
from shasam.data.manifest import SPLITS
from shasam.data.source import Exclusion, Listing
from shasam.errors import DataError
from shasam.files import file_sha256
from shasam.registry import did_you_mean, register
from shasam.tables import open_table

_SPLIT_WORDS = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val",
    "dev": "val", "test": "test", "testing": "test",
}  # fmt: skip


@register("table", kind="source")
class Table(FileSource):
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
            "split": spec.split_column or ("split" if "split" in known else None),
            "identity": spec.identity_column,
        }
        for name in named.values():
            if name is not None and name not in known:
                raise DataError(
                    f"{self._file().name} has no column {name!r}{did_you_mean(name, known)}"
                )
        table = source.read(
            text=[name for name in named.values() if name]
        ).replace_schema_metadata()
        paths = [_text(v) for v in table.column(named["path"] or "path").to_pylist()]
        ids = paths
        if named["id"]:
            ids = [_text(v) for v in table.column(named["id"]).to_pylist()]
        columns: dict[str, object] = {"id": ids, "path": [self.folder.relative(p) for p in paths]}
        for role in ("split", "identity"):
            name = named[role]
            if name:
                values = [None if v is None else str(v) for v in table.column(name).to_pylist()]
                columns[role] = self._splits(values, name) if role == "split" else values
        for name in known:
            if name not in columns and name != named["path"]:
                columns[name] = table.column(name)
        made = pa.table(columns)
        keep, excluded = self._distinct(ids, made)
        return self.without_missing(Listing(made.take(pa.array(keep, pa.int64())), excluded))

    def _splits(self, values: list[str | None], column: str) -> list[str]:
        """train, val, test or nothing for every row; another word, or a split without rows, is an
        error before anything is read."""
        given = [(v or "").strip() for v in values]
        words = [_SPLIT_WORDS.get(word.lower(), word) for word in given]
        if self.spec.split not in ("auto", "official"):
            return words  # the splits are drawn, and the column is an attribute like others
        odd = sorted(set(words) - {*SPLITS, ""})
        if odd:
            shown = ", ".join(repr(word) for word in odd[:5])
            raise DataError(
                f"the column {column!r} of {self._file().name} holds {shown}; write train, val or "
                "test, leave the cell empty to leave a row out, or name another column with "
                "--split-column"
            )
        missing = [split for split in SPLITS if split not in words]
        if missing:
            raise DataError(
                f"the column {column!r} of {self._file().name} has no row of "
                f"{' and '.join(missing)}; give each split some rows, or rename the column to let "
                "the splits be drawn"
            )
        return words

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
                f"{len(conflicts)} ids are listed twice with other values: "
                f"{', '.join(conflicts[:3])}. Keep one row for each"
            )
        return keep, excluded


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()
