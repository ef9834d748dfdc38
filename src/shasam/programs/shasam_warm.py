"""The program ``shasam_warm``: starts runs from a process that has everything imported.

Importing torch and the rest takes seconds of processor time, as much as a short run. This process
imports once and forks for each run. It computes nothing itself, so a fork is safe: no thread of a
library is under way. Whoever started it (``shasam.pipeline.engines``) writes a line of JSON for
each run to its standard input and reads lines about processes that began and ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shasam.programs import program_words

# all that `shasam train` imports in its functions
MODULES = (
    "shasam.cli",
    "shasam.data",
    "shasam.losses",
    "shasam.methods",
    "shasam.metrics",
    "shasam.mining",
    "shasam.models",
    "shasam.pipeline.execute",
    "shasam.commands.train",
    "shasam.submodular",
)
LOOK_SECONDS = 0.05  # between looks for runs that have ended


def serve(answers: int) -> dict[str, Any] | None:
    """Answer requests; returns a request in the process that is to carry it out, else None."""
    pending = b""
    while True:
        ready, _, _ = select.select([0], [], [], LOOK_SECONDS)
        if ready:
            found = os.read(0, 1 << 16)
            if not found:  # whoever started us has ended; runs under way go on
                return None
            *lines, pending = (pending + found).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    return dict(json.loads(line))
                _write(answers, {"began": pid})
        for pid, code in _ended():
            _write(answers, {"ended": pid, "code": code})


def _ended() -> list[tuple[int, int]]:
    found = []
    try:
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            found.append((one[0], os.waitstatus_to_exitcode(one[1])))
    except ChildProcessError:  # there are none
        pass
    return found


def _write(answers: int, body: dict[str, int]) -> None:
    os.write(answers, json.dumps(body).encode() + b"\n")


def main() -> None:
    """Import, serve, and in each process that was forked run its command."""
    # Ctrl-C and a SIGTERM to the whole group are for the runs: they save and end; this process
    # reports their ends and goes when its input is closed
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no answer
    for name in MODULES:
        import_module(name)
    if find_spec("pandas") is not None:  # pyarrow imports it where it is installed
        import_module("pandas")
    request = serve(answers)
    if request is None:
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(answers)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    from shasam.files import open_in_place

    with open(open_in_place(Path(request["output"]), os.O_WRONLY | os.O_CREAT), "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # a run with several processes starts the others by these words
    sys.argv = [program_words("command")[1], *request["words"]]
    from shasam.cli import main as run_command

    run_command(request["words"])


if __name__ == "__main__":
    main()
