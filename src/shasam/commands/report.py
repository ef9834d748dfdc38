"""``shasam report``: rebuild pages, tables and model cards from the files of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def report(
    runs: list[Path],
    /,
    *,
    out: Path | None = None,
    format: Literal["html", "md", "latex", "csv"] = "html",
    metric: Annotated[list[str] | None, Parameter(negative=())] = None,
    figures: Path | None = None,
    baseline: str | None = None,
    thumbnails: bool = True,
    card: bool = True,
    intended: Annotated[list[str] | None, Parameter(negative=())] = None,
) -> None:
    """Write the page of a run again, or compare several runs.

    It reads only the files of the runs and needs no torch.

    Parameters
    ----------
    runs
        Run directories, or folders that contain run directories.
    out
        File to write; by default report.html in the run, comparison.html for several runs; tables
        are printed.
    format
        A page, or a table for a paper.
    metric
        Metric of the table; repeat it for several.
    figures
        Write the figures as SVG files into this folder.
    baseline
        The method that others are compared with; cross-entropy without it, or the first.
    thumbnails
        Show pictures of mined images; --no-thumbnails leaves them out of the page.
    card
        Also write MODEL_CARD.md into the run.
    intended
        FIELD=TEXT of the card, or a YAML file of fields: use, users, out_of_scope, limits,
        oversight, review, contact. Without it, intended.yaml of the run.
    """
    from shasam.files import check_writable, write_named
    from shasam.output import emit, say
    from shasam.report import rows_of, table, write_model_card, write_report
    from shasam.report.bias_audit import fields_of
    from shasam.report.cards import INTENDED
    from shasam.report.run_tables import DEFAULT
    from shasam.report.runs import found_runs

    check_writable(out)
    check_writable(figures, folder=True)
    paths = found_runs(runs)
    if format != "html":
        text = table(rows_of(paths, metric or DEFAULT), format)
        if out is None:
            emit(text)
        else:
            write_named(out, text)
            say(f"table: {out}")
        return
    if out is None:
        out = paths[0] / "report.html" if len(paths) == 1 else Path("comparison.html")
    write_report(paths, out, figures_dir=figures, baseline=baseline, thumbnails=thumbnails)
    say(f"page: {out}")
    if card and len(paths) == 1:
        told = fields_of(intended or [], INTENDED)
        say(f"model card: {write_model_card(paths[0], intended=told)}")
