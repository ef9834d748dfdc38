"""Fill an artefact with the numbers of finished runs or records, the paper's beside them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from shasam.documents import of_our_shape, parse_json
from shasam.errors import DataError, SpecError
from shasam.metrics import catalogue, compare_seeds
from shasam.metrics.paired import Comparison
from shasam.registry import lookup
from shasam.report.published import PublishedNumber
from shasam.reproduce.artefact import Artefact, ArtefactRun, DataLocation, cells, identity
from shasam.runs.directory import RunDirectory
from shasam.runs.records import columns_of, counted, read_records
from shasam.spec import stored_spec

# -------------------------------------------------------------------------------------------------
# An artefact with the numbers of its finished runs, the paper's beside them.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunResult:
    """What a finished run says: the metrics of its test split, and where they come from."""

    # head (None: the predictions of the run) -> metric -> fraction, None if it is undefined
    test: Mapping[str | None, Mapping[str, float | None]]
    manifest: str
    provenance: Mapping[str, Any]
    majority: float | None = None  # share of the largest class in the test split
    run: str = ""  # its name


@dataclass(frozen=True)
class ArtefactNumber:
    """One number of an artefact, in per cent and points: ours over seeds, and the paper's."""

    by_seed: Mapping[int, float]
    printed: PublishedNumber | None
    comparable: bool = True  # False: of a metric that the paper has on other shares of classes

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
    majority: Mapping[str, float]  # column -> share of the largest class in our test splits

    def get(self, row: str, column: str, metric: str) -> ArtefactNumber:
        return self.entries[row, column, metric]


def from_folder(cells: Sequence[ArtefactRun], out: Path) -> dict[str, RunResult]:
    """Return the finished runs of a folder, by the identity of their specification."""
    found = {}
    for cell in cells:
        run = RunDirectory(out / cell.spec.name)
        if run.done:
            with of_our_shape(run.path):
                metadata = pq.read_schema(run.file("predictions.parquet")).metadata or {}
                protocol = json.loads(metadata.get(b"protocol", b"{}"))
                one = _done(run.metrics(), run.json("provenance.json"), protocol, {})
                found[cell.identity] = replace(one, run=cell.spec.name)
    return found


def kept_runs(experiment: Path) -> dict[str, RunResult]:
    """Return the runs of an experiment's records, by the identity of their specification."""
    done = {row["run"]: one for row, one in _read_done(experiment)}
    return {identity(stored_spec(r.spec)): done[r.run] for r in read_records(experiment)}


def from_records(experiment: Path) -> dict[str, RunResult]:
    """Return the runs of an experiment's records, by what they were asked for with.

    It needs no torch.
    """
    return {
        asked: one
        for row, one in _read_done(experiment)
        for asked in (row["asked"] or "").splitlines()
    }


def _read_done(experiment: Path) -> list[tuple[dict[str, Any], RunResult]]:
    counts = counted(experiment)
    out = []
    names = ("run", "asked", "metrics", "provenance", "predictions_metadata")
    for row in columns_of(experiment, names):
        place = f"the record of {row['run']} in {experiment}"
        with of_our_shape(place):
            metrics, provenance, about = (parse_json(row[name], place) for name in names[2:])
            protocol = parse_json(about.get("protocol", "{}"), place)
            one = _done(metrics, provenance, protocol, counts.get(row["run"], {}))
            out.append((row, replace(one, run=row["run"])))
    return out


