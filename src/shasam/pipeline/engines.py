"""Where the runs of a sweep are carried out: in processes of this machine, or as tasks of Ray."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shasam.errors import ShasamError, Stopped
from shasam.files import open_in_place, remove, write_atomic
from shasam.integrations.loggers import loggers
from shasam.programs import program_words
from shasam.runs.directory import RunDirectory
from shasam.runs.machine import ExecutionOptions, threads_of_runs
from shasam.spec import DataSpec, RunSpec

if TYPE_CHECKING:
    from shasam.training.inference import TrainingData

# -------------------------------------------------------------------------------------------------
# Runs that start in milliseconds: forked from a process that has imported everything.
# -------------------------------------------------------------------------------------------------

POSSIBLE = sys.platform == "linux"  # elsewhere, forking a process with such libraries is not safe
_LOST = -signal.SIGKILL  # exit code reported if a process disappeared unreaped


class WarmStarter:
    """Starts commands of shasam through one ``shasam_warm``, which lives as long as it."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._server = subprocess.Popen(  # noqa: S603 - our own interpreter and program
            program_words("warm"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **variables},
            bufsize=0,
        )
        self._pending = b""
        self._began: list[int] = []
        self._codes: dict[int, int] = {}
        self._alive = True

    def start(self, words: Sequence[str], output: Path) -> WarmProcess:
        """Return a process that runs a command, with what it prints in a file."""
        request = json.dumps({"words": list(words), "output": str(output)}).encode() + b"\n"
        assert self._server.stdin is not None
        try:
            self._server.stdin.write(request)
        except BrokenPipeError:
            self._alive = False
        while self._alive and not self._began:
            self._listen(1.0)
        return WarmProcess(self, self._began.pop() if self._began else None)

    def code(self, pid: int | None) -> int | None:
        """Return the exit code of a process, None while it is under way."""
        self._listen(0.0)
        if pid in self._codes:
            return self._codes[pid]
        return None if pid is not None and (self._alive or _runs(pid)) else _LOST

    def close(self) -> None:
        """End the server; runs under way go on."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()

    def _listen(self, seconds: float) -> None:
        """Take in what the server has said, and wait for some seconds where it says nothing."""
        assert self._server.stdout is not None
        while select.select([self._server.stdout], [], [], seconds)[0]:
            found = self._server.stdout.read(1 << 16)
            if not found:
                self._alive = False
                return
            *lines, self._pending = (self._pending + found).split(b"\n")
            for line in map(json.loads, lines):
                if "began" in line:
                    self._began.append(line["began"])
                else:
                    self._codes[line["ended"]] = line["code"]
            seconds = 0.0


class WarmProcess:
    """A run under way; answers as ``subprocess.Popen`` does."""

    def __init__(self, starter: WarmStarter, pid: int | None) -> None:
        self._starter, self._pid = starter, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._starter.code(self._pid)
        return self.returncode

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.05)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._pid is not None and self.poll() is None:
            os.kill(self._pid, number)


def _runs(pid: int) -> bool:
    """Tell whether a process that is not our child is still running."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "XZ"


@contextmanager
def warm_starter(variables: Mapping[str, str]) -> Iterator[WarmStarter]:
    """Yield a starter that is ended with the block."""
    starter = WarmStarter(variables)
    try:
        yield starter
    finally:
        starter.close()


