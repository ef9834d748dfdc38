"""Reading and writing files in untrusted folders: atomic writes, no links, regular files only.

A run folder or a data set can come from somebody else. ``log.jsonl`` may be a link to a file of
yours, ``checkpoints/`` a link to another folder, an image a pipe that never ends. Everything the
package writes or reads there goes through the functions below. They check the folder as it is when
they are called; they are no defence against somebody who changes it at the same moment.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from shasam.errors import FileError

MAX_TEXT = 64 << 20  # bytes of a text file (JSON, YAML, log) that is read whole
_TEMPORARY = ".tmp"
_DESCRIPTOR = re.compile(r"/dev/(stdin|stdout|stderr)|(?:/dev|/proc/self)/fd/(\d{1,6})")
_STREAMS = {"stdin": 0, "stdout": 1, "stderr": 2}
# absent on Windows, where there are no FIFOs in folders and links need privileges
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_HASHES: dict[str, tuple[tuple[int, ...] | None, str]] = {}  # of large files, in this process


def write_atomic(
    path: str | Path, content: bytes | memoryview | str, *, within: Path | None = None
) -> None:
    """Write all of the content or nothing; text is written as UTF-8 with ``\\n``."""
    with atomic_file(path, within=within) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_file(path: str | Path, *, within: Path | None = None) -> Iterator[BinaryIO]:
    """Yield a file to write to that takes its name only when it is whole.

    The temporary file has a random name and lies in the same folder, which is made if need be. It
    is flushed to the disk, renamed, and the folder is flushed too. A link under the final name is
    replaced, not followed. With ``within`` a folder outside of that root is refused.
    """
    path = Path(path)
    if _kind_of(path) == "device":
        raise FileError(path, "is a device, which is not replaced by a file; name another place")
    make_folder(path.parent, within=within)
    temporary = path.with_name(f".{path.name[:80]}.{secrets.token_hex(8)}{_TEMPORARY}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _BINARY
    try:
        handle = os.open(temporary, flags, 0o666)
        try:
            with open(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _flush_folder(path.parent)
    except OSError as error:
        raise _cannot(path, "written", error) from error


@contextmanager
def named_file(path: str | Path) -> Iterator[BinaryIO]:
    """Yield a file to write to at the place that a user has named, whole or not at all.

    ``-`` and ``/dev/stdout`` are standard output, and what is a device or a pipe already is written
    to when the content is whole. A link is refused: it may be somebody else's.
    """
    check_writable(path)
    path = Path(path)
    if _descriptor(path) is None and _kind_of(path) not in ("device", "pipe"):
        with atomic_file(path) as file:
            yield file
        return
    with tempfile.TemporaryFile() as waiting:
        yield cast("BinaryIO", waiting)
        waiting.seek(0)
        number = _descriptor(path)
        sys.stdout.flush()  # what was printed before comes before it
        try:
            handle = os.open(path, os.O_WRONLY | _BINARY) if number is None else os.dup(number)
            with open(handle, "wb") as file:
                shutil.copyfileobj(waiting, file)
        except OSError as error:
            raise _cannot(path, "written", error) from error


def write_named(path: str | Path, content: bytes | str) -> None:
    """Write to the place that a user has named, as ``named_file`` does."""
    with named_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def append_named(path: str | Path, content: bytes) -> None:
    """Add to the end of a file that a user has named; devices and pipes are written to."""
    check_writable(path)
    if _descriptor(Path(path)) is None and _kind_of(Path(path)) == "":
        append(path, content)
    else:
        write_named(path, content)


def is_standard_output(path: str | Path) -> bool:
    """Return True for ``-`` and the names that a system has for it."""
    return _descriptor(Path(path)) == 1


def _descriptor(path: Path) -> int | None:
    """Find the open file that a name like ``-``, ``/dev/stdout`` or ``/dev/fd/63`` stands for."""
    if str(path) == "-":
        return 1
    found = _DESCRIPTOR.fullmatch(str(path))
    if found is None:
        return None
    return _STREAMS[found[1]] if found[1] else int(found[2])


def _kind_of(path: Path) -> str:
    """Say what is at a place: "device", "pipe", "link" (to a file, a folder or nothing), or ""."""
    if _DESCRIPTOR.fullmatch(str(path)):
        return "device"
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            return "device"
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            return "pipe"
    except (OSError, ValueError):
        pass
    return "link" if os.path.islink(path) else ""


def check_writable(path: str | Path | None, *, folder: bool = False) -> None:
    """Say before the work, and not after it, that a file (or folder) cannot be written.

    Nothing is left behind: a temporary file is made in the nearest folder that exists.
    """
    if path is None:
        return
    path = Path(path)
    try:
        kind = "" if folder else _kind_of(path)
        if kind in ("device", "pipe") or (_descriptor(path) is not None and not folder):
            return
        if kind == "link":
            raise FileError(
                path,
                f"is a link to {os.path.realpath(path)}, which is not written through it; name "
                "that file itself, or remove the link",
            )
        if path.is_dir() and not folder:
            raise FileError(path, "is a folder; name a file")
        place = path if folder else path.parent
        while not place.exists() and place != place.parent:
            place = place.parent
        handle, name = tempfile.mkstemp(suffix=_TEMPORARY, prefix=".", dir=place)
        os.close(handle)
        os.unlink(name)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _cannot(path, "written", error) from error


def append(path: str | Path, content: bytes) -> None:
    """Add to the end of a file; a link in its place is refused."""
    handle = open_in_place(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        with open(handle, "ab") as file:
            file.write(content)
    except OSError as error:
        raise _cannot(path, "written", error) from error


def open_in_place(path: str | Path, flags: int) -> int:
    """Open a file that is written where it is: a log, a lock, captured output."""
    try:
        handle = os.open(path, flags | _NOFOLLOW | _NONBLOCK | _BINARY, 0o666)
    except OSError as error:
        if os.path.islink(path):
            raise FileError(path, "is a link; it is not followed for writing, remove it") from error
        raise _cannot(path, "written", error) from error
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise FileError(path, "is not a regular file; remove it")
        if info.st_nlink > 1:
            raise FileError(
                path, "is the same file as another one (a hard link); put a copy in its place"
            )
    except BaseException:
        os.close(handle)
        raise
    return handle


def open_regular(path: str | Path, *, within: Path | None = None) -> BinaryIO:
    """Open a regular file, no pipe or device; refuse paths that resolve outside ``within``."""
    if within is not None:
        _stay_inside(path, within)
    try:
        handle = os.open(path, os.O_RDONLY | _NONBLOCK | _BINARY)  # a FIFO would block otherwise
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise FileError(path, "not a regular file")
        return open(handle, "rb")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _cannot(path, "read", error) from error


def read_bytes(path: str | Path, *, limit: int = MAX_TEXT, within: Path | None = None) -> bytes:
    """Return the bytes of a regular file of at most ``limit`` bytes; the size is checked first."""
    with open_regular(path, within=within) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise FileError(path, f"{_words(size)}, the limit is {_words(limit)}")
        try:
            content = file.read(size)  # a file that grows meanwhile is read as it was
            if not size and file.read(1) and not os.fstat(file.fileno()).st_size:
                raise FileError(path, "has no size, as files of the system; copy it to a file")
        except OSError as error:
            raise _cannot(path, "read", error) from error
        return content


def _words(size: int) -> str:
    """Return a number of bytes in the unit in which it is no fraction of one."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size:,} bytes"


