"""Work in a forked child, with its processor time and the growth of its memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How a piece of work ended: ``refused`` is one of our errors, a sentence."""

    status: str  # "done", "refused", "traceback", "killed"
    message: str
    seconds: float  # of the processor
    grown: float  # MiB that the process grew by


def measured(work: Callable[[], object], limit: int = 60) -> Outcome:
    """Do the work in a child that has everything imported already; a hang is ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(limit)  # ends the child
        report = _report(work)
        with open(write, "w") as pipe:
            json.dump(report, pipe)
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if not text:
        return Outcome("killed", f"ended by signal {os.waitstatus_to_exitcode(status)}", limit, 0)
    return Outcome(*json.loads(text))


def _report(work: Callable[[], object]) -> list:
    from shasam.data.decode import BadImage
    from shasam.errors import ShasamError

    # ru_maxrss of a forked child begins at what it shares with its parent
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    status, message = "done", ""
    try:
        work()
    except (ShasamError, BadImage) as error:
        status, message = "refused", str(error)
    except SystemExit as error:
        status, message = "done", f"exit {error.code}"
    except BaseException as error:
        status, message = "traceback", f"{type(error).__name__}: {error}"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return [status, message[:500], time.process_time() - began, grown / 1024]
