"""Ray, where somebody asks for it: a cluster that is there, or one on this machine for a while.

Nothing else imports ray, and this module only inside its functions: ``import shasam`` does not.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any

from shasam.errors import ClusterError, Stopped
from shasam.extras import need

_PATIENCE = 10.0  # seconds until the head of a cluster must have answered
_PLACE = re.compile(r"(?P<host>[\w.-]+):(?P<port>\d{1,5})")


@contextmanager
def connected(address: str | None, who: str) -> Iterator[None]:
    """Yield Ray for the length of a block: ``auto``, ``host:port``, or one of this machine's own.

    A connection that is there already is used and left. Without an address RAY_ADDRESS counts, as
    it does for all programs that use Ray. ``who`` needs it, for the sentence where Ray is missing.
    """
    need("ray", who)
    import ray

    if ray.is_initialized():
        yield
        return
    if address is None or address == "auto":
        address = os.environ.get("RAY_ADDRESS") or address or "local"
    _check(address)
    options: dict[str, Any] = {}
    with ExitStack() as ends:
        heed_sigterm = ends.enter_context(_terminated_in_order())
        if address == "local":
            folder = tempfile.TemporaryDirectory(
                prefix="shasam-ray-", dir=_short(), ignore_cleanup_errors=True
            )
            options = {"_temp_dir": ends.enter_context(folder), "include_dashboard": False}
        ends.callback(ray.shutdown)
        _join(address, options)
        heed_sigterm()
        yield


def _short() -> str | None:
    """Return a short temporary folder: Unix socket paths are limited to about 107 bytes."""
    return "/tmp" if os.path.isdir("/tmp") else None  # noqa: S108 - a new folder is made in it


def _check(address: str) -> None:
    """Refuse a wrong address at once; Ray itself would try for two minutes."""
    if address in ("auto", "local"):
        return
    place = _PLACE.fullmatch(address)
    if place is None or int(place["port"]) > 65535:
        raise ClusterError(
            f"{address!r} is no address of a Ray cluster; give auto on one of its nodes, or "
            "host:port of its head, such as 10.0.0.1:6379"
        )
    try:
        socket.create_connection((place["host"], int(place["port"])), _PATIENCE).close()
    except OSError as error:
        raise _none_at(address, str(error)) from error


def _none_at(address: str, why: str) -> ClusterError:
    if address == "auto":
        return ClusterError(
            "no Ray cluster runs on this machine; start one with `ray start --head`, name the head "
            "of another as host:port, or leave the address out for a Ray of this machine's own"
        )
    if address == "local":
        return ClusterError(f"Ray could not be started on this machine: {why}")
    return ClusterError(f"no Ray cluster answers at {address} ({why}); `ray start` prints the port")


def _join(address: str, options: dict[str, Any]) -> None:
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked for reports to others
    try:
        with _nothing_of_the_working_directory():
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray raises plain ones too, as where its node starts too slowly
        raise _none_at(address, " ".join(str(error).split())[:200]) from error


@contextmanager
def _nothing_of_the_working_directory() -> Iterator[None]:
    """Join from the root folder, unless this process itself imports from the working directory.

    Ray lets its workers import from the folder in which it was joined, before all else.
    """
    here = os.getcwd()
    if any(os.path.abspath(place) == here for place in sys.path):
        yield
        return
    os.chdir(os.path.abspath(os.sep))
    try:
        yield
    finally:
        os.chdir(here)


@contextmanager
def _terminated_in_order() -> Iterator[Callable[[], object]]:
    """End the block on SIGTERM as Ctrl-C does, or do what the program had asked for before.

    Ray puts a handler of its own in place when it is joined; the function that is given takes it
    away again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL

    asked: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        raise Stopped(number)

    wanted = stop if before is signal.SIG_DFL else before
    try:
        yield lambda: signal.signal(signal.SIGTERM, wanted)
    except KeyboardInterrupt as error:
        if asked and not isinstance(error, Stopped):  # Ray has made a plain one of ours
            raise Stopped(asked[0]) from error
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
