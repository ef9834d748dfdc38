"""Read a user's folder of images: safe paths, change stamps, and the columns of its table."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from shasam.data.decode import MAX_BYTES, BadImage, decode
from shasam.data.source import Listing, Reading, Source
from shasam.data.splits import SPLITS
from shasam.errors import Argument, DataError, FileError
from shasam.files import read_bytes
from shasam.registry import did_you_mean
from shasam.spec.fields import DataSpec
from shasam.tables import TableFile

# -------------------------------------------------------------------------------------------------
# The columns of a user's table that say which row is which, who it shows and where it belongs.
# -------------------------------------------------------------------------------------------------

_SPLIT_WORDS = {
    "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val",
    "dev": "val", "test": "test", "testing": "test",
}  # fmt: skip


def text(value: object) -> str:
    """Return a cell as an id or a path."""
    return "" if value is None else str(value).strip()


def split_and_identity(spec: DataSpec, known: Sequence[str]) -> dict[str, str | None]:
    """Return the columns of the split and of the person, where there are some."""
    return {
        "split": spec.split_column or ("split" if "split" in known else None),
        "identity": spec.identity_column,
    }


PATH = "path"  # the column of the paths where none is named
# what people call that column, in the letters of any case, without _, - and spaces
_PATH_WORDS = frozenset(
    f"{thing}{kind}"
    for thing in ("", "file", "image", "img", "photo", "picture")
    for kind in ("", "path", "name", "file", "filename")
) - {"", "name"}


def path_column(asked: str, known: Sequence[str]) -> str:
    """Find the column of paths: the one asked for or, without one called path, what looks like it.

    >>> path_column("path", ["age", "File_Name"])
    'File_Name'
    """
    if asked != PATH or PATH in known:
        return asked
    alike = [name for name in known if re.sub(r"[\s_-]", "", name).lower() in _PATH_WORDS]
    return alike[0] if len(alike) == 1 else asked


def check_named(named: dict[str, str | None], known: Sequence[str], file: str) -> None:
    """Check that every column that is named is there."""
    for role, name in named.items():
        if name is None or name in known:
            continue
        if role == PATH:
            raise DataError(
                f"{file} has no column {name!r} with the paths of the images; name it with ",
                Argument("data.path_column"),
                f". There are: {', '.join(known)}",
            )
        raise DataError(f"{file} has no column {name!r}{did_you_mean(name, known)}")


def read_own(
    source: TableFile,
    spec: DataSpec,
    named: dict[str, str | None],
    first: dict[str, object],
    leave_out: Sequence[str] = (),
) -> pa.Table:
    """Read ``first`` (id, path), then split and identity, then every other column of the table."""
    known = [name for name in source.column_names if name not in leave_out]
    named_text = [name for name in named.values() if name and name in known]
    table = source.read(known, text=named_text).replace_schema_metadata()
    columns = dict(first)
    for role in ("split", "identity"):
        name = named.get(role)
        if name:
            values = [None if v is None else str(v) for v in table.column(name).to_pylist()]
            made = split_words(values, name, source.name, spec) if role == "split" else values
            columns[role] = made
    for name in known:
        if name not in columns and name != named.get("path"):
            columns[name] = table.column(name)
    return pa.table(columns)


def split_words(values: Sequence[str | None], column: str, file: str, spec: DataSpec) -> list[str]:
    """Read train, val, test or nothing for every row; another word, or a split without rows, is an
    error before anything is read."""
    given = [(v or "").strip() for v in values]
    words = [_SPLIT_WORDS.get(word.lower(), word) for word in given]
    if spec.split not in ("auto", "official"):
        return words  # the splits are drawn, and the column is an attribute like others
    odd = sorted(set(words) - {*SPLITS, ""})
    if odd:
        shown = ", ".join(repr(word) for word in odd[:5])
        raise DataError(
            f"the column {column!r} of {file} holds {shown}; write train, val or "
            "test, leave the cell empty to leave a row out, or name another column with ",
            Argument("data.split_column"),
        )
    missing = [split for split in SPLITS if split not in words]
    if missing:
        raise DataError(
            f"the column {column!r} of {file} has no row of "
            f"{' and '.join(missing)}; give each split some rows, or rename the column to let "
            "the splits be drawn"
        )
    return words


# -------------------------------------------------------------------------------------------------
# Sources whose images are files under one folder: safe paths, change stamps, guarded reading.
# -------------------------------------------------------------------------------------------------

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp")


class Folder:
    """Opens files by relative path and never one outside of it."""

    def __init__(self, root: Path) -> None:
        self.given = Path(os.path.abspath(root))
        self.root = Path(os.path.realpath(root))
        self._safe: dict[str, bool] = {"": True}

    def locate(self, path: str) -> str:
        """Return the absolute path, or BadImage if it would leave the folder."""
        parts = path.replace("\\", "/").split("/")
        if "\0" in path or os.path.isabs(path) or ".." in parts or (path[1:2] == ":"):
            raise BadImage("the path leaves the folder of the images")
        parent = "/".join(parts[:-1])
        if parent not in self._safe:
            self._safe[parent] = self._inside(self.root.joinpath(*parts[:-1]))
        full = os.path.join(self.root, *parts)
        if not self._safe[parent] or (os.path.islink(full) and not self._inside(Path(full))):
            raise BadImage("the path is a link that leaves the folder of the images")
        return full

    def relative(self, path: str) -> str:
        """Return the path below the root, with /.

        An absolute path inside the root is made relative.
        """
        path = path.replace("\\", "/")
        if os.path.isabs(path) and "\0" not in path:
            for root in (self.root, self.given):
                if Path(os.path.normpath(path)).is_relative_to(root):
                    return Path(os.path.normpath(path)).relative_to(root).as_posix()
        return path

    def _inside(self, path: Path) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(self.root)

    def read(self, path: str) -> bytes:
        try:
            return read_bytes(self.locate(path), limit=MAX_BYTES)
        except FileError as error:
            raise BadImage(error.reason) from error

    def stamp(self, path: str) -> int:
        """Return size and time of change in 63 bits; 0 for what is not there."""
        try:
            info = os.stat(self.locate(path))
        except (OSError, BadImage):
            return 0
        return (info.st_mtime_ns * 1_000_003 + info.st_size) & (2**63 - 1)

    def existing(self, paths: list[str]) -> list[bool]:
        """Return which paths exist, by one listing of each folder.

        Refused ones are reported later.
        """
        names: dict[str, set[str] | None] = {}
        found = []
        for path in paths:
            parent, _, name = path.replace("\\", "/").rpartition("/")
            if parent not in names:
                try:
                    inside = self.locate(f"{parent}/x" if parent else "x")
                    names[parent] = set(os.listdir(os.path.dirname(inside)))
                except OSError:
                    names[parent] = set()
                except BadImage:
                    names[parent] = None
            among = names[parent]
            found.append(among is None or name in among or name == "..")
        return found

    def walk(self) -> list[str]:
        """Return all files below, relative, with /; links to folders are not followed."""
        found = []
        for folder, folders, files in os.walk(self.root):
            folders.sort()
            base = Path(folder).relative_to(self.root).as_posix()
            found += [name if base == "." else f"{base}/{name}" for name in files]
        return sorted(found)


def read_images(table: pa.Table, size: int, read: Callable[[str], bytes]) -> Reading:
    """Decode the images at the paths of a table; one that cannot be read has a reason instead."""
    images = np.zeros((table.num_rows, size, size, 3), dtype=np.uint8)
    hashes, reasons = [], []
    for row, path in enumerate(table.column("path").to_pylist()):
        digest, reason = "", ""
        try:
            data = read(path)
            digest = hashlib.sha256(data).hexdigest()
            images[row] = decode(data, size)
        except BadImage as error:
            reason = str(error)
        hashes.append(digest)
        reasons.append(reason)
    return Reading(images, hashes, reasons)


class FileSource(Source):
    """A source of image files below ``spec.root`` (or ``images_below`` it)."""

    images_below = ""

    @cached_property
    def folder(self) -> Folder:
        root = self.spec.root
        if root is None:
            raise DataError(
                f"{self.spec.name} needs the folder of its images: give root (",
                Argument("data.root"),
                ")",
            )
        root = root / self.images_below
        if not root.is_dir():
            raise DataError(
                f"{root} is not a folder; give the folder of {self.spec.name} as ",
                Argument("data.root"),
            )
        return Folder(root)

    def pixels_key(self) -> str:
        return self.folder.root.as_posix()

    def stamps(self, table: pa.Table) -> np.ndarray:
        paths = table.column("path").to_pylist()
        return np.array([self.folder.stamp(path) for path in paths], dtype=np.int64)

    def read(self, table: pa.Table, size: int) -> Reading:
        return read_images(table, size, self.folder.read)

    def without_missing(self, listing: Listing) -> Listing:
        """Refuse files that are not there, with their count, or leave them out and record them."""
        paths = listing.table.column("path").to_pylist()
        there = np.array(self.folder.existing(paths), dtype=bool)
        gone = np.flatnonzero(~there)
        if not len(gone):
            return listing
        names = ", ".join(paths[r] for r in gone[:3])
        if len(gone) == len(paths):
            raise DataError(
                f"none of the {len(paths)} images is in {self.folder.root} ({names}); give the "
                "folder that the paths are relative to as ",
                Argument("data.root"),
            )
        if not self.spec.allow_missing:
            raise DataError(
                f"{len(gone)} of {len(paths)} images are missing in {self.folder.root} "
                f"({names}, ...). Complete the folder, or go on without them with ",
                Argument("data.allow_missing"),
            )
        # up to all of CelebA can be missing: the count and a hash of the names, not a list
        digest = hashlib.sha256("\n".join(sorted(paths[r] for r in gone)).encode()).hexdigest()
        note = (
            f"{len(gone)} of {len(paths)} images are missing ({names}, ...; "
            f"SHA-256 of their names {digest[:16]}), accepted"
        )
        table = listing.table.take(pa.array(np.flatnonzero(there)))
        return Listing(table, listing.excluded, [*listing.notes, note])
