"""Load vision networks of ``transformers`` (``hf:NAME``) and ``timm`` (``timm:NAME``)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from shasam.documents import read_json
from shasam.errors import Argument, InputError, MissingExtraError, SpecError
from shasam.extras import need
from shasam.files import file_sha256
from shasam.models.encoder import Encoder, EncoderConfig, MaskSite
from shasam.models.processes import in_shares
from shasam.models.weights import InitReport, load_weights
from shasam.registry import did_you_mean, register

# -------------------------------------------------------------------------------------------------
# The files of a model of `transformers`: in a folder, or on the hub and then copied to one.
# -------------------------------------------------------------------------------------------------

# model_type of config.json -> whether the first token is a class token; None: a feature map
FAMILIES = {
    "vit": True,
    "deit": True,
    "dinov2": True,
    "dinov2_with_registers": True,
    "dinov3_vit": True,
    "clip_vision_model": True,
    "siglip_vision_model": False,
    "convnext": None,
    "convnextv2": None,
    "resnet": None,
}
# models of images and texts -> the part of them that sees
_TOWERS = {"clip": "clip_vision_model", "siglip": "siglip_vision_model"}
# keys of config.json that say nothing about the network, or that name code to run
_NOT_ARCHITECTURE = (
    "_name_or_path", "architectures", "auto_map", "dtype", "id2label", "label2id", "torch_dtype",
    "transformers_version", "problem_type", "num_labels",
)  # fmt: skip
_FILES = ("config.json", "preprocessor_config.json", "processor_config.json", "*.safetensors*")
Three = tuple[float, float, float]
# what a network may be built from; another key of a configuration does not reach transformers
_WHOLE = {
    **dict.fromkeys(("hidden_size", "embedding_size", "projection_dim"), (1, 16_384)),
    **dict.fromkeys(("pooler_output_size", "hidden_sizes"), (1, 16_384)),
    **dict.fromkeys(("num_hidden_layers", "num_attention_heads", "depths"), (1, 256)),
    **dict.fromkeys(("patch_size", "encoder_stride"), (1, 1024)),
    "intermediate_size": (1, 131_072),
    "image_size": (1, 4096),
    "num_channels": (3, 3),
    "num_stages": (1, 16),
    "num_register_tokens": (0, 1024),
}
_REAL = {
    **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), (0.0, 1.0)),
    **dict.fromkeys(("attention_dropout", "drop_path_rate", "layer_norm_eps"), (0.0, 1.0)),
    **dict.fromkeys(("initializer_range", "initializer_factor"), (0.0, 1e3)),
    **dict.fromkeys(("layerscale_value", "layer_scale_init_value"), (0.0, 1e3)),
    **dict.fromkeys(("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"), (0.0, 1e3)),
    "mlp_ratio": (0.0, 64.0),
    "rope_theta": (1e-3, 1e9),
}
_YES_OR_NO = frozenset(
    (
        "apply_layernorm", "downsample_in_bottleneck", "downsample_in_first_stage", "key_bias",
        "mlp_bias", "proj_bias", "qkv_bias", "query_bias", "reshape_hidden_states",
        "use_gated_mlp", "use_mask_token", "use_swiglu_ffn", "value_bias",
    )
)  # fmt: skip
_WORDS = frozenset(("hidden_act", "pooler_act", "layer_type"))
_MAY_BE_NULL = frozenset(
    ["pooler_output_size", "pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale"]
)
_LISTS = frozenset(("hidden_sizes", "depths"))


def model_folder(source: str, revision: str | None) -> Path:
    """Return the folder of a model: the one that is named, or a copy of the hub's."""
    if Path(source).is_dir():
        return Path(source)
    if source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise InputError(f"{source} is not a folder; give a folder with a model, or a hub name")
    need("hf", "an encoder of transformers")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=list(_FILES)))
    except Exception as error:  # of the network, of the hub, or of the name: many kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{source} is not a folder, and could not be downloaded from the hub ({reason:.200}); "
            "download the model where there is a network, and give its folder"
        ) from error


def weights_file(repository: str) -> Path:
    """Return ``model.safetensors`` of a model on the hub."""
    return weight_files(model_folder(repository, None))[0]


def read_architecture(folder: Path) -> dict[str, Any]:
    """Return the configuration of the vision tower, without bookkeeping keys."""
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} is not a model of transformers: it has no config.json")
    config = read_json(folder / "config.json")
    family = str(config.get("model_type"))
    if family in _TOWERS:
        config, family = dict(config.get("vision_config") or {}), _TOWERS[family]
    if family not in FAMILIES:
        known = [*FAMILIES, *_TOWERS]
        raise InputError(f"{folder} is a model of the type {family!r}{did_you_mean(family, known)}")
    kept = {k: v for k, v in config.items() if k not in _NOT_ARCHITECTURE}
    return json.loads(json.dumps({**kept, "model_type": family}))


