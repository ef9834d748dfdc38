"""Read vectors from untrusted files: .npy, .npz, .safetensors, Parquet, Arrow and CSV.

The shape is checked before anything is allocated; ``VectorStore`` offers the vectors through the
interface of the packed image store.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import zipfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from numpy.lib import format as npy

from shasam.data.store import INDEX
from shasam.errors import Argument, DataError, InputError, ShasamError
from shasam.extras import need
from shasam.files import file_sha256, open_regular
from shasam.memory import available_memory, readable
from shasam.registry import did_you_mean
from shasam.tables import open_table, read_arrow

# -------------------------------------------------------------------------------------------------
# Arrays from untrusted .npy and .npz files: the shape is checked before memory is allocated.
#
# A .npz is a zip archive and the only archive that the package reads. Its members are read in
# memory by name and never unpacked to the disk, so their names lead nowhere. Arrays of a .npy, and
# those of a .npz that are stored as they are, can be mapped instead of read.
# -------------------------------------------------------------------------------------------------

MAX_RATIO = 100  # unpacked bytes per packed one; numbers that were measured reach about 2
_SMALL = 64 << 20  # bytes that may be packed as tightly as one likes
_LENGTHS = 26  # where the local header of a zip member tells how long its name and extra field are


def map_npy(path: Path) -> np.ndarray:
    """Return the array of a .npy file, mapped.

    Columns that follow each other are read into memory.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        header = _header(file, size, str(path))
        offset = file.tell()
        if header.size > size - offset:
            raise InputError(f"{path} ends after {readable(size - offset)} of its numbers")
        if header.fortran:
            file.seek(0)
            return np.ascontiguousarray(_array(file, size, str(path)))
        return mapped(file, header.dtype, offset, header.shape)


def map_npz(path: Path, name: str | None, names: Sequence[str] = ()) -> np.ndarray:
    """Return the array ``name`` of a .npz file, mapped where it is not compressed.

    Without a name: the only array, or the first of ``names`` that is there.
    """
    with open_regular(path) as file, _archive(path, file) as held:
        found = choose(name, list(held.members), names, str(path))
        member = held.members[found]
        if member.compress_type != zipfile.ZIP_STORED:
            return held.read(member)
        with held.archive.open(member) as inside:
            header = _header(cast("BinaryIO", inside), member.file_size, str(path))
            start = inside.tell()
        file.seek(member.header_offset + _LENGTHS)
        lengths = [int.from_bytes(file.read(2), "little") for _ in range(2)]
        offset = member.header_offset + _LENGTHS + 4 + sum(lengths) + start
        there = min(member.file_size - start, os.fstat(file.fileno()).st_size - offset)
        if header.fortran or header.size > there:
            return np.ascontiguousarray(held.read(member))
        return mapped(file, header.dtype, offset, header.shape)


def npz_texts(path: Path, names: Sequence[str]) -> list[str] | None:
    """Return the first of these arrays that a .npz has, as texts.

    None if it has none of them.
    """
    with open_regular(path) as file, _archive(path, file) as held:
        for name in names:
            if name in held.members:
                array = held.read(held.members[name], text=True)
                return [str(value) for value in array.reshape(-1).tolist()]
    return None


def choose(name: str | None, held: Sequence[str], usual: Sequence[str], where: str) -> str:
    """Return the array or column of vectors.

    The one that is named, the only one, or a usual name.
    """
    if name is not None:
        if name not in held:
            raise InputError(f"{where} has no {name!r}{did_you_mean(name, held)}")
        return name
    if len(held) == 1:
        return held[0]
    for word in usual:
        if word in held:
            return word
    shown = ", ".join(map(repr, held[:8])) or "nothing"
    raise InputError(
        f"{where} holds {shown}; name the vectors with ", Argument("data.features_key")
    )


