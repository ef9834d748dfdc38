"""What to open: every field is a key of the specification and a flag of the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class DataSpec(BaseModel):
    """Names a source, its labels and how it is split; None means what the source does by itself."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str = Field("faces", description="faces, utkface, celeba, manifest, clusters, ...")
    root: Path | None = Field(None, description="folder that holds the images")
    csv: Path | None = Field(None, description="table of the source 'manifest': CSV or Parquet")
    path_column: str = Field("path", description="column with the path of each image")
    id_column: str | None = Field(None, description="column with a unique id; else the path")
    split_column: str | None = Field(None, description="column with train, val or test")
    identity_column: str | None = Field(None, description="people: nobody crosses a split")
    target: str | None = Field(None, description="what is predicted: a column or a rule")
    sensitive: str | None = Field(None, description="what must not matter: a column or a rule")
    setting: str | None = Field(None, description="a named pair, such as CelebA's 'a/m'")
    split: Literal["auto", "official", "balanced", "stratified"] = "auto"
    alpha: float | None = Field(None, ge=1, description="bias of the training split")
    flip_direction: bool = Field(False, description="bias towards the other class")
    n: int = Field(4000, ge=4, le=10_000_000, description="training faces to draw (faces)")
    n_per_group: int | None = Field(
        None, ge=2, le=10_000_000, description="training images per group"
    )
    holdout_per_cell: int | None = Field(
        None, ge=1, le=1_000_000, description="val and test images per cell"
    )
    difficulty: float = Field(0.5, ge=0, le=1, description="how alike the classes are (faces)")
    size: int = Field(64, ge=8, le=1024, description="pixels of a side")
    seed: int = Field(0, ge=0, lt=2**31, description="seed of the split")
    allow_missing: bool = Field(False, description="go on without the images that are missing")
    allow_bad: bool = Field(False, description="go on with more than 1 % unreadable images")
    store: Path | None = Field(None, description="folder of the packed stores")

    def store_root(self) -> Path:
        """Where packed stores are kept: the field, $SHASAM_CACHE, or the user's cache."""
        if self.store is not None:
            return self.store
        if os.environ.get("SHASAM_CACHE"):
            return Path(os.environ["SHASAM_CACHE"])
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "shasam"
