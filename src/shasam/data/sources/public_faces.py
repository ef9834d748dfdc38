"""Public face data: CelebA and UTKFace, as they are distributed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv

from shasam.data.folder import EXTENSIONS, FileSource
from shasam.data.source import Exclusion, Label, Listing
from shasam.errors import DataError
from shasam.registry import register

# -------------------------------------------------------------------------------------------------
# `celeba`: CelebA's own layout, 40 attributes and the official partition.
# -------------------------------------------------------------------------------------------------

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
    """Return a list of CelebA: columns by spaces (.txt, perhaps a count in the first line) or
    commas.
    """
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


# -------------------------------------------------------------------------------------------------
# ``utkface``: labels in the names of the files, age_gender_race_time.jpg.
# -------------------------------------------------------------------------------------------------

_REGULAR = re.compile(r"(\d{1,3})_([01])_([0-4])_\d+\.jpg(?:\.chip\.jpg)?")
_LABELLED = re.compile(r"(\d{1,3})_([01])_([0-4])_(?=.*\d)")


@register("utkface", kind="source")
class UTKFace(FileSource):
    """UTKFace (Zhang, Song and Qi, CVPR 2017), aligned and cropped, in any subfolders.

    Labels as in FSCL: 1 is male, Caucasian, under 35. A name that lacks a label is left out; a name
    that has its labels but is otherwise irregular is used and listed.
    """

    summary = "UTKFace: age, gender, race from file names"
    labels: ClassVar[Mapping[str, Label]] = {
        "gender": Label("gender==0", ("female", "male")),
        "ethnicity": Label("race==0", ("other", "white")),
        "age": Label("age<35", ("35 and over", "under 35")),
        "race": Label("race:[0,1,2,3,4]", ("white", "black", "asian", "indian", "others")),
    }
    target, sensitive, split = "gender", "ethnicity", "balanced"
    n_per_group, holdout_per_cell = 5800, 400

    def list_images(self) -> Listing:
        columns: dict[str, list] = {"id": [], "path": [], "age": [], "gender": [], "race": []}
        excluded, odd = [], []
        for path in self.folder.walk():
            name = path.rsplit("/", 1)[-1]
            if not name.lower().endswith(EXTENSIONS):
                excluded.append(Exclusion(path, "not an image by its name"))
                continue
            match = _REGULAR.fullmatch(name)
            if match is None:
                match = _LABELLED.match(name)
                if match is None:
                    excluded.append(Exclusion(path, "irregular name: not age_gender_race_time"))
                    continue
                odd.append(name)
            columns["id"].append(path)
            columns["path"].append(path)
            for field, value in zip(("age", "gender", "race"), match.groups(), strict=True):
                columns[field].append(int(value))
        if not columns["id"]:
            raise DataError(
                f"{self.folder.root} has no file named as in UTKFace (age_gender_race_time.jpg)"
            )
        notes = [f"irregular name, its three labels used: {name!r}" for name in odd]
        return Listing(pa.table(columns), excluded, notes)
