"""Tiny models of every family, with random weights, saved as transformers saves models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="needs shasam[hf]")

MEAN, STD, SIDE = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3), 32
_TOKENS = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
_TOKENS |= {"image_size": SIDE, "patch_size": 8}
_WIDE = {**_TOKENS, "intermediate_size": 24}
_STAGES = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
CONFIGS = {
    "vit": ("ViTConfig", _WIDE),
    "deit": ("DeiTConfig", _WIDE),
    "dinov2": ("Dinov2Config", {**_TOKENS, "mlp_ratio": 2}),
    "dinov2_with_registers": ("Dinov2WithRegistersConfig", {**_TOKENS, "mlp_ratio": 2}),
    "dinov3_vit": ("DINOv3ViTConfig", {**_WIDE, "num_register_tokens": 2}),
    "clip_vision_model": ("CLIPVisionConfig", _WIDE),
    "siglip_vision_model": ("SiglipVisionConfig", _WIDE),
    "convnext": ("ConvNextConfig", _STAGES),
    "resnet": ("ResNetConfig", {"embedding_size": 8, "layer_type": "basic", **_STAGES}),
}


def saved(folder: Path, family: str, *, pixels: bool = True) -> Path:
    """A folder with a model of a family."""
    torch.manual_seed(0)
    name, options = CONFIGS[family]
    model = transformers.AutoModel.from_config(getattr(transformers, name)(**options))
    for parameter in model.parameters():  # layers that start at 0 would hide what they are for
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    if pixels:
        body = {"image_mean": MEAN, "image_std": STD, "size": {"height": SIDE, "width": SIDE}}
        (folder / "preprocessor_config.json").write_text(json.dumps(body))
    return folder
