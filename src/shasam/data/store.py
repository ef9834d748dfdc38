"""Pack pixels into memory-mapped uint8 shards with an index and hashes, and read them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shasam.documents import read_json
from shasam.errors import DataError, FileError, ShasamError
from shasam.files import file_sha256, read_bytes, write_atomic

# -------------------------------------------------------------------------------------------------
# Hashes of large files, computed again only when a file has changed.
#
# `.verified.json` beside the files keeps size, times of change and inode of each file whose hash
# was found right. It is a cache: without it every file is hashed once more. Damage that changes
# none of them, such as that of a failing disk, is found by `shasam data check`, which reads
# everything.
# -------------------------------------------------------------------------------------------------

_NAME = ".verified.json"


def unverified(directory: Path, wanted: Mapping[str, str], *, remembered: bool = True) -> list[str]:
    """Return the names of files that are missing or do not have the SHA-256 wanted of them."""
    known = _remembered(directory) if remembered else {}
    now = {name: _stamp(directory / name, digest) for name, digest in wanted.items()}
    todo = [name for name, stamp in now.items() if stamp is None or known.get(name) != stamp]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        right = list(pool.map(lambda name: _has(directory / name, wanted[name]), todo))
    bad = [name for name, good in zip(todo, right, strict=True) if not good]
    if todo and not bad and remembered:
        with suppress(FileError):  # a store that may only be read is hashed again next time
            write_atomic(directory / _NAME, json.dumps(now))
    return bad


def _has(path: Path, digest: str) -> bool:
    try:
        return file_sha256(path) == digest
    except FileError:
        return False


def _stamp(path: Path, digest: str) -> list[int | str] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return [info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, digest]


def _remembered(directory: Path) -> dict[str, object]:
    try:
        return read_json(directory / _NAME)
    except ShasamError:
        return {}


# -------------------------------------------------------------------------------------------------
# Packed pixels: uint8 shards that are memory-mapped, an index, and hashes of both.
#
# A store is a folder with `shard-00000.bin` (rows x H x W x 3), `shard-00000.arrow` (id, path,
# stamp, content_hash, reason of the same rows), `shard-00000.json` (rows and hashes of both) and
# `store.json`, which lists all shards, carries its own hash and is written last. The index is
# memory-mapped too. No file of a store is parsed or mapped before its hash has been found right;
# `.verified.json` remembers which files that was done for, so that it is done once.
# -------------------------------------------------------------------------------------------------

VERSION = 2
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
_MAX_INDEX = 1 << 30  # bytes of the index of one shard


def shard_rows(size: int) -> int:
    """Return rows of a shard: a power of two, at most 32 MiB.

    Small enough to lose little to a kill.
    """
    return 1 << max(4, (_SHARD_BYTES // (size * size * 3)).bit_length() - 1)


class DamagedStore(DataError):
    """A store that was whole once: a file of it has other bytes now."""


@dataclass(frozen=True)
class Shard:
    """One shard as ``store.json`` lists it."""

    rows: int
    pixels: str  # SHA-256 of the .bin
    index: str  # SHA-256 of the .arrow


def write_shard(directory: Path, number: int, images: np.ndarray, index: pa.Table) -> Shard:
    """Write pixels, then index, then the hashes of both: without these it is no shard."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, INDEX) as writer:
        writer.write_table(index.cast(INDEX).combine_chunks())
    data = memoryview(sink.getvalue())
    pixels, listed = (hashlib.sha256(part).hexdigest() for part in (images.data, data))
    shard = Shard(len(images), pixels, listed)
    write_atomic(_part(directory, number, "bin"), images.data)
    write_atomic(_part(directory, number, "arrow"), data)
    write_atomic(_part(directory, number, "json"), json.dumps(vars(shard)))
    return shard


def finished_shard(
    directory: Path, number: int, ids: list[str], stamps: np.ndarray
) -> Shard | None:
    """Return the shard that is already there, if it is whole and holds these very files."""
    try:
        shard = Shard(**read_json(_part(directory, number, "json")))
        data = read_bytes(_part(directory, number, "arrow"), limit=_MAX_INDEX)
        if shard.rows != len(ids) or hashlib.sha256(data).hexdigest() != shard.index:
            return None
        table = pa.ipc.open_file(data).read_all()
        same = table.column("id").to_pylist() == ids and np.array_equal(
            table.column("stamp").to_numpy(), stamps
        )
        whole = same and file_sha256(_part(directory, number, "bin")) == shard.pixels
        return shard if whole else None
    except (ShasamError, TypeError):
        return None  # not there, or torn by a kill: it is written anew


