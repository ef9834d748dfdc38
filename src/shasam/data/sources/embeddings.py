"""``embeddings``: vectors that were computed beforehand, with a table of labels."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from shasam.data.folder import check_named, read_own, split_and_identity, text
from shasam.data.source import Listing, Progress, Source, taken_as
from shasam.data.vector_files import TABLES, VectorRows, VectorStore, open_features, width_of
from shasam.errors import Argument, DataError
from shasam.files import remembered_sha256
from shasam.registry import register
from shasam.spec.fields import DataSpec
from shasam.tables import TableFile, open_table

_USUAL_ID = "id"


@register("embeddings", kind="source")
class Embeddings(Source):
    """Rows of a file of vectors; labels are in a table of their own, or beside the vectors.

    The rows of both are matched by their order, or by an id column that both have.
    """

    summary = "your own vectors: .npy, .npz, .safetensors, Parquet or Arrow, and a table of labels"
    inputs = "vectors"

    @classmethod
    def completed(cls, spec: DataSpec) -> DataSpec:
        """Add the hashes of vectors and labels, and the length of a vector."""
        spec = super().completed(spec)
        if spec.features is None or spec.features_sha256 is not None:
            return spec
        dim = width_of(spec.features, spec.features_key)
        changes = {"features_sha256": remembered_sha256(spec.features), "features_dim": dim}
        found = spec.model_copy(update=changes)
        own = spec.csv is None and spec.features.suffix.lower() in TABLES
        return taken_as(found, spec.features) if own else found

    @cached_property
    def _file(self) -> Path:
        if self.spec.features is None:
            raise DataError(
                "the source 'embeddings' needs vectors: give features (",
                Argument("data.features", "x.npy"),
                ")",
            )
        return self.spec.features

    @cached_property
    def _labels(self) -> TableFile:
        if self.spec.csv is not None:
            if not self.spec.csv.is_file():
                raise DataError(
                    f"{self.spec.csv} is not a file; give the labels as ", Argument("data.csv")
                )
            return open_table(self.spec.csv)
        if self._file.suffix.lower() not in TABLES:
            raise DataError(
                f"{self._file.name} holds vectors and no labels; give a table of them with ",
                Argument("data.csv"),
                " labels.csv",
            )
        return open_table(self._file)

    @cached_property
    def features(self) -> VectorRows:
        """The vectors, if they are those that the specification was made for."""
        asked = self.spec.features_sha256
        found = open_features(self._file, self.spec.features_key, self._id_names)
        digest = remembered_sha256(self._file)
        if asked not in (None, digest):
            raise DataError(
                f"{self._file} has changed since this specification was made: its hash was "
                f"{str(asked)[:12]} and is now {digest[:12]}; bring the old file back, or train "
                "again with the new one"
            )
        return found

    @property
    def _id_names(self) -> tuple[str, ...]:
        return (self.spec.id_column,) if self.spec.id_column else (_USUAL_ID, "ids")

    def list_images(self) -> Listing:
        labels, features = self._labels, self.features
        known = labels.column_names
        apart = self.spec.csv is not None
        id_column = self.spec.id_column or (_USUAL_ID if _USUAL_ID in known else None)
        named = {"id": id_column, **split_and_identity(self.spec, known)}
        check_named(named, known, labels.name)
        leave_out = () if apart else (features.key or "",)
        ids = self._ids_of(labels, id_column)
        by_id = apart and ids is not None and features.ids is not None
        if by_id:
            assert ids is not None and features.ids is not None
            places, notes = self._matched(ids, features.ids)
        else:
            places, notes = np.arange(len(features)), []
        table = read_own(labels, self.spec, named, {}, leave_out)
        if not by_id and table.num_rows != len(features):
            raise DataError(
                f"{labels.name} has {table.num_rows} rows and {self._file.name} has "
                f"{len(features)} vectors; give one row for each vector in the same order, or an "
                "id column in both (",
                Argument("data.id_column"),
                ")",
            )
        if ids is None:
            ids = [f"{row:07d}" for row in range(len(features))]
        return self._listing(table, ids, places, notes)

    def _listing(
        self, table: pa.Table, ids: list[str], places: np.ndarray, notes: list[str]
    ) -> Listing:
        """Return the rows that have a vector, in the order of their ids."""
        there = np.flatnonzero(places >= 0)
        order = there[np.argsort(np.array(ids, dtype=object)[there], kind="stable")]
        self._places = places[order]
        rest = table.drop_columns([name for name in ("id", "path") if name in table.column_names])
        names = pa.array([ids[row] for row in order], pa.string())
        made = rest.take(pa.array(order))
        made = made.add_column(0, "id", names)
        made = made.add_column(1, "path", pa.array([""] * len(order), pa.string()))
        if self.features.dtype != "float32":
            notes = [*notes, f"the vectors are {self.features.dtype} and are read as float32"]
        return Listing(made, [], notes)

    def _ids_of(self, labels: TableFile, column: str | None) -> list[str] | None:
        """Return the ids of the labels' rows, each once and none missing."""
        if column is None:
            return None
        ids = [text(v) for v in labels.read([column], text=[column]).column(column).to_pylist()]
        _check_ids(ids, f"the column {column!r} of {labels.name}")
        return ids

    def _matched(self, ids: list[str], held: list[str]) -> tuple[np.ndarray, list[str]]:
        """Return the row of the vectors for each row of the labels, -1 where there is none."""
        held = [text(value) for value in held]
        _check_ids(held, f"the ids of {self._file.name}")
        place = {name: row for row, name in enumerate(held)}
        places = np.array([place.get(name, -1) for name in ids], dtype=np.int64)
        gone = [ids[row] for row in np.flatnonzero(places < 0)]
        if len(gone) == len(ids):
            raise DataError(
                f"no id of {self._labels.name} ({', '.join(ids[:3])}, ...) is among those of "
                f"{self._file.name} ({', '.join(held[:3])}, ...)"
            )
        if gone and not self.spec.allow_missing:
            raise DataError(
                f"{len(gone)} of {len(ids)} rows of {self._labels.name} have no vector in "
                f"{self._file.name} ({', '.join(gone[:3])}, ...). Complete the vectors, or go on "
                "without these rows with ",
                Argument("data.allow_missing"),
            )
        notes = []
        if gone:
            notes.append(f"{len(gone)} of {len(ids)} rows have no vector, accepted")
        spare = len(held) - (len(ids) - len(gone))
        if spare:
            notes.append(f"{spare} of {len(held)} vectors have no row of labels and are not used")
        return places, notes

    def open_store(self, *, progress: Progress | None = None) -> VectorStore:
        ids = self.table().column("id").to_pylist()
        digest = remembered_sha256(self._file)
        return VectorStore(self._file, self.features, ids, self._places, digest, progress)


def _check_ids(ids: list[str], where: str) -> None:
    empty = next((row for row, name in enumerate(ids) if not name), None)
    if empty is not None:
        raise DataError(f"{where} has no value in row {empty + 1}; give each row an id")
    twice = [name for name, times in Counter(ids).items() if times > 1]
    if twice:
        raise DataError(
            f"{len(twice)} ids are there twice in {where}: {', '.join(twice[:3])}. Each id may be "
            "there once"
        )
