"""Packed pixels: uint8 shards that are memory-mapped, an index, and hashes of both.

A store is a folder with ``shard-00000.bin`` (rows x H x W x 3), ``shard-00000.arrow`` (id, path,
stamp, content_hash, reason of the same rows) and ``store.json``, which is written last. The index
is memory-mapped too, so that opening a store costs the same at a thousand rows and at a million.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from shasam.errors import DataError
from shasam.files import write_atomic

VERSION = 1
INDEX = pa.schema(
    [
        ("id", pa.string()),
        ("path", pa.string()),
        ("stamp", pa.int64()),
        ("content_hash", pa.string()),
        ("reason", pa.string()),
    ]
)
_SHARD_BYTES = 32 << 20


def shard_rows(size: int) -> int:
    """Rows of a shard: a power of two, at most 32 MiB; small enough to lose little to a kill."""
    return 1 << max(4, (_SHARD_BYTES // (size * size * 3)).bit_length() - 1)


@dataclass(frozen=True)
class Shard:
    """One shard as ``store.json`` lists it."""

    rows: int
    pixels: str  # SHA-256 of the .bin
    index: str  # SHA-256 of the .arrow


def write_shard(directory: Path, number: int, images: np.ndarray, index: pa.Table) -> Shard:
    """Write pixels, then index; the index carries the hash of the pixels for resuming."""
    pixels = hashlib.sha256(images.data).hexdigest()
    sink = pa.BufferOutputStream()
    table = index.cast(INDEX).replace_schema_metadata({"pixels": pixels})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    data = sink.getvalue()
    write_atomic(directory / f"shard-{number:05d}.bin", images.data)
    write_atomic(directory / f"shard-{number:05d}.arrow", memoryview(data))
    return Shard(len(images), pixels, hashlib.sha256(data).hexdigest())


def finished_shard(
    directory: Path, number: int, ids: list[str], stamps: np.ndarray
) -> Shard | None:
    """The shard that is already there, if it is whole and holds these very files."""
    pixels, index = directory / f"shard-{number:05d}.bin", directory / f"shard-{number:05d}.arrow"
    try:
        data = index.read_bytes()
        table = pa.ipc.open_file(data).read_all()
        wanted = (table.schema.metadata or {})[b"pixels"].decode()
        same = table.column("id").to_pylist() == ids and np.array_equal(
            table.column("stamp").to_numpy(), stamps
        )
        if not same or _file_hash(pixels) != wanted:
            return None
    except (OSError, pa.ArrowException, KeyError):
        return None  # not there, or torn by a kill: it is written anew
    return Shard(len(ids), wanted, hashlib.sha256(data).hexdigest())


def finish(directory: Path, size: int, shards: list[Shard]) -> None:
    """Write ``store.json``: from now on the store is whole."""
    record = {
        "version": VERSION,
        "size": size,
        "shard_rows": shard_rows(size),
        "shards": [vars(shard) for shard in shards],
    }
    write_atomic(directory / "store.json", json.dumps(record, indent=1))


def _file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True)
class Store:
    """A finished store; ``images(rows)`` is random access."""

    directory: Path
    size: int
    shard_rows: int
    shards: tuple[Shard, ...] = field(repr=False)

    @classmethod
    def open(cls, directory: Path) -> Store:
        try:
            record = json.loads((directory / "store.json").read_text())
            if record["version"] != VERSION:
                raise DataError(f"{directory} was packed by another version; pack it anew")
            shards = tuple(Shard(**shard) for shard in record["shards"])
            store = cls(directory, int(record["size"]), int(record["shard_rows"]), shards)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"{directory} is not a whole packed store: {error}") from error
        for number, shard in enumerate(shards):
            path = directory / f"shard-{number:05d}.bin"
            wanted = shard.rows * store.size**2 * 3
            if not path.is_file() or path.stat().st_size != wanted:
                raise DataError(f"{path} should have {wanted} bytes; pack the data anew")
        return store

    def __len__(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @cached_property
    def index(self) -> pa.Table:
        """id, path, stamp, content_hash, reason of all rows; mapped, not read."""
        tables = []
        for number in range(len(self.shards)):
            path = str(self.directory / f"shard-{number:05d}.arrow")
            tables.append(pa.ipc.open_file(pa.memory_map(path)).read_all())
        tables = [table.replace_schema_metadata(None) for table in tables]
        return pa.concat_tables(tables) if tables else INDEX.empty_table()

    @cached_property
    def _maps(self) -> list[np.ndarray]:
        shape = (self.size, self.size, 3)
        return [
            np.memmap(
                self.directory / f"shard-{number:05d}.bin", np.uint8, "r", shape=(s.rows, *shape)
            ).view(np.ndarray)
            for number, s in enumerate(self.shards)
        ]

    def images(self, rows: np.ndarray) -> np.ndarray:
        """Pixels (B, H, W, 3) uint8 of these rows, in this order."""
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise DataError(f"rows must be in 0..{len(self) - 1}; got {rows.min()}..{rows.max()}")
        out = np.empty((len(rows), self.size, self.size, 3), dtype=np.uint8)
        maps = self._maps
        shard, place = np.divmod(rows, self.shard_rows)
        for i, (number, row) in enumerate(zip(shard.tolist(), place.tolist(), strict=True)):
            out[i] = maps[number][row]
        return out

    def verify(self) -> list[str]:
        """The files whose bytes no longer have their hash; an empty list is good."""
        bad = []
        for number, shard in enumerate(self.shards):
            for suffix, wanted in (("bin", shard.pixels), ("arrow", shard.index)):
                path = self.directory / f"shard-{number:05d}.{suffix}"
                if not path.is_file() or _file_hash(path) != wanted:
                    bad.append(path.name)
        return bad
