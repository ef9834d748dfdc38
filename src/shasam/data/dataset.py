"""A data set that is ready to use: manifest, labels, and images from the packed store."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from shasam.data.source import Exclusion, Progress, Reading, Source
from shasam.data.splits import Manifest, Protocol, check_labels, warn_of_empty_cells
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
from shasam.errors import Argument, DataError, FileError, SpecError
from shasam.files import check_writable, make_folder, remove_leftovers
from shasam.memory import readable
from shasam.registry import did_you_mean, lookup
from shasam.spec.fields import DataSpec

if TYPE_CHECKING:
    from torch import Tensor


BAD_SHARE = 0.01  # more unreadable images than this stop the work


@dataclass(frozen=True)
class Dataset:
    """Rows are those of the manifest; ``images`` reads them in any order."""

    spec: DataSpec
    manifest: Manifest
    store: Store | VectorStore = field(repr=False)
    store_rows: np.ndarray = field(repr=False)  # row of the store for each row of the manifest
    attributes: pa.Table = field(repr=False)  # the source's columns for each row of the manifest

    @property
    def t_N(self) -> np.ndarray:
        return self.manifest.t_N

    @property
    def s_N(self) -> np.ndarray:
        return self.manifest.s_N

    @property
    def target_names(self) -> tuple[str, ...]:
        return self.manifest.target_names

    @property
    def sensitive_names(self) -> tuple[str, ...]:
        return self.manifest.sensitive_names

    @property
    def classes(self) -> int:
        return len(self.target_names)

    @property
    def groups(self) -> int:
        return len(self.sensitive_names)

    def __len__(self) -> int:
        return len(self.manifest)

    def rows(self, split: str) -> np.ndarray:
        """Return row numbers of "train", "val" or "test"."""
        return self.manifest.rows(split)

    def images(self, rows: np.ndarray | Tensor) -> Tensor:
        """Return uint8 (B, 3, H, W), a view of channels-last memory; vectors are float32 (B, D)."""
        import torch

        read = self.store.images(self.store_rows[np.asarray(rows, dtype=np.int64)])
        found = torch.from_numpy(np.require(read, requirements="W"))
        return found if found.ndim == 2 else found.permute(0, 3, 1, 2)


def make_source(spec: DataSpec) -> Source:
    """Return the registered source of a specification."""
    return lookup("source", spec.name)(spec)


def make_protocol(source: Source) -> Protocol:
    """Return the protocol that a specification means for its source."""
    spec = source.spec
    target, sensitive = source.target, source.sensitive
    if spec.setting is not None:
        if spec.setting not in source.settings:
            raise SpecError(
                f"{spec.name} has no setting {spec.setting!r}"
                f"{did_you_mean(spec.setting, source.settings)}"
            )
        target, sensitive = source.settings[spec.setting]
    target = spec.target or target
    asked = spec.sensitive or ((sensitive,) if sensitive else ())
    if not target or not asked:
        columns = [c for c in source.table().column_names if c not in ("id", "path", "split")]
        raise SpecError(
            f"{spec.name} needs a target and a sensitive attribute; its columns are: "
            f"{', '.join(columns)}"
        )
    return Protocol(
        source=spec.name,
        target=target,
        sensitive=" & ".join(asked),
        alpha=spec.alpha if spec.alpha is not None else source.alpha,
        split=_split_rule(source),
        seed=spec.seed,
        n_per_group=spec.n_per_group or source.n_per_group,
        holdout_per_cell=spec.holdout_per_cell or source.holdout_per_cell,
        flip_direction=spec.flip_direction,
        attributes=asked if len(asked) > 1 else (),
        known_groups=spec.known_groups,
        number=spec.sensitive_as == "number",
    )


def _split_rule(source: Source) -> str:
    """Return what split="auto" means.

    The source's own partition, bias only where it is asked for.
    """
    spec = source.spec
    if spec.split != "auto":
        return spec.split
    biased = (spec.alpha, spec.n_per_group, spec.holdout_per_cell) != (None, None, None)
    if "split" in source.table().column_names:
        if biased and source.split != "official":
            raise SpecError(
                "the data has splits of its own, which alpha, n_per_group and holdout_per_cell "
                "would change; to replace them, add ",
                Argument("data.split", "balanced"),
            )
        return "official"
    return "balanced" if biased else source.split


def open_data(spec: DataSpec, *, progress: Progress | None = None) -> Dataset:
    """Open a data set; images are packed first if they are not packed yet.

    Parameters
    ----------
    spec
        The source, its labels and its splits.
    progress
        Function that is called with (done, whole) while images are packed.

    Returns
    -------
    Dataset
        Rows by split, labels, and images as arrays.

    Examples
    --------
    >>> data = open_data(DataSpec(name="faces", n=200, holdout_per_cell=10))
    >>> len(data.rows("train")) > 0, data.target_names
    (True, ('serious', 'smiling'))
    """
    source = make_source(spec)
    protocol = make_protocol(source)
    check_labels(source, protocol)
    store = open_store(source, spec.size, progress=progress)
    return assemble(source, protocol, store)


def assemble(source: Source, protocol: Protocol, store: Store | VectorStore) -> Dataset:
    """Leave out what could not be read, build the manifest, tie its rows to the store's."""
    spec, table, index = source.spec, source.table(), store.index
    reasons = index.column("reason").to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(reasons != "")
    what = "images" if source.inputs == "images" else "vectors"
    ids = index.column("id")
    if len(bad) > BAD_SHARE * len(reasons) and not spec.allow_bad:
        first = "; ".join(f"{ids[int(r)]}: {reasons[r]}" for r in bad[:3])
        raise DataError(
            f"{len(bad)} of {len(reasons)} {what} ({len(bad) / len(reasons):.1%}) cannot be read "
            f"({first}, ...). Repair them, or leave them out with ",
            Argument("data.allow_bad"),
        )
    good = np.flatnonzero(reasons == "")
    excluded = [*source.listing.excluded]
    excluded += [Exclusion(str(ids[int(r)]), f"unreadable: {reasons[r]}") for r in bad]
    manifest = protocol.manifest(
        table.take(pa.array(good)),
        index.column("content_hash").take(pa.array(good)).to_pylist(),
        labels=source.labels,
        excluded=excluded,
        notes=source.listing.notes,
        missing=spec.missing,
    )
    warn_of_empty_cells(manifest)
    store_rows = _places(manifest.table.column("id"), ids)
    return Dataset(spec, manifest, store, store_rows, table.take(pa.array(store_rows)))


