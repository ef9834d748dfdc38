"""Vision networks of ``transformers``: ``--encoder hf:NAME_OR_FOLDER``.

Weights are read from safetensors files alone, and code that comes with a model is never run. The
configuration of the network becomes part of the specification, so that a trained run is loaded
without the folder or the hub.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from shasam.errors import InputError, SpecError
from shasam.extras import need
from shasam.models.encoder import Encoder, EncoderConfig, MaskSite
from shasam.models.hub_folder import (
    FAMILIES,
    Three,
    model_folder,
    read_architecture,
    read_pixels,
    weight_files,
    weights_hash,
)
from shasam.models.init import InitReport
from shasam.models.shared import in_shares
from shasam.registry import register

# the pooling layer of these is trained by nobody: their embedding is the class token
_UNPOOLED = ("vit", "deit")


class HuggingFaceConfig(EncoderConfig):
    """Which model; what is null is filled in from the files of the model."""

    source: str = Field(description="Name on the hub, or a folder with the model.")
    revision: str | None = Field(None, description="Commit, tag or branch on the hub.")
    architecture: dict[str, Any] | None = Field(
        None, description="Configuration of the network, filled in from config.json."
    )
    mean: Three | None = Field(None, description="Mean of the pixels, between 0 and 1.")
    std: Annotated[Three | None, Field(description="Deviation of the pixels.")] = None
    side: int | None = Field(None, ge=1, le=4096, description="Side of the images in pixels.")
    weights_sha256: str | None = Field(None, description="Hash of the weights, filled in.")

    @property
    def image_size(self) -> int | None:
        return self.side

    def completed(self) -> HuggingFaceConfig:
        """With the configuration, the pixels and the hash of the weights, read once."""
        if self.architecture is not None:
            return self
        folder = model_folder(self.source, self.revision)
        architecture = read_architecture(folder)
        mean, std, side = read_pixels(folder)
        found = {
            "architecture": architecture,
            "mean": self.mean or mean,
            "std": self.std or std,
            "side": self.side or side or architecture.get("image_size"),
            "weights_sha256": weights_hash(weight_files(folder)),
        }
        if found["mean"] is None or found["std"] is None:
            raise InputError(
                f"{self.source} has no preprocessor_config.json with image_mean and image_std; "
                "give them as --set model.mean=[0.5,0.5,0.5] --set model.std=[0.5,0.5,0.5]"
            )
        return self.model_validate({**self.model_dump(), **found})


@register("hf", kind="encoder")
class HuggingFace(Encoder):
    """Images (B, 3, H, W) to the pooled embedding, or to the class token of ViT and DeiT.

    Taps: ``"blocks.<n>"`` are the tokens (B, n, D) after a block of a transformer, or the feature
    map after a stage of a convolutional network; ``"query"`` is the class token's query in the
    last block.
    """

    Config = HuggingFaceConfig

    def __init__(self, config: HuggingFaceConfig, image_size: int) -> None:
        super().__init__()
        config = config.completed()
        assert (
            config.architecture is not None and config.mean is not None and config.std is not None
        )
        self.config, self.mean, self.std = config, config.mean, config.std
        self.family = str(config.architecture["model_type"])
        self.model = _network(config.architecture)
        self.sizes = cast("Any", self.model.config)  # of transformers: widths, patch, heads
        sizes = getattr(self.sizes, "hidden_sizes", None)
        blocks = self._blocks()
        widths = list(sizes) if sizes else [self.sizes.hidden_size] * len(blocks)
        self.layers = tuple(f"blocks.{number}" for number in range(len(blocks)))
        self.out_dim = widths[-1]
        self.taps = dict(zip(self.layers, widths, strict=True))
        self.last_map = self.layers[-1]
        if FAMILIES[self.family]:
            self.taps = {**self.taps, "query": self.out_dim}
        self._set_grid(image_size)

    def _set_grid(self, image_size: int) -> None:
        """How many patches an image has, and whether positions must be interpolated."""
        self.side = image_size
        self.extra: dict[str, Any] = {}
        if FAMILIES[self.family] is None:
            return
        patch = int(self.sizes.patch_size)
        if image_size % patch:
            raise InputError(
                f"images of {image_size} px cannot be cut into the patches of {patch} px of "
                f"{self.config.source}; choose a --size that {patch} divides, such as "
                f"{max(1, round(image_size / patch)) * patch}"
            )
        self.grid = image_size // patch
        if self.family in ("vit", "deit", "clip_vision_model", "siglip_vision_model"):
            self.extra = {"interpolate_pos_encoding": image_size != self.sizes.image_size}

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> HuggingFace:
        return cls(HuggingFaceConfig.model_validate(config.model_dump()), image_size)

    def _blocks(self) -> nn.ModuleList:
        """The blocks of a transformer, the stages of a convolutional network."""
        lists = (m for m in self.model.modules() if isinstance(m, nn.ModuleList))
        return next(lists)

    def block(self, layer: str) -> nn.Module:
        return self._blocks()[int(layer.removeprefix("blocks."))]

    def load_pretrained(self) -> InitReport | None:
        return load_into(self.model, self.config)

    def as_map(self, tapped: Tensor) -> Tensor:
        if FAMILIES[self.family] is None:
            return tapped
        patches = tapped[:, -(self.grid**2) :]  # class and register tokens stand before them
        return patches.transpose(1, 2).unflatten(2, (self.grid, self.grid))

    def mask_sites(self) -> list[MaskSite]:
        """Query, key and value share the masks of their heads; every other layer has its own."""
        if not FAMILIES[self.family]:
            raise SpecError(
                f"{self.config.source} ({self.family}) has no class token, which fairvit reads; "
                "choose a ViT or DeiT"
            )
        sites, heads = [], int(self.sizes.num_attention_heads)
        for block in self._blocks():
            owner, names = _projections(block)
            sites.append(MaskSite(owner, names[0], heads, shared=names[1:]))
            for parent in block.modules():
                for name, layer in parent.named_children():
                    if isinstance(layer, nn.Linear) and not (parent is owner and name in names):
                        sites.append(MaskSite(parent, name))
        return sites

    @in_shares
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.check_taps(taps)
        if tuple(images.shape[-2:]) != (self.side, self.side):
            raise InputError(
                f"this encoder was built for images of {self.side} px, not "
                f"{tuple(images.shape[-2:])}"
            )
        found: dict[str, Tensor] = {}
        handles = []
        for tap in taps:
            if tap == "query":
                owner, names = _projections(self._blocks()[-1])
                module = getattr(owner, names[0])
            else:
                module = self.block(tap)
            handles.append(module.register_forward_hook(partial(_keep, found, tap)))
        try:
            out = self.model(pixel_values=self.normalised(images), **self.extra)
        finally:
            for handle in handles:
                handle.remove()
        pooled = getattr(out, "pooler_output", None)
        embedding = out.last_hidden_state[:, 0] if pooled is None else pooled.flatten(1)
        return embedding, found


def _keep(found: dict[str, Tensor], tap: str, module: nn.Module, given: Any, out: Any) -> None:
    value = out[0] if isinstance(out, tuple) else out
    found[tap] = value[:, 0] if tap == "query" else value


def _projections(block: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """The module that holds a block's query, key and value layers, and their names there."""
    for owner in block.modules():
        for names in (("q_proj", "k_proj", "v_proj"), ("query", "key", "value")):
            if all(isinstance(getattr(owner, name, None), nn.Linear) for name in names):
                return owner, names
    raise SpecError(f"{type(block).__name__} has no layers for query, key and value to read")


