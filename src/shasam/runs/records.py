"""The small records of an experiment's runs, in two Parquet files that can be committed.

``records.parquet`` has a row for each run: its label in tables, specification, metrics, provenance
and log. ``predictions.parquet`` has the test predictions of all runs. No weights, images or
embeddings. ``unpack`` writes run folders again, so that every tool that reads a run reads a record.
Needs no torch.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shasam.documents import of_our_shape, parse_json, parse_yaml
from shasam.errors import DataError, FileError
from shasam.files import atomic_file, open_regular, read_bytes, write_atomic
from shasam.runs.directory import log_lines
from shasam.tables import read_parquet

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
        ("asked", pa.string()),  # JSON lines: ways to ask for it, see `note_asked`
    ]
)


@dataclass(frozen=True)
class Record:
    """One run of an experiment."""

    label: str
    run: str
    seed: int
    texts: Mapping[str, str]  # spec, metrics, provenance, log: the files as they were
    asked: tuple[str, ...] = ()  # what artefacts ask for this run with: profile and layers, JSON

    @cached_property
    def spec(self) -> dict[str, Any]:
        return _mapping(parse_yaml(self.texts["spec"], place := self._place("spec")), place)

    @cached_property
    def metrics(self) -> dict[str, Any]:
        return self._document("metrics")

    @cached_property
    def provenance(self) -> dict[str, Any]:
        return self._document("provenance")

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        return [line for line, _ in log_lines(io.BytesIO(self.texts["log"].encode()))]

    def _document(self, name: str) -> dict[str, Any]:
        place = self._place(name)
        return _mapping(parse_json(self.texts[name], place), place)

    def _place(self, name: str) -> str:
        return f"{_TEXTS[name]} in the record of {self.run}"


def holds_records(experiment: Path) -> bool:
    """Return whether runs have been kept there."""
    return (experiment / RECORDS).is_file()


def read_records(experiment: str | Path) -> list[Record]:
    """Read the runs of an experiment, by label and seed."""
    return [
        Record(
            row["label"],
            row["run"],
            row["seed"],
            {name: row[name] for name in _TEXTS},
            tuple((row["asked"] or "").splitlines()),
        )
        for row in _rows(Path(experiment))
    ]


def by_label(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return records of one label together, in the order of the labels."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda r: (r.label, r.seed, r.run)):
        found.setdefault(record.label, []).append(record)
    return found


def columns_of(experiment: str | Path, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return some columns of the records, a dict for each run.

    What is not asked for is not read.
    """
    return _read(Path(experiment), RECORDS, names).to_pylist()


def counted(experiment: str | Path) -> dict[str, dict[tuple[int, int], tuple[int, int]]]:
    """Run -> (target, group) -> test rows, and how many of them were predicted right."""
    names = ["run", "target", "sensitive", "prediction"]
    table = _read(Path(experiment), PREDICTIONS, names)
    right = pc.cast(pc.equal(table.column("prediction"), table.column("target")), pa.int64())
    table = table.append_column("right", right)
    found: dict[str, dict[tuple[int, int], tuple[int, int]]] = {}
    keys = ["run", "target", "sensitive"]
    for row in table.group_by(keys).aggregate([("right", "count"), ("right", "sum")]).to_pylist():
        cell = (int(row["target"]), int(row["sensitive"]))
        found.setdefault(row["run"], {})[cell] = (row["right_count"], row["right_sum"])
    return found


def note_asked(
    experiment: str | Path, asked: Mapping[str, Collection[str]], *, anew: bool = False
) -> None:
    """Write into records what artefacts ask for them with: name of a run -> JSON texts.

    Two artefacts may ask for one run in different words. They are added to what a record has, or,
    ``anew``, stand in its place.
    """
    table = _read(Path(experiment), RECORDS)
    before = table.column("asked").to_pylist()
    lines = []
    for run, known in zip(table.column("run").to_pylist(), before, strict=True):
        kept = set() if anew or known is None else set(known.splitlines())
        lines.append("\n".join(sorted(kept | set(asked.get(run, ())))) or None)
    if lines != before:
        place = table.column_names.index("asked")
        noted = table.set_column(place, "asked", pa.array(lines, pa.string()))
        _write(noted, Path(experiment) / RECORDS)


