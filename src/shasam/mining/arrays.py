"""Arrays from .npy and .npz files of strangers: the shape is judged before memory is taken.

A .npz is a zip archive and the only archive that the package reads. Its members are read in memory
by name and never unpacked to the disk, so their names lead nowhere.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.lib import format as npy

from shasam.errors import InputError, ShasamError
from shasam.files import open_regular
from shasam.memory import available_memory, readable

MAX_RATIO = 100  # unpacked bytes per packed one; numbers that were measured reach about 2
_SMALL = 64 << 20  # bytes that may be packed as tightly as one likes


def read_npy(path: Path) -> np.ndarray:
    """The array of a .npy file; pickled objects are refused."""
    with open_regular(path) as file:
        file.seek(0, 2)
        size = file.tell()
        file.seek(0)
        return _array(file, size, str(path))


def read_npz(path: Path, name: str) -> np.ndarray:
    """The array ``name`` of a .npz file, or its only one."""
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                held = {m.filename.removesuffix(".npy"): m for m in archive.infolist()}
                if len(held) != len(archive.infolist()):
                    raise InputError(f"{path} has two arrays of the same name; write it again")
                if name not in held and len(held) != 1:
                    raise InputError(
                        f"{path} holds {', '.join(held)[:200]}; name the array of embeddings "
                        f"{name!r}"
                    )
                member = held[name] if name in held else next(iter(held.values()))
                ratio = member.file_size / max(1, member.compress_size)
                if member.file_size > _SMALL and ratio > MAX_RATIO:
                    raise InputError(
                        f"{path} unpacks {readable(member.compress_size)} to "
                        f"{readable(member.file_size)}; measured numbers do not, so it is not read"
                    )
                with archive.open(member) as inside:
                    return _array(cast("BinaryIO", inside), member.file_size, str(path))
        except ShasamError:
            raise
        except Exception as error:  # whatever a damaged archive makes zipfile and zlib raise
            raise InputError(f"{path} is not a readable .npz file: {error}") from error


def _array(file: BinaryIO, size: int, where: str) -> np.ndarray:
    """Read an array of which ``size`` bytes are there, its header among them."""
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # whatever a damaged header makes NumPy's parser raise
        raise InputError(f"{where} is not a readable NumPy array: {error}") from error
    if dtype.hasobject:
        raise InputError(f"{where} holds Python objects, which could run code; save numbers")
    if not np.issubdtype(dtype, np.number):
        raise InputError(f"{where} must hold numbers; it holds {str(dtype)[:40]}")
    needed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or needed > size:
        raise InputError(f"{where} claims the shape {shape}, {readable(needed)}, and is too short")
    free = available_memory()
    if free is not None and 2 * needed > free:  # a copy is made as float32
        raise InputError(
            f"{where} takes {readable(2 * needed)} to read and {readable(free)} are free; mine a "
            "part of the rows"
        )
    data, done = np.empty(needed, np.uint8), 0
    while done < needed and (got := file.readinto(data[done:])):  # type: ignore[attr-defined]
        done += got
    if done != needed:
        raise InputError(f"{where} ends after {readable(done)} of {readable(needed)}")
    array = data.view(dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
