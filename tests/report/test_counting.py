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

from shasam.commands.audit import audit
from shasam.errors import InputError, ShasamWarning
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
