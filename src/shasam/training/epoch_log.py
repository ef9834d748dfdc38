"""The epoch lines of the log: means of an epoch, on file, in TensorBoard and on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shasam.errors import SpecError
from shasam.files import make_folder
from shasam.runs.log import RunLog
from shasam.training.optimizers import learning_rate
from shasam.training.progress import TrainingProgress
from shasam.training.stage import StageRun
from shasam.training.state import State
from shasam.types import Losses

INACTIVE_STEPS = 50  # steps without any active term before a warning


class EpochLog:
    """Adds up what the steps of an epoch report and writes its line; rank 0 alone writes."""

    def __init__(
        self, state: State, log: RunLog, progress: TrainingProgress, first: bool, board: Any
    ) -> None:
        self.state, self.log, self.progress = state, log, progress
        self.first, self.board = first, board

    def count(self, group: str, value: float, losses: Losses, several: bool) -> None:
        """One yield of a method: its parts and the share of terms that have a gradient."""
        for name, part in losses.parts.items():
            self.state.add(f"part.{name}", float(part))
        if several and group not in losses.parts:
            self.state.add(f"part.{group}", value)
        if losses.wrong_side is not None:
            self.state.add("wrong_side", float(losses.wrong_side))
        if losses.active is None:
            return
        self.state.add("active", float(losses.active))
        self.state.inactive = 0 if losses.active > 0 else self.state.inactive + 1
        if self.state.inactive == INACTIVE_STEPS and self.first:
            text = f"no term of the loss has had a gradient for {INACTIVE_STEPS} steps"
            self.log.write("warning", step=self.state.step, message=text)
            self.progress.say("warning: " + text, "yellow")

    def step(self, total: float) -> None:
        """The end of a step: its loss, summed over the groups."""
        self.state.add("loss", total)
        self.state.add("steps", 1.0)

    def close(
        self,
        run: StageRun,
        epoch: int,
        rate: float,
        meters: Mapping[str, float],
        val: Mapping[str, float] | None,
    ) -> None:
        """Write the line of an epoch and begin the next one."""
        sums, self.state.sums = self.state.sums, {}
        steps = sums.pop("steps")
        loss = sums.pop("loss") / steps
        active, wrong_side = (
            sums.pop(name) / steps if name in sums else None for name in ("active", "wrong_side")
        )
        parts = {k.removeprefix("part."): v / steps for k, v in sums.items()}
        if not self.first:
            return
        stage = run.stage
        line: dict[str, Any] = {
            "stage": stage.name,
            "epoch": epoch,
            "step": self.state.step,
            "loss": loss,
            "parts": parts or None,
            "active": active,
            "wrong_side": wrong_side,
            "lr": learning_rate(run.spec, self.state.step - 1, run.total),
            "images_per_second": rate,
            "mine_fraction": self.state.mine_fraction if stage.sampling == "mined" else None,
            "plan": run.plan.counters() or None,
            **meters,
            "val": dict(val) if val is not None else None,
        }
        self.log.write("epoch", **line)
        self._to_board(line)
        shown = {"loss": loss, "active": active, "wrong side": wrong_side, **meters}
        shown.update({f"val {k}": v for k, v in (val or {}).items()})
        if stage.inputs == "images" or self.state.step == run.total:
            self.progress.epoch(stage.name, epoch + 1, shown)

    def _to_board(self, line: Mapping[str, Any]) -> None:
        if self.board is None:
            return
        flat = {f"{line['stage']}/{k}": v for k, v in line.items() if isinstance(v, float)}
        flat.update({f"val/{k}": v for k, v in (line.get("val") or {}).items()})
        self.board.log_metrics(flat, step=self.state.images_seen)


def open_tensorboard(directory: Path) -> Any:
    """A TensorBoard logger in the run directory."""
    make_folder(directory / "tensorboard", within=directory)
    try:
        from lightning_fabric.loggers import TensorBoardLogger

        return TensorBoardLogger(directory, name="", version="tensorboard")
    except ModuleNotFoundError as error:
        raise SpecError(
            f"--tensorboard needs `pip install shasam[tensorboard]`: {error}"
        ) from error
