"""``shasam threshold``: thresholds per group for a trained run, without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def threshold(
    run: Path,
    *,
    limit: Annotated[list[str], Parameter(negative=())],
    infer_group: Annotated[bool, Parameter(negative=())] = False,
    root: Path | None = None,
    csv: Path | None = None,
    out: Path | None = None,
    draws: int = 2000,
) -> None:
    """Fit thresholds per group to a trained run.

    They are chosen on the run's validation predictions; the test split says what they do and cost.
    The folder that is written is taken by predict and export like a run, and its
    predictions.parquet by audit. The model is not trained again, and without --infer-group no
    image is read.

    Parameters
    ----------
    run
        The run directory of a trained model.
    limit
        What the decisions are to keep, such as eo_mean=0.05 or tpr_min>=0.8. May be given several
        times.
    infer_group
        Decide by the group that a linear head infers from the features: prediction needs no group.
    root
        Folder of the images, if it has moved since training (with --infer-group).
    csv
        The table of a run on your own images, where it has moved (with --infer-group).
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
    data = None
    if infer_group:
        from shasam.pipeline.results import data_of_run

        data = data_of_run(directory, directory.spec(), root=root, csv=csv)
    found = rethreshold(directory, limits, infer_group=infer_group, draws=draws, data=data)
    place = out or directory.path.with_name(f"{directory.path.name}-thresholds")
    found.write(place, metadata_of(directory))
    for line in found.says:
        say(line)
    say(f"rule, model and test predictions in {place}")
