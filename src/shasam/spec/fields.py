"""Declare the fields of a specification: data, views, model and training.

A field is declared once, with its description; YAML key, flag and help follow from it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_serializer,
    model_validator,
)

from shasam.tables import UNKNOWN, MissingInTraining

# -------------------------------------------------------------------------------------------------
# How training views are drawn: the `data.views` part of a specification.
#
# The defaults for images are SupCon's published values (Khosla et al., 2020, and their code). The
# last three are for vectors, which are taken as they are by default.
# -------------------------------------------------------------------------------------------------

Share = Annotated[float, Field(ge=0, le=1)]
Turn = Annotated[float, Field(ge=0, le=0.5)]


class ViewsSpec(BaseModel):
    """Random crops, flips and colours of images; dropout, noise and mixing of vectors.

    ``shasam.data.augment`` and ``shasam.data.augment`` draw them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    crop_scale: Annotated[tuple[Share, Share], Parameter(negative=())] = Field(
        (0.2, 1.0), description="Smallest and largest share of the image's area that a crop keeps."
    )
    crop_ratio: Annotated[tuple[float, float], Parameter(negative=())] = Field(
        (3 / 4, 4 / 3), description="Smallest and largest width over height of a crop."
    )
    flip: Share = Field(0.5, description="Probability of a horizontal flip.")
    jitter: Annotated[tuple[Share, Share, Share, Turn], Parameter(negative=())] = Field(
        (0.4, 0.4, 0.4, 0.1),
        description="Largest change of brightness, contrast, saturation and hue.",
    )
    p_jitter: Share = Field(0.8, description="Probability that the colours of a view change.")
    grayscale: Share = Field(0.2, description="Probability that a view is grey.")

    feature_dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="Vectors: share of the numbers that a view sets to 0."
    )
    noise: Annotated[float, Field(ge=0, le=10)] = Field(
        0.0, description="Vectors: deviation of Gaussian noise, times the row's root mean square."
    )
    mixing: Share = Field(
        0.0, description="Vectors: largest share of another training row of the same cell."
    )

    @property
    def of_vectors(self) -> bool:
        """Whether views of vectors differ from the vectors."""
        return bool(self.feature_dropout or self.noise or self.mixing)

    @model_validator(mode="after")
    def _ordered(self) -> ViewsSpec:
        for name in ("crop_scale", "crop_ratio"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name}: give two numbers above 0, the smaller one first")
        return self


# -------------------------------------------------------------------------------------------------
# Which data, how it is labelled and how it is split: the `data` part of a specification.
# -------------------------------------------------------------------------------------------------

NO_INFERRED_NUMBER = (
    "missing=infer infers groups, and a number has none; say missing=use, or make groups by a "
    "rule, such as age<35"
)


