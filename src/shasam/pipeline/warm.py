"""Runs that start in milliseconds: forked from a process that has imported everything."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

POSSIBLE = sys.platform == "linux"  # elsewhere, forking a process with such libraries is not safe
_LOST = -signal.SIGKILL  # the code of a run whose end nobody saw


class WarmStarter:
    """Starts commands of shasam through one ``shasam.commands.warm``, which lives as long as it."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "shasam.commands.warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **variables},
            bufsize=0,
        )
        self._pending = b""
        self._began: list[int] = []
        self._codes: dict[int, int] = {}
        self._alive = True

    def start(self, words: Sequence[str], output: Path) -> WarmWork:
        """A process that runs a command, with what it prints in a file."""
        request = json.dumps({"words": list(words), "output": str(output)}).encode() + b"\n"
        assert self._server.stdin is not None
        try:
            self._server.stdin.write(request)
        except BrokenPipeError:
            self._alive = False
        while self._alive and not self._began:
            self._listen(1.0)
        return WarmWork(self, self._began.pop() if self._began else None)

    def code(self, pid: int | None) -> int | None:
        """The exit code of a process, None while it is under way."""
        self._listen(0.0)
        if pid in self._codes:
            return self._codes[pid]
        return None if pid is not None and (self._alive or _runs(pid)) else _LOST

    def close(self) -> None:
        """End the server; runs under way go on."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait()

    def _listen(self, seconds: float) -> None:
        """Take in what the server has said, and wait for some seconds where it says nothing."""
        assert self._server.stdout is not None
        while select.select([self._server.stdout], [], [], seconds)[0]:
            found = self._server.stdout.read(1 << 16)
            if not found:
                self._alive = False
                return
            *lines, self._pending = (self._pending + found).split(b"\n")
            for line in map(json.loads, lines):
                if "began" in line:
                    self._began.append(line["began"])
                else:
                    self._codes[line["ended"]] = line["code"]
            seconds = 0.0


class WarmWork:
    """A run under way; answers as ``subprocess.Popen`` does."""

    def __init__(self, starter: WarmStarter, pid: int | None) -> None:
        self._starter, self._pid = starter, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._starter.code(self._pid)
        return self.returncode

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.05)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._pid is not None and self.poll() is None:
            os.kill(self._pid, number)


def _runs(pid: int) -> bool:
    """True where a process that is nobody's child here is under way."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "XZ"


@contextmanager
def warm_starter(variables: Mapping[str, str]) -> Iterator[WarmStarter]:
    """A starter that is ended with the block."""
    starter = WarmStarter(variables)
    try:
        yield starter
    finally:
        starter.close()
