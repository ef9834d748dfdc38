"""The base class of all encoders: what methods may ask of a network."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from shasam.errors import InputError, SpecError
from shasam.models.init import InitReport
from shasam.registry import did_you_mean

Pixels = tuple[tuple[float, float, float], tuple[float, float, float]]
# (mean, deviation) of pixels between 0 and 1: values between -1 and 1, as all images come
HALF: Pixels = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
IMAGENET: Pixels = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class EncoderConfig(BaseModel):
    """Settings of an encoder; every field is a key of ``model.options`` in the specification."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    def image_size(self) -> int | None:
        """The side of the images that pretrained weights are used to, where there are some."""
        return None

    def completed(self) -> EncoderConfig:
        """With what follows from files; called when a specification is made."""
        return self


@dataclass(frozen=True)
class MaskSite:
    """A linear layer whose rows FairViT may mask: attribute ``name`` of ``owner``.

    ``heads`` is the number of attention heads where one mask entry serves a whole head, and
    ``parts`` how many of query, key and value the layer holds, one after the other. Where they are
    layers of their own, ``shared`` names the others of the same owner that have the same masks.
    """

    owner: nn.Module
    name: str
    heads: int | None = None
    parts: int = 1
    shared: tuple[str, ...] = ()


class Encoder(nn.Module):
    """Inputs (B, ...) to embeddings (B, D); intermediate results can be read by name.

    A subclass sets ``out_dim`` = D and ``taps``, and writes ``forward_taps``. It is registered with
    ``@register(name, kind="encoder")``; a package outside this one registers its own through the
    entry-point group ``shasam.encoders``.
    """

    Config: ClassVar[type[EncoderConfig]] = EncoderConfig
    inputs: ClassVar[str] = "images"  # or "vectors": rows of numbers (B, D)
    out_dim: int
    taps: Mapping[str, int]  # name of an intermediate result -> its channels, in order of depth
    layers: tuple[str, ...] = ()  # those taps that are feature maps or tokens, in order of depth
    last_map: str | None = None  # the feature map before pooling, where there is one
    # of the pixels, between 0 and 1, that the weights are used to
    mean: tuple[float, float, float] = HALF[0]
    std: tuple[float, float, float] = HALF[1]
    # (mean, deviation) that weights files of others for this network are used to; None: its own
    published: ClassVar[Pixels | None] = None
    pretrained: Sequence[nn.Parameter] = ()  # those that did not start at random
    frozen: Sequence[nn.Parameter] = ()  # those that no stage moves

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> Encoder:
        """The encoder of a configuration, for square images of ``image_size`` pixels.

        For vectors ``image_size`` is their length.
        """
        raise NotImplementedError(f"{cls.__name__} has no build, so no specification can name it")

    @abstractmethod
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The embedding (B, D) and the named intermediate results, one row for each input."""

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_taps(images, ())[0]

    def normalised(self, images: Tensor) -> Tensor:
        """Images between -1 and 1, as all of them come, with the encoder's mean and deviation."""
        if (self.mean, self.std) == HALF:
            return images
        mean, std = (images.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (images + (1 - 2 * mean)) / (2 * std)

    def block(self, layer: str) -> nn.Module:
        """The module whose result is the tap ``layer``, one of ``layers``."""
        return self.get_submodule(layer)

    def load_pretrained(self) -> InitReport | None:
        """Take the weights that the encoder comes with; None where it has none."""
        return None

    def as_map(self, tapped: Tensor) -> Tensor:
        """A result of one of ``layers`` as a feature map (B, channels, H, W)."""
        return tapped

    def mask_sites(self) -> list[MaskSite]:
        """The linear layers that may carry masks; transformers have some."""
        raise SpecError(
            f"{type(self).__name__} has no attention layers to mask; set model.encoder to vit, or "
            "to hf: and the name of a ViT"
        )

    def check_taps(self, taps: tuple[str, ...]) -> None:
        """Raise an error that names the taps there are, if one is asked for that is not."""
        for tap in taps:
            if tap not in self.taps:
                near = did_you_mean(tap, self.taps)
                raise InputError(f"{type(self).__name__} has no tap {tap!r}{near}")
