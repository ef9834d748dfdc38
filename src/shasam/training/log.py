"""``log.jsonl``: one JSON object a line, appended as things happen."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from shasam.errors import CheckpointError

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
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise CheckpointError(
                f"the log {self.path} could not be written: {error.strerror}"
            ) from error

    def size(self) -> int:
        """Bytes so far: what a checkpoint remembers."""
        return self.path.stat().st_size if self.path and self.path.exists() else 0

    def cut(self, size: int) -> None:
        """Back to ``size`` bytes, as it was at the checkpoint; a torn last line goes too."""
        if self.path is None or not self.path.exists():
            return
        content = self.path.read_bytes()
        kept = content[:size]
        for line in content[size:].split(b"\n"):
            try:
                if json.loads(line)["event"] in _LASTING:
                    kept += line + b"\n"
            except ValueError:
                continue
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.write_bytes(kept)
        os.replace(temporary, self.path)


def read_log(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a log."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue  # a line cut short by a crash
    return lines


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value
