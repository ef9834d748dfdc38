"""The base class of all sources: a table of images with attributes, and a way to read pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shasam.errors import SpecError
from shasam.files import remembered_sha256
from shasam.spec.fields import NO_INFERRED_NUMBER, DataSpec
from shasam.tables import MOST_AS_GROUPS, open_table

if TYPE_CHECKING:
    from shasam.data.vector_files import VectorStore


Progress = Callable[[int, int], None]  # rows done, rows in all


@dataclass(frozen=True)
class Label:
    """A named rule: ``gender`` stands for ``gender==0`` with the classes female and male."""

    rule: str
    names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Exclusion:
    """One image that is left out, and why."""

    id: str
    reason: str


@dataclass(frozen=True)
class Listing:
    """Every image of a source: columns id, path, attributes; sorted by id."""

    table: pa.Table
    excluded: Sequence[Exclusion] = field(default_factory=list)
    notes: Sequence[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        order = np.argsort(self.table.column("id").to_numpy(zero_copy_only=False), kind="stable")
        if not bool((order[1:] > order[:-1]).all()):
            object.__setattr__(self, "table", self.table.take(pa.array(order)))


@dataclass(frozen=True)
class Reading:
    """What came of reading some rows: pixels, hashes of the content, reasons where it failed."""

    images: np.ndarray  # (n, H, W, 3) uint8; zeros where there is a reason
    content_hash: list[str]
    reasons: list[str]  # "" where the image is good


def taken_as(spec: DataSpec, file: Path) -> DataSpec:
    """Return the specification that says whether a sensitive column is followed as a number."""
    if spec.sensitive_as != "auto" or not spec.sensitive or spec.missing == "group":
        return spec
    table = open_table(file)
    columns = [rule for rule in spec.sensitive if rule in table.column_names]
    if not any(of_many_values(table.read([column]).column(column)) for column in columns):
        return spec
    if spec.missing == "infer":  # a copy is not checked again
        raise SpecError(f"data.sensitive: {NO_INFERRED_NUMBER}")
    return spec.model_copy(update={"sensitive_as": "number"})


def of_many_values(values: pa.ChunkedArray) -> bool:
    """Say whether a column holds numbers, and more different ones than are taken as groups."""
    holds = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
    return holds and pc.count_distinct(values, mode="only_valid").as_py() > MOST_AS_GROUPS


class Source:
    """Subclass, set the class variables, write ``listing``, ``read`` and ``pixels_key``."""

    summary: ClassVar[str]  # one line for `shasam data`
    inputs: ClassVar[str] = "images"  # or "vectors": rows of numbers, see ``open_store``
    labels: ClassVar[Mapping[str, Label]] = {}
    settings: ClassVar[Mapping[str, tuple[str, str]]] = {}  # name -> (target, sensitive)
    target: ClassVar[str | None] = None
    sensitive: ClassVar[str | None] = None
    split: ClassVar[str] = "stratified"  # what split="auto" means when there is no own partition
    alpha: ClassVar[float] = 1.0
    n_per_group: ClassVar[int | None] = None
    holdout_per_cell: ClassVar[int] = 400

    def __init__(self, spec: DataSpec) -> None:
        self.spec = spec

    @classmethod
    def completed(cls, spec: DataSpec) -> DataSpec:
        """Return the specification with what the files alone can tell: another content, another
        run.
        """
        if spec.csv is None or spec.csv_sha256 is not None or not spec.csv.is_file():
            return spec
        found = spec.model_copy(update={"csv_sha256": remembered_sha256(spec.csv)})
        return taken_as(found, spec.csv)

    def list_images(self) -> Listing:
        """Find all images and their attributes; called once."""
        raise NotImplementedError

    @cached_property
    def listing(self) -> Listing:
        return self.list_images()

    def table(self) -> pa.Table:
        """Return id, path (relative to the root, with /), then attributes.

        ``split``, ``identity``.
        """
        return self.listing.table

    def read(self, table: pa.Table, size: int) -> Reading:
        """Return pixels of some rows of the table, at size x size."""
        raise NotImplementedError

    def pixels_key(self) -> str:
        """Name what the pixels of an id depend on but the size: a folder, a version, a seed."""
        raise NotImplementedError

    def open_store(self, *, progress: Progress | None = None) -> VectorStore:
        """Return the vectors of a source whose ``inputs`` are "vectors".

        Images are packed instead.
        """
        raise NotImplementedError

    def stamps(self, table: pa.Table) -> np.ndarray:
        """Return int64 for each row that changes when its file does.

        Zeros where there are no files.
        """
        return np.zeros(table.num_rows, dtype=np.int64)