def keep(runs: Sequence[Path], experiment: str | Path, labels: Mapping[str, str]) -> int:
    """Add finished runs to an experiment; a run that is there already is replaced.

    ``labels`` maps the name of a run folder to its label. Returns the number of runs kept.
    """
    experiment = Path(experiment)
    rows, tables = [], []
    for run in runs:
        predictions = _parquet(run, PREDICTIONS)
        rows.append(_row(run, labels[run.name], predictions.schema.metadata or {}))
        tables.append(_tagged(predictions, run.name))
    if not rows:
        return 0
    new = pa.array([row["run"] for row in rows])
    with of_our_shape(f"a run that is kept in {experiment}, or what that holds"):
        records, predictions = pa.Table.from_pylist(rows, schema=_SCHEMA), _concat(tables)
        if holds_records(experiment):
            old = _read(experiment, RECORDS)
            noted = {row["run"]: row["asked"] for row in old.select(["run", "asked"]).to_pylist()}
            rows = [{**row, "asked": noted.get(row["run"])} for row in rows]
            records = pa.Table.from_pylist(rows, schema=_SCHEMA)
            records = pa.concat_tables([_without(old, new), records])
            predictions = _concat([_without(_read(experiment, PREDICTIONS), new), predictions])
    order = [("label", "ascending"), ("seed", "ascending"), ("run", "ascending")]
    _write(records.sort_by(order), experiment / RECORDS)
    _write(predictions, experiment / PREDICTIONS)
    return len(rows)


def unpack(
    experiment: str | Path, out: str | Path, runs: Sequence[str] | None = None
) -> list[Path]:
    """Write the folders of runs (all, or the named ones): ``out/<label>/<run>``.

    A slash in a label, such as that of the setting a/m, is a dash in the name of its folder.
    """
    experiment, out = Path(experiment), Path(out)
    table = _read(experiment, PREDICTIONS)
    found = []
    for row in _rows(experiment):
        if runs is not None and row["run"] not in runs:
            continue
        folder = out / _folder(row["label"], experiment, parts=True)
        folder /= _folder(row["run"], experiment)
        for name, file in _TEXTS.items():
            write_atomic(folder / file, row[name], within=out)
        place = f"{experiment / PREDICTIONS}, the rows of {row['run']},"
        metadata = _mapping(parse_json(row["predictions_metadata"], place), place)
        with of_our_shape(place):
            own = table.filter(pc.field("run") == row["run"]).drop_columns("run")
            unused = [c for c in own.column_names if own.column(c).null_count == own.num_rows]
            own = own.drop_columns(unused).replace_schema_metadata(metadata)
        _write(own, folder / PREDICTIONS, within=out)
        found.append(folder)
    return found


def _folder(name: str, experiment: Path, *, parts: bool = False) -> str:
    """Return the name of a folder; only a name with parts may have slashes, as dashes."""
    split = name.replace("\\", "/").split("/")
    bad = any(part.strip() in ("", ".", "..") for part in split) or "\0" in name
    if bad or (len(split) > 1 and not parts):
        raise DataError(f"{experiment / RECORDS} names a run {name!r}: that is no folder")
    return "-".join(split)


