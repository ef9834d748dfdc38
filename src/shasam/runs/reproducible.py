"""Settings under which every x86-64 processor since 2013 computes the same bits.

Libraries choose kernels by the processor, and kernels round sums differently. ``REPRODUCIBLE``
holds all of them to AVX2 (numba to its generic processor) and to one thread. The variables are read
when torch and numpy are loaded, so a process that lacks them is started again with them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType

from shasam.errors import SpecError

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
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
REPRODUCIBLE: Mapping[str, str] = MappingProxyType({**INSTRUCTIONS, **dict.fromkeys(THREADS, "1")})


def is_reproducible(environment: Mapping[str, str] = os.environ) -> bool:
    """True where all variables of ``REPRODUCIBLE`` are set."""
    return all(environment.get(name) == value for name, value in REPRODUCIBLE.items())


def threads_of_runs(jobs: int, threads: int | None, reproducible: bool) -> int:
    """Threads of each of the runs that share this machine."""
    if reproducible and threads not in (None, 1):
        raise SpecError("--reproducible computes with one thread; leave --threads out")
    if reproducible:
        return 1
    from shasam.runs.threads import usable_cores  # which reads this module

    return threads or max(1, usable_cores() // jobs)


def variables_of_runs(jobs: int, threads: int | None, reproducible: bool) -> dict[str, str]:
    """What the environment of runs that share this machine adds to that of the sweep."""
    count = str(threads_of_runs(jobs, threads, reproducible))
    return {**(REPRODUCIBLE if reproducible else {}), "OMP_NUM_THREADS": count}


def how_runs_compute(jobs: int, threads: int | None, reproducible: bool) -> str:
    """A line for where a sweep begins: threads follow from ``--jobs``, and change decisions."""
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
