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
    dry: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Carry out a grid of runs; those that are done are skipped, unfinished ones go on.

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
    dry
        List the runs and stop.
    """
    import json
    import sys

    from shasam.config import read_yaml
    from shasam.runs.directory import RunDirectory
    from shasam.runs.grid import expand
    from shasam.runs.sweep import Outcome
    from shasam.runs.sweep import sweep as carry_out

    specs = expand(read_yaml(grid))
    print(f"{len(specs)} runs in {out}", flush=True)
    if dry:
        for spec in specs:
            state = "done" if RunDirectory(out / spec.name).done else "to do"
            print(f"{state:6s} {spec.name} seed {spec.seed}")
        return

    def tell(outcome: Outcome) -> None:
        line = f"{outcome.status:8s}{outcome.spec.name} seed {outcome.spec.seed}"
        if outcome.status == "failed":
            line += f"  {outcome.message} (see {outcome.path / 'output.txt'})"
        else:
            metrics = json.loads((outcome.path / "metrics.json").read_text())["test"]
            for key, word in (("accuracy", "acc"), ("eo_mean", "EO")):
                value = metrics[key]["value"]
                line += f"  {word} {100 * value:.1f}" if value is not None else f"  {word} -"
            line += f"  {outcome.seconds:.0f} s" if outcome.status == "done" else ""
        print(line, flush=True)

    outcomes = carry_out(specs, out, jobs=jobs, threads=threads, device=device, tell=tell)
    failed = sum(o.status == "failed" for o in outcomes)
    if failed:
        print(f"{failed} of {len(outcomes)} runs failed", file=sys.stderr)
        sys.exit(1)