def _places(ids: pa.ChunkedArray, among: pa.ChunkedArray) -> np.ndarray:
    import pyarrow.compute as pc

    return pc.index_in(ids, value_set=among).to_numpy(zero_copy_only=False).astype(np.int64)


# -------------------------------------------------------------------------------------------------
# From a source to a packed store: read in threads, a shard at a time, resumable after a kill.
# -------------------------------------------------------------------------------------------------

_LOG = logging.getLogger("shasam")
_STALE = 3600  # seconds after which a temporary file counts as left behind
_TASK = 64  # rows that a thread reads at a time


def store_directory(source: Source, size: int) -> Path:
    """Return the folder of this source at this size, named by what its pixels depend on."""
    key = hashlib.sha256(f"{source.spec.name}\n{source.pixels_key()}\n{size}".encode()).hexdigest()
    return source.spec.store_root() / "stores" / f"{source.spec.name}-{size}-{key[:16]}"


def open_store(
    source: Source, size: int, *, progress: Progress | None = None
) -> Store | VectorStore:
    """Return the store of a source, packed now if it is missing or if files have changed."""
    if source.inputs == "vectors":
        return source.open_store(progress=progress)
    table, directory = source.table(), store_directory(source, size)
    store = _current(directory, table, source.stamps(table))
    if store is not None:
        return store
    _unseal(directory)
    return pack(source, size, progress=progress)


def _current(directory: Path, table: pa.Table, stamps: np.ndarray) -> Store | None:
    """Return the store that is there, if it is whole and of these very files."""
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
        f"the packed images cannot be kept here ({reason}); choose another folder with ",
        Argument("data.store"),
        " or SHASAM_CACHE",
    )


def _check_space(directory: Path, needed: int) -> None:
    """Say at once that the images cannot fit, not after an hour of packing."""
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise DataError(
            f"the packed images need {readable(needed)} more and {directory} has {readable(free)} "
            "free; free space, choose a smaller size, or another disk with ",
            Argument("data.store"),
            " or SHASAM_CACHE",
        )


def _ahead(
    pool: ThreadPoolExecutor,
    source: Source,
    todo: list[tuple[int, pa.Table, np.ndarray]],
    size: int,
) -> Iterator[tuple[int, pa.Table, np.ndarray, list[Future[Reading]]]]:
    """Yield shards with their readings under way; the next one is started before one is written."""
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
