"""From a source to a packed store: read in threads, a shard at a time, resumable after a kill."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa

from shasam.data.source import Progress, Reading, Source
from shasam.data.store import (
    DamagedStore,
    Shard,
    Store,
    finish,
    finished_shard,
    shard_rows,
    write_shard,
)
from shasam.data.vector_files import VectorStore
from shasam.errors import DataError, FileError
from shasam.files import check_writable, make_folder, remove_leftovers
from shasam.memory import readable

_LOG = logging.getLogger("shasam")
_STALE = 3600  # seconds after which a temporary file counts as left behind
_TASK = 64  # rows that a thread reads at a time


def store_directory(source: Source, size: int) -> Path:
    """The folder of this source at this size, named by what its pixels depend on."""
    key = hashlib.sha256(f"{source.spec.name}\n{source.pixels_key()}\n{size}".encode()).hexdigest()
    return source.spec.store_root() / "stores" / f"{source.spec.name}-{size}-{key[:16]}"


def open_store(
    source: Source, size: int, *, progress: Progress | None = None
) -> Store | VectorStore:
    """The store of a source, packed now if it is missing or if files have changed."""
    if source.inputs == "vectors":
        return source.open_store(progress=progress)
    table, directory = source.table(), store_directory(source, size)
    store = _current(directory, table, source.stamps(table))
    if store is not None:
        return store
    _unseal(directory)
    return pack(source, size, progress=progress)


def _current(directory: Path, table: pa.Table, stamps: np.ndarray) -> Store | None:
    """The store that is there, if it is whole and of these very files."""
    try:
        store = Store.open(directory)
        index = store.index
    except DamagedStore as error:
        _LOG.warning("%s. What is damaged is packed again", error)
        return None
    except DataError:
        return None  # not there yet, or not whole: packing keeps the shards that are good
    same = (
        len(store) == index.num_rows == table.num_rows
        and np.array_equal(index.column("stamp").to_numpy(), stamps)
        and index.column("id").combine_chunks().equals(table.column("id").combine_chunks())
    )
    return store if same else None


def pack(
    source: Source, size: int, *, workers: int | None = None, progress: Progress | None = None
) -> Store:
    """Read every image of a source once and write its store; whole shards are kept."""
    table, directory = source.table(), store_directory(source, size)
    if table.num_rows == 0:
        raise DataError("there is no image to pack; look at the folder and at the table")
    try:
        make_folder(directory)
        check_writable(directory, folder=True)
    except FileError as error:
        raise _no_store(directory, error.reason.partition(";")[0]) from error
    stamps, per_shard = source.stamps(table), shard_rows(size)
    # Only an outdated store loses its seal: another process may be packing the same files now, and
    # as both write the same bytes under the same names neither disturbs the other.
    if (directory / "store.json").exists() and _current(directory, table, stamps) is None:
        _unseal(directory)
    remove_leftovers(directory, older_than=_STALE)
    shards: dict[int, Shard] = {}
    done, todo = 0, []
    for number, start in enumerate(range(0, table.num_rows, per_shard)):
        part = table.slice(start, per_shard)
        ids = part.column("id").to_pylist()
        shard = finished_shard(directory, number, ids, stamps[start : start + per_shard])
        if shard is None:
            todo.append((number, part, stamps[start : start + per_shard]))
        else:
            shards[number] = shard
            done += shard.rows
    _check_space(directory, (table.num_rows - done) * size * size * 3)
    if progress:
        progress(done, table.num_rows)
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for number, part, stamp, readings in _ahead(pool, source, todo, size):
            images = np.empty((part.num_rows, size, size, 3), dtype=np.uint8)
            hashes: list[str] = []
            reasons: list[str] = []
            for future in readings:
                reading = future.result()
                images[len(hashes) : len(hashes) + len(reading.images)] = reading.images
                hashes += reading.content_hash
                reasons += reading.reasons
                done += len(reading.images)
                if progress:
                    progress(done, table.num_rows)
            columns = [part.column("id"), part.column("path"), pa.array(stamp)]
            index = pa.table(
                [*columns, pa.array(hashes, pa.string()), pa.array(reasons, pa.string())],
                names=["id", "path", "stamp", "content_hash", "reason"],
            )
            shards[number] = write_shard(directory, number, images, index)
    done_shards = [shards[number] for number in sorted(shards)]
    finish(directory, size, done_shards)
    return Store(directory, size, per_shard, tuple(done_shards))


def _unseal(directory: Path) -> None:
    try:
        (directory / "store.json").unlink(missing_ok=True)
    except OSError as error:
        raise _no_store(directory, error.strerror or str(error)) from error


def _no_store(directory: Path, reason: str) -> FileError:
    return FileError(
        directory,
        f"the packed images cannot be kept here ({reason}); choose another folder with --store or "
        "SHASAM_CACHE",
    )


def _check_space(directory: Path, needed: int) -> None:
    """Say at once that the images cannot fit, not after an hour of packing."""
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise DataError(
            f"the packed images need {readable(needed)} more and {directory} has {readable(free)} "
            "free; free space, choose a smaller size, or another disk with --store or SHASAM_CACHE"
        )


def _ahead(
    pool: ThreadPoolExecutor,
    source: Source,
    todo: list[tuple[int, pa.Table, np.ndarray]],
    size: int,
) -> Iterator[tuple[int, pa.Table, np.ndarray, list[Future[Reading]]]]:
    """Shards with their readings under way; the next one is started before one is written."""
    waiting: list[tuple[int, pa.Table, np.ndarray, list[Future[Reading]]]] = []
    for number, part, stamp in todo:
        futures = [
            pool.submit(source.read, part.slice(start, _TASK), size)
            for start in range(0, part.num_rows, _TASK)
        ]
        waiting.append((number, part, stamp, futures))
        if len(waiting) == 2:
            yield waiting.pop(0)
    yield from waiting
