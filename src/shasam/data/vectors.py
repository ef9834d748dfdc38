"""Vectors as a store: the interface of the packed store, read from the file of the vectors.

Every row is looked at once, when the data is opened: its hash goes into the manifest, and a row
that is no embedding (NaN, infinity, nothing but zeros) has a reason why it is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from shasam.data.features import Features
from shasam.data.store import INDEX
from shasam.errors import DataError
from shasam.files import file_sha256

NOT_FINITE = "holds NaN or infinity"
ALL_ZERO = "every number of it is 0"
_CHUNK = 4096  # rows that are looked at together


@dataclass(frozen=True)
class VectorStore:
    """The rows of a source's table: ``images(rows)`` are their vectors, as float32."""

    path: Path
    features: Features = field(repr=False)
    ids: list[str] = field(repr=False)
    places: np.ndarray = field(repr=False)  # row of the file for each row of the table
    sha256: str = ""
    progress: Callable[[int, int], None] | None = field(default=None, repr=False, compare=False)

    @property
    def directory(self) -> Path:
        return self.path

    @property
    def size(self) -> int:
        """Numbers in a row."""
        return self.features.dim

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def _survey(self) -> tuple[list[str], list[str], np.ndarray]:
        """Hash and reason of every row, and the columns that are the same in all good rows."""
        hashes: list[str] = []
        reasons: list[str] = []
        first: np.ndarray | None = None
        varies = np.zeros(self.size, dtype=bool)
        for start in range(0, len(self), _CHUNK):
            rows = np.ascontiguousarray(self.features.take(self.places[start : start + _CHUNK]))
            with np.errstate(invalid="ignore", over="ignore"):
                finite = np.isfinite(rows).all(1)
            zero = np.logical_not(rows.any(1))
            good = rows[finite & ~zero]
            if len(good):
                first = good[0] if first is None else first
                varies |= (good != first).any(0)
            data = rows.astype("<f4", copy=False).tobytes()
            width = 4 * self.size
            hashes += [
                hashlib.sha256(data[at : at + width]).hexdigest()
                for at in range(0, len(data), width)
            ]
            reasons += [
                NOT_FINITE if not ok else ALL_ZERO if empty else ""
                for ok, empty in zip(finite.tolist(), zero.tolist(), strict=True)
            ]
            if self.progress and len(self) > 100_000:
                self.progress(len(hashes), len(self))
        return hashes, reasons, np.flatnonzero(~varies)

    @property
    def constant_columns(self) -> np.ndarray:
        """Columns that have the same number in every usable row."""
        return self._survey[2]

    @cached_property
    def index(self) -> pa.Table:
        """id, path, stamp, content_hash and reason of all rows, as a packed store has them."""
        hashes, reasons, _ = self._survey
        n = len(self)
        columns = [self.ids, [""] * n, np.zeros(n, np.int64), hashes, reasons]
        arrays = [pa.array(c, type=f.type) for c, f in zip(columns, INDEX, strict=True)]
        return pa.table(arrays, schema=INDEX)

    def images(self, rows: np.ndarray) -> np.ndarray:
        """Vectors (B, D) float32 of these rows, in this order."""
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise DataError(f"rows must be in 0..{len(self) - 1}; got {rows.min()}..{rows.max()}")
        return self.features.take(self.places[rows])

    def verify(self) -> list[str]:
        """The file, if its bytes are no longer those it was opened with."""
        same = not self.sha256 or file_sha256(self.path) == self.sha256
        return [] if same else [self.path.name]
