"""Vectors from untrusted files: .npy, .npz, .safetensors, Parquet and Arrow.

Nothing is unpickled. The shape is judged before memory is taken, and rows are read from the mapped
file when they are used, wherever the format allows it: .npy, .npz without compression,
.safetensors and Arrow files do, compressed .npz and Parquet are decoded once.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from shasam.arrays import choose, map_npy, map_npz, mapped, npz_texts
from shasam.errors import InputError, ShasamError
from shasam.files import open_regular
from shasam.memory import available_memory, readable
from shasam.tables import open_table

PARQUET = (".parquet", ".pq")
TABLES = (*PARQUET, ".arrow", ".feather")  # formats that may hold labels too
SUFFIXES = (".npy", ".npz", ".safetensors", *TABLES)
USUAL = ("embedding", "embeddings", "features", "vectors", "x", "X", "arr_0")
_FEW = 1024  # rows of Parquet that are decoded at a time; 8,192 take twice as long, for the memory
_MAX_HEADER = 64 << 20  # bytes of the header of a safetensors file
_SAFETENSORS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
    "I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip


@dataclass(frozen=True)
class Features:
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
        """float32 (B, D); numbers beyond float32 become infinite. A slice may be a view."""
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


def open_features(path: Path, key: str | None = None, ids: Sequence[str] = ()) -> Features:
    """The vectors of a file; ``ids`` are names that its ids may have, the first found counts."""
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
    """How many numbers a row has; Parquet, which is decoded whole, says it in its schema."""
    if path.suffix.lower() in PARQUET and path.is_file() and path.stat().st_size:
        found, schema = _vector_column(path, key)
        kind = schema.field(found).type
        if pa.types.is_fixed_size_list(kind):
            return int(kind.list_size)
    return open_features(path, key).dim


def _opened(path: Path, suffix: str, key: str | None, ids: Sequence[str]) -> Features:
    if suffix == ".npy":
        if key is not None:
            raise InputError(f"{path.name} holds one array without a name; leave out features_key")
        return Features([map_npy(path)])
    if suffix == ".npz":
        return Features([map_npz(path, key, USUAL)], key, npz_texts(path, ids))
    if suffix == ".safetensors":
        return _safetensors(path, key, ids)
    return _columns(path, suffix, key, ids)


def _check(array: np.ndarray, name: str) -> None:
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} must hold real numbers; it holds {str(array.dtype)[:40]}")
    if array.ndim != 2 or array.shape[1] == 0:
        advice = "reshape or pool it to one vector a row"
        if array.ndim == 4:
            advice += ", or train on the images themselves with --csv and --root"
        raise InputError(
            f"{name} has the shape {tuple(array.shape)} and should have (rows, numbers); {advice}"
        )


def _safetensors(path: Path, key: str | None, ids: Sequence[str]) -> Features:
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER):
            raise InputError(f"{path.name} is not a whole safetensors file")
        try:
            header = json.loads(file.read(length))
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
    return Features([array], found, listed, header[found]["dtype"] == "BF16")


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
    """Whether a column of this type holds lists of numbers."""
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(test(kind) for test in lists):
        return False
    inner = kind.value_type
    return bool(pa.types.is_floating(inner) or pa.types.is_integer(inner))


def _vector_column(path: Path, key: str | None) -> tuple[str, pa.Schema]:
    """The name of the column of vectors that is meant, and the schema of the file."""
    with _readable(path), open_regular(path) as file:
        parquet = path.suffix.lower() in PARQUET
        schema = pq.ParquetFile(file).schema_arrow if parquet else pa.ipc.open_file(file).schema
    vectors = [f.name for f in schema if is_vector(f.type)]
    if key is not None and key in schema.names and key not in vectors:
        raise InputError(
            f"the column {key!r} of {path.name} holds {schema.field(key).type}, not vectors"
        )
    if not vectors:
        raise InputError(
            f"{path.name} has no column of vectors (lists of numbers); its columns are "
            f"{', '.join(schema.names[:8])}"
        )
    return choose(key, vectors, USUAL, path.name), schema


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Errors of the readers of Parquet and Arrow as ours."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, ShasamError):
            raise
        raise InputError(f"{path.name} cannot be read: {error}") from error


def _columns(path: Path, suffix: str, key: str | None, ids: Sequence[str]) -> Features:
    """The vector column of a Parquet or Arrow file."""
    with _readable(path):
        found, schema = _vector_column(path, key)
        parts = [_parquet(path, found)] if suffix in PARQUET else _arrow(path, found)
    rows = next((name for name in ids if name in schema.names), None)
    listed = None
    if rows is not None:
        column = open_table(path).read([rows], text=[rows]).column(rows)
        listed = ["" if value is None else str(value) for value in column.to_pylist()]
    return Features(parts, found, listed)


def _arrow(path: Path, key: str) -> list[np.ndarray]:
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        options = pa.ipc.IpcReadOptions(included_fields=[reader.schema.get_field_index(key)])
        table = pa.ipc.open_file(file, options=options).read_all()
    table.validate(full=True)  # offsets of a damaged file would lead outside of it
    chunks = [chunk for chunk in table.column(key).chunks if len(chunk)]
    return _same_width([_matrix(chunk, None, path.name) for chunk in chunks], path.name)


def _parquet(path: Path, key: str) -> np.ndarray:
    """All rows, decoded into one array whose size is known before it is made."""
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
    """Lists of one length as (n, D); a missing list is a row of NaN."""
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
