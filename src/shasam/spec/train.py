"""How long and how fast: the ``train`` part of a specification."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator


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
        1e-4, ge=0, description="Weight decay; biases and other 1-D parameters are spared."
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
        """Without the drops of another schedule: runs from before they existed keep their names."""
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
        0.0, ge=0, lt=1, description="Decay of averaged weights, which then are the result."
    )
    selection: Literal["last", "best"] = Field(
        "last", description="Weights that are kept: the last, or the best by validation accuracy."
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
    collapse_cosine: float = Field(
        0.95, gt=0, le=1, description="Mean cosine of the projections that counts as a collapse."
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

    @model_serializer(mode="wrap")
    def _dump(self, dump: Any) -> dict[str, Any]:
        """Without an option that is off: runs from before it existed keep their names."""
        body: dict[str, Any] = dump(self)
        if not self.sync_batchnorm:
            body.pop("sync_batchnorm", None)
        return body

    def stage(self, name: str) -> StageSpec:
        """The settings of a stage by its name."""
        if name in self.others:
            return self.others[name]
        return self.classify if name == "classify" else self.learn

    def stage_key(self, name: str) -> str:
        """Where the settings of a stage stand in a specification."""
        if name in self.others:
            return f"train.others.{name}"
        return "train.classify" if name == "classify" else "train.learn"
