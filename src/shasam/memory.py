"""How much memory there is, so that work that cannot fit is refused before it starts."""

from __future__ import annotations

import os


def available_memory() -> int | None:
    """Free main memory in bytes, None if the platform does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def readable(size: float) -> str:
    """Write a number of bytes: ``readable(3 << 30)`` is ``'3.0 GiB'``."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
