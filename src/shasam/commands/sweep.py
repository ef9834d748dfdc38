"""``shasam sweep``: many runs from one YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shasam.commands.flags import HowFlags
from shasam.runs.machine import LOCALLY


def sweep(
    grid: Path,
    *,
    out: Path = Path("runs"),
    how: HowFlags = LOCALLY,
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
    dry
        List the runs and exit.
    """
    from shasam.documents import read_yaml
    from shasam.output import complain, say
    from shasam.pipeline.sweeps import differing, expand, says
    from shasam.pipeline.sweeps import sweep as carry_out
    from shasam.runs.directory import RunDirectory

    specs = expand(read_yaml(grid))
    say(f"{len(specs)} runs in {out}")
    if dry:
        for spec, words in zip(specs, differing(specs), strict=True):
            state = "done" if RunDirectory(out / spec.name).done else "to do"
            say(f"{state:6s} {spec.name}  {words}")
        return
    how = how.settled()
    say(how.line())
    outcomes = carry_out(
        specs,
        out,
        how,
        tell=lambda o: say(says(o)),
    )
    failed = sum(o.status == "failed" for o in outcomes)
    if failed:
        complain(f"{failed} of {len(outcomes)} runs failed")
        raise SystemExit(1)
