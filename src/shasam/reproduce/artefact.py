"""Declare a table or figure of the paper in YAML, and list the runs that it stands for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shasam.documents import parse_yaml, read_yaml
from shasam.errors import Argument, DataError, SpecError
from shasam.registry import did_you_mean, lookup
from shasam.report.published import PublishedTable, printed_table
from shasam.spec import RunSpec, resolve
from shasam.spec.layers import merge
from shasam.spec.run import sentences

# -------------------------------------------------------------------------------------------------
# A table or figure of the paper, declared in YAML.
#
# An artefact has rows (methods), columns (settings) and metrics. Each cell stands for the runs of
# one specification over several seeds. The declarations of the package are in `artefacts/`; a copy
# that you have changed is read from its path.
#
#     title: "CelebA: equalised odds and accuracy"
#     data: celeba                      # the data it needs: celeba or utkface
#     paper: table2                     # the printed table beside it, see report/published.json
#     metrics: [eo_mean, accuracy]
#     columns: {a/m: {data: {setting: a/m}}}
#     parts: {resnet: {CE: {method: ce}}}
#
# Beside its specification, a row may name the printed row that it stands beside (`paper`), and
# which predictions of its runs it shows (`head`, such as `encoder-balanced`).
# `like` starts from another artefact. `where` holds entries that replace others for one profile
# or for the drawn faces (`profile=paper`, `data=faces`).
# -------------------------------------------------------------------------------------------------

Kind = Literal["table", "objectives", "cost", "scenes"]
_FOLDER = files("shasam.reproduce").joinpath("artefacts")
# in the order of the paper
NAMES = (
    "table1", "table2", "utkface", "table3", "scenes", "convergence", "budget", "cost", "fairvit",
    "utkface-vit", "utkface-age", "std",
)  # fmt: skip


class Artefact(BaseModel):
    """The declaration of a table or figure."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    title: str
    kind: Kind = "table"
    data: Literal["celeba", "utkface"] | None = None
    paper: str | None = None
    # official_accuracy: with test rows weighted to the shares of CelebA's whole test split
    metrics: tuple[str, ...] = ("eo_mean", "accuracy")
    base: dict[str, Any] = Field(default_factory=dict)
    columns: dict[str, dict[str, Any]] = {"": {}}
    parts: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    figure: Literal["plane", "bars", "lines"] = "plane"
    deviations: bool = False  # show those that the paper prints
    reach: str | None = None  # the row whose last accuracy the others are to reach
    compare: tuple[tuple[str, str], ...] = ()  # pairs of rows: the first minus the second

    @property
    def printed(self) -> PublishedTable | None:
        """The paper's own table."""
        return printed_table(self.paper) if self.paper else None

    def rows(self) -> dict[str, dict[str, Any]]:
        """Name of a row -> its specification."""
        return {
            name: {k: v for k, v in body.items() if k not in _OF_A_ROW}
            for name, body in self._bodies().items()
        }

    def printed_row(self, row: str) -> str:
        """Return the name that the paper's table has for a row."""
        return str(self._bodies()[row].get("paper", row))

    def head(self, row: str) -> str | None:
        """Return which of a run's predictions a row shows; None: those of the run itself."""
        return self._bodies()[row].get("head")

    def _bodies(self) -> dict[str, dict[str, Any]]:
        return {name: body for part in self.parts.values() for name, body in part.items()}

    @model_validator(mode="after")
    def _compares_rows(self) -> Artefact:
        for name in (name for pair in self.compare for name in pair):
            if name not in self.rows():
                raise ValueError(f"compare: no row {name!r}{did_you_mean(name, self.rows())}")
        return self

    def only(self, parts: list[str] | None, columns: list[str] | None) -> Artefact:
        """Return the artefact with some of its parts and columns, in its own order."""
        kept = _chosen(self.parts, parts, f"{self.name} has no rows")
        rows = {row for part in kept.values() for row in part}
        return self.model_copy(
            update={
                "parts": kept,
                "columns": _chosen(self.columns, columns, f"{self.name} has no setting"),
                "compare": tuple(pair for pair in self.compare if rows.issuperset(pair)),
            }
        )


def artefact(name: str, *, profile: str | None = None, on_faces: bool = False) -> Artefact:
    """Return an artefact of the package by its name, or one of your own by the path of its file."""
    body = _body(name)
    for condition, entries in (body.pop("where", None) or {}).items():
        if condition in (f"profile={profile}", "data=faces" if on_faces else ""):
            body |= entries
    if on_faces and "data=faces" not in (_body(name).get("where") or {}):
        body |= _faces(body)
    try:
        return Artefact.model_validate({"name": _stem(name), **body})
    except ValidationError as error:
        lines = "\n  ".join(sentences(error, Artefact))
        raise SpecError(f"{name} is not a valid artefact:\n  {lines}") from error


def declaration(name: str) -> str:
    """Return the YAML of an artefact of the package, to copy and change."""
    if name not in NAMES:
        raise SpecError(f"there is no artefact {name!r}{did_you_mean(name, NAMES)}")
    return _FOLDER.joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def _body(name: str) -> dict[str, Any]:
    if name in NAMES:
        body = parse_yaml(declaration(name), f"{name}.yaml")
    elif Path(name).suffix in (".yaml", ".yml"):
        body = read_yaml(Path(name))
    else:
        raise SpecError(
            f"there is no artefact {name!r}{did_you_mean(name, NAMES)}; give one of "
            f"{', '.join(NAMES)}, or a YAML file of your own"
        )
    like = body.pop("like", None)
    return {**_body(str(like)), **body} if like else body


