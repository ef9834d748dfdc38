"""``celeba``: CelebA's own layout, 40 attributes and the official partition."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv

from shasam.data.folder import FileSource
from shasam.data.source import Listing
from shasam.errors import DataError
from shasam.registry import register

_LETTERS = {
    "a": "Attractive", "b": "Big_Nose", "e": "Bags_Under_Eyes", "s": "Smiling",
    "m": "Male", "y": "Young", "br": "Brown_Hair",
}  # fmt: skip
_NAMES = ("a/m", "a/y", "b/m", "b/y", "e/m", "e/y", "e&b/m", "a/m&y", "s/m", "a/br")


def _pair(name: str) -> tuple[str, str]:
    target, sensitive = name.split("/")
    return (
        "&".join(_LETTERS[part] for part in target.split("&")),
        "&".join(_LETTERS[part] for part in sensitive.split("&")),
    )


@register("celeba", kind="source")
class CelebA(FileSource):
    """CelebA (Liu et al., ICCV 2015): img_align_celeba/, list_attr_celeba, list_eval_partition.

    The lists are read as .txt or .csv. ``identity_CelebA.txt`` is used when it is there, to check
    that no person is in two splits. The settings are the paper's eight and FairViT's.
    """

    summary = "CelebA: 40 attributes, official partition"
    settings: ClassVar[Mapping[str, tuple[str, str]]] = {name: _pair(name) for name in _NAMES}
    target, sensitive = settings["a/m"]
    images_below = "img_align_celeba"

    def list_images(self) -> Listing:
        root = self.folder.root.parent
        attributes = _read(root, "list_attr_celeba")
        header = attributes.column_names[1:]
        ids = attributes.column(0).to_pylist()
        columns: dict[str, object] = {"id": ids, "path": ids}
        for name in header:
            values = attributes.column(name)
            if not pa.types.is_integer(values.type) or values.null_count:
                raise DataError(f"list_attr_celeba: the column {name!r} is not all -1, 0 or 1")
            columns[name] = (values.to_numpy() > 0).astype(np.int64)
        partition = _read(root, "list_eval_partition", ["image_id", "partition"])
        part = dict(zip(*(c.to_pylist() for c in partition.columns), strict=True))
        columns["split"] = [{0: "train", 1: "val", 2: "test"}.get(part.get(i, -1)) for i in ids]
        if any(root.glob("identity_CelebA.*")):
            people = _read(root, "identity_CelebA", ["image_id", "identity"])
            person = dict(zip(*(c.to_pylist() for c in people.columns), strict=True))
            columns["identity"] = [person.get(i) for i in ids]
        return self.without_missing(Listing(pa.table(columns)))


def _read(root: Path, stem: str, header: list[str] | None = None) -> pa.Table:
    """A list of CelebA: columns by spaces (.txt, perhaps a count in the first line) or commas."""
    path = next((p for p in (root / f"{stem}.txt", root / f"{stem}.csv") if p.is_file()), None)
    if path is None:
        raise DataError(f"{root} has no {stem}.txt or .csv; it comes with CelebA")
    data = path.read_bytes()
    if not data.strip() or data[:64].lstrip().lower().startswith((b"<!doctype", b"<html")):
        raise DataError(f"{path} is empty or a web page; fetch the list again")
    first, _, rest = data.partition(b"\n")
    if first.strip().isdigit():
        first, _, rest = rest.partition(b"\n")
    words = first.replace(b",", b" ").decode().split()
    if words[0].endswith(".jpg"):  # no header
        rest = first + b"\n" + rest
    elif header is None:
        header = ["image_id", *(w for w in words if w != "image_id")]
    comma = b"," in first
    # runs of spaces align the columns of the .txt
    rest = rest if comma else rest.replace(b"\r", b"").replace(b"  ", b" ").replace(b" \n", b"\n")
    try:
        return pa.csv.read_csv(
            pa.BufferReader(rest),
            read_options=pa.csv.ReadOptions(column_names=header),
            parse_options=pa.csv.ParseOptions(delimiter="," if comma else " "),
        )
    except pa.ArrowException as error:
        raise DataError(f"{path} cannot be read: {error}") from error
