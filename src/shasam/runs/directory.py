"""A run directory: named by its specification, locked while it is written, DONE at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import lock_descriptor

from shasam.documents import read_json, read_yaml
from shasam.errors import BusyError, CheckpointError, FileError, InputError
from shasam.files import open_in_place, write_atomic
from shasam.spec import RunSpec, stored_spec


class RunDirectory:
    """The files of one run; ``docs/files.md`` says what is in each."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def existing(cls, path: str | Path) -> RunDirectory:
        """A run that is there, or an error that says what was expected."""
        run = cls(path)
        if not run.file("spec.yaml").is_file():
            raise InputError(f"{path} is not a run directory: it has no spec.yaml")
        return run

    def file(self, name: str) -> Path:
        return self.path / name

    @property
    def done(self) -> bool:
        return self.file("DONE").is_file()

    @property
    def has_checkpoint(self) -> bool:
        folder = self.file("checkpoints")
        return folder.is_dir() and any(folder.glob("*.json"))

    def make(self) -> None:
        """Create the directory, or say why that cannot be."""
        try:
            write_atomic(self.file(".writable"), b"")
            self.file(".writable").unlink(missing_ok=True)
        except FileError as error:
            raise CheckpointError(
                f"the run directory {self.path} cannot be written ({error}); "
                "choose another with --out"
            ) from error

    def write(self, name: str, content: bytes) -> None:
        """A file, whole or not at all."""
        write_atomic(self.file(name), content, within=self.path)

    def write_json(self, name: str, body: Any) -> None:
        self.write(name, (json.dumps(body, indent=1, allow_nan=False) + "\n").encode())

    def metrics(self) -> dict[str, Any]:
        """``metrics.json``: {"test": {"accuracy": {"value": ...}, ...}, "val": ..., ...}."""
        return self.json("metrics.json")

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file of the run, or a sentence about what is wrong with it."""
        return read_json(self.file(name), within=self.path)

    def spec(self) -> RunSpec:
        """The specification, checked again as it is read."""
        return stored_spec(read_yaml(self.file("spec.yaml"), within=self.path))

    @contextmanager
    def lock(self, name: str = ".lock") -> Iterator[None]:
        """Keep other processes out; the system lets go of the lock when the process dies."""
        handle = open_in_place(self.file(name), os.O_RDWR | os.O_CREAT)
        try:
            if not lock_descriptor(handle, blocking=False):
                raise BusyError(
                    f"another process is working on {self.path}; wait for it, or train with "
                    "another seed or --out"
                )
            yield
        finally:
            os.close(handle)

    @contextmanager
    def claim(self) -> Iterator[None]:
        """What a sweep holds while it carries out a run, from before the run starts to its end.

        The run itself takes the lock. A claim is refused while another sweep has claimed the run,
        and while any process has its lock.
        """
        with self.lock(".claim"):
            with self.lock():
                pass
            yield
