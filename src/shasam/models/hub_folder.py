"""The files of a model of ``transformers``: in a folder, or on the hub and then copied to one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shasam.documents import read_json
from shasam.errors import InputError
from shasam.extras import need
from shasam.files import file_sha256
from shasam.registry import did_you_mean

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


def model_folder(source: str, revision: str | None) -> Path:
    """The folder of a model: the one that is named, or a copy of the hub's."""
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
    """``model.safetensors`` of a model on the hub."""
    return weight_files(model_folder(repository, None))[0]


def read_architecture(folder: Path) -> dict[str, Any]:
    """The configuration of the network that sees, without what does not describe it."""
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


def read_pixels(folder: Path) -> tuple[Three | None, Three | None, int | None]:
    """Mean, deviation and side of the images, as the model's own preparation has them."""
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
    """The safetensors files of a model."""
    found = sorted(folder.glob("*.safetensors"))
    if not found:
        raise InputError(
            f"{folder} has no .safetensors file; other formats can run code when they are opened "
            "and are not read. Save the model with save_pretrained"
        )
    return found


def weights_hash(paths: list[Path]) -> str:
    """One SHA-256 for all weights of a model."""
    if len(paths) == 1:
        return file_sha256(paths[0])
    return hashlib.sha256("".join(map(file_sha256, paths)).encode()).hexdigest()
