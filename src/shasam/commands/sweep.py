"""``shasam sweep``: many runs from one YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def sweep(
    grid: Path,
    *,
    out: Path = Path("runs"),
    jobs: int = 1,
    threads: int | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    reproducible: Annotated[bool, Parameter(negative=())] = False,
    dry: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Train every run of a grid that is declared in a YAML file.

    Finished runs are skipped; unfinished ones continue from their checkpoint.

    Parameters
    ----------
    grid
        A YAML file with base, grid (dotted key: list of values) and runs (list of specifications).
    out
        Folder in which run directories are made.
    jobs
        Number of runs at the same time.
    threads
        Threads of each run; by default the cores are divided among the jobs.
    device
        Device to compute on.
    reproducible
        Use AVX2 and one thread in each run: the same bits on every x86-64 processor, but slower.
    dry
        List the runs and exit.
    """
    from shasam.documents import read_yaml
    from shasam.output.terminal import complain, say
    from shasam.pipeline.grid import expand
    from shasam.pipeline.sweep import says
    from shasam.pipeline.sweep import sweep as carry_out
    from shasam.runs.directory import RunDirectory
    from shasam.runs.reproducible import how_runs_compute

    specs = expand(read_yaml(grid))
    say(f"{len(specs)} runs in {out}")
    if dry:
        for spec in specs:
            state = "done" if RunDirectory(out / spec.name).done else "to do"
            say(f"{state:6s} {spec.name} seed {spec.seed}")
        return
    say(how_runs_compute(jobs, threads, reproducible))

    outcomes = carry_out(
        specs,
        out,
        jobs=jobs,
        threads=threads,
        device=device,
        reproducible=reproducible,
        tell=lambda o: say(says(o)),
    )
    failed = sum(o.status == "failed" for o in outcomes)
    if failed:
        complain(f"{failed} of {len(outcomes)} runs failed")
        raise SystemExit(1)
