"""Runs to be shown together: those of one specification are seeds of one row, others are not.

A row is a specification without its seeds. Where a method has several, each is named by the keys
that tell them apart, and they stand in the order of those keys' values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from shasam.runs.directory import RunDirectory
from shasam.spec.data import DataSpec
from shasam.spec.train import TrainSpec

# what is told by the setting, or says only where the data lies
_TOLD = {"name", "root", "csv", "store", "features", "target", "sensitive", "setting", "alpha"}
_WORDS = 24  # characters of a value in a name


def opened_runs(paths: Sequence[Path]) -> list[RunDirectory]:
    """The runs, each named so that no two specifications have one name; ordered within a method."""
    runs = [RunDirectory.evaluated(path) for path in paths]
    kin: dict[tuple[str, str], list[RunDirectory]] = {}
    for run in runs:
        kin.setdefault((run.setting, run.method), []).append(run)
    return [named for members in kin.values() for named in _told_apart(members)]


def _told_apart(runs: Sequence[RunDirectory]) -> list[RunDirectory]:
    """Runs of one method, named by the fewest keys that tell their specifications apart."""
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
            runs[i].path, ", ".join(f"{_short(k)} {_value(flat[i].get(k))}" for k in chosen)
        )
        for i in order
    ]


def specification(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys and values of a specification, without seeds and without where the data lies.

    A key that is newer than the run has its default, as when the run was made.
    """
    body = dict(spec)
    for part, fields in (("data", DataSpec), ("train", TrainSpec)):
        given = body.get(part)
        defaults = fields.model_validate({}).model_dump(mode="json")
        body[part] = {**defaults, **given} if isinstance(given, Mapping) else defaults
    data = {k: v for k, v in body.pop("data").items() if k not in _TOLD}
    return dict(_flat({**body, "data": data}))


def _kinds(specs: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> int:
    """How many different specifications there are if only ``keys`` are looked at."""
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
    """Numbers by size, then texts; what is not there comes first."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def _short(key: str) -> str:
    """The last part of a key, with its stage where that is not the first one."""
    parts = key.split(".")
    return " ".join(parts[-2:]) if "classify" in parts or "others" in parts else parts[-1]


def _value(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _WORDS else f"{text[: _WORDS - 1]}…"