class DataSpec(BaseModel):
    """Describe a data source, its labels and its splits; None leaves the choice to the source.

    Examples
    --------
    >>> DataSpec(name="faces", n=400).size
    64
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: Annotated[str, Parameter(name="--data")] = Field(
        "faces",
        description="Data source: faces, utkface, celeba, table (your own images, with --csv), "
        "embeddings (your own vectors, with --features), datasets (of Hugging Face, with --root), "
        "clusters.",
    )
    root: Path | None = Field(None, description="Folder that holds the images.")
    csv: Path | None = Field(
        None,
        description="Table of your own images or vectors: CSV or Parquet with attributes, and "
        "paths where there are images.",
    )
    csv_sha256: Annotated[str | None, Parameter(parse=False)] = Field(
        None,
        description="Hash of the table or data set, filled in: another content is another run.",
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
    path_column: str = Field(
        "path", description="Column with the path of each image, or with the image (datasets)."
    )
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
    sensitive: Annotated[tuple[str, ...] | None, Parameter(negative=())] = Field(
        None,
        description="Sensitive attribute: a column or a rule; repeat it for several at once.",
    )
    groups: Literal["cross", "each"] = Field(
        "cross",
        description="With several sensitive attributes: their intersections are the groups "
        "(cross), or every attribute has its own groups and batches, in turns (each).",
    )
    sensitive_as: Literal["auto", "groups", "number"] = Field(
        "auto",
        description="How a numeric sensitive column is taken: every value as a group (groups), as "
        "a number without groups, such as age in years (number), or as a number where a table has "
        "more than 20 different values (auto). Of several attributes one may be a number.",
    )
    bandwidth: float = Field(
        0.1,
        gt=0,
        le=1,
        description="Of a sensitive number: how far a window reaches to each side, as a share of "
        "the training rows.",
    )
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
    missing: MissingInTraining = Field(
        "error",
        description="Rows without a target or group: error, drop (left out), group (a group of "
        "their own, for the sensitive attribute), use (rows without a group train the target "
        "alone), or infer (vectors: their group is inferred from the training rows that have one).",
    )
    known_groups: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Hide the groups of all training rows but this share, to see what labels are "
        "worth; the seed of the split says of which.",
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
        """Name the source after vectors or a table of one's own; another name is an error."""
        if not isinstance(given, Mapping):
            return given
        given = with_source(given)
        name = given.get("name")
        if given.get("features") is not None and name != "embeddings":
            raise ValueError(f"features are for your own vectors; leave out the source {name}")
        if given.get("csv") is not None and name not in ("table", "embeddings"):
            raise ValueError(f"csv is for your own table; leave out the source {name}")
        return given

    @field_validator("target", mode="before")
    @classmethod
    def _one_target(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            raise ValueError("there is one target; train a model for each of several")
        return given

    @field_validator("sensitive", mode="before")
    @classmethod
    def _one_or_several(cls, given: Any) -> Any:
        """Take ``sensitive: race`` as one attribute; each may be named once."""
        listed = (given,) if isinstance(given, str) else given
        if isinstance(listed, list | tuple):
            twice = next((rule for rule in listed if listed.count(rule) > 1), None)
            if twice is not None:
                raise ValueError(f"{twice} is given twice; name each attribute once")
        return listed or None

    @model_validator(mode="after")
    def _groups_of_several(self) -> DataSpec:
        if self.groups == "each" and len(self.sensitive or ()) < 2:
            raise ValueError("groups=each is for several sensitive attributes; name two or more")
        if self.sensitive_as == "number" and self.missing == "group":
            raise ValueError(
                "missing=group makes a group, and sensitive_as=number has none; say drop, or use"
            )
        return self

    @model_validator(mode="after")
    def _groups_that_are_unknown(self) -> DataSpec:
        if self.known_groups is not None and self.missing not in UNKNOWN:
            raise ValueError("known_groups hides groups; say missing=use or missing=infer as well")
        if self.missing == "infer" and self.sensitive_as == "number":
            raise ValueError(NO_INFERRED_NUMBER)
        if self.missing == "infer" and len(self.sensitive or ()) > 1:
            raise ValueError(
                "missing=infer infers one sensitive attribute; name one, or say missing=use"
            )
        return self

    @model_serializer(mode="wrap")
    def _dump(self, dump: Any) -> dict[str, Any]:
        """Leave out what is new and not used: runs keep their names."""
        body: dict[str, Any] = dump(self)
        several = self.sensitive is not None and len(self.sensitive) > 1
        if self.sensitive is not None and not several and "sensitive" in body:
            body["sensitive"] = self.sensitive[0]
        if not several:
            body.pop("groups", None)
        if self.known_groups is None:
            body.pop("known_groups", None)
        if self.sensitive_as == "auto":
            body.pop("sensitive_as", None)
        if self.sensitive_as != "number":
            body.pop("bandwidth", None)
        return body

    @property
    def input_size(self) -> int:
        """What an encoder is built for: the side of an image, or the length of a vector."""
        return self.size if self.features_dim is None else self.features_dim

    def store_root(self) -> Path:
        """Return where packed stores are kept: the field, $SHASAM_CACHE, or the user's cache."""
        if self.store is not None:
            return self.store
        if os.environ.get("SHASAM_CACHE"):
            return Path(os.environ["SHASAM_CACHE"])
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "shasam"


def with_source(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a ``DataSpec`` with the source that they mean, where they name none.

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


# -------------------------------------------------------------------------------------------------
# Which encoder: the `model` part of a specification.
# -------------------------------------------------------------------------------------------------


class ModelSpec(BaseModel):
    """The encoder, its options, and where its weights start from.

    ``model.width: 16`` is short for ``model.options.width: 16``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: str = Field(
        "resnet18",
        description="Encoder: resnet18, vit, efficientnet-lite0 (pretrained), hf:NAME_OR_FOLDER, "
        "timm:NAME, onnx:FILE (frozen), mlp and identity for vectors, or one of a plugin.",
    )
    init: str | None = Field(
        None, description="File of pretrained weights (.safetensors, torchvision or timm keys)."
    )
    normalisation: Literal["auto", "half", "imagenet"] = Field(
        "auto",
        description="Mean and deviation of the pixels: those of the pretrained weights (auto), "
        "0.5 (half), or ImageNet's.",
    )
    freeze: Literal["none", "all"] | Annotated[int, Field(ge=1)] = Field(
        "none",
        description="Pretrained weights that stay as they are: none, all, or, as a number, all "
        "but those of the last blocks.",
    )
    cache: Annotated[bool, Parameter(name="--cache", negative=())] = Field(
        False,
        description="Compute the frozen blocks once for every image and its mirror image, and "
        "train the last blocks on what was kept; views are then mirrored and nothing else.",
    )
    options: Annotated[dict[str, Any], Parameter(parse=False)] = Field(
        default_factory=dict, description="Options of the encoder."
    )

    @model_validator(mode="after")
    def _cache_needs_frozen_blocks(self) -> ModelSpec:
        if self.cache and not isinstance(self.freeze, int):
            raise ValueError(
                "cache keeps the results of frozen blocks: give freeze a number of blocks that are "
                "trained. Where all are frozen, use shasam embed instead"
            )
        return self

    @model_serializer(mode="wrap")
    def _dump(self, dump: Any) -> dict[str, Any]:
        """Leave out an option that is off: runs from before it existed keep their names."""
        body: dict[str, Any] = dump(self)
        if not self.cache:
            body.pop("cache", None)
        return body


# -------------------------------------------------------------------------------------------------
# How long and how fast: the `train` part of a specification.
# -------------------------------------------------------------------------------------------------


class StageSpec(BaseModel):
    """One stage: its length (epochs or steps, the other null) and its optimiser."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    epochs: int | None = Field(
        None, ge=1, le=10**9, description="Length in epochs, instead of steps."
    )
    steps: int | None = Field(
        None, ge=1, le=10**12, description="Length in steps, instead of epochs."
    )
    batch_views: int = Field(
        96, ge=2, description="Views in a batch: images times the views of the stage."
    )
    optimizer: Literal["sgd", "adamw", "adam"] = Field("adamw", description="Optimiser.")
    lr: float = Field(1e-3, gt=0, description="Learning rate.")
    pretrained_lr: float = Field(
        1.0, gt=0, description="Learning rate of pretrained weights, as a share of the others'."
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of SGD.")
    weight_decay: float = Field(
        1e-4, ge=0, description="Weight decay; not applied to biases and norm parameters."
    )
    schedule: Literal["cosine", "constant", "step"] = Field(
        "cosine", description="Rate over the steps."
    )
    step_every: float = Field(
        0.4, gt=0, le=1, description="Share of the stage between drops of the schedule `step`."
    )
    step_factor: float = Field(
        0.1, gt=0, le=1, description="What the rate is multiplied by at each drop."
    )
    warmup: float = Field(
        0.05, ge=0, lt=1, description="Share of the stage in which the rate grows linearly."
    )
    final: float = Field(
        1e-3, ge=0, le=1, description="Where the cosine ends, as a share of the learning rate."
    )
    clip: float | None = Field(
        None, gt=0, description="Largest gradient norm of a parameter group."
    )

    @model_serializer(mode="wrap")
    def _dump(self, dump: Any) -> dict[str, Any]:
        """Leave out the drops of another schedule.

        Runs from before they existed keep their names.
        """
        body: dict[str, Any] = dump(self)
        if self.schedule != "step":
            body.pop("step_every", None)
            body.pop("step_factor", None)
        return body

    @model_validator(mode="after")
    def _not_both_lengths(self) -> StageSpec:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, one of them, and set the other to null")
        return self


def _cut_at_commas(text: str) -> list[str]:
    return [text] if "[" in text else text.split(",")  # the edges of age:[0,20,40] stay together


class TrainSpec(BaseModel):
    """All stages, and what is evaluated on the way.

    ``train.lr: 0.1`` is short for ``train.learn.lr: 0.1``, and so for every field of a stage.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    learn: Annotated[StageSpec, Parameter(name="*")] = StageSpec(steps=1000)
    classify: StageSpec = StageSpec(epochs=10, batch_views=256)
    others: Annotated[dict[str, StageSpec], Parameter(parse=False)] = Field(
        default_factory=dict, description="Stages by name; a stage not named is like `learn`."
    )
    ema: float = Field(
        0.0, ge=0, lt=1, description="EMA decay; if > 0, the averaged weights are the final model."
    )
    selection: Literal[
        "last", "best", "worst-class", "worst-cell", "minimax", "optimum", "least-leakage"
    ] = Field(
        "last",
        description="Weights that are kept: the last, or the best on validation by accuracy, by "
        "the lowest accuracy of a class, cell or group (minimax), by the distance to accuracy 1 "
        "and gap 0 (optimum), or by the least of the group in the features (least-leakage).",
    )
    validate_every: int = Field(
        1, ge=0, description="Epochs of the last stage between validations; 0: never."
    )
    probe_every: int = Field(
        0,
        ge=0,
        description="Steps between linear probes of the target, for a curve in the log; 0: none.",
    )
    natural_head: bool = Field(
        True,
        description="Train a classifier on the frozen features and the training data as they are, "
        "without the sensitive attribute, and report it.",
    )
    group_probes: bool = Field(
        True,
        description="Fit probes of the group on the frozen features: over all rows, and within "
        "each class by a linear one and an MLP.",
    )
    transfer: Annotated[tuple[str, ...], Parameter(negative=())] = Field(
        (),
        description="Other columns, or rules over them, that heads of three strengths learn to "
        "predict from the frozen features, without the sensitive attribute.",
    )
    transfer_heads: Annotated[
        tuple[Literal["linear", "small", "large"], ...], Parameter(negative=())
    ] = Field(
        ("linear", "small", "large"),
        min_length=1,
        description="Strengths of these heads: linear, small (64 units, 10 epochs), large (512 "
        "units, 30 epochs; most of the time).",
    )
    calibrate: Annotated[bool, Parameter(negative=())] = Field(
        False,
        description="Fit a temperature on the validation split, so that a confidence of 80 % is "
        "right 8 times in 10; predictions stay the same.",
    )
    collapse_cosine: float = Field(
        0.95, gt=0, le=1, description="Mean cosine of the projections that counts as a collapse."
    )
    on_plateau: Literal["warn", "stop", "lower-rate"] = Field(
        "warn",
        description="What to do with a stage that finds nothing of the target: say so, stop, or "
        "lower its learning rate to a third, twice at most.",
    )
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "auto"] = Field(
        "32-true",
        description="Numerical precision; auto becomes bf16-mixed for images on a processor with "
        "bfloat16 instructions, else 32-true.",
    )
    devices: int = Field(
        1, ge=1, le=1024, description="Processes that share each batch, on all machines together."
    )
    sync_batchnorm: bool = Field(
        False, description="Batch normalisation over the rows of all processes, not of each."
    )

    @field_validator("transfer", mode="before")
    @classmethod
    def _with_commas(cls, given: Any) -> Any:
        """Take ``--transfer young,smiling`` as two columns."""
        listed = [given] if isinstance(given, str) else given
        if not isinstance(listed, (list, tuple)):
            return given
        words = [word for one in listed for word in _cut_at_commas(str(one))]
        return tuple(word.strip() for word in words if word.strip())

    @model_serializer(mode="wrap")
    def _dump(self, dump: Any) -> dict[str, Any]:
        """Leave out an option that is off: runs from before it existed keep their names."""
        body: dict[str, Any] = dump(self)
        if not self.sync_batchnorm:
            body.pop("sync_batchnorm", None)
        if self.on_plateau == "warn":
            body.pop("on_plateau", None)
        if self.group_probes:
            body.pop("group_probes", None)
        if not self.transfer:
            body.pop("transfer", None)
        if len(self.transfer_heads) == 3:
            body.pop("transfer_heads", None)
        if not self.calibrate:
            body.pop("calibrate", None)
        return body

    def stage(self, name: str) -> StageSpec:
        """Return the settings of a stage by its name."""
        if name in self.others:
            return self.others[name]
        return self.classify if name == "classify" else self.learn

    def stage_key(self, name: str) -> str:
        """Return where the settings of a stage stand in a specification."""
        if name in self.others:
            return f"train.others.{name}"
        return "train.classify" if name == "classify" else "train.learn"