def fill(
    artefact: Artefact,
    cells: Sequence[ArtefactRun],
    done: Mapping[str, RunResult],
    *,
    profile: str,
    data: str,
    refused: Mapping[str, str],
    key: Callable[[ArtefactRun], str] = lambda cell: cell.identity,
) -> ArtefactTable:
    """Put the numbers of finished runs in their places; a cell without a run stays empty.

    ``key`` is what ``done`` is ordered by.
    """
    found = {(c.row, c.column, c.seed): done[key(c)] for c in cells if key(c) in done}
    printed = artefact.printed
    asked = {key(cell) for cell in cells}  # rows can share runs
    entries, views = {}, {}
    for row in artefact.rows():
        for column in artefact.columns:
            own = {s: run for (r, c, s), run in sorted(found.items()) if (r, c) == (row, column)}
            seen = [float(run.provenance["images_seen"]) for run in own.values()]
            if seen:
                views[row, column] = statistics.fmean(seen)
            for metric in artefact.metrics:
                theirs, name = None, _printed_as(metric, artefact)
                if printed is not None and name is not None:
                    theirs = printed.get(artefact.printed_row(row), column, name)
                values = _values(own, artefact.head(row), metric)
                entries[row, column, metric] = ArtefactNumber(values, theirs, name is not None)
    manifests = sorted({run.manifest[:12] for run in found.values()})
    return ArtefactTable(
        artefact,
        profile,
        data,
        len(asked),
        len(asked & done.keys()),
        len({cell.seed for cell in cells}),
        entries,
        tuple(manifests),
        views,
        refused,
        {column: _majority(found, column) for column in artefact.columns},
    )


def _printed_as(metric: str, artefact: Artefact) -> str | None:
    """Pick our accuracy as the paper prints it: on CelebA, that of the whole test split."""
    if "official_accuracy" not in artefact.metrics:
        return metric
    return {"official_accuracy": "accuracy", "accuracy": None}.get(metric, metric)


def _majority(found: Mapping[tuple[str, str, int], RunResult], column: str) -> float:
    shares = [run.majority for (_, c, _), run in found.items() if c == column]
    known = [share for share in shares if share is not None]
    return statistics.fmean(known) if known else math.nan


def _values(runs: Mapping[int, RunResult], head: str | None, metric: str) -> dict[int, float]:
    found = {seed: run.test.get(head, {}).get(metric) for seed, run in runs.items()}
    return {seed: 100 * value for seed, value in found.items() if value is not None}


def _done(
    metrics: Mapping[str, Any],
    provenance: Mapping[str, Any],
    protocol: Mapping[str, Any],
    counted: Mapping[tuple[int, int], tuple[int, int]],
) -> RunResult:
    """Read a finished run; ``counted`` has the cells that its metrics lack."""
    float(provenance["images_seen"]), int(provenance["seed"])  # are used where no file is named
    test: dict[str | None, dict[str, float | None]] = {
        kind.partition(".")[2] or None: {
            name: None if one["value"] is None else float(one["value"])
            for name, one in body.items()
        }
        for kind, body in metrics.items()
        if kind.partition(".")[0] == "test"
    }
    cells = {
        kind.partition(".")[2] or None: _by_cell(body)
        for kind, body in metrics.get("cells", {}).items()
        if kind.partition(".")[0] == "test"
    }
    cells.setdefault(None, dict(counted))
    for head, found in cells.items():
        value = official_accuracy(protocol, found)
        if head in test and value is not None:
            test[head]["official_accuracy"] = value
    majority = majority_share(cells[None])
    return RunResult(test, str(provenance["manifest_sha256"]), provenance, majority)


def _by_cell(body: Mapping[str, list[list[int]]]) -> dict[tuple[int, int], tuple[int, int]]:
    return {
        (t, s): (rows, body["right"][t][s])
        for t, line in enumerate(body["rows"])
        for s, rows in enumerate(line)
        if rows
    }


# -------------------------------------------------------------------------------------------------
# The profile and data that the records of an experiment were made with.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordedRequest:
    """How the runs of an artefact were asked for."""

    profile: str
    part: bool  # with --allow-missing
    seeds: int
    vectors: bool = False  # with --features


