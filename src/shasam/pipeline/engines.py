"""Where the runs of a sweep are carried out: in processes of this machine, or as tasks of Ray."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from shasam.files import open_in_place, write_atomic
from shasam.pipeline import warm
from shasam.runs.directory import RunDirectory
from shasam.runs.how import How
from shasam.spec import RunSpec


class Work(Protocol):
    """A run under way; what ``subprocess.Popen`` says of a process."""

    returncode: int | None

    def poll(self) -> int | None:
        """The exit code, or None while the run is under way."""

    def terminate(self) -> None:
        """Ask the run to save a checkpoint and to stop."""

    def wait(self) -> int:
        """The exit code, once the run has ended."""

    def kill(self) -> None:
        """End it at once."""


class Engine(Protocol):
    """What starts runs."""

    word: str  # said of a run that was started

    @property
    def room(self) -> int:
        """How many runs may be under way together."""

    def start(self, spec: RunSpec, run: RunDirectory) -> Work:
        """Start a run whose directory the caller has claimed."""


class LocalEngine:
    """Every run is a process of this machine; on Linux it is forked from one that is warm."""

    word = "begun"

    def __init__(self, how: How, thumbnails: bool, stack: ExitStack) -> None:
        self.room = how.jobs or 1
        self._variables, self._device, self._thumbnails = how.variables(), how.device, thumbnails
        self._stack = stack
        self._starter: warm.WarmStarter | None = None

    def start(self, spec: RunSpec, run: RunDirectory) -> Work:
        ask_for(spec, run)
        if not warm.POSSIBLE:
            return start_training(run, self._device, self._variables, self._thumbnails)
        if self._starter is None:  # not before there is a run to start
            self._starter = self._stack.enter_context(warm.warm_starter(self._variables))
        run.file("output.txt").unlink(missing_ok=True)  # of the last time, or a link
        words = train_words(run, self._device, self._thumbnails)
        return self._starter.start(words, run.file("output.txt"))


@contextmanager
def engine_of(how: How, thumbnails: bool, say: Callable[[str], None]) -> Iterator[Engine]:
    """The engine that is asked for; a Ray that was started for it ends with the block."""
    if how.engine == "local":
        with ExitStack() as stack:
            yield LocalEngine(how, thumbnails, stack)
        return
    from shasam.cluster import connected

    with connected(how.address, "--engine ray"):
        from shasam.pipeline.ray_engine import RayEngine

        yield RayEngine(how, thumbnails, say)


def ask_for(spec: RunSpec, run: RunDirectory) -> None:
    """Write what the process of a run reads."""
    run.make()
    write_atomic(run.file("asked.yaml"), spec.as_yaml(), within=run.path)


def train_words(run: RunDirectory, device: str, thumbnails: bool) -> list[str]:
    """The command that trains what was asked for."""
    words = ["train", "--config", str(run.file("asked.yaml")), "--out", str(run.path.parent)]
    words += ["--resume", "--quiet", "--no-report", "--device", device, "--no-color"]
    return words if thumbnails else [*words, "--no-thumbnails"]


def start_training(
    run: RunDirectory,
    device: str,
    variables: Mapping[str, str],
    thumbnails: bool,
    *,
    folder: Path | None = None,
    tied: bool = False,
) -> subprocess.Popen[bytes]:
    """A process that trains what was asked for, in a working folder of its own if one is given.

    ``tied``: it stops when this process ends, however that ends (``shasam.commands.tied``).
    """
    program = "shasam.commands.tied" if tied else "shasam.cli"
    command = [sys.executable, "-m", program, *train_words(run, device, thumbnails)]
    output = (folder or Path()) / run.file("output.txt")
    output.unlink(missing_ok=True)  # of the last time, or a link
    with open(open_in_place(output, os.O_WRONLY | os.O_CREAT), "wb") as file:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and our own arguments
            command,
            stdin=subprocess.PIPE if tied else None,
            start_new_session=tied,  # Ray kills the group of a worker, and this is to save first
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
            cwd=folder,
        )