class RunProcess(Protocol):
    """A run under way; what ``subprocess.Popen`` says of a process."""

    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code, or None while the run is under way."""

    def terminate(self) -> None:
        """Ask the run to save a checkpoint and to stop."""

    def wait(self) -> int:
        """Return the exit code, once the run has ended."""

    def kill(self) -> None:
        """End it at once."""


class Engine(Protocol):
    """What starts runs."""

    word: str  # said of a run that was started

    @property
    def room(self) -> int:
        """How many runs may be under way together."""

    def start(self, spec: RunSpec, run: RunDirectory) -> RunProcess:
        """Start a run whose directory the caller has claimed."""


class LocalEngine:
    """Every run is a process of this machine; on Linux it is forked from one that is warm."""

    word = "begun"

    def __init__(self, how: ExecutionOptions, thumbnails: bool, stack: ExitStack) -> None:
        self.room = how.jobs or 1
        self._variables, self._flags = how.variables(), how.flags(how.device, thumbnails)
        self._stack = stack
        self._starter: WarmStarter | None = None

    def start(self, spec: RunSpec, run: RunDirectory) -> RunProcess:
        ask_for(spec, run)
        if not POSSIBLE:
            return start_training(run, self._flags, self._variables)
        if self._starter is None:  # not before there is a run to start
            self._starter = self._stack.enter_context(warm_starter(self._variables))
        remove(run.file("output.txt"))  # of the last time, or a link
        words = train_words(run, self._flags)
        return self._starter.start(words, run.file("output.txt"))


@dataclass
class EndedRun:
    """A run that was carried out before ``start`` returned."""

    code: int

    def __post_init__(self) -> None:
        self.returncode: int | None = self.code

    def poll(self) -> int | None:
        return self.code

    def wait(self) -> int:
        return self.code

    def terminate(self) -> None:
        """Do nothing: the run has ended."""

    def kill(self) -> None:
        """Do nothing: the run has ended."""


class InlineEngine:
    """Carries out every run in this process, one after the other.

    Runs whose specifications say the same of the data share it. Opening it, and importing, takes
    longer than a short run on vectors.
    """

    word = "ran"
    room = 1

    def __init__(self, how: ExecutionOptions, thumbnails: bool) -> None:
        import torch

        from shasam.training.runtime import Runtime

        listeners = loggers(how.log)
        self._runtime = Runtime(how.device, quiet=True, listeners=listeners, thumbnails=thumbnails)
        self._data: tuple[DataSpec, TrainingData] | None = None
        torch.set_num_threads(threads_of_runs(1, how.threads, reproducible=False))

    def start(self, spec: RunSpec, run: RunDirectory) -> RunProcess:
        from shasam.pipeline.execute import execute

        ask_for(spec, run)
        output = run.file("output.txt")
        remove(output)  # of the last time, or a link
        try:
            data = self._opened(spec.data)
            execute(spec, run.path.parent, runtime=self._runtime, resume=True, data=data)
        except Stopped as stopped:  # the run has saved its checkpoint; the sweep is to end too
            os.kill(os.getpid(), stopped.number)
            return EndedRun(128 + stopped.number)
        except ShasamError as error:
            write_atomic(output, f"shasam: {error}\n", within=run.path)
            return EndedRun(1)
        except Exception:  # of a library: as in a process of its own, the other runs go on
            write_atomic(output, traceback.format_exc(), within=run.path)
            return EndedRun(1)
        return EndedRun(0)

    def _opened(self, asked: DataSpec) -> TrainingData:
        from shasam.data import open_data

        if self._data is None or self._data[0] != asked:
            self._data = None  # not two of them at a time
            self._data = asked, open_data(asked)
        return self._data[1]


@contextmanager
def engine_of(
    how: ExecutionOptions, thumbnails: bool, say: Callable[[str], None]
) -> Iterator[Engine]:
    """Yield the engine that is asked for; a Ray that was started for it ends with the block."""
    loggers(how.log)  # a wrong name is said here once, and not by every run
    if how.engine == "inline":
        yield InlineEngine(how, thumbnails)
        return
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


def train_words(run: RunDirectory, flags: Sequence[str]) -> list[str]:
    """Return the command that trains what was asked for.

    ``flags`` are those of all runs of a sweep.
    """
    words = ["train", "--config", str(run.file("asked.yaml")), "--out", str(run.path.parent)]
    words += ["--resume", "--quiet", "--no-report", "--no-color"]
    words.append("--allow-chance")  # a comparison shows such a run, marked
    return [*words, *flags]


def start_training(
    run: RunDirectory,
    flags: Sequence[str],
    variables: Mapping[str, str],
    *,
    folder: Path | None = None,
    tied: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a process that trains what was asked for, in its own working folder if one is given.

    ``tied``: it stops when this process ends, however that ends (``shasam_tied``).
    """
    words = train_words(run, flags)
    command = [*program_words("tied" if tied else "command"), *words]
    output = (folder or Path()) / run.file("output.txt")
    remove(output)  # of the last time, or a link
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