@dataclass(frozen=True)
class _Archive:
    """An open .npz: its arrays by name."""

    path: Path
    archive: zipfile.ZipFile
    members: dict[str, zipfile.ZipInfo]

    def read(self, member: zipfile.ZipInfo, text: bool = False) -> np.ndarray:
        ratio = member.file_size / max(1, member.compress_size)
        if member.file_size > _SMALL and ratio > MAX_RATIO:
            raise InputError(
                f"{self.path} unpacks {readable(member.compress_size)} to "
                f"{readable(member.file_size)}; measured numbers do not, so it is not read"
            )
        with self.archive.open(member) as inside:
            return _array(cast("BinaryIO", inside), member.file_size, str(self.path), text)


@contextmanager
def _archive(path: Path, file: BinaryIO) -> Iterator[_Archive]:
    try:
        with zipfile.ZipFile(file) as archive:
            held = {m.filename.removesuffix(".npy"): m for m in archive.infolist()}
            if len(held) != len(archive.infolist()):
                raise InputError(f"{path} has two arrays of the same name; write it again")
            yield _Archive(path, archive, held)
    except ShasamError:
        raise
    except Exception as error:  # whatever a damaged archive makes zipfile and zlib raise
        raise InputError(f"{path} is not a readable .npz file: {error}") from error


@dataclass(frozen=True)
class _Header:
    """What a .npy says before its numbers, checked against the bytes that are there."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def _header(file: BinaryIO, size: int, where: str, text: bool = False) -> _Header:
    """Return the header of an array of which ``size`` bytes are there, itself among them."""
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # whatever a damaged header makes NumPy's parser raise
        raise InputError(f"{where} is not a readable NumPy array: {error}") from error
    if any(isinstance(n, bool) for n in shape):
        raise InputError(f"{where} is not a readable NumPy array: its shape is {shape}")
    if dtype.hasobject:
        raise InputError(f"{where} holds Python objects, which could run code; save numbers")
    if not (np.issubdtype(dtype, np.number) or (text and dtype.kind == "U")):
        raise InputError(f"{where} must hold numbers; it holds {str(dtype)[:40]}")
    header = _Header(shape, fortran, dtype)
    if min(shape, default=0) < 0 or header.size > size:
        raise InputError(
            f"{where} claims the shape {shape}, {readable(header.size)}, and is too short"
        )
    return header


def _array(file: BinaryIO, size: int, where: str, text: bool = False) -> np.ndarray:
    """Read an array of which ``size`` bytes are there, its header among them."""
    header = _header(file, size, where, text)
    needed, free = header.size, available_memory()
    if free is not None and 2 * needed > free:  # a copy is made as float32
        raise InputError(
            f"{where} takes {readable(2 * needed)} to read and {readable(free)} are free; use a "
            "part of the rows"
        )
    data, done = np.empty(needed, np.uint8), 0
    while done < needed and (got := file.readinto(data[done:])):  # type: ignore[attr-defined]
        done += got
    if done != needed:
        raise InputError(f"{where} ends after {readable(done)} of {readable(needed)}")
    array = data.view(header.dtype)
    return array.reshape(header.shape[::-1]).T if header.fortran else array.reshape(header.shape)


def mapped(file: BinaryIO, dtype: np.dtype, offset: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array that is read from the file when it is used.

    Its bytes are known to be there.
    """
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)  # nothing can be mapped of it
    return np.asarray(np.memmap(file, dtype, "r", offset, shape))


# -------------------------------------------------------------------------------------------------
# Vectors from untrusted files: .npy, .npz, .safetensors, Parquet and Arrow.
#
# Nothing is unpickled. The shape is judged before memory is taken, and rows are read from the
# mapped file when they are used, wherever the format allows it: .npy, .npz without compression,
# .safetensors and Arrow files do, compressed .npz and Parquet are decoded once.
# -------------------------------------------------------------------------------------------------

