"""Say what a result was computed with, and hold processors to the same arithmetic and threads."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field, model_validator

import shasam
from shasam.errors import Argument, SpecError
from shasam.runs.directory import RunDirectory, stream_log

# -------------------------------------------------------------------------------------------------
# Settings under which every x86-64 processor since 2013 computes the same bits.
#
# Libraries choose kernels by the processor, and kernels round sums differently. `REPRODUCIBLE`
# holds all of them to AVX2 (numba to its generic processor) and to one thread. The variables are
# read when torch and numpy are loaded, so a process that lacks them is started again with them.
# -------------------------------------------------------------------------------------------------

# what changes the bits of a result, by the library that reads it
INSTRUCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NUMBA_CPU_NAME": "generic",
        # the names of numpy 2.4 and later, then those of earlier versions; each ignores the others
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR AVX512F AVX512CD AVX512_SKX "
        "AVX512_CLX AVX512_CNL",
    }
)
MOST_THREADS = 1024  # more is a mistake, or the log of another hand
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
REPRODUCIBLE: Mapping[str, str] = MappingProxyType({**INSTRUCTIONS, **dict.fromkeys(THREADS, "1")})


def is_reproducible(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether all variables of ``REPRODUCIBLE`` are set."""
    return all(environment.get(name) == value for name, value in REPRODUCIBLE.items())


def threads_of_runs(jobs: int, threads: int | None, reproducible: bool) -> int:
    """Return the threads of each of the runs that share this machine."""
    if reproducible and threads not in (None, 1):
        raise SpecError(
            Argument("reproducible"),
            " computes with one thread; leave ",
            Argument("threads"),
            " out",
        )
    if reproducible:
        return 1
    return threads or _threads_of_variable() or max(1, free_cores() // jobs)


def variables_of_runs(jobs: int, threads: int | None, reproducible: bool) -> dict[str, str]:
    """Return what the environment of runs that share this machine adds to that of the sweep."""
    count = str(threads_of_runs(jobs, threads, reproducible))
    return {**(REPRODUCIBLE if reproducible else {}), "OMP_NUM_THREADS": count}


def how_runs_compute(jobs: int, threads: int | None, reproducible: bool) -> str:
    """Say where a sweep begins how its runs compute: threads follow from ``--jobs``."""
    if reproducible:
        return "each run computes with AVX2 and 1 thread"
    count = threads_of_runs(jobs, threads, reproducible)
    return (
        f"each run computes with {count} thread{'' if count == 1 else 's'}; another number "
        "(--threads, --jobs) can change decisions, see --reproducible"
    )


def restart_with(variables: Mapping[str, str]) -> None:
    """Start this command again with the variables set; returns at once where they are.

    The new process takes the place of this one: same arguments, files and working directory.
    """
    if all(os.environ.get(name) == value for name, value in variables.items()):
        return
    if "torch" in sys.modules:
        wanted = " ".join(f"{name}={value!r}" for name, value in variables.items())
        raise SpecError(
            "the instruction set must be chosen before torch is loaded; use the command line, or "
            f"start Python with {wanted}"
        )
    command = [sys.executable, *sys.orig_argv[1:]]
    environment = {**os.environ, **variables}
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":  # there exec returns to the shell before the new process has ended
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)  # noqa: S603
    os.execve(sys.executable, command, environment)  # noqa: S606 - our own command line again


# -------------------------------------------------------------------------------------------------
# What a result was computed with: processor, instruction set, threads, commit, decoder.
# -------------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Return the part of ``provenance.json`` that says what the bits of a result depend on."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    read = (*INSTRUCTIONS, *THREADS)
    return {
        "cpu": cpu_name(),
        "instructions": capability,
        "environment": {name: os.environ[name] for name in read if name in os.environ},
        "threads": torch.get_num_threads(),
        # a processor without AVX2 computes with less, whatever the variables say
        "reproducible": is_reproducible() and capability == "AVX2",
        "commit": _commit(),
        "decoder": _decoder(),
    }


def cpu_name() -> str:
    """Return the model of the processor, as far as the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def computed_with(provenances: Sequence[Mapping[str, Any]]) -> str:
    """Return one line for under a table.

    It says what the runs were computed with, and what that changes.
    """
    ways = Counter(_way(p) for p in provenances if p.get("threads") is not None)
    if not ways:
        return ""
    if len(ways) > 1:
        each = "; ".join(f"{count} runs with {way}" for way, count in ways.most_common())
        return f"not all computed alike, which can change decisions: {each}"
    (way,) = ways
    if way.startswith("--reproducible"):
        return f"computed with {way}"
    return f"computed with {way}; other CPUs or threads can change decisions"


def _way(provenance: Mapping[str, Any]) -> str:
    if provenance.get("reproducible"):
        return "--reproducible (AVX2, 1 thread)"
    threads = provenance["threads"]
    return f"{provenance['instructions']}, {threads} thread{'' if threads == 1 else 's'}"


def _decoder() -> str:
    """Name what reads JPEG; Pillow also reads what simplejpeg leaves."""
    pillow = f"Pillow {version('pillow')}"
    try:
        return f"simplejpeg {version('simplejpeg')}, {pillow}"
    except PackageNotFoundError:
        return pillow


def _commit() -> str | None:
    """Return the commit of a checkout of shasam; None for an installed package or without git."""
    root = Path(shasam.__file__).resolve().parents[2]
    if not (root / ".git").exists() or not (root / "src" / "shasam").is_dir():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        return f"{head} with changes" if _git(root, "status", "--porcelain", "src") else head
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(  # noqa: S603 - fixed words, no shell
        ["git", "-C", str(root), *words],  # noqa: S607 - git is where the user has it
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return done.stdout.strip()


# -------------------------------------------------------------------------------------------------
# The default number of threads of a run: as many as there are free cores.
#
# With more threads than free cores, threads wait for each other at the end of every small piece of
# work and a run crawls. The number changes the last bits of a result, so a run is finished with
# the number it was begun with.
# -------------------------------------------------------------------------------------------------

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
    """Return cores that this process may use: those of the machine, less its affinity and quota."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota())))


