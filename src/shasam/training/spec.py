"""How long and how fast: the ``train`` part of a run specification."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

# keys of the learning stage that may be written directly under `train`
SHORT = ("steps", "epochs", "lr", "optimizer", "weight_decay", "clip")


class StageSpec(BaseModel):
    """One stage: its length (epochs or steps, the other null) and its optimiser."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    epochs: int | None = Field(default=None, ge=1)
    steps: int | None = Field(default=None, ge=1)
    batch_views: int = Field(
        default=96, ge=2
    )  # images in a batch = batch_views / views of the stage
    optimizer: Literal["sgd", "adamw", "adam"] = "adamw"
    lr: float = Field(default=1e-3, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)  # of sgd
    weight_decay: float = Field(default=1e-4, ge=0)
    schedule: Literal["cosine", "constant"] = "cosine"  # per step
    warmup: float = Field(
        default=0.05, ge=0, lt=1
    )  # share of the stage with a rate that grows linearly
    final: float = Field(default=1e-3, ge=0, le=1)  # where the cosine ends, as a share of lr
    clip: float | None = Field(
        default=None, gt=0
    )  # largest norm of the gradient of a parameter group

    @model_validator(mode="after")
    def _one_length(self) -> StageSpec:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give epochs or steps, one of them, and set the other to null")
        return self


class TrainSpec(BaseModel):
    """All stages, and what is evaluated at the end of them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    learn: StageSpec = StageSpec(steps=1000)
    classify: StageSpec = StageSpec(epochs=10, batch_views=256)
    others: dict[str, StageSpec] = Field(default_factory=dict)  # by stage name; else as `learn`
    ema: float = Field(
        default=0.0, ge=0, lt=1
    )  # decay of averaged weights, which then are the result
    selection: Literal["last", "best"] = "last"  # best: highest validation accuracy
    validate_every: int = Field(
        default=1, ge=0
    )  # epochs of the last stage; 0: never during training
    collapse_cosine: float = Field(
        default=0.95, gt=0, le=1
    )  # mean cosine that counts as a collapse
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    devices: int = Field(default=1, ge=1)  # processes; batches are cut over them

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        """``train.steps: 500`` means ``train.learn.steps: 500``, and so for the keys of SHORT."""
        if not isinstance(data, dict) or not any(key in data for key in SHORT):
            return data
        data = dict(data)
        learn = data.get("learn", {})
        learn = learn.model_dump() if isinstance(learn, StageSpec) else dict(learn)
        for key in SHORT:
            if key in data:
                learn[key] = data.pop(key)
                if key == "steps" and learn[key] is not None:
                    learn["epochs"] = None
                if key == "epochs" and learn[key] is not None:
                    learn["steps"] = None
        data["learn"] = learn
        return data

    def stage(self, name: str) -> StageSpec:
        """The settings of a stage by its name."""
        if name in self.others:
            return self.others[name]
        return self.classify if name == "classify" else self.learn