PARQUET = (".parquet", ".pq")
TABLES = (*PARQUET, ".arrow", ".feather")  # formats that may hold labels too
SUFFIXES = (".npy", ".npz", ".safetensors", *TABLES)
USUAL = ("embedding", "embeddings", "features", "vectors", "x", "X", "arr_0")
_FEW = 1024  # rows of Parquet that are decoded at a time; 8,192 take twice as long, for the memory
_FOOTERS = 16  # files whose numbers of rows are read at the same time
_MAX_HEADER = 64 << 20  # bytes of the header of a safetensors file
_SAFETENSORS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
    "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip


@dataclass(frozen=True)
class VectorRows:
    """Rows (N, D) of numbers, in one or several parts; ``take`` gives some of them as float32."""

    parts: Sequence[np.ndarray] = field(repr=False)
    key: str | None = None  # the name of the array or column
    ids: list[str] | None = field(default=None, repr=False)  # of the rows, where the file has them
    bfloat16: bool = False  # numpy has no such type: the parts hold its bits

    @property
    def dim(self) -> int:
        return int(self.parts[0].shape[1])

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def dtype(self) -> str:
        return "bfloat16" if self.bfloat16 else str(self.parts[0].dtype.newbyteorder("="))

    def take(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return float32 (B, D); numbers beyond float32 become infinite. A slice may be a view."""
        if len(self.parts) == 1:
            return self._plain(self.parts[0][rows])
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(len(self)))
        starts = np.cumsum([0, *map(len, self.parts)])
        which = np.searchsorted(starts, rows, side="right") - 1
        out = np.empty((len(rows), self.dim), np.float32)
        for number in np.unique(which):
            here = which == number
            out[here] = self._plain(self.parts[number][rows[here] - starts[number]])
        return out

    def _plain(self, part: np.ndarray) -> np.ndarray:
        if self.bfloat16:
            return (part.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(over="ignore"):
            return part.astype(np.float32, copy=False)


def open_features(path: Path, key: str | None = None, ids: Sequence[str] = ()) -> VectorRows:
    """Return the vectors of a file.

    ``ids`` are names that its ids may have, the first found counts.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}; give a file of vectors")
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(
            f"{path.name} is not a file of vectors; they come as {', '.join(SUFFIXES)}"
        )
    if path.stat().st_size == 0:
        raise InputError(f"{path.name} is empty; give a file with vectors")
    found = _opened(path, suffix, key, ids)
    for part in found.parts:
        _check(part, path.name)
    if not len(found):
        raise InputError(f"{path.name} has no rows")
    if found.ids is not None and len(found.ids) != len(found):
        raise InputError(f"{path.name} has {len(found)} vectors and {len(found.ids)} ids")
    return found


def width_of(path: Path, key: str | None = None) -> int:
    """Return how many numbers a row has; Parquet, which is decoded whole, says it in its schema."""
    if path.suffix.lower() in PARQUET and path.is_file() and path.stat().st_size:
        found, schema = _vector_column(path, key)
        kind = schema.field(found).type
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
    return open_features(path, key).dim


def _opened(path: Path, suffix: str, key: str | None, ids: Sequence[str]) -> VectorRows:
    if suffix == ".npy":
        if key is not None:
            raise InputError(f"{path.name} holds one array without a name; leave out features_key")
        return VectorRows([map_npy(path)])
    if suffix == ".npz":
        return VectorRows([map_npz(path, key, USUAL)], key, npz_texts(path, ids))
    if suffix == ".safetensors":
        return _safetensors(path, key, ids)
    return _columns(path, suffix, key, ids)


def _check(array: np.ndarray, name: str) -> None:
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} must hold real numbers; it holds {str(array.dtype)[:40]}")
    if array.ndim != 2 or array.shape[1] == 0:
        advice: list[object] = ["reshape or pool it to one vector a row"]
        if array.ndim == 4:
            images = (Argument("data.csv"), " and ", Argument("data.root"))
            advice += [", or train on the images themselves with ", *images]
        raise InputError(
            f"{name} has the shape {tuple(array.shape)} and should have (rows, numbers); ",
            *advice,
        )


