"""Open the runs that a page shows together, and group those that differ only by seed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from shasam.errors import ShasamWarning
from shasam.metrics import Estimate, adjusted, catalogue, names_of, values
from shasam.metrics.intervals import draws_of_runs
from shasam.metrics.learnt import Learnt, Skill
from shasam.report.along import NumberSubject
from shasam.report.columns import Columns
from shasam.report.predictions import read_predictions
from shasam.report.subject import OF_RUNS, AuditOptions, Subject, counts_of
from shasam.report.verdict import joined
from shasam.runs.directory import PREDICTIONS, RunDirectory
from shasam.spec.fields import DataSpec, TrainSpec
from shasam.types import Predictions, attribute_columns

# -------------------------------------------------------------------------------------------------
# Runs that are shown together, and the subject that a page shows of each.
# -------------------------------------------------------------------------------------------------


def predictions_of(run: RunDirectory) -> Predictions:
    """Return the test predictions of a run, under its name.

    Of several attributes it is their intersection.
    """
    return _read(run, Columns(sensitive=("sensitive",)))[0]


def _read(run: RunDirectory, asked: Columns) -> list[Predictions]:
    """Read what an audit reads; a page and a run say themselves how many rows have no group."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShasamWarning)
        return read_predictions(run.file(PREDICTIONS), asked, run.name)


def subject_of(run: RunDirectory, draws: int = 2000, seed: int = 0) -> Subject:
    """Return a run's numbers, computed from its predictions."""
    rows = predictions_of(run)
    rows, drawn = _affordable(rows, draws, seed)
    return Subject.of(rows, drawn, unit=run.unit, method=run.method, seed=run.seed)


def _affordable(rows: Predictions, draws: int, seed: int) -> tuple[Predictions, AuditOptions]:
    """Return the rows with as many draws as their groups allow, as the run itself took them."""
    fitting, scored = draws_of_runs(len(rows.classes), len(rows.groups), draws)
    rows = rows if scored else replace(rows, scores=rows.scores[:, :0])
    return rows, replace(OF_RUNS, draws=fitting, seed=seed)


def recorded_subject(
    run: RunDirectory, draws: int = 2000, seed: int = 0, *, complete: bool = False
) -> Subject:
    """Return a run's numbers as ``metrics.json`` has them, where they agree with its predictions.

    Else, or where ``complete`` asks for every metric and some are missing, they are computed.
    """
    rows, drawn = _affordable(predictions_of(run), draws, seed)
    known = _recorded(run, rows, complete)
    return Subject.of(rows, drawn, estimates=known, unit=run.unit, method=run.method, seed=run.seed)


def _recorded(run: RunDirectory, rows: Predictions, complete: bool) -> dict[str, Estimate] | None:
    """Return the estimates of ``metrics.json``, or None if they are too few or not of these
    rows.
    """
    found = run.metrics().get("test")
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        return None
    names = names_of(rows.groups, scores=rows.scored)
    if not set(names if complete else catalogue.SHOWN["headline"]) <= set(found):
        return None
    estimates = {name: Estimate.from_dict(found[name]) for name in names if name in found}
    for name, value in values(counts_of(rows), positive=rows.positive).items():
        if name in estimates and not _same(estimates[name].value, value):
            return None  # the file says something else than the predictions: believe those
    return estimates


def _same(a: float, b: float) -> bool:
    return abs(a - b) < 1e-9 or (math.isnan(a) and math.isnan(b))


def by_attribute(run: RunDirectory, draws: int = 2000, seed: int = 0) -> list[Subject]:
    """Return a run through each of its several attributes, and through their intersection.

    It is [] of one attribute.

    Claims about gaps allow for the number of attributes, as in an audit.
    """
    tables = _read(run, Columns())
    if len(tables) < 2:
        return []
    found = []
    for rows in tables:
        rows, drawn = _affordable(rows, draws, seed)
        found.append(Subject.of(rows, drawn, unit=run.unit, method=run.method, seed=run.seed))
    estimates = adjusted([subject.estimates for subject in found], OF_RUNS.level)
    return [s.with_estimates(e, len(found)) for s, e in zip(found, estimates, strict=True)]


def by_number(run: RunDirectory, draws: int = 2000, seed: int = 0) -> NumberSubject | None:
    """Return a run along the sensitive number that it was trained with.

    None if it had groups.
    """
    name = run.metadata.get("number")
    if not name:
        return None
    column = attribute_columns([name])[0]
    (rows,) = _read(run, Columns(sensitive=(column,), continuous=(column,), missing="drop"))
    return replace(NumberSubject.of(rows, replace(OF_RUNS, draws=draws, seed=seed)), unit=run.unit)


def learnt_of(run: RunDirectory) -> Learnt:
    """Return the verdict on a run: as it is recorded, or from the predictions of its test split."""
    found = run.learnt()
    return Learnt(Skill.of(counts_of(predictions_of(run)))) if found is None else found


