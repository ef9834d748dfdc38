"""Which encoder: the ``model`` part of a run specification."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ModelSpec(BaseModel):
    """The encoder and where its weights start from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: str = "resnet18"  # a registered name: resnet18, vit, or one from outside
    init: str | None = None  # a .safetensors file of weights (torchvision / timm keys)
    # resnet18
    stem: Literal["imagenet", "cifar"] = "imagenet"
    # channels of layer1; 64 is the standard network
    width: int = Field(default=64, ge=1, le=65_536)
    # after pooling; null keeps 8 * width
    embed_dim: int | None = Field(default=256, ge=1, le=1_000_000)
    # vit
    size: Literal["tiny", "small", "base"] = "tiny"
    patch: int = Field(default=16, ge=1, le=1024)
    patch_stem: Literal["linear", "convolutions"] = "linear"  # how a patch becomes a token
    # null: the size's own number of blocks (12)
    depth: int | None = Field(default=None, ge=1, le=200)
