"""``shasam replay``: train a recorded run again and report what differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter


def replay(
    record: Path,
    *,
    root: Path | None = None,
    out: Path | None = None,
    reproducible: Annotated[bool, Parameter(negative=())] = False,
    threads: int | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
) -> None:
    """Train a recorded run again and report what differs.

    The exit code is 0 where every score, decision and metric is the same, and 1 where not.

    Parameters
    ----------
    record
        A run directory, or a run of an experiment: experiments/faces/ce-0123456789ab.
    root
        Folder of the images, if it has moved since training.
    out
        Keep the new run in this folder; otherwise it is deleted.
    reproducible
        Use AVX2 and one thread, whatever the record was computed with.
    threads
        Number of threads; by default that of the record, if it was recorded.
    device
        Device to compute on.
    quiet
        Print only the result, no progress.
    """
    import sys
    import tempfile

    from shasam.output import say
    from shasam.pipeline.replay import difference, open_record, says, train_again
    from shasam.runs.directory import RunDirectory
    from shasam.runs.machine import REPRODUCIBLE, THREADS, restart_with

    with tempfile.TemporaryDirectory(prefix="shasam-replay-") as scratch:
        folder = open_record(record, Path(scratch))
        known = RunDirectory(folder).provenance()
        variables = dict(REPRODUCIBLE) if reproducible else _variables(known)
        count = threads or (None if reproducible else known.get("threads"))
        if count is not None:
            variables |= dict.fromkeys(THREADS, str(count))
    restart_with(variables)

    with tempfile.TemporaryDirectory(prefix="shasam-replay-") as scratch:
        folder = open_record(record, Path(scratch))
        run = train_again(folder, root, out or Path(scratch) / "runs", device, quiet)
        found = difference(folder, run)
        say(f"record     {record}")
        for line in says(found):
            say(line)
        if out is not None:
            say(f"run        {run}")
    if not found.same:
        sys.exit(1)


def _variables(provenance: Mapping[str, Any]) -> dict[str, str]:
    """The variables of a record that choose kernels and threads, and no others."""
    from shasam.runs.machine import REPRODUCIBLE

    kept = provenance.get("environment") or {}
    return {name: str(kept[name]) for name in REPRODUCIBLE if name in kept}
