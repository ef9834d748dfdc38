"""Pretrained weights from a file: safetensors only, with a report on every key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from shasam.errors import Argument, CheckpointError, FileError, InputError
from shasam.files import read_bytes

# -------------------------------------------------------------------------------------------------
# Weights in a safetensors file, checked before anything computes with them.
# -------------------------------------------------------------------------------------------------

MAX_BYTES = 64 << 30


def read_weights(
    path: str | Path, *, sha256: str | None = None, within: Path | None = None
) -> dict[str, Tensor]:
    """Read the tensors of a file whose hash is ``sha256``, if that is known, and all of them
    finite.

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


# classification layers of the pretrained network: not wanted, so not worth a warning
_HEADS = ("fc.", "_fc.", "head.", "head_dist.", "dist_token", "num_batches_tracked")


@dataclass(frozen=True)
class InitReport:
    """What became of the keys of a weights file."""

    path: str
    loaded: int
    missing: tuple[str, ...]  # in the encoder, not in the file: these keep their random start
    unexpected: tuple[str, ...]  # in the file, not in the encoder
    reshaped: tuple[str, ...]  # position embeddings that were interpolated

    def __str__(self) -> str:
        text = f"{self.loaded} tensors from {self.path}"
        for word in ("missing", "unexpected", "reshaped"):
            keys = getattr(self, word)
            if keys:
                shown = ", ".join(keys[:5]) + (", ..." if len(keys) > 5 else "")
                text += f"; {len(keys)} {word}: {shown}"
        return text


def load_weights(encoder: nn.Module, path: str | Path) -> InitReport:
    """Copy the weights of a .safetensors file into the encoder."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise InputError(
            f"{path.name}: only .safetensors weights are read, because other formats can run code "
            "when they are opened. Convert once, where you trust the file: "
            "safetensors.torch.save_file(torch.load('weights.pth', weights_only=True), "
            "'weights.safetensors')"
        )
    if not path.is_file():
        raise InputError(f"there is no weights file {path}; check ", Argument("model.init"))
    try:
        given = read_weights(path)
    except (CheckpointError, FileError) as error:
        raise InputError(str(error)) from error
    return copy_weights(encoder, given, str(path))


def copy_weights(encoder: nn.Module, given: Mapping[str, Tensor], origin: str) -> InitReport:
    """Copy tensors into the encoder, matching keys by name; ``origin`` is named in the report."""
    own = encoder.state_dict()
    chosen: dict[str, Tensor] = {}
    wrong: list[str] = []
    reshaped: list[str] = []
    for key in own.keys() & given.keys():
        value = given[key]
        if value.shape != own[key].shape and key.endswith("pos_embed"):
            value = _resize_positions(value, own[key].shape[1])
            reshaped.append(key)
        if value.shape != own[key].shape:
            wrong.append(f"{key} is {tuple(given[key].shape)}, needed {tuple(own[key].shape)}")
        else:
            chosen[key] = value
    if wrong:
        raise InputError(
            f"{origin} does not fit the encoder: {'; '.join(sorted(wrong)[:5])}"
            " - set model.width, model.stem, model.size or model.patch to those of the file"
        )
    if not chosen:
        raise InputError(
            f"{origin} has none of the encoder's keys; it has {sorted(given)[:3]}, "
            f"the encoder {sorted(own)[:3]}"
        )
    encoder.load_state_dict(chosen, strict=False)
    missing = sorted(own.keys() - chosen.keys())
    unexpected = sorted(k for k in given.keys() - own.keys() if not k.startswith(_HEADS))
    return InitReport(origin, len(chosen), tuple(missing), tuple(unexpected), tuple(reshaped))


def _resize_positions(pos: Tensor, tokens: int) -> Tensor:
    """Resize position embeddings (1, 1 + g*g, D) bicubically; the class token stays."""
    old, new = int((pos.shape[1] - 1) ** 0.5), int((tokens - 1) ** 0.5)
    if old * old + 1 != pos.shape[1] or new * new + 1 != tokens:
        return pos  # not a square grid with a class token: the caller reports the shape
    grid = pos[:, 1:].reshape(1, old, old, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid.float(), (new, new), mode="bicubic", align_corners=False)
    return torch.cat([pos[:, :1], grid.permute(0, 2, 3, 1).reshape(1, new * new, -1)], dim=1)
