"""``shasam threshold``: thresholds per group for a trained run, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def threshold(
    run: Path,
    *,
    limit: Annotated[list[str], Parameter(negative=())],
    out: Path | None = None,
    draws: int = 2000,
) -> None:
    """Fit thresholds per group to a trained run.

    They are chosen on the run's validation predictions; the test split says what they do and cost.
    The folder that is written is taken by predict and export like a run, and its
    predictions.parquet by audit. Nothing is trained and no image is read.

    Parameters
    ----------
    run
        The run directory of a trained model.
    limit
        What the decisions are to keep, such as eo_mean=0.05 or worst_group_accuracy=0.8. May be
        given several times.
    out
        Folder to write; else the run's name with -thresholds, beside the run.
    draws
        Number of bootstrap draws.
    """
    from shasam.output import say
    from shasam.runs.directory import RunDirectory
    from shasam.thresholds import limits_from, metadata_of, rethreshold

    limits = limits_from(limit)
    directory = RunDirectory.evaluated(run)
    found = rethreshold(directory, limits, draws=draws)
    place = out or directory.path.with_name(f"{directory.path.name}-thresholds")
    found.write(place, metadata_of(directory))
    for line in found.says:
        say(line)
    say(f"rule, model and test predictions in {place}")
