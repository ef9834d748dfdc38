"""Which data, how it is labelled and how it is split: the ``data`` part of a specification."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from shasam.spec.views import ViewsSpec
from shasam.tables.missing import Missing


class DataSpec(BaseModel):
    """A data source, its labels and its splits; None leaves the choice to the source."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: Annotated[str, Parameter(name="--data")] = Field(
        "faces",
        description="Data source: faces, utkface, celeba, table (your own images, with --csv), "
        "embeddings (your own vectors, with --features), clusters.",
    )
    root: Path | None = Field(None, description="Folder that holds the images.")
    csv: Path | None = Field(
        None,
        description="Table of your own images or vectors: CSV or Parquet with attributes, and "
        "paths where there are images.",
    )
    csv_sha256: Annotated[str | None, Parameter(parse=False)] = Field(
        None,
        description="Hash of the table's content, filled in: a changed table is another run.",
    )
    features: Path | None = Field(
        None,
        description="Vectors of your own, one a row: .npy, .npz, .safetensors, Parquet or Arrow.",
    )
    features_key: str | None = Field(
        None, description="Name of the array or column of the vectors, where there are several."
    )
    features_sha256: Annotated[str | None, Parameter(parse=False)] = Field(
        None, description="Hash of the vectors' file, filled in: a changed file is another run."
    )
    features_dim: Annotated[int | None, Parameter(parse=False)] = Field(
        None, ge=1, le=1_000_000, description="Numbers in a vector, filled in."
    )
    path_column: str = Field("path", description="Column with the path of each image.")
    id_column: str | None = Field(None, description="Column with a unique id; else the path.")
    split_column: str | None = Field(
        None, description="Column with train, val or test; 'split' is used when it is there."
    )
    identity_column: str | None = Field(
        None, description="Column with the person in the image; no person will be in two splits."
    )
    target: str | None = Field(
        None, description="What is predicted: a column or a rule such as 'age<35' or 'race==0'."
    )
    sensitive: str | None = Field(None, description="Sensitive attribute: a column or a rule.")
    setting: str | None = Field(
        None, description="Named pair of target and sensitive attribute, such as CelebA's a/m."
    )
    split: Literal["auto", "official", "balanced", "stratified"] = Field(
        "auto", description="How the splits are made."
    )
    alpha: float | None = Field(
        None,
        ge=1,
        description="Bias of the training split: one class is alpha times the other in a group.",
    )
    flip_direction: Annotated[bool, Parameter(negative=())] = Field(
        False, description="Bias towards the other class."
    )
    n: int = Field(
        4000, ge=4, le=10_000_000, description="Number of training faces to draw (faces)."
    )
    n_per_group: int | None = Field(
        None, ge=2, le=10_000_000, description="Training images per sensitive group."
    )
    holdout_per_cell: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Images per cell for validation, and as many for test.",
    )
    difficulty: float = Field(
        0.5, ge=0, le=1, description="How alike the classes are (faces), 0 to 1."
    )
    size: int = Field(64, ge=8, le=1024, description="Image side in pixels.")
    views: ViewsSpec = Field(
        default_factory=ViewsSpec,
        description="Crops, flips and colours of the training views; noise of vectors.",
    )
    seed: Annotated[int, Parameter(name="--split-seed")] = Field(
        0, ge=0, lt=2**31, description="Seed of the split."
    )
    missing: Missing = Field(
        "error",
        description="Rows without a target or group: error, drop (left out), or group (a group of "
        "their own, for the sensitive attribute).",
    )
    allow_missing: Annotated[bool, Parameter(negative=())] = Field(
        False, description="Skip images that are missing on disk."
    )
    allow_bad: Annotated[bool, Parameter(negative=())] = Field(
        False, description="Go on when more than 1 % of the images cannot be read."
    )
    store: Path | None = Field(
        None, description="Folder of the packed stores; else $SHASAM_CACHE or the user's cache."
    )

    @model_validator(mode="before")
    @classmethod
    def _own_files(cls, given: Any) -> Any:
        """Vectors or a table of one's own name their source; another name is an error."""
        if not isinstance(given, Mapping):
            return given
        given = with_source(given)
        name = given.get("name")
        if given.get("features") is not None and name != "embeddings":
            raise ValueError(f"features are for your own vectors; leave out --data {name}")
        if given.get("csv") is not None and name not in ("table", "embeddings"):
            raise ValueError(f"csv is for your own table; leave out --data {name}")
        return given

    @property
    def input_size(self) -> int:
        """What an encoder is built for: the side of an image, or the length of a vector."""
        return self.size if self.features_dim is None else self.features_dim

    def store_root(self) -> Path:
        """Where packed stores are kept: the field, $SHASAM_CACHE, or the user's cache."""
        if self.store is not None:
            return self.store
        if os.environ.get("SHASAM_CACHE"):
            return Path(os.environ["SHASAM_CACHE"])
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "shasam"


def with_source(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a ``DataSpec`` with the source that they mean, where they name none.

    >>> with_source({"features": "x.npy", "csv": "labels.csv"})["name"]
    'embeddings'
    """
    given, name = dict(given), given.get("name")
    if name is None and given.get("features") is not None:
        given["name"] = "embeddings"
    # before 0.2 the source of a table was called manifest
    elif name == "manifest" or (name is None and given.get("csv") is not None):
        given["name"] = "table"
    return given
