"""Which image is in which split with which labels, and one SHA-256 for the whole.

The hash is over the rows in the order of their ids and over the names of classes and groups; where
the files are, in which order they were listed and by how many workers read does not enter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shasam.errors import DataError, FileError
from shasam.files import atomic_file
from shasam.parquet import read_parquet

SPLITS = ("train", "val", "test")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("path", pa.string()),
        ("content_hash", pa.string()),
        ("target", pa.int64()),
        ("sensitive", pa.int64()),
        ("split", pa.string()),
    ]
)


@dataclass(frozen=True)
class Manifest:
    """Rows sorted by id; what was left out and why stands beside them in ``excluded``."""

    table: pa.Table = field(repr=False)
    target_names: tuple[str, ...]
    sensitive_names: tuple[str, ...]
    protocol: Mapping[str, Any] = field(default_factory=dict, repr=False)
    excluded: Sequence[Mapping[str, str]] = field(default_factory=list, repr=False)
    notes: Sequence[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.table.schema.names != SCHEMA.names:
            raise DataError(
                f"a manifest has the columns {', '.join(SCHEMA.names)}; this table has "
                f"{', '.join(self.table.schema.names)}"
            )
        ids = self.table.column("id").to_numpy(zero_copy_only=False)
        if len(ids) > 1 and not bool((ids[1:] > ids[:-1]).all()):
            raise DataError("the ids of a manifest must be sorted and unique")

    def __len__(self) -> int:
        return self.table.num_rows

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        names = [list(self.target_names), list(self.sensitive_names)]
        digest.update(json.dumps(names, ensure_ascii=True).encode())
        for batch in self.table.to_batches(max_chunksize=4096):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                digest.update(json.dumps(row, ensure_ascii=True).encode() + b"\n")
        return digest.hexdigest()

    @cached_property
    def t_N(self) -> np.ndarray:
        return self.table.column("target").to_numpy()

    @cached_property
    def s_N(self) -> np.ndarray:
        return self.table.column("sensitive").to_numpy()

    def rows(self, split: str) -> np.ndarray:
        """Row numbers (int64) of a split."""
        if split not in SPLITS:
            raise DataError(f"there is no split {split!r}; there are {', '.join(SPLITS)}")
        return np.flatnonzero(self._split == split).astype(np.int64)

    @cached_property
    def _split(self) -> np.ndarray:
        return self.table.column("split").to_numpy(zero_copy_only=False)

    def metadata(self) -> dict[str, str]:
        """Hash, names and protocol: what every Parquet file of a run says about its data."""
        return {
            "sha256": self.sha256,
            "target_names": json.dumps(list(self.target_names)),
            "sensitive_names": json.dumps(list(self.sensitive_names)),
            "protocol": json.dumps(dict(self.protocol), sort_keys=True),
        }

    def save(self, path: str | Path) -> None:
        """Write Parquet, whole or not at all."""
        metadata = {
            **self.metadata(),
            "excluded": json.dumps([dict(e) for e in self.excluded]),
            "notes": json.dumps(list(self.notes)),
        }
        with atomic_file(path) as file:
            pq.write_table(self.table.replace_schema_metadata(metadata), file)

    @classmethod
    def load(cls, path: str | Path, *, within: Path | None = None) -> Manifest:
        """Read a manifest and check that its rows still have the hash they were saved with."""
        try:
            table = read_parquet(path, within=within)
            metadata = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
        except (FileError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read as a manifest: {error}") from error
        missing = {"sha256", "target_names", "sensitive_names"} - set(metadata)
        if missing:
            raise DataError(f"{path} is not a manifest: its metadata lacks {sorted(missing)}")
        try:
            manifest = cls(
                table.replace_schema_metadata(None).cast(SCHEMA).combine_chunks(),
                tuple(json.loads(metadata["target_names"])),
                tuple(json.loads(metadata["sensitive_names"])),
                json.loads(metadata.get("protocol", "{}")),
                json.loads(metadata.get("excluded", "[]")),
                json.loads(metadata.get("notes", "[]")),
            )
        except (ValueError, TypeError, pa.ArrowException, RecursionError) as error:
            raise DataError(f"{path} is not a manifest: {error}") from error
        if manifest.sha256 != metadata["sha256"]:
            raise DataError(
                f"{path} was changed after it was written: its rows hash to "
                f"{manifest.sha256[:16]}, its metadata says {metadata['sha256'][:16]}"
            )
        return manifest