def free_cores() -> int:
    """Return usable cores that others leave free, by the load of the last minute; at least one."""
    return max(1, usable_cores() - round(_load()))


def threads_of(run: RunDirectory, asked: int | None, *, resume: bool) -> Threads:
    """Return the threads of a run.

    They are those asked for, those it was begun with, a variable's, or free cores.
    """
    if asked is not None and not 1 <= asked <= MOST_THREADS:
        raise SpecError(Argument("threads"), f" must be 1 to {MOST_THREADS}; got {asked}")
    if is_reproducible():
        if asked not in (None, 1):
            raise SpecError(
                Argument("reproducible"),
                " computes with one thread; leave ",
                Argument("threads"),
                " out",
            )
        return Threads(1)
    begun = _begun_with(run.file("log.jsonl")) if resume and run.has_checkpoint else None
    if asked is not None:
        line = ""
        if begun not in (None, asked):
            line = f"the run was begun with {begun} threads; {asked} can change its last bits"
        return Threads(asked, line)
    if begun is not None:
        return Threads(begun, f"threads: {begun}, as the run was begun")
    if given := _threads_of_variable():
        return Threads(given)
    free, usable = free_cores(), usable_cores()
    if free == usable:
        return Threads(free)
    return Threads(
        free,
        f"threads: {free} of {usable} cores, because the load of the last minute is "
        f"{_load():.1f}; --threads {usable} would use all of them, and can change decisions",
    )


def _threads_of_variable() -> int | None:
    """Return the threads that ``OMP_NUM_THREADS`` asks for."""
    word = os.environ.get(_VARIABLE, "")
    return max(1, int(word)) if word.isdigit() else None


def _load() -> float:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):  # Windows has none
        return 0.0


def _quota() -> float:
    """Return cores' worth of time that a container may use; infinite where nothing limits it."""
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
    """Return the number in the log's line ``start``."""
    if not log.is_file():
        return None
    for line in stream_log(log, within=log.parent):
        threads = line.get("threads")
        if line["event"] == "start" and isinstance(threads, int):
            return int(threads) if 1 <= threads <= MOST_THREADS else None
    return None


# -------------------------------------------------------------------------------------------------
# How the runs of a sweep are carried out: where, how many at the same time, and with what.
# -------------------------------------------------------------------------------------------------


class ExecutionOptions(BaseModel):
    """Hold execution options of several runs; they do not change a run's hash."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    jobs: int | None = Field(
        None, ge=1, description="Runs at the same time; by default 1, on Ray as many as fit."
    )
    threads: int | None = Field(
        None,
        ge=1,
        le=MOST_THREADS,
        description="Threads of each run; by default the free cores are divided among the jobs, on "
        "Ray 1.",
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto", description="Device to compute on."
    )
    reproducible: Annotated[bool, Parameter(negative=())] = Field(
        False,
        description="Use AVX2 and one thread in each run: the same bits on every x86-64 processor, "
        "but slower.",
    )
    engine: Literal["local", "inline", "ray"] = Field(
        "local",
        description="local: processes of this machine. inline: this process, one run after the "
        "other, and runs on the same data open it once: half of the time of short runs. ray: "
        "tasks of a Ray cluster whose nodes share the folders of data and runs.",
    )
    address: str | None = Field(
        None,
        description="Ray address: auto or HOST:PORT. Default: a temporary local Ray.",
    )
    log: str | None = Field(
        None,
        description="Also write the numbers of every run to a logger: tensorboard, mlflow, wandb "
        "or trackio, or several with commas.",
    )

    @model_validator(mode="after")
    def _address_of_ray(self) -> ExecutionOptions:
        if self.address is not None and self.engine != "ray":
            raise ValueError("address belongs to the engine ray; leave it out, or choose that")
        return self

    @model_validator(mode="after")
    def _one_process(self) -> ExecutionOptions:
        if self.engine == "inline" and (self.jobs or 1) > 1:
            raise ValueError(
                "the engine inline carries out one run at a time; leave jobs out, or start the "
                "same sweep once more beside it"
            )
        if self.engine == "inline" and self.reproducible:
            raise ValueError("reproducible runs are processes of their own; leave out inline")
        return self

    @property
    def _threads(self) -> int | None:
        """On Ray a number that does not follow from the cluster: it can change decisions."""
        return self.threads or (1 if self.engine == "ray" else None)

    def settled(self) -> ExecutionOptions:
        """Return the same with the threads that are free now; later the load is its own."""
        count = threads_of_runs(self.jobs or 1, self._threads, self.reproducible)
        return self.model_copy(update={"threads": count})

    def variables(self) -> dict[str, str]:
        """Return environment variables that every run is started with."""
        return variables_of_runs(self.jobs or 1, self._threads, self.reproducible)

    def flags(self, device: str, thumbnails: bool) -> list[str]:
        """Return flags of ``shasam train`` that every run is started with."""
        words = ["--device", device, *(() if self.log is None else ("--log", self.log))]
        return words if thumbnails else [*words, "--no-thumbnails"]

    def line(self) -> str:
        """Say how runs compute, where a sweep begins."""
        return how_runs_compute(self.jobs or 1, self._threads, self.reproducible)


LOCALLY = ExecutionOptions()
