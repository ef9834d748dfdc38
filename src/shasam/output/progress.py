"""A bar for work that takes a while; it appears only on a terminal, and only after a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shasam.output.control import visible
from shasam.output.terminal import Screen

PATIENCE = 1.0  # seconds without a bar

Told = Callable[[int, int], None]  # done, total


@contextmanager
def shown_progress(
    screen: Screen | None = None, *, unit: str | None = None
) -> Iterator[Callable[[str], Told]]:
    """``told = named("reading p.csv")``, then ``told(done, total)`` as often as you like.

    With a ``unit`` the bar also says how many of them are done in a second.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    screen = screen or Screen(stderr=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %", markup=False),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    task = bar.add_task("", total=None, visible=False, rate="")
    began = time.monotonic()

    def named(description: str) -> Told:
        bar.reset(task, description=visible(description), total=None, visible=False)
        first: list[tuple[int, float]] = []  # done, when

        def told(done: int, total: int) -> None:
            now = time.monotonic()
            first.append((done, now))
            del first[1:]
            rate = ""
            if unit is not None and done > first[0][0]:
                rate = f"{(done - first[0][0]) / (now - first[0][1]):.0f} {unit}/s"
            late = now - began > PATIENCE
            bar.update(task, completed=done, total=total, visible=late, rate=rate)

        return told

    with bar:
        yield named
