"""Progress of training on the terminal: a bar, plain lines, or nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from shasam.output.terminal import Screen

LINE_SECONDS = 30  # between lines where there is no terminal for a bar


class TrainingProgress:
    """A bar on a terminal; a line now and then elsewhere; silence with ``quiet``."""

    def __init__(self, quiet: bool = False, console: Screen | None = None) -> None:
        self.quiet = quiet
        self.console = console or Screen(stderr=True, soft_wrap=True)
        self._bar: Progress | None = None
        self._shown = 0.0
        self._stage, self._total = "", 0

    def say(self, text: str, style: str | None = None) -> None:
        """A line that matters even between bars; warnings come through when quiet."""
        if not self.quiet or style:
            self.console.print(text, style=style)

    def start(self, stage: str, first: int, total: int) -> None:
        """Open the bar of a stage."""
        self.stop()
        self._stage, self._total, self._shown = stage, total, time.monotonic()
        if self.quiet or not self.console.is_terminal:
            return
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            refresh_per_second=4,
        )
        self._bar.start()
        self._bar.add_task(stage, total=total, completed=first, note="")

    def step(self, done: int, loss: float, rate: float, mined: float | None) -> None:
        """Called after every step; redraws a few times a second only."""
        if time.monotonic() - self._shown < (LINE_SECONDS if self._bar is None else 0.25):
            return
        self._shown = time.monotonic()
        note = f"loss {loss:.4f}  {rate:.0f} img/s"
        if mined is not None:
            note += f"  mining {mined:.0%}"
        if self._bar is None:
            self.say(f"{self._stage} step {done} of {self._total}: {note}")
            return
        task = self._bar.tasks[0].id
        self._bar.update(task, completed=done, note=note)

    def probe(self, stage: str, step: int, numbers: Mapping[str, float]) -> None:
        """One line about a linear probe of the validation split."""
        shown = "  ".join(f"val {k} {v:.4g}" for k, v in numbers.items())
        self.say(f"{stage} step {step}, linear probe: {shown}")

    def epoch(self, stage: str, number: int, numbers: Mapping[str, float | None]) -> None:
        """One line at the end of an epoch."""
        shown = "  ".join(f"{k} {v:.4g}" for k, v in numbers.items() if v is not None)
        self.say(f"{stage} epoch {number}: {shown}")

    def stop(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            task = self._bar.tasks[0]
            self._bar.update(task.id, refresh=True)
            self._bar.stop()
            self._bar = None
