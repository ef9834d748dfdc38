"""A bar for work that takes a while; it appears on a terminal alone, and only after a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shasam.output.control import visible
from shasam.output.terminal import Screen

PATIENCE = 1.0  # seconds without a bar

Told = Callable[[int, int], None]  # done, total


@contextmanager
def shown_progress(screen: Screen | None = None) -> Iterator[Callable[[str], Told]]:
    """``told = named("reading p.csv")``, then ``told(done, total)`` as often as you like."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = screen or Screen(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %", markup=False),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    task = bar.add_task("", total=None, visible=False)
    began = time.monotonic()

    def named(description: str) -> Told:
        bar.reset(task, description=visible(description), total=None, visible=False)

        def told(done: int, total: int) -> None:
            late = time.monotonic() - began > PATIENCE
            bar.update(task, completed=done, total=total, visible=late)

        return told

    with bar:
        yield named
