"""The small records of an experiment's runs, in two Parquet files that can be committed.

``records.parquet`` has a row for each run: its label in tables, specification, metrics, provenance
and log. ``predictions.parquet`` has the test predictions of all runs. No weights, images or
embeddings. ``unpack`` writes run folders again, so that every tool that reads a run reads a record.
Needs no torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shasam.documents import parse_yaml
from shasam.errors import DataError
from shasam.files import atomic_file, write_atomic

RECORDS, PREDICTIONS = "records.parquet", "predictions.parquet"
# column -> file of a run that it holds, as text
_TEXTS = {
    "spec": "spec.yaml",
    "metrics": "metrics.json",
    "provenance": "provenance.json",
    "log": "log.jsonl",
}
_SCHEMA = pa.schema(
    [
        ("label", pa.string()),  # the row of a table that the run belongs to
        ("run", pa.string()),  # name of its folder: method and key of the specification
        ("method", pa.string()),
        ("seed", pa.int64()),
        ("manifest_sha256", pa.string()),
        ("accuracy", pa.float64()),  # of the test split, to be looked at without parsing `metrics`
        ("eo_mean", pa.float64()),
        ("worst_group_accuracy", pa.float64()),
        *((name, pa.string()) for name in _TEXTS),
        ("predictions_metadata", pa.string()),  # JSON: class names, protocol, hash of the manifest
    ]
)


@dataclass(frozen=True)
class Record:
    """One run of an experiment."""

    label: str
    run: str
    seed: int
    texts: Mapping[str, str]  # spec, metrics, provenance, log: the files as they were

    @cached_property
    def spec(self) -> dict[str, Any]:
        return parse_yaml(self.texts["spec"], f"the specification of {self.run}")

    @cached_property
    def metrics(self) -> dict[str, Any]:
        return json.loads(self.texts["metrics"])

    @cached_property
    def provenance(self) -> dict[str, Any]:
        return json.loads(self.texts["provenance"])

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.texts["log"].splitlines()]


def holds_records(experiment: Path) -> bool:
    """Whether runs have been kept there."""
    return (experiment / RECORDS).is_file()


def read_records(experiment: str | Path) -> list[Record]:
    """The runs of an experiment, by label and seed."""
    return [
        Record(row["label"], row["run"], row["seed"], {name: row[name] for name in _TEXTS})
        for row in _read(Path(experiment), RECORDS).to_pylist()
    ]


def by_label(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records of one label together, in the order of the labels."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda r: (r.label, r.seed, r.run)):
        found.setdefault(record.label, []).append(record)
    return found


def keep(runs: Sequence[Path], experiment: str | Path, labels: Mapping[str, str]) -> int:
    """Add finished runs to an experiment; a run that is there already is replaced.

    ``labels`` maps the name of a run folder to its label. Returns the number of runs kept.
    """
    experiment = Path(experiment)
    rows, tables = [], []
    for run in runs:
        predictions = pq.read_table(run / PREDICTIONS)
        rows.append(_row(run, labels[run.name], predictions.schema.metadata or {}))
        tables.append(_tagged(predictions, run.name))
    if not rows:
        return 0
    new = pa.array([row["run"] for row in rows])
    records, predictions = pa.Table.from_pylist(rows, schema=_SCHEMA), _concat(tables)
    if holds_records(experiment):
        old = _read(experiment, RECORDS)
        records = pa.concat_tables([_without(old, new), records])
        predictions = _concat([_without(_read(experiment, PREDICTIONS), new), predictions])
    order = [("label", "ascending"), ("seed", "ascending"), ("run", "ascending")]
    _write(records.sort_by(order), experiment / RECORDS)
    _write(predictions, experiment / PREDICTIONS)
    return len(rows)


def unpack(
    experiment: str | Path, out: str | Path, runs: Sequence[str] | None = None
) -> list[Path]:
    """Write the folders of runs (all, or the named ones): ``out/<label>/<run>``."""
    experiment, out = Path(experiment), Path(out)
    table = _read(experiment, PREDICTIONS)
    found = []
    for row in _read(experiment, RECORDS).to_pylist():
        if runs is not None and row["run"] not in runs:
            continue
        for part in (row["label"], row["run"]):
            if part in ("", ".", "..") or "/" in part or "\\" in part or "\0" in part:
                raise DataError(f"{experiment / RECORDS} names a run {part!r}: that is no folder")
        folder = out / row["label"] / row["run"]
        for name, file in _TEXTS.items():
            write_atomic(folder / file, row[name], within=out)
        own = table.filter(pc.field("run") == row["run"]).drop_columns("run")
        unused = [c for c in own.column_names if own.column(c).null_count == own.num_rows]
        metadata = json.loads(row["predictions_metadata"])
        _write(own.drop_columns(unused).replace_schema_metadata(metadata), folder / PREDICTIONS)
        found.append(folder)
    return found


def _row(run: Path, label: str, metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    texts = {name: (run / file).read_text(encoding="utf-8") for name, file in _TEXTS.items()}
    if run.is_absolute():  # where the runs lay on one machine says nothing on another
        place = json.dumps(str(run.parent), ensure_ascii=False)[1:-1]
        texts["provenance"] = texts["provenance"].replace(f'"{place}', '"runs')
    spec, provenance = (
        parse_yaml(texts["spec"], str(run / "spec.yaml")),
        json.loads(texts["provenance"]),
    )
    test = json.loads(texts["metrics"])["test"]
    return {
        "label": label,
        "run": run.name,
        "method": spec["method"],
        "seed": spec["seed"],
        "manifest_sha256": provenance["manifest_sha256"],
        **{name: test[name]["value"] for name in ("accuracy", "eo_mean", "worst_group_accuracy")},
        **texts,
        "predictions_metadata": json.dumps(
            {k.decode(): v.decode() for k, v in metadata.items()}, sort_keys=True
        ),
    }


def _tagged(predictions: pa.Table, run: str) -> pa.Table:
    tag = pa.array([run] * predictions.num_rows, pa.string())
    return predictions.replace_schema_metadata(None).add_column(0, "run", tag)


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    """One table; runs with fewer classes have empty score columns."""
    return pa.concat_tables(tables, promote_options="default")


def _without(table: pa.Table, runs: pa.Array) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table.column("run"), value_set=runs)))


def _read(experiment: Path, name: str) -> pa.Table:
    try:
        return pq.read_table(experiment / name)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{experiment} holds no records ({name}: {error}); give the folder of an experiment, "
            "such as experiments/utkface"
        ) from error


def _write(table: pa.Table, path: Path) -> None:
    with atomic_file(path) as file:
        pq.write_table(table, file, compression="zstd", compression_level=12)
