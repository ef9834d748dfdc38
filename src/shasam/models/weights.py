"""Weights in a safetensors file, checked before anything computes with them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from shasam.errors import CheckpointError
from shasam.files import read_bytes

MAX_BYTES = 64 << 30


def read_weights(
    path: str | Path, *, sha256: str | None = None, within: Path | None = None
) -> dict[str, Tensor]:
    """The tensors of a file whose hash is ``sha256``, if that is known, and all of them finite.

    A flipped bit in a weight changes predictions and nothing else shows it; NaN weights predict
    the first class for every image.
    """
    content = read_bytes(path, limit=MAX_BYTES, within=within)
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise CheckpointError(
            f"{path} is damaged: its SHA-256 is not the one that was written down at the end of "
            "training. Put the file back from a copy, or train again"
        )
    try:
        tensors = load(content)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a readable safetensors file: {error}") from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"{path} cannot be used: {name} holds NaN or infinity. The file is damaged, or "
                "training had failed; train again"
            )
    return tensors