def made_with(
    experiment: Path,
    artefact: Callable[[str], Artefact],
    place: Callable[[Artefact, bool, bool], DataLocation],
    profile: str | None = None,
) -> RecordedRequest:
    """Return what the records say: of several profiles, the one with most runs of the artefact.

    ``artefact`` is the declaration under a profile; ``place`` its data, where some images are
    missing and where vectors stand in their place. ``profile`` is that of the user, if any.
    """
    noted = (row["asked"] or "" for row in columns_of(experiment, ["asked"]))
    found = {text for lines in noted for text in lines.splitlines()}
    kept = [json.loads(text) for text in found]
    seeds = 1 + max((int(one["seed"]) for one in kept), default=0)
    ways = {
        (
            one["profile"],
            bool(one["data"].get("allow_missing")),
            one["data"].get("name") == "embeddings",
        )
        for one in kept
        if profile in (None, one["profile"])
    }
    refused: SpecError | None = None
    best: tuple[list[ArtefactRun], RecordedRequest] = ([], RecordedRequest("", part=False, seeds=0))
    for name, part, vectors in sorted(ways):
        try:
            one = artefact(name)
        except SpecError as error:  # without a column or row that is asked for
            refused = error
            continue
        wanted, _ = cells(one, place(one, part, vectors), profile=name, seeds=seeds, check=False)
        own = [cell for cell in wanted if cell.asked in found]
        if len(own) > len(best[0]):
            best = (own, RecordedRequest(name, part, 1 + max(cell.seed for cell in own), vectors))
    if best[0]:
        return best[1]
    if refused is not None:
        raise refused
    raise DataError(
        f"no record of {experiment} is a run of this artefact with the data, profile and seeds "
        f"that were asked for; `shasam records list {experiment}` shows what it holds"
    )


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
    """Return the differences that the artefact asks for and its finished runs can answer."""
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
    """Return the mean difference of each setting, or of each seed that all settings have."""
    seeds = sorted(set.intersection(*(set(found) for found in by_column.values())))
    if len(seeds) >= len(by_column):
        every = by_column.values()
        return [statistics.fmean(found[seed] for found in every) for seed in seeds], "seeds"
    return [statistics.fmean(found.values()) for found in by_column.values()], "settings"


# -------------------------------------------------------------------------------------------------
# Accuracy as it would be on CelebA's whole test split, from a test split that is a part of it.
#
# The part that is at hand may have other shares of classes and groups than the whole (the images of
# CelebA-HQ do), and accuracy depends on them. The accuracy of each (target, group) cell does not,
# so those are averaged with the shares of the whole test split, which ``official_counts.json``
# holds. Equalised odds compares cells and needs no weights.
# -------------------------------------------------------------------------------------------------

Cells = Mapping[tuple[int, int], tuple[int, int]]  # (target, group) -> rows, right ones


@cache
def official_counts() -> dict[str, list[list[int]]]:
    """Return ``target/sensitive`` -> images of CelebA's test split by class and group."""
    held = files("shasam.reproduce").joinpath("official_counts.json")
    return json.loads(held.read_text(encoding="utf-8"))


def official_accuracy(protocol: Mapping[str, Any], cells: Cells) -> float | None:
    """Return the accuracy of cells, weighted by their official shares.

    None if they are not known.
    """
    counts = official_counts().get(f"{protocol.get('target')}/{protocol.get('sensitive')}")
    if counts is None or not cells:
        return None
    total = right = 0.0
    for t, line in enumerate(counts):
        for s, count in enumerate(line):
            rows, hits = cells.get((t, s), (0, 0))
            if count and not rows:
                return None
            total += count
            right += count * hits / rows if rows else 0.0
    return right / total


def majority_share(cells: Cells) -> float | None:
    """Return the share of the largest class: the accuracy of a classifier that always says it."""
    by_class: dict[int, int] = {}
    for (t, _), (rows, _) in cells.items():
        by_class[t] = by_class.get(t, 0) + rows
    return max(by_class.values()) / sum(by_class.values()) if by_class else None


def official_majority(target: str, sensitive: str) -> float | None:
    """Return the same of CelebA's whole test split."""
    counts = official_counts().get(f"{target}/{sensitive}")
    if counts is None:
        return None
    sums = [sum(line) for line in counts]
    return max(sums) / sum(sums)


def target_and_group(artefact: Artefact, column: str) -> tuple[str, str]:
    """Return what a column of an artefact predicts, and its sensitive attribute."""
    data = {**(artefact.base.get("data") or {}), **(artefact.columns[column].get("data") or {})}
    source = lookup("source", str(artefact.data))
    target, sensitive = source.settings.get(data.get("setting"), (source.target, source.sensitive))
    return str(data.get("target") or target), str(data.get("sensitive") or sensitive)


def metric_label(name: str) -> str:
    """Return the label of a metric of an artefact."""
    return "Accuracy, official shares" if name == "official_accuracy" else catalogue.label_of(name)
