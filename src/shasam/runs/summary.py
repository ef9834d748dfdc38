"""The table that a run ends with."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table

from shasam.metrics import catalogue
from shasam.output.terminal import Screen
from shasam.runs.directory import RunDirectory
from shasam.runs.machine import computed_with
from shasam.types import Head


def print_summary(run: RunDirectory, console: Screen) -> None:
    """Accuracy, EO and the worst cell in per cent, with intervals, for each kind of feature."""
    metrics, provenance = run.metrics(), run.provenance()
    title = f"{run.spec().method} on the test split (%, 95 % interval; worst: worst cell)"
    table = Table(title=title, box=box.SIMPLE_HEAD)  # narrow enough for 80 columns
    table.add_column("features", no_wrap=True)
    shown = catalogue.shown("run")
    for heading in (*(m.heading for m in shown.values()), "probe"):
        table.add_column(heading, justify="right", no_wrap=True)
    kinds = [k for k in metrics if k.startswith("test.")] or ["test"]
    for kind in kinds:
        name = kind.removeprefix("test.") if "." in kind else "encoder"
        probe = metrics["probe"].get(Head.named(name).features)
        cells = [_cell(metrics[kind].get(key), key != "worst_group_accuracy") for key in shown]
        cells.append(f"{100 * probe['accuracy']:.1f}" if probe else "-")
        own = " *" if len(kinds) > 1 and metrics[kind] == metrics["test"] else ""
        table.add_row(name + own, *cells)
    console.print(table)
    if metrics.get("natural_head"):
        console.print(_representation(metrics))
    for key, metric in shown.items():
        reason = (metrics["test"].get(key) or {}).get("reason")
        if reason:
            console.print(f"{metric.heading} is undefined: {reason} in the test split")
    minutes, seconds = divmod(round(provenance["wall_seconds"]), 60)
    line = f"{provenance['images_seen']} views in {minutes} min {seconds} s"
    if provenance["mine_fraction"] is not None:
        line += f", mining {provenance['mine_fraction']:.0%} of the learning stage"
    if len(kinds) > 1:
        line += "; * is what predictions.parquet holds"
    console.print(line)
    if settings := computed_with([provenance]):
        console.print(settings)
    console.print(f"run        {run.path}", soft_wrap=True)


def _representation(metrics: dict[str, Any]) -> Table:
    """The natural head on each kind of feature, and how well the group is read from it."""
    title = "classifiers on the frozen features and the training data as they are (%)"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("features", no_wrap=True)
    for heading in ("acc", "EO", "group, linear", "group, MLP"):
        table.add_column(heading, justify="right", no_wrap=True)
    for kind, found in metrics["natural_head"].items():
        cells = [_cell(found["test"].get(key), True) for key in ("accuracy", "eo_mean")]
        probe = metrics["probe"].get(kind, {})
        leaks = [probe.get(f"{how}_within_class") for how in ("linear", "mlp")]
        cells += ["-" if leak is None else f"{100 * leak:.1f}" for leak in leaks]
        table.add_row(kind, *cells)
    return table


def _cell(entry: dict[str, float | None] | None, interval: bool) -> str:
    if not entry or entry["value"] is None or entry["low"] is None or entry["high"] is None:
        return "-"
    if not interval:
        return f"{100 * entry['value']:.1f}"
    return f"{100 * entry['value']:.1f} ({100 * entry['low']:.1f}-{100 * entry['high']:.1f})"