def _safetensors(path: Path, key: str | None, ids: Sequence[str]) -> VectorRows:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER):
            raise InputError(f"{path.name} is not a whole safetensors file")
        try:
            header = json.loads(file.read(length))
            if not isinstance(header, dict):
                raise InputError(f"{path.name} is not a safetensors file: its header is no object")
            names = [name for name in header if name != "__metadata__"]
            matrices = [name for name in names if len(header[name]["shape"]) != 1]
            found = choose(key, matrices or names, USUAL, path.name)
            array = _tensor(file, header[found], 8 + length, size, path.name)
            rows = next((name for name in ids if name in names and name != found), None)
            listed = None
            if rows is not None:
                values = _tensor(file, header[rows], 8 + length, size, path.name)
                listed = [str(value) for value in values.reshape(-1).tolist()]
        except ShasamError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InputError(f"{path.name} is not a readable safetensors file: {error}") from error
    return VectorRows([array], found, listed, header[found]["dtype"] == "BF16")


def _tensor(file, entry: dict, start: int, size: int, name: str) -> np.ndarray:
    kind, shape = str(entry["dtype"]), tuple(int(n) for n in entry["shape"])
    if kind not in _SAFETENSORS:
        raise InputError(f"{name} must hold real numbers; it holds {kind[:20]}")
    dtype = np.dtype(_SAFETENSORS[kind])
    first, last = (int(n) for n in entry["data_offsets"])
    if min(shape, default=0) < 0 or last - first != math.prod(shape) * dtype.itemsize:
        raise InputError(f"{name} is damaged: its header does not fit its numbers")
    if first < 0 or start + last > size:
        raise InputError(f"{name} ends before its numbers do; copy it again")
    return mapped(file, dtype, start + first, shape)


