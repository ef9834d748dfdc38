"""Encode vectors: as they are, or by a perceptron."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.models.encoder import Encoder, EncoderConfig
from shasam.models.processes import in_shares
from shasam.registry import register

# -------------------------------------------------------------------------------------------------
# Vectors as they are: heads and classifiers read them without a network in between.
# -------------------------------------------------------------------------------------------------

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


# -------------------------------------------------------------------------------------------------
# A perceptron on vectors: the encoder of embeddings that were computed elsewhere.
# -------------------------------------------------------------------------------------------------


class MLPConfig(EncoderConfig):
    """Size and regularisation of the perceptron."""

    width: int = Field(256, ge=1, le=1_000_000, description="Units of a hidden layer.")
    depth: int = Field(1, ge=1, le=100, description="Hidden layers; the last is the embedding.")
    normalise: Normalise = Field(
        "standard", description="What is done to a vector first: standard, unit or none."
    )
    norm: Literal["batch", "layer", "none"] = Field(
        "batch", description="Normalisation behind each hidden layer."
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of hidden units left out.")


@register("mlp", kind="encoder")
class MLP(Encoder):
    """Vectors (B, in) to embeddings (B, width): linear, normalisation, ReLU, dropout, each layer.

    The taps ``hidden1`` ... are the layers' outputs. Methods that read a middle layer of an image
    network read the last one here.
    """

    Config = MLPConfig
    inputs = "vectors"

    def __init__(
        self,
        inside: int,
        width: int = 256,
        depth: int = 1,
        normalise: Normalise = "standard",
        norm: Literal["batch", "layer", "none"] = "batch",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        norms = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        self.normalise = InputNorm(inside, normalise)
        self.linears = nn.ModuleList(
            nn.Linear(inside if number == 0 else width, width, bias=norm == "none")
            for number in range(depth)
        )
        self.norms = nn.ModuleList(
            norms[norm](width) if norm in norms else nn.Identity() for _ in range(depth)
        )
        self.dropout = nn.Dropout(dropout)
        self.out_dim = width
        self.taps = {f"hidden{number + 1}": width for number in range(depth)}
        self.last_map = f"hidden{depth}"
        self.layers = (self.last_map,)
        for module in self.linears.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> MLP:
        return cls(image_size, **config.model_dump())

    @in_shares
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The last hidden layer (B, width), and the named ones."""
        self.check_taps(taps)
        x, found = self.normalise(images), {}
        for name, linear, norm in zip(self.taps, self.linears, self.norms, strict=True):
            x = self.dropout(F.relu(norm(linear(x))))
            if name in taps:
                found[name] = x
        return x, found

    def as_map(self, tapped: Tensor) -> Tensor:
        """A hidden layer as a feature map of one pixel (B, width, 1, 1)."""
        return tapped[:, :, None, None]
