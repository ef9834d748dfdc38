"""Define what methods may ask of a network: the base class of encoders, heads, start weights."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from shasam.errors import Argument, InputError, SpecError
from shasam.models.weights import InitReport, load_weights
from shasam.registry import did_you_mean
from shasam.spec.fields import ModelSpec

# -------------------------------------------------------------------------------------------------
# The base class of all encoders: what methods may ask of a network.
# -------------------------------------------------------------------------------------------------

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

    @property
    def is_complete(self) -> bool:
        """True where the network can be built without looking at any file."""
        return True

    def completed(self) -> EncoderConfig:
        """Add what follows from files; called when a specification is made."""
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
    """Map inputs (B, ...) to embeddings (B, D); intermediate results can be read by name.

    A subclass sets ``out_dim`` = D and ``taps``, and writes ``forward_taps``. It is registered with
    ``@register(name, kind="encoder")``; a package outside this one registers its own through the
    entry-point group ``shasam.encoders``.

    Examples
    --------
    >>> from shasam.registry import lookup
    >>> issubclass(lookup("encoder", "resnet18"), Encoder)
    True
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
    # how many of ``layers`` come before the cut: their results are kept, see ``before_cut``
    cut: int | None = None

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> Encoder:
        """Build the encoder of a configuration, for square images of ``image_size`` pixels.

        For vectors ``image_size`` is their length.
        """
        raise NotImplementedError(f"{cls.__name__} has no build, so no specification can name it")

    @abstractmethod
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the embedding (B, D) and the named intermediate results, a row for each input."""

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_taps(images, ())[0]

    def normalised(self, images: Tensor) -> Tensor:
        """Re-normalise images from [-1, 1] to the encoder's mean and standard deviation."""
        if (self.mean, self.std) == HALF:
            return images
        mean, std = (images.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (images + (1 - 2 * mean)) / (2 * std)

    def block(self, layer: str) -> nn.Module:
        """Return the module whose result is the tap ``layer``, one of ``layers``."""
        return self.get_submodule(layer)

    def before_cut(self, images: Tensor) -> Tensor:
        """Return what the frozen layers make of images, in half precision: a map (B, C, h, w).

        An encoder with a ``cut`` takes these maps in place of images. It rounds them too where it
        is given images, so that a score does not depend on which of the two it was given.
        """
        raise SpecError(
            f"the frozen blocks of {type(self).__name__} cannot be cached; leave out ",
            Argument("model.cache"),
            ", or choose efficientnet-lite0",
        )

    def load_pretrained(self) -> InitReport | None:
        """Take the weights that the encoder comes with; None if it has none."""
        return None

    def as_map(self, tapped: Tensor) -> Tensor:
        """Return a result of one of ``layers`` as a feature map (B, channels, H, W)."""
        return tapped

    def mask_sites(self) -> list[MaskSite]:
        """Return the linear layers that may carry masks; transformers have some."""
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
            if tap in self.layers[: self.cut or 0]:
                raise SpecError(f"{tap} is frozen and cached, so it cannot be read; freeze less")


# -------------------------------------------------------------------------------------------------
# Heads on top of an encoder: projections and classifiers.
# -------------------------------------------------------------------------------------------------


class ProjectionHead(nn.Module):
    """Linear, (batch norm,) ReLU, linear, (batch norm without affine): (B, in) to (B, out).

    The last normalisation has no scale or shift: it keeps the mean of the embeddings at zero, so
    that "all embeddings equal" cannot be reached in training mode.
    """

    def __init__(
        self, inside: int, hidden: int | None = None, out: int = 128, batch_norm: bool = True
    ) -> None:
        super().__init__()
        hidden = hidden or inside
        self.fc1 = nn.Linear(inside, hidden, bias=not batch_norm)
        self.bn1 = nn.BatchNorm1d(hidden) if batch_norm else nn.Identity()
        self.fc2 = nn.Linear(hidden, out, bias=not batch_norm)
        self.bn2 = nn.BatchNorm1d(out, affine=False) if batch_norm else nn.Identity()
        self.out_dim = out

    def forward(self, x: Tensor) -> Tensor:
        """Project, without normalising to length one; code that compares cosines does that."""
        return self.bn2(self.fc2(F.relu(self.bn1(self.fc1(x)))))


class Classifier(nn.Module):
    """Features (B, in) to class scores (B, C), with one hidden layer or none.

    ``standardise`` puts a batch norm without affine before it: frozen features of any scale
    (unit-length projections, pooled ReLUs) then suit one learning rate.
    """

    def __init__(
        self, inside: int, hidden: int | None, classes: int, standardise: bool = False
    ) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(inside, affine=False) if standardise else nn.Identity()
        self.hidden = nn.Identity() if hidden is None else nn.Linear(inside, hidden)
        self.out = nn.Linear(inside if hidden is None else hidden, classes)

    def hidden_layer(self, x: Tensor) -> Tensor:
        """Return what the last linear layer reads (B, hidden)."""
        x = self.norm(x)
        return F.relu(self.hidden(x)) if isinstance(self.hidden, nn.Linear) else x

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.hidden_layer(x))


# -------------------------------------------------------------------------------------------------
# Where an encoder's weights start from, and which of them stay as they are.
# -------------------------------------------------------------------------------------------------


def start_weights(encoder: Encoder, spec: ModelSpec) -> InitReport | None:
    """Load ``model.init``, or the weights that the encoder comes with; then freeze.

    None if there are neither: the encoder keeps its random start.
    """
    if spec.init is not None:
        report: InitReport | None = load_weights(encoder, spec.init)
    else:
        report = encoder.load_pretrained()
    if report is not None:
        random = set(report.missing)
        encoder.pretrained = [p for name, p in encoder.named_parameters() if name not in random]
    encoder.frozen = _frozen(encoder, spec)
    return report


def set_cut(encoder: Encoder, spec: ModelSpec) -> None:
    """Tell the encoder which of its layers are cached, where some are."""
    if not spec.cache:
        return
    assert isinstance(spec.freeze, int)
    if type(encoder).before_cut is Encoder.before_cut:
        encoder.before_cut(torch.empty(0))  # which says that it cannot
    encoder.cut = max(0, len(encoder.layers) - spec.freeze)


def _frozen(encoder: Encoder, spec: ModelSpec) -> list[nn.Parameter]:
    if spec.freeze == "none":
        return []
    if not encoder.pretrained:
        raise SpecError(
            f"model.freeze is {spec.freeze}, and the encoder {spec.encoder} starts from random "
            "weights, which must be trained; name a pretrained encoder, or give weights with "
            "model.init"
        )
    if spec.freeze == "all":
        return list(encoder.pretrained)
    blocks = len(encoder.layers)
    if spec.freeze > blocks:
        raise SpecError(
            f"model.freeze = {spec.freeze} trains the last {spec.freeze} blocks, but the encoder "
            f"{spec.encoder} has {blocks}; give 1 to {blocks}, all or none"
        )
    # parameters are in the order of depth: what comes before the first free block is frozen
    first = next(encoder.block(encoder.layers[-spec.freeze]).parameters())
    pretrained, before = {id(p) for p in encoder.pretrained}, []
    for p in encoder.parameters():
        if p is first:
            break
        before.append(p)
    return [p for p in before if id(p) in pretrained]