def checked_architecture(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that describe the network, if their values are those of one that can be
    built.

    A configuration comes with a model or a run, perhaps of somebody else. Keys that do not describe
    a network are left out: some make transformers load code, or ask the hub.
    """
    family = body.get("model_type")
    if family not in FAMILIES:
        raise InputError(
            f"there is no network of the type {family!r:.60}{did_you_mean(str(family), FAMILIES)}"
        )
    checked: dict[str, Any] = {"model_type": family}
    for key, value in body.items():
        if key not in (*_WHOLE, *_REAL, *_YES_OR_NO, *_WORDS):
            continue
        listed = key in _LISTS and isinstance(value, list | tuple) and 1 <= len(value) <= 16
        values = list(value) if listed else [value]
        if listed != (key in _LISTS) or not all(_describes(key, one) for one in values):
            raise InputError(f"a {family} cannot be built with {key} {value!r:.80}")
        checked[key] = values if listed else value
    heads, width = checked.get("num_attention_heads", 1), checked.get("hidden_size", 0)
    if width % heads:
        raise InputError(f"a {family} cannot be built with {heads} heads for a width of {width}")
    return checked


def _describes(key: str, value: Any) -> bool:
    """Return whether a network can have this value."""
    if value is None:
        return key in _MAY_BE_NULL
    if key in _YES_OR_NO:
        return isinstance(value, bool)
    if key in _WORDS:
        return isinstance(value, str) and re.fullmatch(r"[a-z0-9_]{1,40}", value) is not None
    low, high = _WHOLE.get(key) or _REAL[key]
    kinds = (int,) if key in _WHOLE else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and low <= value <= high


def read_pixels(folder: Path) -> tuple[Three | None, Three | None, int | None]:
    """Return mean, deviation and side of the images, as the model's own preparation has them."""
    for name in ("preprocessor_config.json", "processor_config.json"):
        if (folder / name).is_file():
            body = read_json(folder / name)
            body = body.get("image_processor", body)
            size = body.get("crop_size") if body.get("do_center_crop") else None
            side = _side(size or body.get("size"))
            if body.get("do_normalize") is False:
                return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), side
            mean, std = (body.get(key) for key in ("image_mean", "image_std"))
            return (tuple(mean) if mean else None), (tuple(std) if std else None), side
    return None, None, None


def _side(size: Any) -> int | None:
    if isinstance(size, Mapping):
        size = size.get("height") or size.get("shortest_edge")
    return int(size) if isinstance(size, int) else None


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model."""
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise InputError(
            f"{folder} has no .safetensors file; other formats can run code when they are opened "
            "and are not read. Save the model with save_pretrained"
        )
    return found


def weights_hash(paths: list[Path]) -> str:
    """Return one SHA-256 for all weights of a model."""
    if len(paths) == 1:
        return file_sha256(paths[0])
    return hashlib.sha256("".join(map(file_sha256, paths)).encode()).hexdigest()


# -------------------------------------------------------------------------------------------------
# Vision networks of `transformers`: `--encoder hf:NAME_OR_FOLDER`.
#
# Weights are read from safetensors files alone, and code that comes with a model is never run. The
# configuration of the network becomes part of the specification, so that a trained run is loaded
# without the folder or the hub.
# -------------------------------------------------------------------------------------------------

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

    @property
    def is_complete(self) -> bool:
        return None not in (self.architecture, self.mean, self.std)

    def completed(self) -> HuggingFaceConfig:
        """Add the configuration, the pixels and the hash of the weights, read once."""
        if self.is_complete:
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
                "give them as ",
                Argument("model.mean", "[0.5,0.5,0.5]"),
                " ",
                Argument("model.std", "[0.5,0.5,0.5]"),
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
        """Set how many patches an image has, and whether positions must be interpolated."""
        self.side = image_size
        self.extra: dict[str, Any] = {}
        if FAMILIES[self.family] is None:
            return
        patch = int(self.sizes.patch_size)
        if image_size % patch:
            raise InputError(
                f"images of {image_size} px cannot be cut into the patches of {patch} px of "
                f"{self.config.source}; choose a ",
                Argument("data.size"),
                f" that {patch} divides, such as {max(1, round(image_size / patch)) * patch}",
            )
        self.grid = image_size // patch
        if self.family in ("vit", "deit", "clip_vision_model", "siglip_vision_model"):
            self.extra = {"interpolate_pos_encoding": image_size != self.sizes.image_size}

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> HuggingFace:
        return cls(HuggingFaceConfig.model_validate(config.model_dump()), image_size)

    def _blocks(self) -> nn.ModuleList:
        """Return the blocks of a transformer, the stages of a convolutional network."""
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
        """Return the linear layers.

        Query, key, value share their heads' masks, others have their own.
        """
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
    """Return the module that holds a block's query, key and value layers, and their names there."""
    for owner in block.modules():
        for names in (("q_proj", "k_proj", "v_proj"), ("query", "key", "value")):
            if all(isinstance(getattr(owner, name, None), nn.Linear) for name in names):
                return owner, names
    raise SpecError(f"{type(block).__name__} has no layers for query, key and value to read")


