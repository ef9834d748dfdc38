"""What a checkpoint holds of a run under way, and how a run goes on from it."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from shasam.methods.base import Method
from shasam.runs.log import RunLog
from shasam.training.checkpoint import Checkpoint, save_checkpoint
from shasam.training.stage import StageRun
from shasam.training.state import State

Weights = dict[str, Tensor]


def save_state(
    folder: Path, method: Method, best: Weights, state: State, log: RunLog, run: StageRun | None
) -> None:
    """Write a checkpoint; ``run`` is the stage that is under way, None between stages."""
    tensors = {f"model.{k}": v for k, v in method.state_dict().items()}
    tensors.update({f"best.{k}": v for k, v in best.items()})
    if run is not None:
        tensors.update(run.tensors())
    save_checkpoint(folder, tensors, {**vars(state), "log_bytes": log.size()})


def restore_state(checkpoint: Checkpoint, method: Method, log: RunLog) -> tuple[State, Weights]:
    """Weights and log as they were; returns the numbers of the run and its best weights."""
    state = dict(checkpoint.state)
    log.cut(int(state.pop("log_bytes")))
    method.load_state_dict(checkpoint.part("model"))
    return State(**state), checkpoint.part("best")
