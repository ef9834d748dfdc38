"""``datasets``: a data set of Hugging Face with an image column, from disk or from memory.

What ``save_to_disk`` writes are Arrow streams with the bytes of the images, and two JSON files.
They are read here without the package ``datasets``: who trains or predicts again need not have it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from shasam.data.decode import MAX_BYTES, BadImage
from shasam.data.folder import PATH, read_images, split_words, text
from shasam.data.source import Listing, Reading, Source
from shasam.data.splits import SPLITS
from shasam.documents import of_our_shape, read_json
from shasam.errors import Argument, DataError
from shasam.files import make_folder, open_regular, remembered_sha256
from shasam.registry import did_you_mean, register
from shasam.spec.fields import DataSpec
from shasam.tables import read_arrow

_IMAGE, _CLASS = "Image", "ClassLabel"  # types of columns in dataset_info.json


class Part:
    """One ``Dataset`` on disk: its columns, and where its rows lie."""

    def __init__(self, root: Path, name: str = "") -> None:
        self.folder, self.name = root / name, name
        with of_our_shape(self.folder):
            info = read_json(self.folder / "dataset_info.json", within=root)
            self.features: dict[str, Any] = dict(info["features"])
            state = read_json(self.folder / "state.json", within=root)
            self.files = [self._file(entry["filename"], root) for entry in state["_data_files"]]

    def _file(self, name: str, root: Path) -> Path:
        path = self.folder / name
        if name in ("", ".", "..") or set(name) & set("/\\\0"):
            raise DataError(f"{self.folder / 'state.json'} names {name!r}, which is no file of it")
        with open_regular(path, within=root):  # no link out of it, no pipe
            return path

    def kind(self, column: str) -> str:
        """Return ``Image``, ``ClassLabel``, ``Value``, or empty for what is nested."""
        feature = self.features.get(column)
        return str(feature.get("_type", "")) if isinstance(feature, Mapping) else ""

    @cached_property
    def table(self) -> pa.Table:
        """All rows; the files are mapped, and pages are read as they are used."""
        pieces = []
        for path in self.files:
            try:
                with pa.memory_map(os.fspath(path)) as file:
                    piece = read_arrow(file, os.fspath(path))
            except (pa.ArrowException, OSError, ValueError) as error:
                raise DataError(f"{path} cannot be read as an Arrow stream: {error}") from error
            pieces.append(piece.replace_schema_metadata())
        if not pieces:
            raise DataError(f"{self.folder} names no files of rows; save the data set again")
        with of_our_shape(self.folder):
            table = pa.concat_tables(pieces)
        for column in self.features:
            self._check(column, table)
        return table

    def _check(self, column: str, table: pa.Table) -> None:
        """Check that the rows have what dataset_info.json says of a column, if it is used."""
        said, here = self.kind(column), table.schema.names.count(column)
        if not said:
            return
        kind = table.schema.field(column).type if here == 1 else None
        if kind is None:
            fits = False
        elif said == _IMAGE:
            inner = kind.field("bytes").type if _has_bytes(kind) else pa.null()
            fits = pa.types.is_binary(inner) or pa.types.is_large_binary(inner)
        else:
            fits = said not in ("Value", _CLASS) or not pa.types.is_nested(kind)
            fits = fits and (said != _CLASS or pa.types.is_integer(kind))
        if not fits:
            raise DataError(
                f"the column {column!r:.60} of {self.folder} is {said} in dataset_info.json and "
                f"{'not in the rows once' if kind is None else str(kind)[:60]} in the files; save "
                "the data set again"
            )

    def ids(self) -> list[str]:
        """Return a name for each row: its number, behind the name of the part."""
        before = f"{self.name}/" if self.name else ""
        return [f"{before}{row:09d}" for row in range(self.table.num_rows)]

    def attribute(self, column: str) -> pa.ChunkedArray:
        """Return a column; the codes of classes become their names."""
        found = self.table.column(column)
        if self.kind(column) != _CLASS:
            return found
        with of_our_shape(self.folder / "dataset_info.json"):
            names = [str(name) for name in self.features[column]["names"]]
        known = [
            names[code] if code is not None and 0 <= code < len(names) else None
            for code in found.to_pylist()
        ]
        return pa.chunked_array([pa.array(known, pa.string())])


def _has_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0


@register("datasets", kind="source")
class HuggingFace(Source):
    """A ``Dataset``, or a ``DatasetDict`` whose parts are train, validation and test."""

    summary = "a data set of Hugging Face that save_to_disk wrote, as --root"

    @classmethod
    def completed(cls, spec: DataSpec) -> DataSpec:
        """Add a hash of all files: another content is another run."""
        if spec.root is None or spec.csv_sha256 is not None or not spec.root.is_dir():
            return spec
        return spec.model_copy(update={"csv_sha256": digest_of(parts_of(spec.root))})

    @cached_property
    def parts(self) -> dict[str, Part]:
        root, asked = self.spec.root, self.spec.csv_sha256
        if root is None or not root.is_dir():
            raise DataError("give the folder that save_to_disk wrote as ", Argument("data.root"))
        found = parts_of(root)
        if asked not in (None, digest := digest_of(found)):
            raise DataError(
                f"{root} has changed since this specification was made: its hash was "
                f"{str(asked)[:12]} and is now {digest[:12]}; bring the old data back, or train "
                "again with the new"
            )
        return {part.name: part for part in found}

    @cached_property
    def image_column(self) -> str:
        """The only column of images, or the one that is named."""
        part, asked = next(iter(self.parts.values())), self.spec.path_column
        images = [name for name in part.features if part.kind(name) == _IMAGE]
        if asked != PATH:
            if asked not in images:
                raise DataError(
                    f"{self.spec.root} has no column of images {asked!r}"
                    f"{did_you_mean(asked, images)}"
                )
            return asked
        if len(images) != 1:
            if not images:
                raise DataError(
                    f"{self.spec.root} has no column of images; cast one with "
                    "dataset.cast_column('image', datasets.Image())"
                )
            raise DataError(
                f"{self.spec.root} has {len(images)} columns of images ({', '.join(images)}); "
                "name one with ",
                Argument("data.path_column"),
            )
        return images[0]

    def pixels_key(self) -> str:
        return f"{digest_of(list(self.parts.values()))}\n{self.image_column}"

    def list_images(self) -> Listing:
        parts, first = list(self.parts.values()), next(iter(self.parts.values()))
        ids = [name for part in parts for name in part.ids()]
        columns: dict[str, Any] = {"id": ids, "path": ids}
        if len(parts) > 1:
            columns["split"] = [part.name for part in parts for _ in range(part.table.num_rows)]
        for name in first.features:
            if first.kind(name) in ("Value", _CLASS) and name not in columns:
                pieces = [piece for part in parts for piece in part.attribute(name).chunks]
                columns[name] = pa.chunked_array(pieces)
        for role, named in (
            ("split", self.spec.split_column),
            ("identity", self.spec.identity_column),
        ):
            if named is not None:
                if named not in columns:
                    raise DataError(
                        f"{self.spec.root} has no column {named!r}{did_you_mean(named, columns)}"
                    )
                columns[role] = [text(value) for value in pa.array(columns[named]).to_pylist()]
        if "split" in columns:
            words = pa.array(columns["split"]).to_pylist()
            columns["split"] = split_words(words, "split", str(self.spec.root), self.spec)
        return Listing(pa.table(columns))

    def read(self, table: pa.Table, size: int) -> Reading:
        return read_images(table, size, self._bytes)

    def _bytes(self, path: str) -> bytes:
        name, _, row = path.rpartition("/")
        found = self.parts[name].table.column(self.image_column)[int(row)].as_py()
        data = (found or {}).get("bytes")
        if data is None:
            raise BadImage("the row has no bytes of an image; save the data set again")
        if len(data) > MAX_BYTES:
            raise BadImage(f"{len(data) >> 20} MiB, the limit is {MAX_BYTES >> 20} MiB")
        return bytes(data)


def parts_of(root: Path) -> list[Part]:
    """Find the parts in a folder of ``save_to_disk``: one, or train, validation and test."""
    if not (root / "dataset_dict.json").is_file():
        if not (root / "dataset_info.json").is_file():
            raise DataError(
                f"{root} is no data set of Hugging Face: it has no dataset_info.json. Write one "
                "with dataset.save_to_disk(folder)"
            )
        return [Part(root)]
    with of_our_shape(root):
        told = read_json(root / "dataset_dict.json", within=root)
        names = [str(name) for name in told["splits"]]
    if any(name in ("", ".", "..") or set(name) & set("/\\\0") for name in names):
        raise DataError(f"{root / 'dataset_dict.json'} names a split that is no folder of it")
    if len(names) not in (1, len(SPLITS)):
        raise DataError(
            f"{root} has the splits {', '.join(names)}; give train, validation and test (the "
            "train_test_split of a part makes two of it), or one Dataset, whose splits are drawn"
        )
    return [Part(root, name) for name in names]


def digest_of(parts: list[Part]) -> str:
    """Return SHA-256 over the names, columns and files of all parts."""
    whole = hashlib.sha256()
    for part in parts:
        for line in _lines(part):
            whole.update(f"{line}\n".encode())
    return whole.hexdigest()


def _lines(part: Part) -> Iterator[str]:
    yield part.name
    yield remembered_sha256(part.folder / "dataset_info.json")
    for path in part.files:
        yield remembered_sha256(path)


def from_datasets(dataset: Any, **fields: Any) -> dict[str, Any]:
    """Make the fields of a ``DataSpec`` from a ``datasets.Dataset`` or ``DatasetDict``.

    The data set is written once to the cache, under its fingerprint, so that a run can be resumed,
    evaluated and reproduced after the process has ended.

    Parameters
    ----------
    dataset
        A data set with a column of images, and columns of labels and groups.
    fields
        Fields of ``DataSpec``, such as ``target``, ``sensitive`` and ``size``.

    Returns
    -------
    dict
        What ``shasam.train(data=...)`` and ``DataSpec(**...)`` take.
    """
    parts = dataset.values() if isinstance(dataset, Mapping) else [dataset]
    prints = "\n".join(str(part._fingerprint) for part in parts)
    key = hashlib.sha256(prints.encode()).hexdigest()[:16]
    folder = DataSpec(**{**fields, "name": "datasets"}).store_root() / "datasets" / key
    if not (folder / "whole").is_file():
        make_folder(folder.parent)
        dataset.save_to_disk(str(folder))
        (folder / "whole").touch()  # after everything else: a kill leaves a folder to write again
    return {**fields, "name": "datasets", "root": str(folder)}
