"""Decide where a run computes: device, processes, verbosity; stop at a signal.

Nothing here changes what is computed.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from types import FrameType, ModuleType, TracebackType
from typing import Any, Literal, cast

import torch
from torch import Tensor, int64, nn, tensor
from torch.distributed import distributed_c10d

from shasam.errors import Argument, SpecError, Stopped, TrainingError
from shasam.models.processes import Share
from shasam.runs.directory import Listener
from shasam.spec.fields import TrainSpec

# -------------------------------------------------------------------------------------------------
# `Fabric` of lightning-fabric, imported without torchmetrics.
#
# lightning-fabric asks for the version of torchmetrics by importing it, wherever it is installed.
# That takes two seconds of every command, because it brings scipy and transformers, and nothing
# here uses it.
# -------------------------------------------------------------------------------------------------


@contextmanager
def _only_version(name: str) -> Iterator[None]:
    """Let imports of a package find a module with its version and nothing else."""
    try:
        stand_in = ModuleType(name)
        stand_in.__dict__["__version__"] = version(name)
    except PackageNotFoundError:
        yield
        return
    if name in sys.modules:
        yield
        return
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]


with _only_version("torchmetrics"):
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments import (
        ClusterEnvironment,
        LightningEnvironment,
        TorchElasticEnvironment,
    )
    from lightning_fabric.strategies import DDPStrategy

__all__ = [
    "ClusterEnvironment",
    "DDPStrategy",
    "Fabric",
    "LightningEnvironment",
    "TorchElasticEnvironment",
]


# -------------------------------------------------------------------------------------------------
# What the processes of one run do together.
# -------------------------------------------------------------------------------------------------


def share_of(fabric: Fabric) -> Share:
    """Return the part of a batch that this process encodes, and how all parts come together."""

    def gather(part: Tensor) -> Tensor:
        return cast("Tensor", fabric.all_gather(part.contiguous(), sync_grads=True))

    return Share(fabric.global_rank, fabric.world_size, gather)


def anybody(asked: bool, fabric: Fabric) -> bool:
    """Return True on all processes as soon as it is true on one, so that they stop together."""
    if fabric.world_size == 1:
        return asked
    flag = tensor(float(asked), device=fabric.device)
    return float(cast("Tensor", fabric.all_reduce(flag, reduce_op="sum"))) > 0


# what to do where machines see other run directories
SHARE = ("Put ", Argument("out"), " on a folder that all machines share")


def agree(fabric: Fabric, what: str, value: str, *remedy: object) -> None:
    """Raise an error in every process if one has another value of ``what`` than the first.

    Processes on several machines read files of their own; if those differ, the processes would
    train different things and average them.
    """
    if fabric.world_size == 1:
        return
    digest = int.from_bytes(hashlib.sha256(value.encode()).digest()[:8], "big", signed=True)
    own = tensor([digest], dtype=int64, device=fabric.device)
    digests = cast("Tensor", fabric.all_gather(own)).flatten().tolist()
    others = [str(rank) for rank, one in enumerate(digests) if one != digests[0]]
    if others:
        raise TrainingError(
            f"{what} of process {', '.join(others)} differs from that of process 0; this is "
            f"process {fabric.global_rank} of {fabric.world_size}, which has {value}. ",
            *remedy,
        )


def average_buffers(module: nn.Module, fabric: Fabric) -> None:
    """Average the running statistics, which each process has of its own part."""
    if fabric.world_size > 1:
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.copy_(cast("Tensor", fabric.all_reduce(buffer, reduce_op="mean")))


# -------------------------------------------------------------------------------------------------
# Ctrl-C and SIGTERM: finish the step, save once, then stop.
# -------------------------------------------------------------------------------------------------

PATIENCE = 1.0  # seconds after which another Ctrl-C means "at once"


class Interrupt:
    """``with Interrupt() as stop: ... if stop.asked: save(); raise stop.reason()``.

    One wish to stop often arrives as several signals: Ctrl-C reaches every process of a terminal,
    and whoever started this one passes it on or sends SIGTERM as well. So all signals of the first
    second count as one, and SIGTERM never counts twice. A Ctrl-C after that stops at once.

    A signal that came after the last look at ``asked`` is raised when the block is left: it is
    never swallowed.
    """

    def __init__(self) -> None:
        self.number: int | None = None  # of the first signal
        self._first = 0.0
        self._old: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        return self.number is not None

    def reason(self) -> Stopped:
        """Return what to raise once everything is saved.

        Another process may have got the signal.
        """
        return Stopped(self.number or signal.SIGTERM)

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            self.number, self._first = number, time.monotonic()
        elif number == signal.SIGINT and time.monotonic() - self._first >= PATIENCE:
            raise Stopped(number)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        if self.asked and kind is None:
            raise self.reason()


# -------------------------------------------------------------------------------------------------
# Device, processes and verbosity of a run; nothing here changes what is learnt.
# -------------------------------------------------------------------------------------------------

Device = Literal["auto", "cpu", "cuda", "mps"]
MOST_PROCESSES = 4  # for each core, where a specification asks for processes on a CPU
START_SECONDS = 600  # how long processes wait for each other while they start and open the data


@dataclass(frozen=True)
class Runtime:
    """Device, noise, and how careful to be."""

    device: Device = "auto"
    strategy: Literal["auto", "ddp"] = "auto"  # one process, or DDP where train.devices > 1
    rank_timeout: float = 60.0  # seconds that one process of a run waits for another
    quiet: bool = False
    on_collapse: Literal["warn", "stop"] = "warn"
    checkpoint_seconds: float = 20.0  # what a kill may cost; the end of a stage is saved anyway
    listeners: tuple[Listener, ...] = ()  # called with every event of the log
    thumbnails: bool = True  # small pictures of mined images in mining.json and on the page
    notes: bool = True  # of what is mined, at four places of a stage; off where steps are timed


def make_fabric(train: TrainSpec, runtime: Runtime) -> Fabric:
    """Return Fabric for the device, precision and number of processes that were asked for."""
    if runtime.strategy not in ("auto", "ddp"):
        raise SpecError(
            f"strategy {runtime.strategy!r} cannot be used; there are auto and ddp: each process "
            "runs the same command, which spawned and forked processes cannot"
        )
    environment, nodes = _started_by(train.devices)
    here = train.devices // nodes
    most = MOST_PROCESSES * (os.cpu_count() or 1)
    if here > most and not (runtime.device == "cuda" or torch.cuda.is_available()):
        raise SpecError(
            f"train.devices asks for {here} processes on this machine; it has "
            f"{os.cpu_count()} cores, and at most {most} processes are started on them"
        )
    if not runtime.rank_timeout > 0:
        raise SpecError(
            Argument("rank_timeout"), f" must be above 0 seconds; got {runtime.rank_timeout}"
        )
    several = runtime.strategy == "ddp" or train.devices > 1
    start = timedelta(seconds=max(START_SECONDS, runtime.rank_timeout))
    return Fabric(
        accelerator=runtime.device,
        strategy=DDPStrategy(timeout=start) if several else "auto",
        devices=here,
        num_nodes=nodes,
        precision=_precision(train),
        plugins=[environment],
    )


def _precision(train: TrainSpec) -> Literal["32-true", "bf16-mixed", "16-mixed"]:
    """Return the precision that ``resolve`` puts in the place of ``auto``, else none."""
    return "32-true" if train.precision == "auto" else train.precision


def _started_by(processes: int) -> tuple[ClusterEnvironment, int]:
    """Return who starts the processes of a run, torchrun or this one, and on how many machines.

    The number of processes is part of the specification, and how they lie on machines is not: a
    run has one name, whoever starts it.
    """
    if not TorchElasticEnvironment.detect():
        tasks = os.environ.get("SLURM_NTASKS", "1")
        if processes > 1 and "SLURM_STEP_ID" in os.environ and tasks != "1":
            raise SpecError(
                f"srun has started {tasks} tasks, and each would start {processes} processes; let "
                "srun start one torchrun on each machine, which starts shasam (docs/scale.md)"
            )
        return LightningEnvironment(), 1
    world, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if world != processes:
        raise SpecError(
            f"torchrun has started {world} processes and train.devices is {processes}; write ",
            Argument("train.devices", world),
            ", the number of processes on all machines together",
        )
    if world % here:
        raise SpecError(
            f"torchrun has started {here} of {world} processes on this machine; let it start "
            "equally many on every machine"
        )
    return TorchElasticEnvironment(), world // here


def is_first() -> bool:
    """Return True in the process that writes the files and speaks to the user."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def one_process(train: TrainSpec, device: str | torch.device) -> Fabric:
    """Make a Fabric that computes as training did, in this process, on a device as ``cuda:1``."""
    kind, _, index = str(device).partition(":")
    devices = [int(index)] if index and kind != "cpu" else 1
    return Fabric(accelerator=kind, devices=devices, precision=_precision(train))