def found_runs(paths: Sequence[Path]) -> list[Path]:
    """Run directories; a folder that is none stands for the finished runs inside it."""
    out: list[Path] = []
    for path in paths:
        if path.is_dir() and not (path / "predictions.parquet").is_file():
            inside = sorted(p.parent for p in path.glob("*/predictions.parquet"))
            if inside:
                out += inside
                continue
        out.append(path)
    return out


def finite(value: Any) -> float | None:
    """Return a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


# -------------------------------------------------------------------------------------------------
# Runs to be shown together: those of one specification are seeds of one row, others are not.
#
# A row is a specification without its seeds. Where a method has several, each is named by the keys
# that tell them apart, and they stand in the order of those keys' values.
# -------------------------------------------------------------------------------------------------

# keys that the name of the setting says already, or that say only where the data lies
_SAID = {"name", "root", "csv", "store", "features", "target", "sensitive", "setting", "alpha"}
_WORDS = 24  # characters of a value in a name


def opened_runs(paths: Sequence[Path]) -> list[RunDirectory]:
    """Return the runs, each named so that no two specifications have one name.

    They are ordered within a method.
    """
    runs = [RunDirectory.evaluated(path) for path in paths]
    differ = len({run.encoder for run in runs}) > 1
    for run in runs:
        run.tell_encoder = differ
    by_method: dict[tuple[str, str], list[RunDirectory]] = {}
    for run in runs:
        by_method.setdefault((run.setting, run.method), []).append(run)
    return [named for members in by_method.values() for named in _with_names(members)]


def _with_names(runs: Sequence[RunDirectory]) -> list[RunDirectory]:
    """Return runs of one method, named by the fewest keys that tell their specifications apart."""
    flat = [specification(run.settings) for run in runs]
    keys = list(dict.fromkeys(key for spec in flat for key in spec))
    differ = [k for k in keys if len({repr(spec.get(k)) for spec in flat}) > 1]
    chosen: list[str] = []
    while _kinds(flat, chosen) < _kinds(flat, differ):
        # keys of the options come before those of training, which often follow from them
        chosen.append(max(differ, key=lambda k: (_kinds(flat, [*chosen, k]), -differ.index(k))))
    chosen.sort(key=differ.index)
    order = sorted(range(len(runs)), key=lambda i: [_rank(flat[i].get(k)) for k in chosen])
    return [
        RunDirectory(
            runs[i].path,
            ", ".join(
                f"{_short(k)} {_value(flat[i][k]) if k in flat[i] else 'default'}" for k in chosen
            ),
            tell_encoder=runs[i].tell_encoder,
        )
        for i in order
    ]


def specification(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted keys and values of a specification, without seeds and without where the data
    lies.

    A key that is newer than the run has its default, as when the run was made.
    """
    body = dict(spec)
    for part, fields in (("data", DataSpec), ("train", TrainSpec)):
        given = body.get(part)
        defaults = fields.model_validate({}).model_dump(mode="json")
        body[part] = {**defaults, **given} if isinstance(given, Mapping) else defaults
    data = {k: v for k, v in body.pop("data").items() if k not in _SAID}
    return dict(_flat({**body, "data": data}))


ByMethod = Mapping[str, Sequence[Subject]]


def on_common_seeds(by_method: ByMethod) -> tuple[dict[str, list[Subject]], str]:
    """Return the runs of seeds that all methods have, and a sentence where that leaves out some."""
    everything = {method: list(members) for method, members in by_method.items()}
    seeds = {method: {e.seed for e in members} for method, members in everything.items()}
    common = set.intersection(*seeds.values())
    if len(seeds) < 2 or all(found == common for found in seeds.values()):
        return everything, ""
    if not common:
        return everything, (
            "No seed is common to all methods: their means are over different splits and cannot "
            "be compared."
        )
    kept = {m: [e for e in members if e.seed in common] for m, members in everything.items()}
    left = sum(map(len, everything.values())) - sum(map(len, kept.values()))
    named = joined([str(seed) for seed in sorted(common, key=str)])
    return kept, (
        "Not all methods have the same seeds: they are compared on "
        f"seed{'' if len(common) == 1 else 's'} {named}; {left} run{'' if left == 1 else 's'} of "
        f"other seeds {'is' if left == 1 else 'are'} left out."
    )


def _kinds(specs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
    """Return how many different specifications there are if only ``keys`` are looked at."""
    return len({tuple(repr(spec.get(k)) for k in keys) for spec in specs})


def _flat(spec: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in spec.items():
        name = f"{prefix}{key}"
        if name.endswith("seed"):
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, name + ".")
        else:
            yield name, value


def _rank(value: Any) -> tuple[int, float, str]:
    """Sort numbers by size, then texts; what is not there comes first."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def _short(key: str) -> str:
    """Return the last part of a key, with its stage where that is not the first one."""
    parts = key.split(".")
    return " ".join(parts[-2:]) if "classify" in parts or "others" in parts else parts[-1]


def _value(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…"
