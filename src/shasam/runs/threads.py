"""The default number of threads of a run: as many as there are free cores.

With more threads than free cores, threads wait for each other at the end of every small piece of
work and a run crawls. The number changes the last bits of a result, so a run is finished with the
number it was begun with.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from shasam.errors import SpecError
from shasam.runs.directory import RunDirectory
from shasam.runs.log import read_log
from shasam.runs.reproducible import is_reproducible

_VARIABLE = "OMP_NUM_THREADS"
_QUOTAS = (  # of control groups, version 2 and 1: microseconds of CPU time in each period
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)


@dataclass(frozen=True)
class Threads:
    """A number of threads, and a line about it where it is not what one would expect."""

    count: int
    line: str = ""


def usable_cores() -> int:
    """Cores that this process may use: those of the machine, less its affinity and quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota())))


def free_cores() -> int:
    """Usable cores that others leave free, by the load of the last minute; at least one."""
    return max(1, usable_cores() - round(_load()))


def threads_of(run: RunDirectory, asked: int | None, *, resume: bool) -> Threads:
    """Threads of a run: those asked for, those it was begun with, a variable's, or free cores."""
    if asked is not None and asked < 1:
        raise SpecError(f"--threads must be at least 1; got {asked}")
    if is_reproducible():
        if asked not in (None, 1):
            raise SpecError("--reproducible computes with one thread; leave --threads out")
        return Threads(1)
    begun = _begun_with(run.file("log.jsonl")) if resume and run.has_checkpoint else None
    if asked is not None:
        line = ""
        if begun not in (None, asked):
            line = f"the run was begun with {begun} threads; {asked} can change its last bits"
        return Threads(asked, line)
    if begun is not None:
        return Threads(begun, f"threads: {begun}, as the run was begun")
    if os.environ.get(_VARIABLE, "").isdigit():
        return Threads(max(1, int(os.environ[_VARIABLE])))
    free, usable = free_cores(), usable_cores()
    if free == usable:
        return Threads(free)
    return Threads(
        free,
        f"threads: {free} of {usable} cores, because the load of the last minute is "
        f"{_load():.1f}; --threads {usable} would use all of them, and can change decisions",
    )


def _load() -> float:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):  # Windows has none
        return 0.0


def _quota() -> float:
    """Cores' worth of time that a container may use; infinite where nothing limits it."""
    for files in _QUOTAS:
        try:
            words = " ".join(Path(file).read_text() for file in files).split()
            quota, period = float(words[0]), float(words[1])
        except (OSError, ValueError, IndexError):  # no such file, or "max"
            continue
        if quota > 0 and period > 0:
            return quota / period
    return math.inf


def _begun_with(log: Path) -> int | None:
    """The number in the log's line ``start``."""
    if not log.is_file():
        return None
    for line in read_log(log):
        if line["event"] == "start" and isinstance(line.get("threads"), int):
            return max(1, int(line["threads"]))
    return None
