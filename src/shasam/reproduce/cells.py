"""The runs that an artefact stands for: a specification for every row, column and seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shasam.errors import DataError, SpecError
from shasam.registry import lookup
from shasam.reproduce.artefact import Artefact
from shasam.spec import RunSpec, resolve
from shasam.spec.layers import merge

WHERE_FROM = {
    "celeba": (
        "CelebA is given out by its authors for non-commercial research: "
        "mmlab.ie.cuhk.edu.hk/projects/CelebA.html. It needs img_align_celeba/, "
        "list_attr_celeba.txt and list_eval_partition.txt"
    ),
    "utkface": (
        "UTKFace is given out by its authors for non-commercial research: "
        "susanqq.github.io/UTKFace. It needs the aligned and cropped faces"
    ),
}
# where the data lies on this machine does not make another run
_PLACES = ("root", "store", "csv", "features")


@dataclass(frozen=True)
class Cell:
    """One run of an artefact."""

    row: str
    column: str
    seed: int
    spec: RunSpec

    @property
    def label(self) -> str:
        """The name under which its records are kept; it has to be the name of a folder."""
        words = f"{self.row} {self.column}".strip()
        return words.replace("/", " by ")

    @property
    def identity(self) -> str:
        return identity(self.spec)


@dataclass(frozen=True)
class Place:
    """The data of an artefact on this machine: images, embeddings of them, or the drawn faces."""

    name: str  # celeba, utkface or faces
    root: Path | None = None
    features: Path | None = None
    part: bool = False  # some of the images are not there

    def layer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The data part of a specification; ``asked`` is that of the base and the column."""
        if self.features is None:
            found: dict[str, Any] = {"name": self.name}
            if self.root is not None:
                found["root"] = str(self.root)
            if self.part:
                found["allow_missing"] = True
            return merge(dict(asked), found)
        source = lookup("source", self.name)
        kept = {k: v for k, v in asked.items() if k != "setting"}
        target, sensitive = source.settings.get(asked.get("setting"), (None, None))
        for key, word in (("target", target), ("sensitive", sensitive)):
            word = kept.get(key) or word or getattr(source, key)
            kept[key] = source.labels[word].rule if word in source.labels else word
        if source.n_per_group is not None:
            kept.setdefault("n_per_group", source.n_per_group)
            kept.setdefault("holdout_per_cell", source.holdout_per_cell)
        return {**kept, "name": "embeddings", "features": str(self.features)}


def place_of(
    artefact: Artefact,
    *,
    celeba: Path | None = None,
    utkface: Path | None = None,
    features: Path | None = None,
    faces: bool = False,
    part: bool = False,
) -> Place:
    """Where the data of an artefact is, or a sentence that says where to get it."""
    if artefact.data is None or faces:
        return Place("faces")
    if features is not None:
        return Place(artefact.data, features=features)
    root = {"celeba": celeba, "utkface": utkface}[artefact.data]
    if root is None:
        raise DataError(
            f"{artefact.name} needs {artefact.data}: give its folder with --{artefact.data} DIR. "
            f"{WHERE_FROM[artefact.data]}. --data faces runs the same rows on the drawn faces"
        )
    return Place(artefact.data, root, part=part)


def cells(
    artefact: Artefact, place: Place, *, profile: str, seeds: int
) -> tuple[list[Cell], dict[str, str]]:
    """All runs of an artefact, and the rows that cannot be run on this data with the reason."""
    out: list[Cell] = []
    refused: dict[str, str] = {}
    for row, run in artefact.rows().items():
        try:
            for column, layer in artefact.columns.items():
                both = merge(artefact.base, layer)
                data = place.layer(both.get("data") or {})
                for seed in range(seeds):
                    own = {"seed": seed, "data": {**data, "seed": seed}}
                    spec = resolve({**both, "data": {}}, run, own, profile=profile)
                    out.append(Cell(row, column, seed, spec))
        except SpecError as error:
            if place.features is None:
                raise SpecError(f"row {row} of {artefact.name}: {error}") from error
            out = [cell for cell in out if cell.row != row]
            refused[row] = str(error).splitlines()[-1].strip()  # below the heading of the errors
    if not out and refused:
        raise SpecError(next(iter(refused.values())))
    return out, refused


def identity(spec: RunSpec) -> str:
    """A hash of what is computed, wherever the data lies: the same on two machines."""
    body = spec.as_dict()
    for key in _PLACES:
        body["data"].pop(key, None)
    body["train"].pop("precision")  # what `auto` becomes depends on the processor
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
