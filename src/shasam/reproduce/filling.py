"""Fill an artefact with the numbers of finished runs or records, the paper's beside them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shasam.documents import of_our_shape
from shasam.errors import DataError, SpecError
from shasam.metrics import compare_seeds
from shasam.metrics.paired import Comparison
from shasam.report.published import PublishedNumber
from shasam.reproduce.artefact import Artefact, ArtefactRun, DataLocation, cells, identity
from shasam.runs.directory import RunDirectory
from shasam.runs.records import read_records
from shasam.spec import stored_spec

# -------------------------------------------------------------------------------------------------
# An artefact with the numbers of its finished runs, the paper's beside them.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunResult:
    """What a finished run says: the metrics of its test split, and where they come from."""

    # head (None: the predictions of the run) -> metric -> fraction, None where it is undefined
    test: Mapping[str | None, Mapping[str, float | None]]
    manifest: str
    provenance: Mapping[str, Any]


@dataclass(frozen=True)
class ArtefactNumber:
    """One number of an artefact, in per cent and points: ours over seeds, and the paper's."""

    by_seed: Mapping[int, float]
    printed: PublishedNumber | None

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
class ArtefactTable:
    """Every number of an artefact, by row, column and metric."""

    artefact: Artefact
    profile: str
    data: str
    asked: int  # runs that it stands for
    done: int  # runs that are finished
    seeds: int  # of each cell
    entries: Mapping[tuple[str, str, str], ArtefactNumber]
    manifests: tuple[str, ...]
    views: Mapping[tuple[str, str], float]  # of stage 1, by row and column, mean over seeds
    refused: Mapping[str, str]  # row -> why it cannot be run on this data

    def get(self, row: str, column: str, metric: str) -> ArtefactNumber:
        return self.entries[row, column, metric]


def from_folder(cells: Sequence[ArtefactRun], out: Path) -> dict[str, RunResult]:
    """The finished runs of a folder, by the identity of their specification."""
    found = {}
    for cell in cells:
        run = RunDirectory(out / cell.spec.name)
        if run.done:
            with of_our_shape(run.path):
                found[cell.identity] = _done(run.metrics(), run.json("provenance.json"))
    return found


def from_records(experiment: Path) -> dict[str, RunResult]:
    """The runs of an experiment's records, by the identity of their specification."""
    found = {}
    for record in read_records(experiment):
        with of_our_shape(f"the record of {record.run} in {experiment}"):
            done = _done(record.metrics, record.provenance)
            found[identity(stored_spec(record.spec))] = done
    return found


def fill(
    artefact: Artefact,
    cells: Sequence[ArtefactRun],
    done: Mapping[str, RunResult],
    *,
    profile: str,
    data: str,
    refused: Mapping[str, str],
) -> ArtefactTable:
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
                entries[row, column, metric] = ArtefactNumber(
                    _values(own, artefact.head(row), metric), theirs
                )
    manifests = sorted({run.manifest[:12] for run in found.values()})
    return ArtefactTable(
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


def _values(runs: Mapping[int, RunResult], head: str | None, metric: str) -> dict[int, float]:
    found = {seed: run.test.get(head, {}).get(metric) for seed, run in runs.items()}
    return {seed: 100 * value for seed, value in found.items() if value is not None}


def _done(metrics: Mapping[str, Any], provenance: Mapping[str, Any]) -> RunResult:
    float(provenance["images_seen"]), int(provenance["seed"])  # are used where no file is named
    test = {
        kind.partition(".")[2] or None: {
            name: None if one["value"] is None else float(one["value"])
            for name, one in body.items()
        }
        for kind, body in metrics.items()
        if kind.partition(".")[0] == "test"
    }
    return RunResult(test, str(provenance["manifest_sha256"]), provenance)


# -------------------------------------------------------------------------------------------------
# What the records of an experiment were made with, so that nobody has to say it again.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordedRequest:
    """How the runs of an artefact were asked for."""

    profile: str
    part: bool  # with --allow-missing
    seeds: int


def made_with(
    experiment: Path,
    artefact: Callable[[str], Artefact],
    place: Callable[[Artefact, bool], DataLocation],
    profiles: Sequence[str],
    parts: Sequence[bool],
) -> RecordedRequest:
    """The profile, and whether images were missing, that most records agree with.

    ``artefact`` is the declaration under a profile, ``place`` its data; ``profiles`` and ``parts``
    are the candidates, one where the user has said it.
    """
    found = from_records(experiment)

    def kept(profile: str, part: bool, seeds: int) -> list[ArtefactRun]:
        try:
            one = artefact(profile)
        except SpecError:  # without a column or row that is asked for
            return []
        wanted, _ = cells(one, place(one, part), profile=profile, seeds=seeds)
        return [cell for cell in wanted if cell.identity in found]

    # the first seed is enough to tell them apart
    candidates = [(profile, part) for profile in profiles for part in parts]
    profile, part = max(candidates, key=lambda each: len(kept(each[0], each[1], 1)))
    most = 1 + max((int(run.provenance["seed"]) for run in found.values()), default=0)
    own = kept(profile, part, most)
    if not own:
        raise DataError(
            f"no record of {experiment} is a run of {artefact(profile).name} with the data, "
            f"profile and seeds that were asked for; `shasam records list {experiment}` shows what "
            "it holds"
        )
    return RecordedRequest(profile, part, 1 + max(cell.seed for cell in own))


# -------------------------------------------------------------------------------------------------
# Row against row over a whole artefact: what a table of many settings says of two methods.
#
# A difference is paired: both rows have the same settings and seeds. Its interval is over what
# there is more of. With eight settings and three seeds it is over settings, each the mean of its
# seeds; with three settings and five seeds it is over seeds, each the mean of its settings.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowDifference:
    """A row minus another, of one metric, in points."""

    row: str
    other: str
    metric: str
    ours: Comparison  # over ``support`` settings or seeds
    over: str  # "settings" or "seeds"
    printed: float | None  # the paper's own mean difference, over the same settings


def differences(filled: ArtefactTable) -> Iterator[RowDifference]:
    """Those that the artefact asks for and that its finished runs can answer."""
    for row, other in filled.artefact.compare:
        for metric in filled.artefact.metrics:
            found = _difference(filled, row, other, metric)
            if found is not None:
                yield found


def _difference(filled: ArtefactTable, row: str, other: str, metric: str) -> RowDifference | None:
    by_column: dict[str, dict[int, float]] = {}
    printed = []
    for column in filled.artefact.columns:
        one, two = (filled.get(name, column, metric) for name in (row, other))
        shared = one.by_seed.keys() & two.by_seed.keys()
        if not shared:
            continue
        by_column[column] = {seed: one.by_seed[seed] - two.by_seed[seed] for seed in shared}
        if one.printed is not None and two.printed is not None:
            printed.append(one.printed.value - two.printed.value)
    if not by_column:
        return None
    values, over = _units(by_column)
    ours = compare_seeds(values, [0.0] * len(values))
    paper = statistics.fmean(printed) if len(printed) == len(by_column) else None
    return RowDifference(row, other, metric, ours, over, paper)


def _units(by_column: Mapping[str, Mapping[int, float]]) -> tuple[list[float], str]:
    """The mean difference of each setting, or of each seed that all settings have."""
    seeds = sorted(set.intersection(*(set(found) for found in by_column.values())))
    if len(seeds) >= len(by_column):
        every = by_column.values()
        return [statistics.fmean(found[seed] for found in every) for seed in seeds], "seeds"
    return [statistics.fmean(found.values()) for found in by_column.values()], "settings"
