"""Hashes of large files, computed again only when a file has changed.

``.verified.json`` beside the files keeps size, times of change and inode of each file whose hash
was found right. It is a cache: without it every file is hashed once more. Damage that changes none
of them, such as that of a failing disk, is found by ``shasam data check``, which reads everything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from shasam.documents import read_json
from shasam.errors import FileError, ShasamError
from shasam.files import file_sha256, write_atomic

_NAME = ".verified.json"


def unverified(directory: Path, wanted: Mapping[str, str], *, remembered: bool = True) -> list[str]:
    """The names of files that are missing or do not have the SHA-256 wanted of them."""
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
