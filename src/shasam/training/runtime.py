"""Where and how a run is carried out: nothing here changes what is learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from lightning_fabric import Fabric

from shasam.errors import SpecError
from shasam.spec.train import TrainSpec


@dataclass(frozen=True)
class Runtime:
    """Device, noise, and how careful to be."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    strategy: str = "auto"  # "auto" is one process, or DDP where train.devices > 1
    quiet: bool = False
    on_collapse: Literal["warn", "stop"] = "warn"
    checkpoint_seconds: float = 20.0  # what a kill may cost; the end of a stage is saved anyway
    tensorboard: bool = False


def make_fabric(train: TrainSpec, runtime: Runtime) -> Fabric:
    """Fabric for the device, precision and number of processes that were asked for."""
    strategy = runtime.strategy
    if strategy == "auto" and train.devices > 1:
        strategy = "ddp"
    if strategy not in ("auto", "ddp", "dp", "ddp_spawn", "ddp_fork"):
        raise SpecError(
            f"strategy {strategy!r} cannot be used; there are auto, ddp, ddp_spawn, ddp_fork"
        )
    return Fabric(
        accelerator=runtime.device,
        strategy=strategy,
        devices=train.devices,
        precision=train.precision,
    )


def one_process(train: TrainSpec, device: str | torch.device) -> Fabric:
    """Fabric that computes as training did, in this process, on a device such as ``cuda:1``."""
    kind, _, index = str(device).partition(":")
    devices = [int(index)] if index and kind != "cpu" else 1
    return Fabric(accelerator=kind, devices=devices, precision=train.precision)