def _faces(body: Mapping[str, Any]) -> dict[str, Any]:
    """Turn settings of CelebA into one column: the same rows on the drawn faces."""
    title = f"{body['title']}; rows run on the drawn faces"
    metrics = tuple(m for m in body.get("metrics", _METRICS) if m != "official_accuracy")
    columns = body.get("columns") or {"": {}}
    base = dict(body.get("base") or {})
    base["data"] = {k: v for k, v in (base.get("data") or {}).items() if k not in _OWN}
    kept = {
        name: {**layer, "data": {k: v for k, v in (layer.get("data") or {}).items() if k != _SET}}
        for name, layer in columns.items()
    }
    distinct: dict[str, tuple[str, Any]] = {}
    for name, layer in kept.items():
        distinct.setdefault(repr(layer), (name, layer))
    found = dict(distinct.values())
    if len(found) == 1:
        found = {"faces": next(iter(found.values()))}
    return {"title": title, "columns": found, "base": base, "paper": None, "metrics": metrics}


_METRICS = Artefact.model_fields["metrics"].default
_OF_A_ROW = ("paper", "head")  # what a row says beside its specification
_SET = "setting"
_OWN = (_SET, "sensitive", "target")  # names of attributes that only the real data has


def _stem(name: str) -> str:
    return name if name in NAMES else Path(name).stem


def _chosen(found: dict[str, Any], asked: list[str] | None, message: str) -> dict[str, Any]:
    for name in asked or []:
        if name not in found:
            raise SpecError(f"{message} {name!r}{did_you_mean(name, found)}")
    return {k: v for k, v in found.items() if asked is None or k in asked}


# -------------------------------------------------------------------------------------------------
# The runs that an artefact stands for: a specification for every row, column and seed.
# -------------------------------------------------------------------------------------------------

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
class ArtefactRun:
    """One run of an artefact."""

    row: str
    column: str
    seed: int
    profile: str
    layers: tuple[Mapping[str, Any], ...] = field(repr=False)

    @cached_property
    def spec(self) -> RunSpec:
        """The resolved specification; this imports methods and encoders, and with them torch."""
        return resolve(*self.layers, profile=self.profile)

    @cached_property
    def asked(self) -> str:
        """Profile and layers as JSON, wherever the data lies: what records are found by."""
        body: dict[str, Any] = {}
        for layer in self.layers:
            body = merge(body, layer)
        body["data"] = {k: v for k, v in body["data"].items() if k not in _PLACES}
        return json.dumps({"profile": self.profile, **body}, sort_keys=True)

    @property
    def label(self) -> str:
        """The name under which its records are kept; it has to be the name of a folder."""
        words = f"{self.row} {self.column}".strip()
        return words.replace("/", " by ")

    @property
    def identity(self) -> str:
        return identity(self.spec)


@dataclass(frozen=True)
class DataLocation:
    """The data of an artefact on this machine: images, embeddings of them, or the drawn faces."""

    name: str  # celeba, utkface or faces
    root: Path | None = None
    features: Path | None = None
    part: bool = False  # some of the images are not there

    def layer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data part of a specification; ``asked`` is that of the base and the column."""
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
) -> DataLocation:
    """Return where the data of an artefact is, or raise an error that says where to get it."""
    if artefact.data is None or faces:
        return DataLocation("faces")
    if features is not None:
        return DataLocation(artefact.data, features=features)
    root = {"celeba": celeba, "utkface": utkface}[artefact.data]
    if root is None:
        raise DataError(
            f"{artefact.name} needs {artefact.data}: give its folder with ",
            Argument(artefact.data),
            f". {WHERE_FROM[artefact.data]}. ",
            Argument("data.name", "faces"),
            " runs the same rows on the drawn faces",
        )
    return DataLocation(artefact.data, root, part=part)


def cells(
    artefact: Artefact, place: DataLocation, *, profile: str, seeds: int, check: bool = True
) -> tuple[list[ArtefactRun], dict[str, str]]:
    """Return all runs of an artefact, and the rows that cannot be run on this data with the reason.

    Without ``check`` no specification is resolved, which takes no time, and no row is refused.
    """
    out: list[ArtefactRun] = []
    refused: dict[str, str] = {}
    for row, run in artefact.rows().items():
        try:
            for column, layer in artefact.columns.items():
                both = merge(artefact.base, layer)
                data = place.layer(both.get("data") or {})
                for seed in range(seeds):
                    own = {"seed": seed, "data": {**data, "seed": seed}}
                    out.append(
                        ArtefactRun(row, column, seed, profile, ({**both, "data": {}}, run, own))
                    )
                    if check:
                        _ = out[-1].spec
        except SpecError as error:
            if place.features is None:
                raise SpecError(f"row {row} of {artefact.name}: ", error) from error
            out = [cell for cell in out if cell.row != row]
            refused[row] = str(error).splitlines()[-1].strip()  # below the heading of the errors
    if not out and refused:
        raise SpecError(next(iter(refused.values())))
    return out, refused


def identity(spec: RunSpec) -> str:
    """Return a hash of what is computed, wherever the data lies: the same on two machines."""
    body = spec.as_dict()
    for key in _PLACES:
        body["data"].pop(key, None)
    body["train"].pop("precision")  # what `auto` becomes depends on the processor
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
