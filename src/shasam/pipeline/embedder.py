"""An encoder that turns images into vectors: a pretrained one by name, or that of a trained run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shasam.errors import SpecError
from shasam.models import build_encoder, start_weights
from shasam.pipeline.load import load
from shasam.spec.model import ModelSpec
from shasam.training.checkpoint import to_bytes
from shasam.training.prepare import prepare, prepare_images


@dataclass(frozen=True)
class Embedder:
    """Images of ``size`` pixels to vectors of ``width`` numbers."""

    name: str
    options: dict[str, Any]
    size: int
    width: int
    sha256: str  # of the weights
    device: torch.device
    encode: Callable[[Tensor], Tensor]

    def __call__(self, images_u8: np.ndarray) -> np.ndarray:
        """Vectors (B, D) float32 of images (B, H, W, 3)."""
        pixels = torch.from_numpy(images_u8).permute(0, 3, 1, 2)
        with torch.no_grad():
            return self.encode(prepare_images(pixels, self.device)).float().cpu().numpy()


def of_run(path: Path, device: str = "cpu") -> Embedder:
    """The encoder of a trained run."""
    model = load(path, device)
    encoder, spec = model.method.encoder, model.spec

    def encode(images: Tensor) -> Tensor:
        with model.fabric.autocast():
            return model.method.features(images)["encoder"]

    return Embedder(
        f"{spec.model.encoder} of the run {spec.name}",
        dict(spec.model.options),
        spec.data.size,
        encoder.out_dim,
        _digest(encoder),
        model.fabric.device,
        encode,
    )


def by_name(model: ModelSpec, size: int, device: str = "cpu") -> Embedder:
    """A pretrained encoder, or another with the weights of ``model.init``."""
    encoder = build_encoder(model, size)
    if start_weights(encoder, model) is None:
        raise SpecError(
            f"the encoder {model.encoder} has random weights here, so its embeddings would be "
            "meaningless; name a pretrained encoder or a run directory, or give weights with --init"
        )
    prepare(encoder, device)
    options = dict(model.options)
    where = torch.device(device)
    return Embedder(model.encoder, options, size, encoder.out_dim, _digest(encoder), where, encoder)


def _digest(encoder: nn.Module) -> str:
    """SHA-256 of all tensors of an encoder."""
    return hashlib.sha256(to_bytes(encoder.state_dict())).hexdigest()