def _row(run: Path, label: str, metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    texts = {name: _text(run, file) for name, file in _TEXTS.items()}
    if run.is_absolute():  # where the runs lay on one machine says nothing on another
        place = json.dumps(str(run.parent))[1:-1]
        texts["provenance"] = texts["provenance"].replace(f'"{place}', '"runs')
    spec = parse_yaml(texts["spec"], str(run / "spec.yaml"))
    provenance = parse_json(texts["provenance"], str(run / "provenance.json"))
    metrics = parse_json(texts["metrics"], str(run / "metrics.json"))
    with of_our_shape(run):
        texts["provenance"] = _without_folders(texts["provenance"], provenance)
        test = metrics["test"]
        shown = ("accuracy", "eo_mean", "worst_group_accuracy")
        return {
            "label": label,
            "run": run.name,
            "method": spec["method"],
            "seed": spec["seed"],
            "manifest_sha256": provenance["manifest_sha256"],
            **{name: test[name]["value"] for name in shown},
            **texts,
            "predictions_metadata": json.dumps(
                {k.decode(): v.decode() for k, v in metadata.items() if k != b"ARROW:schema"},
                sort_keys=True,
            ),
        }


def _without_folders(text: str, provenance: Mapping[str, Any]) -> str:
    """Return the provenance with the names alone of files that the command gave by full path."""
    command = provenance.get("command")
    for word in command if isinstance(command, list) else ():
        flag, equals, value = str(word).rpartition("=")
        if Path(value).is_absolute():
            full, short = (json.dumps(flag + equals + v) for v in (value, Path(value).name))
            text = text.replace(full, short)
    return text


def _text(run: Path, name: str) -> str:
    """Return a file of a run as text.

    Of the log the lines that are those of a log, and nothing else.

    What is kept here is meant to be published: a link or a file of another kind must not get in.
    """
    try:
        content = read_bytes(run / name, within=run)
        if name == _TEXTS["log"]:
            content = b"".join(line + b"\n" for _, line in log_lines(io.BytesIO(content)))
        return content.decode()
    except (FileError, UnicodeDecodeError) as error:
        raise DataError(f"{run} cannot be kept: {error}") from error


def _mapping(body: Any, where: str) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise DataError(f"{where} should hold keys and values, and does not")
    return body


def _rows(experiment: Path) -> list[dict[str, Any]]:
    """Return the rows of the records, each with all that a record has."""
    table = _read(experiment, RECORDS)
    texts = [name for name in _SCHEMA.names if _SCHEMA.field(name).type == pa.string()]
    for name in (*texts, "seed"):
        if name == "asked":  # which only runs of an artefact have
            continue
        place = table.schema.get_field_index(name)
        kind = _SCHEMA.field(name).type
        if place < 0 or table.schema.field(place).type != kind or table.column(place).null_count:
            raise DataError(f"{experiment / RECORDS} has no column {name!r} of {kind} without gaps")
    return table.to_pylist()


def _tagged(predictions: pa.Table, run: str) -> pa.Table:
    tag = pa.array([run] * predictions.num_rows, pa.string())
    return predictions.replace_schema_metadata(None).add_column(0, "run", tag)


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    """Return one table; runs with fewer classes have empty score columns."""
    return pa.concat_tables(tables, promote_options="default")


def _without(table: pa.Table, runs: pa.Array) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table.column("run"), value_set=runs)))


def _read(experiment: Path, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a file of an experiment, or some of its columns; records of before have no ``asked``."""
    advice = "; give the folder of an experiment, such as experiments/utkface"
    wanted = columns
    if columns is not None:
        with open_regular(experiment / name) as file:
            try:
                known = pq.ParquetFile(file).schema_arrow.names
            except (OSError, ValueError, pa.ArrowException) as error:
                raise DataError(
                    f"{experiment / name} cannot be read as Parquet: {str(error).strip()}"
                ) from error
        wanted = [column for column in dict.fromkeys([*columns, "run"]) if column in known]
    table = _parquet(experiment, name, advice, wanted)
    if "run" not in table.column_names or not pa.types.is_string(table.schema.field("run").type):
        raise DataError(f"{experiment / name} holds no records: it does not name their runs")
    lacks = name == RECORDS and "asked" not in table.column_names
    if lacks and (columns is None or "asked" in columns):
        table = table.append_column("asked", pa.nulls(table.num_rows, pa.string()))
    return table


def _parquet(
    folder: Path, name: str, advice: str = "", columns: Sequence[str] | None = None
) -> pa.Table:
    """Return a Parquet file of a run or of an experiment, if it is one and lies there."""
    try:
        return read_parquet(folder / name, within=folder, columns=columns)
    except FileError as error:
        raise DataError(f"{folder} cannot be used: {error}{advice}") from error


def _write(table: pa.Table, path: Path, within: Path | None = None) -> None:
    """Write a table; scores rarely repeat, and their bytes compress better one place at a time."""
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    with atomic_file(path, within=within) as file:
        pq.write_table(
            table,
            file,
            compression="zstd",
            compression_level=12,
            use_dictionary=[name for name in table.column_names if name not in floats],
            use_byte_stream_split=floats or False,
        )
