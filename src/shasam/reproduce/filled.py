"""An artefact with the numbers of its finished runs, the paper's beside them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shasam.report.published import Printed
from shasam.reproduce.artefact import Artefact
from shasam.reproduce.cells import Cell, identity
from shasam.runs.directory import RunDirectory
from shasam.runs.records import read_records
from shasam.spec import stored_spec


@dataclass(frozen=True)
class Done:
    """What a finished run says: the metrics of its test split, and where they come from."""

    # head (None: the predictions of the run) -> metric -> fraction, None where it is undefined
    test: Mapping[str | None, Mapping[str, float | None]]
    manifest: str
    provenance: Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """One number of an artefact, in per cent and points: ours over seeds, and the paper's."""

    by_seed: Mapping[int, float]
    printed: Printed | None

    @property
    def ours(self) -> tuple[float, ...]:
        return tuple(self.by_seed.values())

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.ours) if self.ours else None

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.ours) if len(self.ours) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.mean is None or self.printed is None else self.mean - self.printed.value


@dataclass(frozen=True)
class Filled:
    """Every number of an artefact, by row, column and metric."""

    artefact: Artefact
    profile: str
    data: str
    asked: int  # runs that it stands for
    done: int  # runs that are finished
    seeds: int  # of each cell
    entries: Mapping[tuple[str, str, str], Entry]
    manifests: tuple[str, ...]
    views: Mapping[tuple[str, str], float]  # of stage 1, by row and column, mean over seeds
    refused: Mapping[str, str]  # row -> why it cannot be run on this data

    def get(self, row: str, column: str, metric: str) -> Entry:
        return self.entries[row, column, metric]


def from_folder(cells: Sequence[Cell], out: Path) -> dict[str, Done]:
    """The finished runs of a folder, by the identity of their specification."""
    found = {}
    for cell in cells:
        run = RunDirectory(out / cell.spec.name)
        if run.done:
            found[cell.identity] = _done(run.metrics(), run.json("provenance.json"))
    return found


def from_records(experiment: Path) -> dict[str, Done]:
    """The runs of an experiment's records, by the identity of their specification."""
    return {
        identity(stored_spec(record.spec)): _done(record.metrics, record.provenance)
        for record in read_records(experiment)
    }


def fill(
    artefact: Artefact,
    cells: Sequence[Cell],
    done: Mapping[str, Done],
    *,
    profile: str,
    data: str,
    refused: Mapping[str, str],
) -> Filled:
    """Put the numbers of finished runs in their places; a cell without a run stays empty."""
    found = {(c.row, c.column, c.seed): done[c.identity] for c in cells if c.identity in done}
    printed = artefact.printed
    entries, views = {}, {}
    for row in artefact.rows():
        for column in artefact.columns:
            own = {s: run for (r, c, s), run in sorted(found.items()) if (r, c) == (row, column)}
            seen = [float(run.provenance["images_seen"]) for run in own.values()]
            if seen:
                views[row, column] = statistics.fmean(seen)
            for metric in artefact.metrics:
                theirs = None
                if printed is not None:
                    theirs = printed.get(artefact.printed_row(row), column, metric)
                entries[row, column, metric] = Entry(
                    _values(own, artefact.head(row), metric), theirs
                )
    manifests = sorted({run.manifest[:12] for run in found.values()})
    return Filled(
        artefact,
        profile,
        data,
        len({cell.identity for cell in cells}),  # rows can share runs
        len({cell.identity for cell in cells} & done.keys()),
        len({cell.seed for cell in cells}),
        entries,
        tuple(manifests),
        views,
        refused,
    )


def _values(runs: Mapping[int, Done], head: str | None, metric: str) -> dict[int, float]:
    found = {seed: run.test.get(head, {}).get(metric) for seed, run in runs.items()}
    return {seed: 100 * value for seed, value in found.items() if value is not None}


def _done(metrics: Mapping[str, Any], provenance: Mapping[str, Any]) -> Done:
    test = {
        kind.partition(".")[2] or None: {name: one["value"] for name, one in body.items()}
        for kind, body in metrics.items()
        if kind.partition(".")[0] == "test"
    }
    return Done(test, str(provenance["manifest_sha256"]), provenance)
