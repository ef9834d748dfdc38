"""Checkpoints: tensors in safetensors, the rest in JSON, hashed, atomic, two of them kept.

``<number>.safetensors`` is written first, then ``<number>.json`` with the sha256 of both. A
checkpoint exists only if both files are there and both hashes are right.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from shasam.errors import Argument, CheckpointError, FileError
from shasam.files import make_folder, read_bytes, write_atomic

_NAME = re.compile(r"^(\d{8})\.json$")
MAX_BYTES = 64 << 30  # of the tensors of one checkpoint


@dataclass(frozen=True)
class Checkpoint:
    """What training needs to go on: tensors by name, and small JSON state."""

    tensors: dict[str, Tensor]
    state: dict[str, Any]

    @property
    def digest(self) -> str:
        """Return a short hash of the checkpoint; elapsed time makes it unique to the run."""
        return _digest(self.state)[:12]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors under a prefix, with the prefix taken off."""
        return {
            name[len(prefix) + 1 :]: tensor
            for name, tensor in self.tensors.items()
            if name.startswith(prefix + ".")
        }


def to_bytes(tensors: dict[str, Tensor]) -> bytes:
    """Return safetensors of the tensors; those that share memory are written once for each name."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        value = tensor.detach().contiguous()
        apart[name] = value.clone() if value.data_ptr() in seen else value
        seen.add(value.data_ptr())
    return save(apart)


def save_checkpoint(folder: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> Path:
    """Write the next checkpoint; beside it stays the newest older one whose hashes are right."""
    try:
        make_folder(folder, within=folder.parent)
        numbers = _numbers(folder)
        number = (numbers[-1] if numbers else 0) + 1
        content = to_bytes(tensors)
        body = {"state": state, "tensors_sha256": hashlib.sha256(content).hexdigest()}
        write_atomic(folder / f"{number:08d}.safetensors", content, within=folder.parent)
        write_atomic(folder / f"{number:08d}.json", _text(body), within=folder.parent)
        _delete_old(folder, numbers)
    except (OSError, FileError) as error:
        raise CheckpointError(
            f"the checkpoint could not be written ({error}); free space or choose another ",
            Argument("out"),
            ", then continue with ",
            Argument("resume"),
        ) from error
    return folder / f"{number:08d}.json"


def _delete_old(folder: Path, numbers: list[int]) -> None:
    """Delete all of these but the newest that is good; none where none is good.

    The new checkpoint may still be damaged on the disk, and a damaged one in between must not count
    as the one to fall back on. So each is read again before an older one is given up.
    """
    for place in reversed(range(len(numbers))):
        try:
            _read_verified(folder / f"{numbers[place]:08d}.json")
        except CheckpointError:
            continue
        for old in numbers[:place] + numbers[place + 1 :]:
            # the JSON goes first: half a checkpoint is no checkpoint
            (folder / f"{old:08d}.json").unlink(missing_ok=True)
            (folder / f"{old:08d}.safetensors").unlink(missing_ok=True)
        return


def load_checkpoint(folder: Path, say: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest good checkpoint, or None if there never was one."""
    numbers = _numbers(folder)
    for number in reversed(numbers):
        try:
            return read_checkpoint(folder / f"{number:08d}.json")
        except CheckpointError as error:
            say(f"{error}; using the one before")
    if numbers:
        raise CheckpointError(
            f"none of the {len(numbers)} checkpoints in {folder} can be trusted; "
            "train again without ",
            Argument("resume"),
            ", in another ",
            Argument("out"),
            " or after deleting the run",
        )
    return None


def read_checkpoint(path: Path) -> Checkpoint:
    """Read one checkpoint and check both hashes before anything of it is used."""
    body, content = _read_verified(path)
    try:
        return Checkpoint(load(content), body["state"])
    except SafetensorError as error:
        raise CheckpointError(f"checkpoint {path.stem} is unreadable ({error})") from error


@contextmanager
def must_fit() -> Iterator[None]:
    """Say that a checkpoint is not of this run, in place of the error of a library.

    Its hashes tell damage, not who wrote it: the folder may be somebody else's.
    """
    try:
        yield
    except (AttributeError, LookupError, ArithmeticError, RuntimeError, TypeError, ValueError) as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise CheckpointError(
            f"the checkpoint is not of this run ({reason:.200}); train in another ",
            Argument("out"),
            ", or delete the run",
        ) from e


def _read_verified(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the JSON and the tensors' bytes of a checkpoint whose two hashes are right."""
    try:
        root = path.parent.parent
        text = read_bytes(path, within=root)
        body = json.loads(text)
        content = read_bytes(path.with_suffix(".safetensors"), limit=MAX_BYTES, within=root)
    except (FileError, ValueError, RecursionError) as error:
        raise CheckpointError(f"checkpoint {path.stem} is unreadable ({error})") from error
    # the bytes are compared, too: 1e-05 and 1E-05 are the same number, but one of them is damage
    whole = isinstance(body, dict) and body.pop("sha256", None) == _digest(body)
    if not whole or text != _text(body) or not isinstance(body.get("state"), dict):
        raise CheckpointError(f"checkpoint {path.stem} is damaged (its JSON fails its checksum)")
    if hashlib.sha256(content).hexdigest() != body.get("tensors_sha256"):
        raise CheckpointError(f"checkpoint {path.stem} is damaged (its weights fail the checksum)")
    return body, content


def _text(body: dict[str, Any]) -> bytes:
    return json.dumps({**body, "sha256": _digest(body)}, indent=1).encode()


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _numbers(folder: Path) -> list[int]:
    if not folder.is_dir():
        return []
    found = (_NAME.match(name) for name in os.listdir(folder))
    return sorted(int(match[1]) for match in found if match)
