"""Train a recorded run again and report differences of scores, decisions, metrics and machine.

A record is a run directory, or a run of an experiment that was kept with ``shasam records keep``
(``experiments/faces/ce-0123456789ab``). Torch is imported inside functions: the command chooses
the instruction set of the record before it is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shasam.errors import DataError, InputError
from shasam.runs.directory import RunDirectory
from shasam.runs.machine import REPRODUCIBLE, SETTINGS
from shasam.runs.records import RECORDS, unpack

if TYPE_CHECKING:
    from shasam.training.runtime import Device


UNKNOWN = "not recorded"


@dataclass(frozen=True)
class Difference:
    """What a replay changed; ``metrics`` and ``settings`` hold (name, before, after)."""

    images: int
    scores: int  # images whose scores differ in at least one bit
    largest: float  # largest difference of a score
    decisions: int  # images whose decision differs
    metrics: list[tuple[str, float | None, float | None]]
    settings: list[tuple[str, str, str]]

    @property
    def same(self) -> bool:
        return not (self.scores or self.decisions or self.metrics)


def open_record(path: Path, scratch: Path) -> Path:
    """The folder of a record; a run inside an experiment is unpacked into ``scratch``."""
    if (path / "spec.yaml").is_file():
        missing = [n for n in ("predictions.parquet", "metrics.json") if not (path / n).is_file()]
        if missing:
            raise InputError(f"{path} has no {' and no '.join(missing)} to compare with")
        return path
    if (path.parent / RECORDS).is_file():
        found = unpack(path.parent, scratch / "record", [path.name])
        if found:
            return found[0]
        raise InputError(
            f"{path.parent} holds no run {path.name!r}; `shasam records list {path.parent}` shows "
            "its runs"
        )
    raise InputError(
        f"{path} is not a record: give a run directory, or a run of an experiment such as "
        "experiments/faces/ce-0123456789ab"
    )


def train_again(record: Path, root: Path | None, out: Path, device: Device, quiet: bool) -> Path:
    """Train the specification of a record, on the same data; returns the new run directory."""
    from shasam.data import open_data
    from shasam.pipeline.execute import execute
    from shasam.training.runtime import Runtime

    spec = RunDirectory(record).spec()
    # the record may be somebody else's: where stores are written is not theirs to say
    changes: dict[str, Any] = {"store": None} if root is None else {"store": None, "root": root}
    spec = spec.model_copy(update={"data": spec.data.model_copy(update=changes)})
    data = open_data(spec.data)
    wanted = RunDirectory(record).provenance().get("manifest_sha256")
    if wanted is not None and wanted != data.manifest.sha256:
        raise DataError(
            f"the data is not what {record.name} was trained on: its manifest was {wanted[:12]} "
            f"and is now {data.manifest.sha256[:12]}"
        )
    runtime = Runtime(device=device, quiet=quiet)
    return execute(spec, out, runtime=runtime, resume=True, data=data).path


def difference(record: Path, replayed: Path) -> Difference:
    """Compare the test predictions, the metrics and the provenance of two folders."""
    from shasam.runs.directory import read_predictions

    before = read_predictions(record / "predictions.parquet")
    after = read_predictions(replayed / "predictions.parquet")
    order = {name: row for row, name in enumerate(after.ids)}
    if len(order) != len(before.ids) or any(name not in order for name in before.ids):
        raise DataError(f"the test rows of {record} and of its replay are not the same")
    rows = np.array([order[name] for name in before.ids], dtype=np.int64)
    scores = after.scores[rows]
    if scores.shape != before.scores.shape:
        raise DataError(f"{record} has other classes than its replay")
    gap = np.abs(scores.astype(np.float64) - before.scores.astype(np.float64))
    old, new = RunDirectory(record), RunDirectory(replayed)
    return Difference(
        images=len(rows),
        scores=int((gap > 0).any(1).sum()),
        largest=float(gap.max(initial=0.0)),
        decisions=int((after.prediction[rows] != before.prediction).sum()),
        metrics=_metrics(old.metrics(), new.metrics()),
        settings=_settings(old.provenance(), new.provenance()),
    )


def says(found: Difference) -> list[str]:
    """The difference in sentences, the most important first."""
    lines = []
    if not found.scores:
        lines.append(f"scores     all {found.images} rows have the same scores, bit for bit")
    else:
        lines.append(
            f"scores     {found.scores} of {found.images} rows differ, by up to {found.largest:.2g}"
        )
    lines.append(f"decisions  {found.decisions} of {found.images} differ")
    if not found.metrics:
        lines.append("metrics    the same")
    shown = [m for m in found.metrics if m[0] in ("accuracy", "eo_mean", "worst_group_accuracy")]
    for name, old, new in shown or found.metrics[:3]:
        lines.append(f"metric     {name} {_percent(old)} -> {_percent(new)}")
    if len(found.metrics) > len(shown or found.metrics[:3]):
        lines.append(f"metrics    {len(found.metrics)} values of the test split differ in all")
    lines += [f"computed   {name}: {was} -> {now}" for name, was, now in found.settings]
    if not found.same and not found.settings:
        lines.append("computed   with the same machine, threads and versions: please report this")
    return lines


def _metrics(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[tuple[str, float | None, float | None]]:
    """Metrics of the test split that both have and that differ."""
    old, new = before.get("test", {}), after.get("test", {})
    pairs = ((name, old[name]["value"], new[name]["value"]) for name in old if name in new)
    return [(name, a, b) for name, a, b in pairs if not _close(a, b)]


def _close(a: float | None, b: float | None) -> bool:
    # metrics of equal predictions may differ in the last bits of a sum between versions of numpy
    return a == b or (a is not None and b is not None and abs(a - b) <= 1e-12 * max(1.0, abs(a)))


def _settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    found = []
    for key, words in SETTINGS.items():
        if before.get(key, UNKNOWN) != after.get(key, UNKNOWN):
            found.append((words, _words(before, key), _words(after, key)))
    old, new = before.get("versions", {}), after.get("versions", {})
    for name in (*old, *(n for n in new if n not in old)):
        if old.get(name, UNKNOWN) != new.get(name, UNKNOWN):
            found.append((f"version of {name}", old.get(name, UNKNOWN), new.get(name, UNKNOWN)))
    return found


def _words(provenance: Mapping[str, Any], key: str) -> str:
    value = provenance.get(key, UNKNOWN)
    if value == REPRODUCIBLE:
        return "those of --reproducible"
    if isinstance(value, Mapping):
        return " ".join(f"{name}={text}" for name, text in value.items()) or "none"
    return "none" if value is None else str(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"