def finish(directory: Path, size: int, shards: list[Shard]) -> None:
    """Write ``store.json``: from now on the store is whole."""
    record = {
        "version": VERSION,
        "size": size,
        "shard_rows": shard_rows(size),
        "shards": [vars(shard) for shard in shards],
    }
    sealed = {**record, "sha256": _digest(record)}
    write_atomic(directory / "store.json", json.dumps(sealed, indent=1))


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _part(directory: Path, number: int, suffix: str) -> Path:
    return directory / f"shard-{number:05d}.{suffix}"


@dataclass(frozen=True)
class Store:
    """A finished store; ``images(rows)`` is random access."""

    directory: Path
    size: int
    shard_rows: int
    shards: tuple[Shard, ...] = field(repr=False)
    # shards that have been mapped, by number; a map without a descriptor may stay
    _maps: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, directory: Path) -> Store:
        """Return the store of a folder, once every file of it has its hash."""
        if not (directory / "store.json").exists():
            raise DataError(f"{directory} is not a complete packed store: it has no store.json")
        try:
            record = read_json(directory / "store.json")
        except DataError as error:
            raise DamagedStore(f"{error}; the store is damaged") from error
        try:
            if record.pop("sha256", None) != _digest(record):
                raise DamagedStore(f"{directory}/store.json is damaged: it fails its own hash")
            if record["version"] != VERSION:
                raise DataError(
                    f"{directory} was packed by another version of shasam; delete it and pack again"
                )
            shards = tuple(Shard(**shard) for shard in record["shards"])
            store = cls(directory, int(record["size"]), int(record["shard_rows"]), shards)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedStore(f"{directory}/store.json is damaged: {error}") from error
        damaged = unverified(directory, store.files())
        if damaged:
            raise DamagedStore(
                f"{len(damaged)} files of the packed store {directory} are damaged "
                f"({', '.join(damaged[:3])}): their bytes fail their hashes"
            )
        return store

    def files(self) -> dict[str, str]:
        """Return the SHA-256 that every file of the shards must have, by name."""
        listed: dict[str, str] = {}
        for number, shard in enumerate(self.shards):
            listed[_part(self.directory, number, "bin").name] = shard.pixels
            listed[_part(self.directory, number, "arrow").name] = shard.index
        return listed

    def __len__(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @cached_property
    def index(self) -> pa.Table:
        """id, path, stamp, content_hash, reason of all rows; mapped, not read."""
        tables = []
        for number in range(len(self.shards)):
            with pa.memory_map(str(_part(self.directory, number, "arrow"))) as file:
                tables.append(pa.ipc.open_file(file).read_all())
        return pa.concat_tables(tables) if tables else INDEX.empty_table()

    def _pixels(self, number: int) -> np.ndarray:
        """Map the images of a shard when it is first used, and close its descriptor:

        CelebA at 224 px has 1,583 shards, more than the files that a process may have open.
        """
        if number not in self._maps:
            with pa.memory_map(str(_part(self.directory, number, "bin"))) as file:
                buffer = file.read_buffer()
            shape = (self.shards[number].rows, self.size, self.size, 3)
            self._maps[number] = np.frombuffer(buffer, np.uint8).reshape(shape)
        return self._maps[number]

    def images(self, rows: np.ndarray) -> np.ndarray:
        """Return pixels (B, H, W, 3) uint8 of these rows, in this order."""
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise DataError(f"rows must be in 0..{len(self) - 1}; got {rows.min()}..{rows.max()}")
        out = np.empty((len(rows), self.size, self.size, 3), dtype=np.uint8)
        shard, place = np.divmod(rows, self.shard_rows)
        for i, (number, row) in enumerate(zip(shard.tolist(), place.tolist(), strict=True)):
            out[i] = self._pixels(number)[row]
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Prepare for another process, which maps the files itself."""
        return {**{k: v for k, v in vars(self).items() if k != "index"}, "_maps": {}}

    def verify(self) -> list[str]:
        """Return the files whose bytes do not have their hash, all read again.

        An empty list is good.
        """
        return unverified(self.directory, self.files(), remembered=False)
