"""Records of foreign runs: what is kept may be published, so nothing else may get in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shasam.errors import DataError, ShasamError
from shasam.runs.directory import RunDirectory, log_lines, stream_log
from shasam.runs.records import columns_of, keep, read_records, unpack

TEXTS = ("spec.yaml", "metrics.json", "provenance.json", "log.jsonl")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run as far as records read it."""
    folder = tmp_path / "runs" / "ce-0"
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text("method: ce\nseed: 0\n")
    value = {"value": 0.5}
    test = {name: value for name in ("accuracy", "eo_mean", "worst_group_accuracy")}
    (folder / "metrics.json").write_text(json.dumps({"test": test}))
    (folder / "provenance.json").write_text(json.dumps({"manifest_sha256": "0", "seed": 0}))
    (folder / "log.jsonl").write_text('{"event": "start"}\n{"event": "end"}\n')
    table = pa.table({"id": ["a"], "target": [0], "prediction": [0], "sensitive": [0]})
    pq.write_table(
        table.replace_schema_metadata({"protocol": "{}"}), folder / "predictions.parquet"
    )
    return folder


@pytest.mark.parametrize("name", [*TEXTS, "predictions.parquet"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "gone"])
def test_links_pipes_and_folders_in_place_of_files_are_refused(run, tmp_path, name, kind) -> None:
    private = tmp_path / "id_rsa"
    private.write_bytes((run / name).read_bytes())
    (run / name).unlink()
    if kind == "link":
        (run / name).symlink_to(private)
    elif kind == "pipe":
        os.mkfifo(run / name)
    elif kind == "folder":
        (run / name).mkdir()
    with pytest.raises(DataError):
        keep([run], tmp_path / "exp", {run.name: "ce"})
    assert not (tmp_path / "exp").exists()


def test_only_lines_of_a_log_are_kept(run, tmp_path) -> None:
    lines = (run / "log.jsonl").read_text()
    (run / "log.jsonl").write_text(f"-----BEGIN KEY-----\n{lines}[1]\n{{'a'}}\n")
    keep([run], tmp_path / "exp", {run.name: "ce"})
    (record,) = read_records(tmp_path / "exp")
    assert record.texts["log"] == lines and [line["event"] for line in record.log] == [
        "start",
        "end",
    ]
    (made,) = unpack(tmp_path / "exp", tmp_path / "out")
    assert {name: (made / name).read_text() for name in TEXTS[:3]} == {
        name: (run / name).read_text() for name in TEXTS[:3]
    }


@pytest.mark.parametrize("name", TEXTS[:3])
@pytest.mark.parametrize("text", ["", "[]", "7", "{}", '{"test": 3}', "\ud800", '{"seed": [[]]}'])
def test_documents_of_another_shape_are_a_sentence(run, tmp_path, name, text) -> None:
    (run / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ShasamError):
        keep([run], tmp_path / "exp", {run.name: "ce"})


@pytest.mark.parametrize("column", ["label", "run", "seed", "log", "predictions_metadata"])
@pytest.mark.parametrize("how", ["gone", "null", "other"])
def test_records_of_another_shape_are_a_sentence(run, tmp_path, column, how) -> None:
    keep([run], tmp_path / "exp", {run.name: "ce"})
    path = tmp_path / "exp" / "records.parquet"
    table = pq.read_table(path)
    place = table.column_names.index(column)
    field = table.schema.field(column)
    if how == "gone":
        table = table.drop_columns([column])
    else:
        new = pa.nulls(1, field.type) if how == "null" else pa.array([{"x": 1}])
        table = table.set_column(place, column, new)
    pq.write_table(table, path)
    for read in (read_records, lambda exp: unpack(exp, tmp_path / "out")):
        with pytest.raises(DataError):
            read(tmp_path / "exp")


@pytest.mark.parametrize("name", ["records.parquet", "predictions.parquet"])
def test_pipes_and_links_in_place_of_records_are_refused(run, tmp_path, name) -> None:
    keep([run], tmp_path / "exp", {run.name: "ce"})
    path = tmp_path / "exp" / name
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    with pytest.raises(DataError, match="by a link"):
        unpack(tmp_path / "exp", tmp_path / "out")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="regular file"):
        unpack(tmp_path / "exp", tmp_path / "out")


def test_a_long_log_is_read_a_line_at_a_time(tmp_path) -> None:
    """800,000 lines took 660 MiB as dictionaries; what is counted here is what is alive."""
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "epoch", "loss": 0.5}\n' * 1000)
    lines = stream_log(path)
    assert next(lines)["event"] == "epoch" and not isinstance(lines, list)
    assert sum(1 for _ in lines) == 999
    with open(path, "rb") as file:
        assert next(log_lines(file))[1] == b'{"event": "epoch", "loss": 0.5}'


def test_a_page_draws_a_few_thousand_points_of_a_long_log(tmp_path) -> None:
    from shasam.report.model_section import MOST_POINTS, _EpochSample

    thinned = _EpochSample()
    for step in range(5 * MOST_POINTS + 1):
        thinned.add({"step": step})
        assert len(thinned._kept) <= MOST_POINTS + 1
    steps = [epoch["step"] for epoch in thinned.epochs()]
    assert steps[0] == 0 and steps[-1] == 5 * MOST_POINTS and steps == sorted(set(steps))
    short = _EpochSample()
    for step in range(MOST_POINTS):
        short.add({"step": step})
    assert [epoch["step"] for epoch in short.epochs()] == list(range(MOST_POINTS))


@pytest.mark.parametrize("names", [["label"], ["metrics", "spec"]])
def test_damaged_records_are_a_sentence(run, tmp_path, names) -> None:
    keep([run], tmp_path / "exp", {run.name: "ce"})
    whole = bytearray((tmp_path / "exp" / "records.parquet").read_bytes())
    refused = 0
    for place in range(len(whole) - 400, len(whole) - 8, 7):  # of the footer, which names columns
        damaged = bytearray(whole)
        damaged[place] = 0x0F
        (tmp_path / "exp" / "records.parquet").write_bytes(damaged)
        try:
            columns_of(tmp_path / "exp", names)
        except ShasamError as error:
            refused += "records" in str(error)
    assert refused


@pytest.mark.parametrize("odd", [[[1.0]], ["1"], [b"1"], [None]])
def test_an_embedding_that_holds_no_numbers_is_a_sentence(run, odd) -> None:
    columns = {"x": [1.0], "y": [2.0], "target": odd, "sensitive": [0]}
    pq.write_table(pa.table(columns), run / "embedding.parquet")
    with pytest.raises(DataError, match=r"embedding\.parquet is not as shasam writes it"):
        RunDirectory(run).embedding()
