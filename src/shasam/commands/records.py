"""``shasam records``: keep the small records of runs, and get run folders back from them."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

app = App(
    name="records",
    help="Keep small records of finished runs, and read them back.",
    group_commands="Commands",
)


@app.command
def keep(runs: Path, experiment: Path) -> None:
    """Add the finished runs of a grid to an experiment: specification, metrics, predictions, log.

    Parameters
    ----------
    runs
        The folder that holds run directories (--out of the sweep).
    experiment
        The folder of the experiment. Its grids (grid.yaml and other YAML files with runs or grid)
        say which runs belong to it, and their labels.
    """
    from shasam.documents import read_yaml
    from shasam.errors import InputError
    from shasam.output import say
    from shasam.pipeline.sweeps import label_of, runs_of_experiment
    from shasam.runs.records import RECORDS, read_records
    from shasam.runs.records import keep as add

    grid = runs_of_experiment(experiment)
    # by what a run was asked to do, not by its folder: a field that was added since renames runs
    if not runs.is_dir():
        raise InputError(f"{runs} is not a folder; give the folder that holds run directories")
    found = [run for run in sorted(runs.iterdir()) if (run / "DONE").is_file()]
    asked = {run: label_of(read_yaml(run / "spec.yaml", within=run), grid) for run in found}
    known = {run.name: label for run, label in asked.items() if label is not None}
    count = add([runs / name for name in known], experiment, known)
    kept = len(read_records(experiment)) if (experiment / RECORDS).is_file() else 0
    missing = max(0, len(grid) - kept)
    say(f"{count} runs kept in {experiment}; {missing} runs of its grid are missing")


@app.command
def unpack(experiment: Path, out: Path, /, *runs: str) -> None:
    """Write run folders from the records of an experiment, for report or audit.

    Parameters
    ----------
    experiment
        A folder with records.parquet and predictions.parquet.
    out
        Where to write: a folder LABEL/RUN for each run.
    runs
        Names of runs; all if none is given.
    """
    from shasam.output import say
    from shasam.runs.records import unpack as write

    for folder in write(experiment, out, runs or None):
        say(str(folder))


@app.command(name="list")
def list_(experiment: Path) -> None:
    """List the runs of an experiment with test accuracy and EO.

    Parameters
    ----------
    experiment
        A folder with records.parquet.
    """
    from shasam.documents import of_our_shape
    from shasam.output import say
    from shasam.runs.records import read_records

    for record in read_records(experiment):
        with of_our_shape(f"the record of {record.run} in {experiment}"):
            test = record.metrics["test"]
            values = "  ".join(
                f"{word} {100 * test[key]['value']:5.1f}"
                if test[key]["value"] is not None
                else word
                for key, word in (("accuracy", "accuracy"), ("eo_mean", "EO"))
            )
        say(f"{record.label:20s} seed {record.seed:<3d} {values}  {record.run}")
