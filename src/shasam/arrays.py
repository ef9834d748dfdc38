"""Arrays from untrusted .npy and .npz files: the shape is checked before memory is allocated.

A .npz is a zip archive and the only archive that the package reads. Its members are read in memory
by name and never unpacked to the disk, so their names lead nowhere. Arrays of a .npy, and those of
a .npz that are stored as they are, can be mapped instead of read.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.lib import format as npy

from shasam.errors import InputError, ShasamError
from shasam.files import open_regular
from shasam.memory import available_memory, readable
from shasam.registry import did_you_mean

MAX_RATIO = 100  # unpacked bytes per packed one; numbers that were measured reach about 2
_SMALL = 64 << 20  # bytes that may be packed as tightly as one likes
_LENGTHS = 26  # where the local header of a zip member tells how long its name and extra field are


def map_npy(path: Path) -> np.ndarray:
    """The array of a .npy file, mapped; columns that follow each other are read into memory."""
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
    """The array ``name`` of a .npz file, mapped where it is not compressed.

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
    """The first of these arrays that a .npz has, as texts; None where it has none of them."""
    with open_regular(path) as file, _archive(path, file) as held:
        for name in names:
            if name in held.members:
                array = held.read(held.members[name], text=True)
                return [str(value) for value in array.reshape(-1).tolist()]
    return None


def choose(name: str | None, held: Sequence[str], usual: Sequence[str], where: str) -> str:
    """The array or column of vectors: the one that is named, the only one, or a usual name."""
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
    raise InputError(f"{where} holds {shown}; name the vectors with --features-key")


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
    """The header of an array of which ``size`` bytes are there, itself among them."""
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # whatever a damaged header makes NumPy's parser raise
        raise InputError(f"{where} is not a readable NumPy array: {error}") from error
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
    """An array that is read from the file when it is used; its bytes are known to be there."""
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)  # nothing can be mapped of it
    return np.asarray(np.memmap(file, dtype, "r", offset, shape))