def file_sha256(path: str | Path) -> str:
    """Return SHA-256 of the content of a regular file, read in pieces."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        try:
            while piece := file.read(1 << 20):
                digest.update(piece)
        except OSError as error:
            raise _cannot(path, "read", error) from error
    return digest.hexdigest()


def remembered_sha256(path: str | Path) -> str:
    """Return ``file_sha256``, computed again only when size, times or inode of the file have
    changed.
    """
    try:
        info = os.stat(path)
    except OSError as error:
        raise _cannot(path, "read", error) from error
    name = os.path.abspath(path)
    stamp = (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)
    if _HASHES.get(name, (None, ""))[0] != stamp:
        _HASHES[name] = (stamp, file_sha256(path))
    return _HASHES[name][1]


def make_folder(path: str | Path, *, within: Path | None = None) -> None:
    """Make a folder and its parents; refuse one that a link puts outside of ``within``."""
    if within is not None:
        _stay_inside(path, within)
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise _cannot(path, "made", error) from error


def remove(path: str | Path) -> None:
    """Delete a file, or a link itself, where there is one."""
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        raise _cannot(path, "removed", error) from error


def remove_leftovers(folder: Path, *, older_than: float = 0.0, within: Path | None = None) -> None:
    """Delete the temporary files that killed processes left, if older than so many seconds."""
    if within is not None:
        _stay_inside(folder, within)
    for left in folder.glob(f".*{_TEMPORARY}") if folder.is_dir() else ():
        try:
            if time.time() - left.lstat().st_mtime >= older_than:
                left.unlink(missing_ok=True)
        except OSError:
            continue  # another process has just renamed it, or it is not ours to delete


def _stay_inside(path: str | Path, root: Path) -> None:
    try:
        inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
    except (OSError, ValueError) as error:
        raise _cannot(path, "opened", error) from error
    if not inside:
        raise FileError(path, f"leads out of {root} by a link; remove the link")


def _flush_folder(folder: Path) -> None:
    """Flush a folder: without this a rename may be lost with the power; Windows cannot open one."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _cannot(path: str | Path, done: str, error: Exception) -> FileError:
    reason = getattr(error, "strerror", None) or str(error)
    advice = "" if done == "read" else "; free space, or choose another place"
    return FileError(path, f"cannot be {done}: {reason}{advice}")
