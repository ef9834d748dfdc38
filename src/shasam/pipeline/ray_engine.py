"""Runs as tasks of Ray: each asks for its processors and GPUs, and survives a lost worker.

The task starts the same process as the local engine and waits for it. When a worker or a node is
lost, the sweep sends the run again, and it goes on from its checkpoint in the shared folder.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError, TaskCancelledError

import shasam
from shasam.errors import Argument, BusyError, ClusterError
from shasam.files import append
from shasam.pipeline.engines import ask_for, start_training
from shasam.runs.directory import RunDirectory
from shasam.runs.machine import ExecutionOptions
from shasam.spec import RunSpec

LOSSES = 20  # times that the worker of one run may be lost; more is a run that ends its workers
NODES_SECONDS = 5.0  # between looks at what the cluster has
LOCK_SECONDS = 120.0  # until the lock of a lost process is free; NFS 4 holds it for up to 90
_STOPPED = 128 + signal.SIGTERM


class RayEngine:
    """Every run is a task; as many are sent as the cluster has room for."""

    word = "sent"

    def __init__(self, how: ExecutionOptions, thumbnails: bool, say: Callable[[str], None]) -> None:
        self.say, self._most = say, how.jobs
        own = {name: value for name, value in os.environ.items() if name.startswith("SHASAM_")}
        self.variables = own | how.variables()
        self.device = how.device
        if self.device == "auto":  # each node for itself would find other devices
            self.device = "cuda" if any(_of(node, "GPU") for node in _nodes()) else "cpu"
        self.flags = how.flags(self.device, thumbnails)
        self.task = ray.remote(carry_out)
        self._looked, self._room = -NODES_SECONDS, 1
        self._largest = 1  # train.devices of the runs so far
        self._placed: set[int] = set()  # values of train.devices that a node had room for

    @property
    def room(self) -> int:
        """What was asked for, or what fits on the nodes that are there now, but at least one.

        More than what fits waits in Ray's queue, by which a cluster may grow.
        """
        if self._most is not None:
            return self._most
        if time.monotonic() - self._looked > NODES_SECONDS:
            self._room = max(1, sum(self._fits(node, self._largest) for node in _nodes()))
            self._looked = time.monotonic()
        return self._room

    def needs(self, devices: int) -> dict[str, float]:
        """Return the resources of a run with so many processes."""
        needed = {"CPU": float(int(self.variables["OMP_NUM_THREADS"]) * devices)}
        return needed | ({"GPU": float(devices)} if self.device == "cuda" else {})

    def _fits(self, node: Mapping[str, float], devices: int) -> int:
        return min(int(_of(node, kind) // much) for kind, much in self.needs(devices).items())

    def start(self, spec: RunSpec, run: RunDirectory) -> RayRun:
        devices = spec.train.devices
        self._largest = max(self._largest, devices)
        if devices not in self._placed and not any(self._fits(n, devices) for n in _nodes()):
            raise self._no_place(spec)  # now; later a lost node may come back
        self._placed.add(devices)
        ask_for(spec, run)
        return RayRun(self, spec, run)

    def _no_place(self, spec: RunSpec) -> ClusterError:
        asked = " and ".join(f"{m:g} {kind}" for kind, m in self.needs(spec.train.devices).items())
        kinds = list(self.needs(1))
        has = [" and ".join(f"{_of(node, k):g} {k}" for k in kinds) for node in _nodes()]
        return ClusterError(
            f"{spec.name} needs {asked} on one node of the Ray cluster, whose nodes have "
            f"{', '.join(sorted(set(has))) or 'nothing'}; choose other ",
            Argument("threads"),
            " or another ",
            Argument("device"),
            ", or add a node",
        )


class RayRun:
    """The task of one run, sent again when its worker is lost."""

    def __init__(self, engine: RayEngine, spec: RunSpec, run: RunDirectory) -> None:
        self._engine, self._spec, self._run = engine, spec, run
        self._losses, self._stopping = 0, False
        self.returncode: int | None = None
        self._send()

    def _send(self) -> None:
        engine, needed = self._engine, self._engine.needs(self._spec.train.devices)
        task = engine.task.options(
            name=f"shasam {self._spec.name}",
            num_cpus=needed["CPU"],
            num_gpus=needed.get("GPU", 0),
            max_retries=0,  # the sweep sends it again itself, and says so
        )
        self._task = task.remote(
            str(Path.cwd()),
            str(self._run.path),
            engine.flags,
            engine.variables,
            shasam.__version__,
        )

    def poll(self) -> int | None:
        if self.returncode is None and ray.wait([self._task], timeout=0)[0]:
            self._receive()
        return self.returncode

    def _receive(self) -> None:
        try:
            self.returncode = ray.get(self._task)
        except TaskCancelledError:
            self.returncode = _STOPPED
        except RayTaskError as error:  # our own function, or what it imports on that node
            self._fail(_reason(error))
        except RayError as error:
            self._losses += 1
            if self._stopping:
                self.returncode = _STOPPED
            elif self._losses > LOSSES:
                self._fail(f"its worker was lost {self._losses} times: {_reason(error)}")
            else:
                self._engine.say(
                    f"lost    {self._spec.name} seed {self._spec.seed}  its worker ended "
                    f"({type(error).__name__}); sent again, to go on from its checkpoint"
                )
                self._send()

    def _fail(self, why: str) -> None:
        """Write the reason as the last line of what the run printed, as all others do."""
        append(self._run.file("output.txt"), f"{why}\n".encode())
        self.returncode = 1

    def terminate(self) -> None:
        self._stopping = True
        ray.cancel(self._task)

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.1)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """Stop the run: its process is tied to the worker, and ends with it."""
        self._stopping = True
        ray.cancel(self._task, force=True)


def carry_out(
    folder: str,
    path: str,
    flags: Sequence[str],
    variables: Mapping[str, str],
    version: str,
) -> int:
    """Train the run at ``path`` on a worker, in a working folder; return its process's exit code.

    Ray stops a task by raising KeyboardInterrupt in it; the process then saves its checkpoint.
    """
    here = socket.gethostname()
    if version != shasam.__version__:
        raise ClusterError(
            f"{here} has shasam {shasam.__version__} and the sweep {version}; install one version"
        )
    run = RunDirectory(Path(folder) / path)
    if not run.path.is_dir():
        raise ClusterError(
            f"{here} does not see {run.path}; start the sweep in a folder that all nodes share, "
            "under the same name"
        )
    # Ray interrupts a task as Ctrl-C does, and in vain where whoever started the node ignores that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = None
    try:
        if run.done:  # by a task whose answer was lost with its node
            return 0
        _await_lock(run)
        process = start_training(
            RunDirectory(path), flags, variables, folder=Path(folder), tied=True
        )
        while (code := process.poll()) is None:
            time.sleep(0.2)  # short sleeps: a cancelled task is interrupted between them
        return code
    except KeyboardInterrupt:
        if process is None:
            return _STOPPED
        process.terminate()
        return process.wait()


def _await_lock(run: RunDirectory) -> None:
    """Wait for the process of a lost worker, which may still be saving its checkpoint.

    Where the lock stays taken, the run is started all the same: it gives way with a sentence, and
    the sweep waits for whoever has it.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < deadline:
        try:
            with run.lock():
                return
        except BusyError:
            time.sleep(0.5)


def _nodes() -> list[dict[str, float]]:
    """Return the resources of every node that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _of(node: Mapping[str, float], kind: str) -> float:
    return node.get(kind, 0.0)


def _reason(error: Any) -> str:
    """Return the last line of an error that Ray has wrapped in a page of text."""
    cause = getattr(error, "cause", None) or error
    lines = str(cause).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
