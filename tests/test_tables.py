"""The reader of tables: formats, encodings, standard input, projection, and what it says."""

from __future__ import annotations

import io
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

from shasam import tables
from shasam.errors import DataError, MemoryLimitError, ShasamWarning
from shasam.tables import open_table, read_arrow

ROWS = {"name": ["Zoë", "Äpfel", None], "n": [1, 2, 3], "spare": ["x", "y", "z"]}
TEXT = "name,n,spare\nZoë,1,x\nÄpfel,2,y\n,3,z\n"


def written(folder: Path, kind: str) -> Path:
    path = folder / f"table.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table(ROWS).replace_schema_metadata({"made": "here"}), path)
    elif kind == "arrow":
        pa.feather.write_feather(pa.table(ROWS).replace_schema_metadata({"made": "here"}), path)
    else:
        separator = {"tsv": "\t", "semicolon.csv": ";"}.get(kind, ",")
        path.write_bytes(TEXT.replace(",", separator).encode())
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "semicolon.csv", "parquet", "arrow", "txt"])
def test_every_format_gives_the_same_columns(tmp_path: Path, kind: str) -> None:
    table = open_table(written(tmp_path, kind))
    assert table.column_names == ["name", "n", "spare"]
    assert table.read(["n", "name"]).to_pydict() == {"n": [1, 2, 3], "name": ROWS["name"]}
    assert table.metadata.get("made") == ("here" if kind in ("parquet", "arrow") else None)


@pytest.mark.parametrize("kind", ["csv", "parquet", "arrow"])
def test_standard_input_is_read_whatever_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    content = written(tmp_path, kind).read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    table = open_table("-")
    assert table.name == "standard input" and table.read(["n"]).to_pydict() == {"n": [1, 2, 3]}


@pytest.mark.parametrize("kind", ["file", "standard input", "cp1252", "utf-16"])
def test_threads_of_arrow_are_given_no_python_object(tmp_path, monkeypatch, kind: str) -> None:
    """They let go of it later: where Python ended at that moment, the process was aborted."""
    given = []

    def noted(read):
        def look(file, *, parse_options, **more):
            given.append((type(file), parse_options.invalid_row_handler))
            return read(file, parse_options=parse_options, **more)

        return look

    monkeypatch.setattr(tables.pacsv, "read_csv", noted(tables.pacsv.read_csv))
    monkeypatch.setattr(tables.pacsv, "open_csv", noted(tables.pacsv.open_csv))
    encoding = kind if kind in ("cp1252", "utf-16") else "utf-8"
    (tmp_path / "é.csv").write_bytes(TEXT.encode(encoding))
    table = open_table(tmp_path / "é.csv")
    if kind == "standard input":
        table = replace(table, content=(tmp_path / "é.csv").read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert table.read(["name", "n"]).to_pydict() == {"name": ROWS["name"], "n": [1, 2, 3]}
    if encoding == "utf-8":
        assert sum(len(piece) for piece in table.stream(["name", "n"])) == 3
    assert given and {handler for _, handler in given} == {None}
    assert {kind for kind, _ in given} <= {pa.OSFile, pa.BufferReader}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_unicode_is_read_without_a_word(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.encode(encoding))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_table(path).read(["name"]).to_pydict() == {"name": ROWS["name"]}


@pytest.mark.parametrize("where", ["header", "first rows", "beyond the head", "text"])
def test_windows_1252_is_read_and_that_is_said(tmp_path: Path, where: str) -> None:
    head = "größe,n\n" if where == "header" else "size,n\n"
    early = "b,0\n" if where in ("header", "beyond the head") else "groß,0\n"
    late = "groß,1\n" if where == "beyond the head" else "c,1\n"
    path = tmp_path / "t.csv"
    path.write_bytes((head + early + "a,7\n" * 300_000 + late).encode("cp1252"))
    column = head.split(",")[0]
    table = open_table(path)
    with pytest.warns(ShasamWarning, match="not UTF-8; it was read as Windows-1252"):
        found = table.read([column], text=[column] if where == "text" else [])
    assert found.column(column)[0].as_py() == early.split(",")[0]
    assert found.column(column)[-1].as_py() == late.split(",")[0]


def test_what_is_not_asked_for_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,twice,twice,odd\n1,2,3,gr\xfcn\n4,5,6,x\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_table(path).read(["a"]).to_pydict() == {"a": [1, 4]}
    with pytest.raises(DataError, match="has 2 columns called 'twice'"):
        open_table(path).read(["twice"])
    columns = [pa.array([1, 2])] * 3
    pq.write_table(pa.Table.from_arrays(columns, ["a", "b", "b"]), tmp_path / "t.parquet")
    assert open_table(tmp_path / "t.parquet").read(["a"]).to_pydict() == {"a": [1, 2]}


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    """The bytes of other columns are never touched: with them damaged, the rest still reads."""
    path = tmp_path / "t.parquet"
    wide = pa.table({"spare": pa.array(range(50_000)), "a": pa.array([7] * 50_000)})
    pq.write_table(wide, path, use_dictionary=False, compression="none")
    content = bytearray(path.read_bytes())
    content[1000:200_000] = bytes(199_000)
    path.write_bytes(content)
    assert open_table(path).read(["a"]).column("a").to_pylist() == [7] * 50_000


def test_bad_rows_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3\n4,5,6\n7,8\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"2 rows of t\.csv .* row 3 has 1: '3'; row 4 has 3: '4,5,6'"
    ):
        open_table(path).read(["a"])