def is_vector(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds lists of numbers."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(test(kind) for test in lists):
        return False
    inner = kind.value_type
    return bool(pa.types.is_floating(inner) or pa.types.is_integer(inner))


def _vector_column(path: Path, key: str | None) -> tuple[str, pa.Schema]:
    """Return the name of the column of vectors that is meant, and the schema of the file."""
    with _readable(path), open_regular(path) as file:
        parquet = path.suffix.lower() in PARQUET
        schema = pq.ParquetFile(file).schema_arrow if parquet else pa.ipc.open_file(file).schema
    return _named_vectors(schema, key, path.name), schema


def _named_vectors(schema: pa.Schema, key: str | None, where: str) -> str:
    vectors = [f.name for f in schema if is_vector(f.type)]
    if key is not None and key in schema.names and key not in vectors:
        raise InputError(
            f"the column {key!r} of {where} holds {schema.field(key).type}, not vectors"
        )
    if not vectors:
        raise InputError(
            f"{where} has no column of vectors (lists of numbers); its columns are "
            f"{', '.join(schema.names[:8])}"
        )
    return choose(key, vectors, USUAL, where)


@contextmanager
def _readable(path: Path | str) -> Iterator[None]:
    """Raise errors of the readers of Parquet and Arrow as ours."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, ShasamError):
            raise
        name = path.name if isinstance(path, Path) else path
        raise InputError(f"{name} cannot be read: {error}") from error


def _columns(path: Path, suffix: str, key: str | None, ids: Sequence[str]) -> VectorRows:
    """Return the vector column of a Parquet or Arrow file."""
    with _readable(path):
        found, schema = _vector_column(path, key)
        parts = [_parquet(path, found)] if suffix in PARQUET else _arrow(path, found)
    rows = next((name for name in ids if name in schema.names), None)
    listed = None
    if rows is not None:
        column = open_table(path).read([rows], text=[rows]).column(rows)
        listed = ["" if value is None else str(value) for value in column.to_pylist()]
    return VectorRows(parts, found, listed)


def _arrow(path: Path, key: str) -> list[np.ndarray]:
    with pa.memory_map(str(path)) as file:
        place = pa.ipc.open_file(file).schema.get_field_index(key)
        file.seek(0)
        table = read_arrow(file, path.name, fields=[place])
    chunks = [chunk for chunk in table.column(key).chunks if len(chunk)]
    return _same_width([_matrix(chunk, None, path.name) for chunk in chunks], path.name)


def _parquet(path: Path, key: str) -> np.ndarray:
    """Return all rows, decoded into one array whose size is known before it is made."""
    with open_regular(path) as file:
        source = pq.ParquetFile(file)
        rows, done = source.metadata.num_rows, 0
        matrix: np.ndarray | None = None
        for batch in source.iter_batches(_FEW, columns=[key]):
            batch.validate(full=True)
            part = _matrix(batch.column(0), None if matrix is None else matrix.shape[1], path.name)
            if matrix is None:
                needed, free = rows * part.shape[1] * part.itemsize, available_memory()
                if free is not None and 2 * needed > free:
                    raise InputError(
                        f"{path.name} takes {readable(needed)} and {readable(free)} are free; save "
                        "the vectors as .npy, which is not read whole"
                    )
                matrix = np.empty((rows, part.shape[1]), part.dtype)
            if done + len(part) > rows:
                raise InputError(f"{path.name} is damaged: it has more rows than it says")
            matrix[done : done + len(part)] = part
            done += len(part)
    return np.empty((0, 1), np.float32) if matrix is None else matrix[:done]


def _matrix(chunk: pa.Array, width: int | None, name: str) -> np.ndarray:
    """Return lists of one length as (n, D); a missing list is a row of NaN."""
    if not is_vector(chunk.type):
        raise InputError(f"the vectors of {name} are {chunk.type}, and not lists of numbers")
    missing = chunk.is_null().to_numpy(zero_copy_only=False)
    values = chunk.flatten()
    if pa.types.is_fixed_size_list(chunk.type):
        found = chunk.type.list_size
    else:
        lengths = set(chunk.value_lengths().drop_null().unique().to_pylist())
        if len(lengths) > 1 or (width is not None and lengths - {width}):
            shown = sorted(lengths | ({width} if width is not None else set()))[:3]
            raise InputError(
                f"the vectors of {name} do not have one length: {', '.join(map(str, shown))}, ..."
            )
        found = next(iter(lengths), width or 1)
    flat = values.to_numpy(zero_copy_only=False)
    if not missing.any():
        return flat.reshape(len(chunk), found)
    out = np.full((len(chunk), found), np.nan, np.result_type(flat.dtype, np.float32))
    out[~missing] = flat.reshape(-1, found)
    return out


def _same_width(parts: Iterable[np.ndarray], name: str) -> list[np.ndarray]:
    found = list(parts)
    widths = sorted({part.shape[1] for part in found})
    if len(widths) > 1:
        shown = ", ".join(map(str, widths[:3]))
        raise InputError(f"the vectors of {name} do not have one length: {shown}, ...")
    return found or [np.empty((0, 1), np.float32)]


# -------------------------------------------------------------------------------------------------
# Vectors from a folder of Parquet files, as clusters write them.
# -------------------------------------------------------------------------------------------------


def open_shards(folder: Path, key: str | None = None) -> VectorRows:
    """Open all rows of a folder with its subfolders, in the order of the files' names, as float32.

    ``open_table`` reads the other columns of the folder in the same order. One file is decoded at
    a time, into one array whose size is known before it is made.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in PARQUET)
    if not paths:
        raise InputError(f"{folder} holds no Parquet files (.parquet)")
    counts = [open_table(path).rows or 0 for path in paths]
    ends = np.cumsum(counts)
    matrix: np.ndarray | None = None
    for path, count, end in zip(paths, counts, ends, strict=True):
        if not count:
            continue  # as a task without rows leaves it
        shard = open_features(path, key)
        if matrix is None:
            key, matrix = shard.key, _room(folder, int(ends[-1]), shard.dim)
        if (len(shard), shard.dim) != (count, matrix.shape[1]):
            raise InputError(
                f"{path} has {len(shard)} vectors of {shard.dim} numbers and should have {count} "
                f"of {matrix.shape[1]}, as the files before it"
            )
        with np.errstate(over="ignore"):
            matrix[end - count : end] = shard.parts[0]
    if matrix is None:
        raise InputError(f"the Parquet files of {folder} have no rows")
    return VectorRows([matrix], key)


