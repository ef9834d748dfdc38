"""What the frozen blocks of a pretrained encoder make of every image, computed once and kept.

Fine-tuning only the last blocks spends most of its time in blocks that do not move. Their results
for an image and its mirror image are kept beside the packed images, in half precision, and training
begins there. The folder is named by the hash of all that they depend on: images, weights, blocks
and size. It is mapped, not read; a process that finds it whole computes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from filelock import lock_descriptor
from torch import Tensor

from shasam.data.dataset import Dataset
from shasam.data.splits import Manifest
from shasam.data.store import Store, unverified
from shasam.documents import read_json
from shasam.errors import Argument, DataError, ShasamError
from shasam.files import (
    file_sha256,
    make_folder,
    open_in_place,
    read_bytes,
    remove_leftovers,
    write_atomic,
)
from shasam.keyed import keys_torch, uniform_torch
from shasam.memory import readable
from shasam.models import Encoder, build_encoder, start_weights
from shasam.spec.fields import ModelSpec
from shasam.training.checkpoint import to_bytes
from shasam.training.inference import TrainingData, prepare, prepare_images

_VERSION = 1
_PART = 2048  # images of a file: what a kill costs at most
_BATCH = 64  # images that are computed together
_RECORD = "maps.json"


@dataclass(frozen=True)
class CachedMaps:
    """A data set whose ``images`` are the maps (B, C, h, w) of its images, in half precision."""

    data: Dataset
    parts: Sequence[np.ndarray] = field(repr=False)  # (n, 2, h, w, C): image, mirror image

    @property
    def manifest(self) -> Manifest:
        return self.data.manifest

    @property
    def classes(self) -> int:
        return self.data.classes

    @property
    def groups(self) -> int:
        return self.data.groups

    @property
    def attributes(self) -> pa.Table:
        return self.data.attributes

    def rows(self, split: str) -> np.ndarray:
        """Return row numbers of "train", "val" or "test"."""
        return self.data.rows(split)

    def images(self, rows: np.ndarray | Tensor) -> Tensor:
        """Return the maps of images as they are."""
        return self._maps(rows, np.zeros(len(rows), np.int64))

    def views(self, rows: Tensor, seed: int, draw: int, views: int, flip: float) -> Tensor:
        """Return (V*B, C, h, w): mirrored with probability ``flip``.

        A second view is the other one.
        """
        chance_B = uniform_torch(keys_torch(seed, draw, rows), 1)[:, 0]
        first_B = (chance_B < flip).long()
        sides = [(first_B + view) % 2 for view in range(views)]
        return torch.cat([self._maps(rows, side.numpy()) for side in sides])

    def _maps(self, rows: np.ndarray | Tensor, side: np.ndarray) -> Tensor:
        places = self.data.store_rows[np.asarray(rows, dtype=np.int64)]
        out = np.empty((len(places), *self.parts[0].shape[2:]), np.float16)
        part, place = np.divmod(places, _PART)
        for i, (number, row) in enumerate(zip(part.tolist(), place.tolist(), strict=True)):
            out[i] = self.parts[number][row, side[i]]
        return torch.from_numpy(out).permute(0, 3, 1, 2)


def cached_maps(
    model: ModelSpec,
    size: int,
    data: TrainingData,
    device: torch.device,
    say: Callable[[str], None] = lambda text: None,
) -> CachedMaps:
    """Return the data with the maps of its images: those that are kept, or computed now."""
    if not isinstance(data, Dataset) or not isinstance(data.store, Store):
        raise DataError("model.cache is for images that are packed; leave it out here")
    encoder = build_encoder(model, size)
    start_weights(encoder, model)
    prepare(encoder, device)
    store = data.store
    folder = store.directory / f"maps-{_key(encoder, model, store)[:16]}"
    make_folder(folder)
    with _alone(folder):
        with torch.no_grad():
            shape = tuple(encoder.before_cut(_pixels(store, np.arange(1), device)).shape[1:])
        shape = (2, *shape[1:], shape[0])  # both sides, channels last
        taken = 2 * int(np.prod(shape)) * len(store)
        what = f"the frozen blocks' results for {len(store):,} images and their mirror images"
        if not _whole(folder):
            say(f"computing {what}: {readable(taken)} in {folder}")
            _compute(encoder, store, folder, shape, taken, device)
        else:
            say(f"{what} are kept: {readable(taken)} in {folder}, mapped as they are used")
    counts = [min(_PART, len(store) - start) for start in range(0, len(store), _PART)]
    parts = [
        np.memmap(_file(folder, number), np.float16, "r", shape=(count, *shape))
        for number, count in enumerate(counts)
    ]
    return CachedMaps(data, parts)


def _compute(
    encoder: Encoder,
    store: Store,
    folder: Path,
    shape: tuple[int, ...],
    taken: int,
    device: torch.device,
) -> None:
    free = shutil.disk_usage(folder).free
    if taken > free:
        raise DataError(
            f"the frozen blocks' results need {readable(taken)} and {folder} has {readable(free)} "
            "free; free space, choose a smaller ",
            Argument("data.size"),
            ", or another disk with ",
            Argument("data.store"),
        )
    remove_leftovers(folder)
    (folder / _RECORD).unlink(missing_ok=True)
    hashes = {}
    for number, start in enumerate(range(0, len(store), _PART)):
        rows = np.arange(start, min(start + _PART, len(store)))
        path = _file(folder, number)
        if not path.is_file() or path.stat().st_size != 2 * len(rows) * int(np.prod(shape)):
            write_atomic(path, _part(encoder, store, rows, shape, device).data)
        hashes[path.name] = file_sha256(path)
    write_atomic(folder / _RECORD, json.dumps({"version": _VERSION, "files": hashes}))


def _part(
    encoder: Encoder, store: Store, rows: np.ndarray, shape: tuple[int, ...], device: torch.device
) -> np.ndarray:
    out = np.empty((len(rows), *shape), np.float16)
    for start in range(0, len(rows), _BATCH):
        images = _pixels(store, rows[start : start + _BATCH], device)
        for side, seen in enumerate((images, images.flip(3))):
            seen = seen.contiguous(memory_format=torch.channels_last)
            maps = encoder.before_cut(seen).permute(0, 2, 3, 1).cpu().numpy()
            out[start : start + _BATCH, side] = maps
    if not np.isfinite(out).all():
        raise DataError(
            "the frozen blocks give numbers beyond half precision, or NaN; train without ",
            Argument("model.cache"),
        )
    return out


def _pixels(store: Store, rows: np.ndarray, device: torch.device) -> Tensor:
    return prepare_images(torch.from_numpy(store.images(rows)).permute(0, 3, 1, 2), device)


def _key(encoder: Encoder, model: ModelSpec, store: Store) -> str:
    """Return a hash of all that the maps depend on."""
    frozen = {id(p) for p in encoder.frozen}
    names = {name for name, p in encoder.named_parameters() if id(p) in frozen}
    modules = {name.rpartition(".")[0] for name in names}
    held = {
        name: tensor
        for name, tensor in encoder.state_dict().items()
        if name.rpartition(".")[0] in modules
    }
    about: dict[str, Any] = {
        "version": _VERSION,
        "encoder": model.encoder,
        "cut": encoder.cut,
        "pixels": [encoder.mean, encoder.std],
        "weights": hashlib.sha256(to_bytes(held)).hexdigest(),
        "images": hashlib.sha256(read_bytes(store.directory / "store.json")).hexdigest(),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _whole(folder: Path) -> bool:
    try:
        files = read_json(folder / _RECORD)["files"]
        bad = unverified(folder, files)
    except (ShasamError, KeyError, TypeError, AttributeError):
        return False
    for name in bad:
        (folder / Path(name).name).unlink(missing_ok=True)
    return not bad


def _file(folder: Path, number: int) -> Path:
    return folder / f"part-{number:05d}.bin"


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process compute; the others wait for it and find the files."""
    handle = open_in_place(folder / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        lock_descriptor(handle, blocking=True)
        yield
    finally:
        os.close(handle)