def _network(architecture: Mapping[str, Any]) -> nn.Module:
    need("hf", "an encoder of transformers")
    from transformers import AutoConfig, AutoModel

    rest = {k: v for k, v in architecture.items() if k != "model_type"}
    family = str(architecture["model_type"])
    with _quiet():
        config = AutoConfig.for_model(family, **rest)
        return AutoModel.from_config(config, trust_remote_code=False, **_unpooled(family))


def _unpooled(family: str) -> dict[str, bool]:
    return {"add_pooling_layer": False} if family in _UNPOOLED else {}


def load_into(network: nn.Module, config: HuggingFaceConfig) -> InitReport:
    """The weights of the model's folder, with an account of what matched and what did not."""
    from transformers import AutoModel

    folder = model_folder(config.source, config.revision)
    if config.weights_sha256 not in (None, weights_hash(weight_files(folder))):
        raise InputError(
            f"the weights of {config.source} have changed since this specification was made; "
            "bring the old ones back, or train again with the new ones"
        )
    family = str((config.architecture or {})["model_type"])
    try:
        with _quiet():
            loaded, account = AutoModel.from_pretrained(
                str(folder),
                config=network.config,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
                **_unpooled(family),
            )
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"the weights of {config.source} do not fit: {reason}") from error
    missing = tuple(sorted(f"model.{name}" for name in account["missing_keys"]))
    unexpected = tuple(sorted(map(str, account["unexpected_keys"])))
    tensors = network.state_dict()
    if len(missing) >= len(tensors):
        raise InputError(
            f"{config.source} has none of the {len(tensors)} tensors of a {family}; it has "
            f"{', '.join(unexpected[:3])}"
        )
    network.load_state_dict(loaded.state_dict())
    return InitReport(config.source, len(tensors) - len(missing), missing, unexpected, ())


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the bars and reports of transformers: ours says what matched."""
    from transformers.utils import logging

    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    restore: Callable[[], None] = (
        logging.enable_progress_bar if bars else logging.disable_progress_bar
    )
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        restore()
