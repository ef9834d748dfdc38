"""``utkface``: labels in the names of the files, age_gender_race_time.jpg."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

from shasam.data.folder import EXTENSIONS, FileSource
from shasam.data.source import Exclusion, Label, Listing
from shasam.errors import DataError
from shasam.registry import register

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