@contextmanager
def watching_others(fabric: Fabric, runtime: Runtime) -> Iterator[None]:
    """Turn the loss of another process into a sentence, and end those that this one started.

    A process that was killed is noticed at once, and one that is stopped or stuck after
    ``rank_timeout`` seconds, because every step waits for all of them.
    """
    try:
        yield
    except RuntimeError as error:
        if fabric.world_size == 1 or not _is_of_processes(error):
            raise
        for process in getattr(fabric.strategy.launcher, "procs", ()):
            process.kill()  # a stopped process does not hear SIGTERM
        reason = re.sub(r"^\[[^\]]*\] ?", "", str(error).splitlines()[0]).split(". ")[0][:120]
        raise TrainingError(
            f"process {fabric.global_rank} of {fabric.world_size} lost another process of this "
            f"run, which ended or did not answer in time ({reason}). Continue with ",
            Argument("resume"),
            "; where processes are only slow, raise ",
            Argument("rank_timeout"),
            f" ({runtime.rank_timeout:g} s)",
        ) from error


def wait_at_most(fabric: Fabric, seconds: float) -> None:
    """Give up from now on on a process that keeps the others waiting for so long."""
    if fabric.world_size > 1:
        distributed_c10d._set_pg_timeout(timedelta(seconds=seconds))


def _is_of_processes(error: RuntimeError) -> bool:
    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error)