def test_missing_values_are_null_and_names_in_quotes_stay(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,b\nNA,"NA"\nnan,x\n,""\nq,NULL\n', encoding="utf-8")
    assert open_table(path).read().to_pydict() == {
        "a": [None, None, None, "q"],
        "b": ["NA", "x", "", None],
    }


def test_text_stays_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,n\n007,007\n", encoding="utf-8")
    assert open_table(path).read(text=["id"]).to_pydict() == {"id": ["007"], "n": [7]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04rest", "zip archive or an Excel file"),
        (b"PAR1 and then nothing", "cannot be read as Parquet"),
        (b"ARROW1 and then nothing", "cannot be read as an Arrow file"),
    ],
)
def test_what_is_no_table_is_a_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says):
        open_table(path).column_names  # noqa: B018
    with pytest.raises(DataError, match="there is no file"):
        open_table(tmp_path / "none.csv")


def _packed(rows: int, compression: str | None, *, as_file: bool) -> pa.BufferReader:
    zeros = pa.array([0] * rows, pa.int64())
    texts = pa.array(["a", "b"] * (rows // 2)).dictionary_encode()
    table = pa.table({"zeros": zeros, "texts": texts})
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_file if as_file else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with new(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return pa.BufferReader(sink.getvalue())


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("as_file", [True, False])
def test_a_compressed_arrow_table_is_measured_before_it_is_unpacked(
    monkeypatch: pytest.MonkeyPatch, compression: str, as_file: bool
) -> None:
    rows = 100_000  # 800 kB of zeros and 400 kB of codes in a few kB
    source = _packed(rows, compression, as_file=as_file)
    assert source.size() < 20_000
    assert read_arrow(source, "x.arrow").num_rows == rows
    for free, fits in ((2 * 1_300_000, True), (2 * 1_150_000, False)):
        monkeypatch.setattr("shasam.tables.available_memory", lambda free=free: free)
        source.seek(0)
        if fits:
            assert read_arrow(source, "x.arrow", fields=[0]).column_names == ["zeros"]
        else:
            with pytest.raises(MemoryLimitError, match=r"x\.arrow: its rows take 1\.\d MiB"):
                read_arrow(source, "x.arrow")


def test_a_text_that_is_larger_than_half_of_the_free_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "long.csv"
    path.write_text("a,b\n" + "1,2\n" * 1000)
    monkeypatch.setattr(tables, "available_memory", lambda: 9000)
    assert open_table(path).read(["a"]).num_rows == 1000
    monkeypatch.setattr(tables, "available_memory", lambda: 8000)
    with pytest.raises(MemoryLimitError, match=r"long\.csv has 3\.9 KiB of text .* Parquet"):
        open_table(path).read(["a"])
    assert sum(len(piece) for piece in open_table(path).stream(["a"])) == 1000  # in pieces


def test_an_arrow_table_that_is_not_compressed_needs_no_memory(monkeypatch) -> None:
    monkeypatch.setattr("shasam.tables.available_memory", lambda: 0)
    assert read_arrow(_packed(1000, None, as_file=False), "x.arrow").num_rows == 1000


def test_a_damaged_arrow_message_is_an_error_of_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    content = _packed(1000, "zstd", as_file=False).read()
    found = 0
    for place in range(0, len(content), 4):
        damaged = content[:place] + b"\xff\xff\xff\x7f" + content[place + 4 :]
        try:
            read_arrow(pa.BufferReader(damaged), "x.arrow")
        except (pa.ArrowException, MemoryLimitError, OSError, ValueError):
            found += 1
    assert found