def _network(architecture: Mapping[str, Any]) -> nn.Module:
    need("hf", "an encoder of transformers")
    from transformers import AutoConfig, AutoModel

    rest = checked_architecture(architecture)
    family = str(rest.pop("model_type"))
    with _quiet():
        try:
            config = AutoConfig.for_model(family, **rest)
            return AutoModel.from_config(config, trust_remote_code=False, **_unpooled(family))
        except Exception as error:  # sizes that do not go together: transformers raises many kinds
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"a {family} of this configuration cannot be built ({reason:.200}); take the "
                "config.json of the model as it is"
            ) from error


def _unpooled(family: str) -> dict[str, bool]:
    return {"add_pooling_layer": False} if family in _UNPOOLED else {}


def load_into(network: nn.Module, config: HuggingFaceConfig) -> InitReport:
    """Load the weights of the model's folder, with an account of what matched and what did not."""
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
    """Silence the bars and reports of transformers: ours says what matched."""
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


# -------------------------------------------------------------------------------------------------
# Networks of `timm`: `--encoder timm:NAME`, with safetensors weights of the hub.
# -------------------------------------------------------------------------------------------------


class TimmConfig(EncoderConfig):
    """Which model; what is null is filled in from what timm knows of it."""

    source: str = Field(description="Name of the model, as timm.list_models gives it.")
    mean: Three | None = Field(None, description="Mean of the pixels, between 0 and 1.")
    std: Three | None = Field(None, description="Deviation of the pixels.")
    side: int | None = Field(None, ge=1, le=4096, description="Side of the images in pixels.")

    @property
    def image_size(self) -> int | None:
        return self.side

    def completed(self) -> TimmConfig:
        """Add the mean, the deviation and the size of the published weights."""
        if self.mean is not None and self.std is not None and self.side is not None:
            return self
        known = _published(self.source)
        found = {
            "mean": self.mean or tuple(known.mean),
            "std": self.std or tuple(known.std),
            "side": self.side or int(known.input_size[-1]),
        }
        return self.model_validate({**self.model_dump(), **found})


@register("timm", kind="encoder")
class Timm(Encoder):
    """Images (B, 3, H, W) to what timm's own classification layer reads; it has no taps."""

    Config = TimmConfig

    def __init__(self, config: TimmConfig, image_size: int) -> None:
        super().__init__()
        self.config = config.completed()
        assert self.config.mean is not None and self.config.std is not None
        self.mean, self.std = self.config.mean, self.config.std
        self.model = _timm_network(config.source, image_size)
        self.out_dim, self.taps = int(cast("Any", self.model).num_features), {}

    @classmethod
    def build(cls, config: EncoderConfig, image_size: int) -> Timm:
        return cls(TimmConfig.model_validate(config.model_dump()), image_size)

    def load_pretrained(self) -> InitReport | None:
        hub = getattr(_published(self.config.source), "hf_hub_id", None)
        if not hub:
            raise InputError(
                f"timm has no weights on the hub for {self.config.source}; choose one of "
                "timm.list_pretrained()"
            )
        report = load_weights(self.model, weights_file(str(hub)))
        missing = tuple(f"model.{name}" for name in report.missing)
        return InitReport(
            self.config.source, report.loaded, missing, report.unexpected, report.reshaped
        )

    @in_shares
    def forward_taps(
        self, images: Tensor, taps: tuple[str, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        self.check_taps(taps)
        features = self.model.forward_features(self.normalised(images))
        return self.model.forward_head(features, pre_logits=True), {}


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise MissingExtraError(
            f"the encoder timm: cannot be used here, because timm cannot be imported ({error}): "
            "pip install 'shasam[timm]'; it needs torchvision too",
            name="timm",
        ) from error
    return timm


def _published(name: str) -> Any:
    """Return what timm knows of the weights of a model."""
    timm = _timm()
    known = timm.models.get_pretrained_cfg(name) if timm.models.is_model(name) else None
    if known is None:
        raise InputError(f"timm has no model {name!r} with published weights")
    return known


def _timm_network(name: str, image_size: int) -> Any:
    timm = _timm()
    if not timm.models.is_model(name):  # hf-hub:NAME and local-dir:NAME would be looked up
        raise InputError(f"timm has no model {name!r:.80} of its own")
    try:
        return timm.create_model(name, pretrained=False, num_classes=0, img_size=image_size)
    except TypeError:  # a convolutional network takes images of any size
        return timm.create_model(name, pretrained=False, num_classes=0)
