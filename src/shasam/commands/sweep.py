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
    """Carry out many runs from one YAML file.

    Runs that are done are skipped; unfinished ones go on where they stopped.

    Parameters
    ----------
    grid
        A YAML file with base, grid (dotted key: list of values) and runs (list of specifications).
    out
        The folder that holds run directories.
    jobs
        Runs at the same time.
    threads
        Processor threads of each run; by default the cores are shared out.
    device
        Where to compute.
    reproducible
        AVX2 and one thread in each run: equal bits on every x86-64 processor, but slower.
    dry
        List the runs and stop.
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
