"""Vectors as they are: heads and classifiers read them without a network in between."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.models.encoder import Encoder, EncoderConfig
from shasam.registry import register

Normalise = Literal["standard", "unit", "none"]


class InputNorm(nn.Module):
    """What is done to vectors first.

    ``standard``: every column to mean 0 and deviation 1 by running statistics, so that vectors of
    any scale suit one learning rate. ``unit``: every row to length 1. ``none``: nothing.
    """

    def __init__(self, inside: int, kind: Normalise) -> None:
        super().__init__()
        self.kind = kind
        # without scale and shift: the layer that follows has both
        standard = kind == "standard"
        self.columns = nn.BatchNorm1d(inside, affine=False) if standard else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1) if self.kind == "unit" else self.columns(x)


class IdentityConfig(EncoderConfig):
    """What is done to a vector before it is handed on."""

    normalise: Normalise = Field(
        "none", description="What is done to a vector: standard, unit or none."
    )


@register("identity", kind="encoder")
class Identity(Encoder):
    """Vectors (B, in) to the same vectors; nothing is learnt here."""

    Config = IdentityConfig
    inputs = "vectors"

    def __init__(self, inside: int, normalise: Normalise = "none") -> None:
        super().__init__()
        self.normalise = InputNorm(inside, normalise)
        self.out_dim, self.taps = inside, {}

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> Identity:
        return cls(image_size, **config.model_dump())

    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.check_taps(taps)
        return self.normalise(images), {}
