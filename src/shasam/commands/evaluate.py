"""``shasam evaluate``: predict and evaluate the splits of a trained run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def evaluate(
    run: Path,
    *,
    root: Path | None = None,
    csv: Path | None = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto",
    reproducible: Annotated[bool, Parameter(negative=())] = False,
    report: bool = True,
    store: Path | None = None,
) -> None:
    """Evaluate a trained run again.

    The validation and test splits are predicted again; predictions, metrics and page are
    replaced. The log of the run records that the test split was opened again.

    Parameters
    ----------
    run
        The run directory of a trained model.
    root
        Folder of the images, if it has moved since training.
    csv
        The table of a run on your own images, where it has moved; its content must be the same.
    device
        Device to compute on.
    reproducible
        Use AVX2 and one thread: the same bits on every x86-64 processor, but slower.
    report
        Also write report.html.
    store
        Folder of the packed stores; by default $SHASAM_CACHE or the user's cache.
    """
    if reproducible:
        from shasam.runs.machine import REPRODUCIBLE, restart_with

        restart_with(REPRODUCIBLE)  # before anything imports torch

    from shasam.commands.train import print_summary
    from shasam.output import Screen
    from shasam.pipeline.execute import write_page
    from shasam.pipeline.load import load
    from shasam.pipeline.results import data_of_run, evaluate_run, times_opened
    from shasam.report import write_model_card
    from shasam.runs.directory import RunDirectory, RunLog
    from shasam.runs.machine import machine

    directory = RunDirectory.existing(run)
    model = load(run, device)
    provenance = directory.json("provenance.json")
    data = data_of_run(directory, model.spec, root=root, csv=csv, store=store)
    with directory.lock():
        log = RunLog(directory.file("log.jsonl"))
        evaluate_run(directory, model.method, data, model.fabric, log, "shasam evaluate")
        provenance["test_opened"] = times_opened(log)
        provenance["evaluated_with"] = machine()
        directory.write_json("provenance.json", provenance)
        write_model_card(directory.path)
    print_summary(directory, Screen())
    if report:
        write_page(run)