def _room(folder: Path, rows: int, dim: int) -> np.ndarray:
    needed, free = 4 * rows * dim, available_memory()
    if free is not None and needed > 0.8 * free:
        raise InputError(
            f"the vectors of {folder} take {readable(needed)} as float32 and {readable(free)} are "
            "free; save them as a float32 .npy file, which is not read whole"
        )
    return np.empty((rows, dim), np.float32)


def shard_names(places: Sequence[str]) -> list[str]:
    """Return the Parquet files of folders, patterns and names, local or of any fsspec file system.

    The files of a folder or a pattern come in the order of their names.
    """
    names: list[str] = []
    for place in places:
        if "://" in place:
            found = _remote_names(place)
        elif Path(place).is_dir():
            held = Path(place).rglob("*")
            found = [str(p) for p in sorted(p for p in held if p.suffix.lower() in PARQUET)]
        elif glob.has_magic(place) and not Path(place).exists():
            found = [str(path) for path in sorted(map(Path, glob.glob(place)))]
        else:
            found = [place]
        if not found:
            raise InputError(f"{place} holds no Parquet files (.parquet)")
        names += found
    for name in names:
        if PurePosixPath(name).suffix.lower() not in PARQUET:
            raise InputError(f"{name} is no Parquet file (.parquet); shards are")
    return names


def _remote_names(place: str) -> list[str]:
    need("remote", place)
    import fsspec

    with _readable(place):
        system, path = fsspec.core.url_to_fs(place)
        if system.isdir(path):
            held = [p for p in system.find(path) if PurePosixPath(p).suffix.lower() in PARQUET]
        else:
            held = system.glob(path) if glob.has_magic(path) else [path]
        return [system.unstrip_protocol(p) for p in sorted(held, key=PurePosixPath)]


@contextmanager
def _shard(name: str, folder: str = "") -> Iterator[BinaryIO]:
    """Yield a shard, opened where it is read; a local name may be relative to a folder."""
    if "://" not in name:
        with open_regular(os.path.join(folder, name)) as file:
            yield file
        return
    import fsspec

    with fsspec.open(name, "rb") as file:
        yield file


