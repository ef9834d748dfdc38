"""Device, processes and verbosity of a run; nothing here changes what is learnt."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch
from torch.distributed import distributed_c10d

from shasam.errors import SpecError, TrainingError
from shasam.spec.train import TrainSpec
from shasam.training.fabric import (
    ClusterEnvironment,
    DDPStrategy,
    Fabric,
    LightningEnvironment,
    TorchElasticEnvironment,
)

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
    tensorboard: bool = False
    thumbnails: bool = True  # small pictures of mined images in mining.json and on the page
    notes: bool = True  # of what is mined, at four places of a stage; off where steps are timed


def make_fabric(train: TrainSpec, runtime: Runtime) -> Fabric:
    """Fabric for the device, precision and number of processes that were asked for."""
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
        raise SpecError(f"--rank-timeout must be above 0 seconds; got {runtime.rank_timeout}")
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
    """``resolve`` puts a precision in the place of ``auto``; without it nothing is chosen."""
    return "32-true" if train.precision == "auto" else train.precision


def _started_by(processes: int) -> tuple[ClusterEnvironment, int]:
    """Who starts the processes of a run, torchrun or this one, and on how many machines.

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
            f"torchrun has started {world} processes and train.devices is {processes}; "
            f"write --devices {world}, the number of processes on all machines together"
        )
    if world % here:
        raise SpecError(
            f"torchrun has started {here} of {world} processes on this machine; let it start "
            "equally many on every machine"
        )
    return TorchElasticEnvironment(), world // here


def is_first() -> bool:
    """True in the process that writes the files and speaks to the user."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def one_process(train: TrainSpec, device: str | torch.device) -> Fabric:
    """Fabric that computes as training did, in this process, on a device such as ``cuda:1``."""
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
            f"run, which ended or did not answer in time ({reason}). Continue with --resume; where "
            f"processes are only slow, raise --rank-timeout ({runtime.rank_timeout:g} s)"
        ) from error


def wait_at_most(fabric: Fabric, seconds: float) -> None:
    """From now on, give up on a process that keeps the others waiting for so long."""
    if fabric.world_size > 1:
        distributed_c10d._set_pg_timeout(timedelta(seconds=seconds))


def _is_of_processes(error: RuntimeError) -> bool:
    return isinstance(error, torch.distributed.DistError) or "gloo" in str(error)
