"""``log.jsonl``: one JSON object a line, appended as things happen."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from shasam.errors import CheckpointError, FileError
from shasam.files import append, read_bytes, write_atomic

# lines that stay when the log is cut back to a checkpoint: they did happen
_LASTING = ("test_opened", "resume", "start")


class RunLog:
    """The log of a run; without a path it keeps the lines in memory only."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = []

    def write(self, event: str, **fields: Any) -> None:
        """Append one line; None is left out, NaN and infinity become null."""
        line = {"event": event, **{k: _plain(v) for k, v in fields.items() if v is not None}}
        self.lines.append(line)
        if self.path is None:
            return
        try:
            append(self.path, (json.dumps(line) + "\n").encode())
        except FileError as error:
            raise CheckpointError(f"the log could not be written: {error}") from error

    def size(self) -> int:
        """Bytes so far: what a checkpoint remembers."""
        return self.path.stat().st_size if self.path and self.path.exists() else 0

    def cut(self, size: int) -> None:
        """Back to ``size`` bytes, as it was at the checkpoint; a torn last line goes too."""
        if self.path is None or not self.path.exists():
            return
        content = read_bytes(self.path)
        kept = content[:size]
        for line in content[size:].split(b"\n"):
            try:
                if json.loads(line)["event"] in _LASTING:
                    kept += line + b"\n"
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
        write_atomic(self.path, kept)


def read_log(path: Path, *, within: Path | None = None) -> list[dict[str, Any]]:
    """All whole lines of a log: JSON objects with an event."""
    lines = []
    for text in read_bytes(path, within=within).decode(errors="replace").splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue  # a line cut short by a crash
        if isinstance(line, dict) and isinstance(line.get("event"), str):
            lines.append(line)
    return lines


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value