@dataclass(frozen=True)
class ParquetShards:
    """Rows of many Parquet files, in the order of the files; only ranges of them are read.

    Holds the names and the numbers of rows, so that a worker elsewhere can read its own ranges.
    """

    names: Sequence[str] = field(repr=False)
    ends: Sequence[int] = field(repr=False)  # rows up to the end of each file
    key: str
    dim: int
    folder: str  # where the names were given; a worker may be elsewhere

    @classmethod
    def open(cls, places: Sequence[str], key: str | None = None) -> ParquetShards:
        """Count the rows of every file, and take the width from the first that has some."""
        names = shard_names(places)
        with ThreadPoolExecutor(_FOOTERS) as pool:  # of files that may be far away
            counts = list(pool.map(_count, names))
        held = [(name, count) for name, count in zip(names, counts, strict=True) if count]
        if not held:
            raise InputError(f"the Parquet files of {', '.join(places)[:200]} have no rows")
        names = [name for name, _ in held]
        ends = np.cumsum([count for _, count in held]).tolist()
        with _readable(names[0]), _shard(names[0]) as file:
            source = pq.ParquetFile(file)
            key = _named_vectors(source.schema_arrow, key, names[0])
            first = next(source.iter_batches(_FEW, columns=[key]), None)
            if first is None:
                raise InputError(f"{names[0]} is damaged: it has fewer rows than it says")
            first.validate(full=True)
            dim = _matrix(first.column(0), None, names[0]).shape[1]
        return cls(names, ends, key, dim, os.getcwd())

    @property
    def rows(self) -> int:
        return self.ends[-1]

    def place(self, row: int) -> tuple[str, int]:
        """Name the file of a row, and its number there."""
        number = bisect_right(self.ends, row)
        return self.names[number], row - (self.ends[number - 1] if number else 0)

    def read(self, first: int, last: int) -> np.ndarray:
        """Return the vectors of the rows first..last, float32; a missing one is NaN."""
        matrix, done = np.empty((last - first, self.dim), np.float32), 0
        for name, column in self._columns(self.key, first, last):
            part = _matrix(column, self.dim, name)
            if part.shape[1] != self.dim:
                raise InputError(
                    f"{name} has vectors of {part.shape[1]} numbers and {self.names[0]} of "
                    f"{self.dim}"
                )
            with np.errstate(over="ignore"):
                matrix[done : done + len(part)] = part
            done += len(part)
        return matrix

    def texts(self, column: str, first: int, last: int) -> list[str]:
        """Return another column of those rows, as text; a missing value is an empty one."""
        found: list[str] = []
        for _, part in self._columns(column, first, last):
            found += ["" if value is None else str(value) for value in part.to_pylist()]
        return found

    def _columns(self, column: str, first: int, last: int) -> Iterator[tuple[str, pa.Array]]:
        """Yield pieces of a column with the names of their files; few rows at a time."""
        while first < last:
            name, start = self.place(first)
            stop = start + min(last, self.ends[bisect_right(self.ends, first)]) - first
            with _readable(name), _shard(name, self.folder) as file:
                source = pq.ParquetFile(file)
                if column not in source.schema_arrow.names:
                    known = did_you_mean(column, source.schema_arrow.names)
                    raise InputError(f"{name} has no column {column!r}{known}")
                done = start
                for batch in _rows_of(source, column, start, stop):
                    batch.validate(full=True)  # offsets of a damaged file would lead outside of it
                    done += len(batch)
                    yield name, batch.column(0)
            if done != stop:
                raise InputError(f"{name} is damaged, or was changed: it had more rows before")
            first += stop - start


def _rows_of(
    source: pq.ParquetFile, column: str, start: int, stop: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows start..stop of a file; groups of rows that hold none of them are not read."""
    groups: list[int] = []
    before = begin = 0
    for number in range(source.num_row_groups):
        after = before + source.metadata.row_group(number).num_rows
        if after > start and before < stop:
            begin = begin if groups else before
            groups.append(number)
        before = after
    for batch in source.iter_batches(_FEW, row_groups=groups, columns=[column]):
        low, high = max(start - begin, 0), min(stop - begin, len(batch))
        begin += len(batch)
        if high > low:
            yield batch.slice(low, high - low)
        if begin >= stop:
            return


def _count(name: str) -> int:
    with _readable(name), _shard(name) as file:
        return pq.ParquetFile(file).metadata.num_rows


# -------------------------------------------------------------------------------------------------
# Vectors as a store: the interface of the packed store, read from the file of the vectors.
#
# Every row is looked at once, when the data is opened: its hash goes into the manifest, and a row
# that is no embedding (NaN, infinity, nothing but zeros) has a reason why it is left out.
# -------------------------------------------------------------------------------------------------

NOT_FINITE = "holds NaN or infinity"
ALL_ZERO = "every number of it is 0"
_CHUNK = 4096  # rows that are looked at together


@dataclass(frozen=True)
class VectorStore:
    """The rows of a source's table: ``images(rows)`` are their vectors, as float32."""

    path: Path
    features: VectorRows = field(repr=False)
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
        """Return vectors (B, D) float32 of these rows, in this order."""
        rows = np.asarray(rows, dtype=np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise DataError(f"rows must be in 0..{len(self) - 1}; got {rows.min()}..{rows.max()}")
        return self.features.take(self.places[rows])

    def verify(self) -> list[str]:
        """Return the file, if its bytes are no longer those it was opened with."""
        same = not self.sha256 or file_sha256(self.path) == self.sha256
        return [] if same else [self.path.name]
