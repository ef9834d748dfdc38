"""Loggers of runs: TensorBoard, MLflow, Weights & Biases and Trackio.

A logger is any callable of the name of an event and its fields: ``shasam.train(on_event=print)``.
These turn the events into numbers with a step that grows over the stages of a run:

>>> class Told(NumberLogger):
...     def write(self, numbers, step):
...         print(step, numbers)
>>> told = Told()
>>> told("epoch", {"stage": "learn", "step": 8, "loss": 0.5, "val": {"accuracy": 0.9}})
8 {'learn/loss': 0.5, 'learn/val/accuracy': 0.9}
>>> told("epoch", {"stage": "classify", "step": 2, "loss": 0.25})
10 {'classify/loss': 0.25}
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shasam.errors import InputError
from shasam.extras import need
from shasam.files import make_folder

_WITH_NUMBERS = ("epoch", "step", "curve")


def flat(fields: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of nested mappings under names such as ``train/learn/steps``."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}/")
        else:
            yield f"{before}{name}", value


class NumberLogger:
    """Turns the events of a run into numbers; a subclass writes them somewhere."""

    def __init__(self) -> None:
        self._stage, self._before, self._step = "", 0, 0

    def __call__(self, event: str, fields: Mapping[str, Any]) -> None:
        """Take one event."""
        if event == "begin":
            self._stage, self._before, self._step = "", 0, 0
            self.begin(fields["run"], Path(fields["path"]), dict(flat(fields["settings"])))
        elif event in _WITH_NUMBERS:
            self._grow(str(fields["stage"]), int(fields["step"]))
            self.write(_numbers(fields, f"{fields['stage']}/"), self._step)
        elif event == "result":
            self.write(_numbers(fields, "test/"), self._step)
        elif event in ("end", "stopped"):
            self.end(whole=event == "end")

    def _grow(self, stage: str, step: int) -> None:
        if stage != self._stage:
            self._stage, self._before = stage, self._step
        self._step = self._before + step

    def begin(self, run: str, path: Path, settings: Mapping[str, Any]) -> None:
        """Open a run of this name; ``path`` is its directory."""

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        """Write numbers of one step."""
        raise NotImplementedError

    def end(self, whole: bool) -> None:
        """Close the run, which is ``whole`` or was stopped."""


def _numbers(fields: Mapping[str, Any], before: str) -> dict[str, float]:
    return {
        before + name: float(value)
        for name, value in flat(fields)
        if isinstance(value, int | float) and name != "step"
    }


class TensorBoard(NumberLogger):
    """Writes event files into the folder ``tensorboard`` of each run."""

    def begin(self, run: str, path: Path, settings: Mapping[str, Any]) -> None:
        need("tensorboard", "the logger tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        make_folder(path / "tensorboard", within=path)
        self._writer = SummaryWriter(path / "tensorboard")

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def end(self, whole: bool) -> None:
        self._writer.close()


class MLflow(NumberLogger):
    """Writes to the tracking server of MLFLOW_TRACKING_URI, such as ``sqlite:///mlflow.db``."""

    def __init__(self, experiment: str = "shasam") -> None:
        super().__init__()
        self.experiment = experiment

    def begin(self, run: str, path: Path, settings: Mapping[str, Any]) -> None:
        need("mlflow", "the logger mlflow")
        self._mlflow = importlib.import_module("mlflow")
        self._mlflow.set_experiment(self.experiment)
        inside = self._mlflow.active_run() is not None
        self._run = self._mlflow.start_run(run_name=run, nested=inside).info.run_id
        self._mlflow.log_params({name: str(value)[:500] for name, value in settings.items()})

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        self._mlflow.log_metrics(dict(numbers), step=step, run_id=self._run)

    def end(self, whole: bool) -> None:
        self._mlflow.end_run("FINISHED" if whole else "KILLED")


class _ModuleLogger(NumberLogger):
    """Modules with ``init``, ``log`` and ``finish``."""

    name: str

    def __init__(self, project: str = "shasam", **settings: Any) -> None:
        super().__init__()
        self.project, self.settings = project, settings

    def begin(self, run: str, path: Path, settings: Mapping[str, Any]) -> None:
        need(self.name, f"the logger {self.name}")
        self._module = importlib.import_module(self.name)
        config = dict(settings)
        self._module.init(project=self.project, name=run, config=config, **self.settings)

    def write(self, numbers: Mapping[str, float], step: int) -> None:
        self._module.log(dict(numbers), step=step)

    def end(self, whole: bool) -> None:
        self._module.finish()


class WandB(_ModuleLogger):
    """Writes to Weights & Biases; keyword arguments go to ``wandb.init``."""

    name = "wandb"

    def end(self, whole: bool) -> None:
        self._module.finish(exit_code=0 if whole else 1)


class Trackio(_ModuleLogger):
    """Writes to Trackio, on this machine or a Space; keyword arguments go to ``trackio.init``."""

    name = "trackio"


LOGGERS: dict[str, type[NumberLogger]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
    "trackio": Trackio,
}


def loggers(names: str | None) -> tuple[NumberLogger, ...]:
    """Return the loggers of a comma-separated list, with their defaults; each must be installed."""
    wanted = [name.strip() for name in (names or "").split(",") if name.strip()]
    for name in wanted:
        if name not in LOGGERS:
            raise InputError(f"there is no logger {name!r}; there are {', '.join(LOGGERS)}")
        need(name, f"--log {name}")
    return tuple(LOGGERS[name]() for name in wanted)
