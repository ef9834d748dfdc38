"""Which encoder: the ``model`` part of a specification."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field


class ModelSpec(BaseModel):
    """The encoder, its options, and where its weights start from.

    ``model.width: 16`` is short for ``model.options.width: 16``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: str = Field(
        "resnet18",
        description="Encoder: resnet18, vit, efficientnet-lite0 (pretrained), hf:NAME_OR_FOLDER, "
        "timm:NAME, mlp and identity for vectors, or one of a plugin.",
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
    options: Annotated[dict[str, Any], Parameter(parse=False)] = Field(
        default_factory=dict, description="Options of the encoder."
    )
