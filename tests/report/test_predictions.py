"""Rows counted in batches or by a database: the same audit as from the rows themselves."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shasam import tables
from shasam.commands.audit import audit
from shasam.errors import DataError, InputError, ShasamWarning
from shasam.metrics import scores
from shasam.output import Screen, shown_progress

DOCS = Path(__file__).parents[2] / "docs"
KNOWN = {"sensitive": ["sex", "race"], "score": ["score"]}


@pytest.fixture
def rows() -> pa.Table:
    rng = np.random.default_rng(0)
    n = 6000
    y, sex, race = rng.integers(0, 2, n), rng.integers(0, 2, n), rng.choice(3, n, p=[0.4, 0.4, 0.2])
    score = np.clip(0.5 + 0.2 * (2 * y - 1) + rng.normal(0, 0.2, n) + 0.1 * sex, 0, 1)
    score[::3] = score[::3].round(1)  # many scores lie on the edges of calibration's bins
    names = np.array(["no", "yes"])
    return pa.table(
        {
            "label": names[y],
            "prediction": names[(score >= 0.5).astype(int)],
            "score": score,
            "sex": np.array(["f", "m"])[sex],
            "race": np.array(["A", "B", "C"])[race],
            "spare": rng.random(n),
        }
    )


def measured(path: Path, out: Path, **flags: object) -> list[dict]:
    audit([path], json=out, draws=200, **{**KNOWN, **flags})
    return json.loads(out.read_text(encoding="utf-8"))["audits"]


def assert_same(found: list[dict], truth: list[dict], exact: float = 1e-12) -> None:
    assert [a["attribute"] for a in found] == [a["attribute"] for a in truth]
    for a, b in zip(found, truth, strict=True):
        assert a["counts"] == b["counts"] and a["rows"] == b["rows"]
        for name, entry in b["metrics"].items():
            binned = name.startswith(("abcc", "abpc", "auc"))
            for end in ("value", "low", "high"):
                tolerance = 1e-3 if binned else exact
                assert a["metrics"][name][end] == pytest.approx(entry[end], abs=tolerance), name


def parts(rows: pa.Table, folder: Path) -> Path:
    for i in range(3):
        path = folder / "parts" / f"{i}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(rows.slice(2000 * i, 2000), path)
    return folder / "parts"


@pytest.mark.parametrize(
    "flags",
    [{}, {"prediction": None, "threshold": 0.4}, {"min_group": 1500, "sensitive": ["race"]}],
)
@pytest.mark.parametrize("kind", ["file", "csv", "folder", "pattern"])
def test_rows_counted_in_batches_give_the_audit_of_the_rows(
    rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, flags: dict
) -> None:
    if "threshold" in flags:
        rows = rows.drop_columns(["prediction"])
    pq.write_table(rows, tmp_path / "p.parquet")
    truth = measured(tmp_path / "p.parquet", tmp_path / "truth.json", **flags)
    monkeypatch.setattr("shasam.report.predictions.MOST_ROWS", 1000)
    monkeypatch.setattr("shasam.tables.BATCH", 700)
    monkeypatch.setattr("shasam.tables.BATCH", 700)
    path = tmp_path / "p.parquet"
    if kind == "csv":
        path = tmp_path / "p.csv"
        pa.csv.write_csv(rows, path)
    elif kind != "file":
        path = parts(rows, tmp_path)
        path = path / "*.parquet" if kind == "pattern" else path
    assert_same(measured(path, tmp_path / "found.json", **flags), truth)


def test_folders_named_by_a_value_are_a_column(
    rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(rows, tmp_path / "p.parquet")
    truth = measured(tmp_path / "p.parquet", tmp_path / "truth.json")
    for race in "ABC":
        folder = tmp_path / "by" / f"race={race}"
        folder.mkdir(parents=True)
        own = rows.filter(pa.compute.equal(rows.column("race"), race)).drop_columns(["race"])
        pq.write_table(own, folder / "part.parquet")
    for most in (1000, 10**6):
        monkeypatch.setattr("shasam.report.predictions.MOST_ROWS", most)
        assert_same(measured(tmp_path / "by", tmp_path / "found.json"), truth)


def test_the_query_of_the_docs_counts_what_an_audit_needs(rows: pa.Table, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    (query,) = re.findall(r"```sql\n(.*?)```", (DOCS / "audit.md").read_text(), re.DOTALL)
    pq.write_table(rows, tmp_path / "predictions.parquet")
    truth = measured(tmp_path / "predictions.parquet", tmp_path / "truth.json")
    with duckdb.connect() as connection:
        connection.register("predictions", rows)
        connection.sql(query).write_csv(str(tmp_path / "counts.csv"), header=True)
    found = measured(tmp_path / "counts.csv", tmp_path / "found.json", counts=True)
    assert_same(found, truth, 1e-7)


def test_a_thousand_million_rows_are_audited_from_their_counts(tmp_path: Path) -> None:
    lines = ["label,prediction,group,n"]
    for label in "ab":
        for prediction in "ab":
            for group in "xyz":
                right = 60_000_000 + 1_000_000 * "xyz".index(group)
                n = right if label == prediction else 166_666_667 - right
                lines.append(f"{label},{prediction},{group},{n}")
    (tmp_path / "counts.csv").write_text("\n".join(lines), encoding="utf-8")
    audit([tmp_path / "counts.csv"], counts=True, json=tmp_path / "o.json")
    (found,) = json.loads((tmp_path / "o.json").read_text(encoding="utf-8"))["audits"]
    assert found["rows"] == 1_000_000_002
    gap = found["metrics"]["eo_max"]
    assert gap["value"] == pytest.approx(2_000_000 / 166_666_667)
    assert 0 < gap["low"] <= gap["value"] <= gap["high"] < 1.02 * gap["value"]


def test_rows_without_a_group_are_found_in_batches_too(
    rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shasam.report.predictions.MOST_ROWS", 1000)
    sex = rows.column("sex").to_pylist()
    holed = rows.set_column(
        3, "sex", pa.array([None if i % 10 == 0 else v for i, v in enumerate(sex)])
    )
    pq.write_table(holed, tmp_path / "p.parquet")
    with pytest.raises(InputError, match="600 of 6,000 rows"):
        measured(tmp_path / "p.parquet", tmp_path / "o.json")
    with pytest.warns(ShasamWarning, match="600 of 6,000 rows"):
        found = measured(tmp_path / "p.parquet", tmp_path / "o.json", missing="drop")
    assert found[0]["rows"] == 5400
    found = measured(tmp_path / "p.parquet", tmp_path / "o.json", missing="group")
    assert found[0]["groups"] == ["(missing)", "f", "m"] and found[0]["rows"] == 6000


def test_files_whose_rows_were_counted_are_not_compared_and_that_is_said(
    rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("shasam.report.predictions.MOST_ROWS", 1000)
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path in paths:
        pq.write_table(rows, path)
    audit(paths, sensitive=["sex"], html=tmp_path / "p.html")
    assert "rows were counted" in " ".join(capsys.readouterr().out.split())
    assert "6,000 test rows" in (tmp_path / "p.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("n", ["-1", "1.5", "", "x"])
def test_counts_that_are_no_whole_numbers_are_named(tmp_path: Path, n: str) -> None:
    text = f"label,prediction,group,n\na,a,x,4\nb,a,y,{n}\n"
    (tmp_path / "c.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"line 2|are not numbers"):
        audit([tmp_path / "c.csv"], counts=True)
    (tmp_path / "d.csv").write_text("label,prediction,group\na,a,x\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column called n or count"):
        audit([tmp_path / "d.csv"], counts=True)


def test_long_work_shows_a_bar_on_a_terminal_and_nothing_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shasam.output.PATIENCE", -1.0)
    for terminal in (True, False):
        out = io.StringIO()
        with shown_progress(Screen(file=out, force_terminal=terminal)) as named:
            told = named("reading [/b]\x1b[31m.csv")
            told(1, 4)
        assert ("reading [/b]\\x1b[31m.csv" in out.getvalue()) is terminal


def test_a_large_csv_is_read_piece_by_piece(
    rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa.csv.write_csv(rows, tmp_path / "p.csv")
    truth = measured(tmp_path / "p.csv", tmp_path / "truth.json")
    monkeypatch.setattr("shasam.report.predictions.MOST_ROWS", 1000)
    monkeypatch.setattr(tables, "_PIECE", 1 << 14)
    pieces, real = [], tables.CsvTable.stream

    def spied(self, columns):
        for piece in real(self, columns):
            pieces.append(piece.num_rows)
            yield piece

    def whole(self, columns, text):
        raise AssertionError("the rows were read at once")

    monkeypatch.setattr(tables.CsvTable, "stream", spied)
    monkeypatch.setattr(tables.CsvTable, "_read", whole)
    assert_same(measured(tmp_path / "p.csv", tmp_path / "found.json"), truth)
    assert len(pieces) > 5 and sum(pieces) == 6000


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("yes,yes,0.5,2,A", None),
        ("yes,yes,0.5,1,A,B", "do not have 5 cells"),
        ("yes,yes,0.5,x,A", None),
    ],
    ids=["another group", "a cell too many", "another type"],
)
def test_a_csv_whose_later_rows_differ_is_read_as_before(
    rows: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, sentence: str | None
) -> None:
    """The types follow from the first piece; where they do not suit the rest, all is read."""
    rows = rows.select(["label", "prediction", "score", "sex", "race"])
    codes = pa.compute.equal(rows.column("sex"), "f").cast(pa.int64())
    rows = rows.set_column(3, "sex", codes)
    pa.csv.write_csv(rows, tmp_path / "p.csv")
    with (tmp_path / "p.csv").open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    monkeypatch.setattr(tables, "_TYPED", 1 << 14)
    monkeypatch.setattr(tables, "_PIECE", 1 << 14)
    asked = {"min_group": 1, "sensitive": ["sex"]}
    found = []
    for most in (10**6, 1000):  # at once, and piece by piece
        monkeypatch.setattr("shasam.report.predictions.MOST_ROWS", most)
        if sentence is not None:
            with pytest.raises(DataError, match=sentence):
                measured(tmp_path / "p.csv", tmp_path / "o.json", **asked)
            continue
        found.append(measured(tmp_path / "p.csv", tmp_path / "o.json", **asked))
    if found:
        assert_same(found[1], found[0])


SCORES = {
    "spread": lambda rng, n: rng.random(n),
    "crowded": lambda rng, n: 0.5 + 0.0004 * rng.random(n),  # within two bins
    "few": lambda rng, n: rng.choice([0.1, 0.25, 1 / 3, 0.9], n),
    "narrow": lambda rng, n: np.clip(0.4 + 0.01 * rng.standard_normal(n), 0, 1),
    "edges": lambda rng, n: rng.integers(0, 1001, n) / 1000,
}


@pytest.mark.parametrize("kind", SCORES)
def test_metrics_of_binned_scores_are_within_the_bound_that_is_printed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(len(kind))
    n = 4000
    score = SCORES[kind](rng, n)
    label = (rng.random(n) < 0.3 + 0.5 * (score > np.median(score))).astype(int)
    table = pa.table({"label": label, "score": score, "sex": rng.choice(["f", "m", "x"], n)})
    pq.write_table(table, tmp_path / "p.parquet")
    asked = {"sensitive": ["sex"], "all_metrics": True}
    (truth,) = measured(tmp_path / "p.parquet", tmp_path / "truth.json", **asked)
    assert truth["binning_errors"] is None
    monkeypatch.setattr("shasam.report.predictions.MOST_ROWS", 1000)
    capsys.readouterr()
    (found,) = measured(tmp_path / "p.parquet", tmp_path / "found.json", **asked)
    errors = found["binning_errors"]
    assert "scores were counted in 3,000 bins" in " ".join(capsys.readouterr().out.split())
    scored = [m for m in truth["metrics"] if m.split("_")[0] in ("ece", "abcc", "abpc", "auc")]
    assert len(scored) >= 9
    for name in scored:
        bound = errors[name if name in errors else name.split("_")[0]]
        gap = abs(found["metrics"][name]["value"] - truth["metrics"][name]["value"])
        assert gap <= bound + 1e-9, name
    assert errors["abcc"] == pytest.approx(1 / 3000) and errors["abpc"] < 0.01
    if kind == "few":
        assert errors["auc"] < 1  # what lies on an edge keeps its order
    if kind == "spread":
        assert errors["auc"] < 0.001


def test_a_kernel_moves_by_no_more_than_its_bandwidth() -> None:
    """The constant in the bound of abpc, over all bandwidths that occur."""
    for width in np.geomspace(0.005, 1.0, 60):
        one, other = (scores._kernel(w, 1.0) for w in (width, width * 1.001))
        assert np.abs(one - other).mean(1).max() <= scores._MOVES * np.log(1.001) * (1 + 1e-3)
