"""Writing text so that a reader never sees half of it."""

from __future__ import annotations

import os
from pathlib import Path


def write_text(path: Path, content: str) -> None:
    """Temporary file, flushed, renamed into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
