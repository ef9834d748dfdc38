"""Ctrl-C and SIGTERM: finish the step, save once, then stop."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from shasam.errors import Stopped

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
        """What to raise once everything is saved; another process may have got the signal."""
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
