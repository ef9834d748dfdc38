"""``shasam audit``: any model's CSV or Parquet, and a sentence for whatever is wrong with it."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from shasam.commands.audit import audit
from shasam.commands.report import report
from shasam.errors import DataError, InputError, MemoryLimitError, ShasamWarning, SpecError
from shasam.metrics import compare, evaluate
from shasam.report.runs import subject_of
from shasam.runs.directory import RunDirectory


@pytest.fixture
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    n = 600
    y = rng.integers(0, 2, n)
    sex = rng.choice(["f", "m"], n)
    age = rng.choice(["young", "old"], n)
    score = np.clip(0.5 + 0.25 * (2 * y - 1) + rng.normal(0, 0.25, n) + 0.1 * (sex == "m"), 0, 1)
    names = np.array(["no", "yes"])
    return {"y": names[y], "guess": names[(score > 0.5).astype(int)], "score": score,
            "sex": sex, "age": age}  # fmt: skip


def save(rows: dict[str, np.ndarray], path: Path) -> Path:
    table = pa.table({k: pa.array(v) for k, v in rows.items()})
    if path.suffix == ".csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_audit_writes_the_numbers_of_evaluate(
    rows: dict[str, np.ndarray], tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(rows, tmp_path / f"p{suffix}")
    out = tmp_path / "out.json"
    audit([path], label="y", prediction="guess", score=["score"], sensitive=["sex"], json=out)
    found = json.loads(out.read_text(encoding="utf-8"))["audits"][0]
    truth = evaluate(rows["y"], rows["guess"], rows["sex"], rows["score"], strata="none")
    for name, e in truth.items():
        assert found["metrics"][name] == pytest.approx(e.as_dict()), name
    assert "eo_mean" in capsys.readouterr().out


def test_several_attributes_are_audited_one_by_one_and_together(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path = save(rows, tmp_path / "p.csv")
    out, page = tmp_path / "o.json", tmp_path / "p.html"
    audit([path], label="y", prediction="guess", sensitive=["sex", "age"], json=out, html=page)
    audits = json.loads(out.read_text(encoding="utf-8"))["audits"]
    assert [a["attribute"] for a in audits] == ["sex", "age", "sex & age"]
    assert audits[2]["groups"] == ["f & old", "f & young", "m & old", "m & young"]
    assert page.stat().st_size < 3_000_000


def test_files_side_by_side_are_compared_on_the_page_in_the_terminal_and_in_json(
    rows: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = save(rows, tmp_path / "a.csv")
    flip = np.arange(600) % 4 == 0
    worse = np.where(flip, np.where(rows["guess"] == "yes", "no", "yes"), rows["guess"])
    b = save(rows | {"guess": worse}, tmp_path / "b.csv")
    page = tmp_path / "p.html"
    out = tmp_path / "o.json"
    audit([a, b], label="y", prediction="guess", sensitive=["sex"], html=page, json=out)
    text = page.read_text(encoding="utf-8")
    assert "b against a" in text and "less accurate by" in text
    said = capsys.readouterr().out
    assert "b against a, by sex" in said and "b minus a" in said
    (found,) = json.loads(out.read_text(encoding="utf-8"))["comparisons"]
    assert (found["model"], found["against"], found["attribute"]) == ("b", "a", "sex")
    truth = compare(rows["y"], worse, rows["guess"], rows["sex"], strata="none")
    assert found["differences"] == {k: c.as_dict() for k, c in truth.items()}


def test_a_threshold_decides_by_the_score_of_the_positive_class(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path, out = save(rows, tmp_path / "p.csv"), tmp_path / "o.json"
    audit([path], label="y", score=["score"], sensitive=["sex"], threshold=0.8, json=out)
    found = json.loads(out.read_text(encoding="utf-8"))["audits"][0]["metrics"]
    p = np.where(rows["score"] >= 0.8, "yes", "no")
    assert found["accuracy"]["value"] == pytest.approx((p == rows["y"]).mean())


def test_the_positive_class_can_be_the_first_in_the_alphabet(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path, out = save(rows, tmp_path / "p.csv"), tmp_path / "o.json"
    audit([path], label="y", prediction="guess", sensitive=["sex"], positive="no", json=out)
    found = json.loads(out.read_text(encoding="utf-8"))["audits"][0]
    assert found["classes"] == ["yes", "no"]
    recall = {g: (rows["guess"] == "no")[(rows["sex"] == g) & (rows["y"] == "no")].mean()
              for g in "fm"}  # fmt: skip
    assert found["metrics"]["equal_opportunity"]["value"] == pytest.approx(
        abs(recall["f"] - recall["m"])
    )


def test_a_broken_limit_exits_with_one_and_a_kept_one_does_not(
    rows: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(rows, tmp_path / "p.csv")
    known = {"label": "y", "prediction": "guess", "sensitive": ["sex"]}
    audit([path], fail_over=["eo_mean=0.9", "accuracy=0.5", "eo_mean.low=0.5"], **known)
    with pytest.raises(SystemExit) as stopped:
        audit([path], fail_over=["eo_mean=0.0001"], **known)
    assert stopped.value.code == 1
    assert "is over the limit 0.0001" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        audit([path], fail_over=["accuracy=0.999"], **known)
    with pytest.raises(SpecError, match="did you mean 'eo_mean'"):
        audit([path], fail_over=["eo_men=0.1"], **known)
    with pytest.raises(SpecError, match=r"5 points are 0\.05"):
        audit([path], fail_over=["eo_mean=5"], **known)


def test_an_undefined_metric_cannot_pass_a_limit(tmp_path: Path) -> None:
    rows = {"y": np.array(["a", "a", "b"] * 9), "guess": np.array(["a", "b", "b"] * 9),
            "g": np.array(["x", "y", "x"] * 9)}  # fmt: skip
    path = save(rows, tmp_path / "p.csv")
    with pytest.raises(SystemExit):
        audit([path], label="y", prediction="guess", sensitive=["g"], fail_over=["eo_mean=0.9"])


@pytest.mark.parametrize(
    ("change", "flags", "says"),
    [
        ({}, {"label": "yy"}, "no column 'yy' for the label; did you mean 'y'"),
        ({}, {"sensitive": ["sexx"]}, "did you mean 'sex'"),
        ({}, {"label": None}, "name the label with label="),
        ({}, {"prediction": None}, "name one with prediction= or score="),
        ({"guess": np.array(["Yes", "no"] * 300)}, {}, "did you mean 'yes'"),
        ({"sex": np.array(["f"] * 600)}, {}, "one group only"),
        ({"y": np.array(["no"] * 600)}, {}, "all labels of p.csv are 'no'"),
        ({"score": np.array([0.1, np.nan] * 300)}, {"score": ["score"]}, "the first in row 2"),
        ({"score": np.array([0.1, 7.0] * 300)}, {"score": ["score"]}, "holds no probabilities"),
        ({"sex": np.arange(600) % 9 / 7}, {}, "holds fractions"),
        ({"sex": np.arange(600)}, {"discrete": ["sex"]}, "has 600 distinct values"),
        ({"sex": np.array(["f", ""] * 300)}, {}, "have no value in the column 'sex'"),
        ({}, {"positive": "yep"}, "did you mean 'yes'"),
        ({}, {"score": ["sex"]}, "does not hold numbers"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    rows: dict[str, np.ndarray], tmp_path: Path, change: dict, flags: dict, says: str
) -> None:
    kept = {k: v for k, v in rows.items() if k != "score" or "score" in flags or "score" in change}
    path = save(kept | change, tmp_path / "p.csv")
    given = {"label": "y", "prediction": "guess", "sensitive": ["sex"]} | flags
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        audit([path], **given)


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        audit([tmp_path / "none.csv"])
    (tmp_path / "x.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        audit([tmp_path / "x.parquet"])


def test_a_runs_page_can_be_recomputed_by_one_command(one_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.json"
    audit([one_run / "predictions.parquet"], strata="cell", min_group=0, json=out)
    found = json.loads(out.read_text(encoding="utf-8"))["audits"][0]
    for name, e in subject_of(RunDirectory(one_run)).estimates.items():
        assert found["metrics"][name] == e.as_dict()
    assert found["attribute"] == "ethnicity"


def test_report_rebuilds_a_page_and_prints_tables(
    many_runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report([many_runs[0].parent], out=tmp_path / "c.html")
    assert (tmp_path / "c.html").is_file()
    capsys.readouterr()
    report(many_runs, format="md", metric=["accuracy", "eo_mean"])
    assert capsys.readouterr().out.startswith("| setting | method | seeds | Accuracy | EO (mean) |")
    report([many_runs[0]])
    assert (many_runs[0] / "report.html").is_file() and (many_runs[0] / "MODEL_CARD.md").is_file()


@pytest.mark.parametrize("odd", [np.inf, -np.inf, 1e300])
def test_an_infinite_label_is_a_sentence(tmp_path: Path, odd: float) -> None:
    rows = {"label": np.array([0.0, 1.0, odd]), "prediction": np.zeros(3), "sensitive": np.ones(3)}
    for name in ("a.parquet", "a.csv"):
        with pytest.raises(InputError, match="infinite or very large numbers"):
            audit([save(rows, tmp_path / name)])


def test_an_intersection_that_does_not_fit_in_memory_is_left_out_with_the_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shasam.metrics.intervals.MOST_BYTES", 2 * 2**20)
    rng = np.random.default_rng(0)
    n = 2000
    rows = {
        "y": rng.integers(0, 2, n),
        "guess": rng.integers(0, 2, n),
        "a": np.arange(n) % 5,
        "b": np.arange(n) // 5 % 8,
    }
    path, out = save(rows, tmp_path / "p.parquet"), tmp_path / "o.json"
    audit([path], label="y", prediction="guess", sensitive=["a", "b"], json=out)
    audits = json.loads(out.read_text(encoding="utf-8"))["audits"]
    assert [a["attribute"] for a in audits] == ["a", "b"]
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"by a & b: left out.*40 groups need [\d,.]+ MiB", said)


def test_many_classes_are_measured_with_fewer_draws_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shasam.metrics.intervals.MOST_BYTES", 64 * 2**20)
    n = 30_000
    rng = np.random.default_rng(0)
    rows = {"y": np.arange(n) % 60, "guess": rng.integers(0, 60, n), "g": rng.integers(0, 2, n)}
    path, out = save(rows, tmp_path / "p.parquet"), tmp_path / "o.json"
    audit([path], label="y", prediction="guess", sensitive=["g"], json=out)
    draws = json.loads(out.read_text(encoding="utf-8"))["audits"][0]["draws"]
    assert 250 <= draws < 2000
    assert f"{draws:,} draws instead of 2,000" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr("shasam.metrics.intervals.MOST_BYTES", 2**20)
    with pytest.raises(MemoryLimitError, match="60 classes and 2 groups need"):
        audit([path], label="y", prediction="guess", sensitive=["g"])


def test_a_label_column_of_ids_is_refused_before_anything_is_counted(tmp_path: Path) -> None:
    rows = {"y": np.arange(5000), "guess": np.arange(5000), "g": np.arange(5000) % 2}
    path = save(rows, tmp_path / "p.parquet")
    with pytest.raises(InputError, match="5,000 distinct values"):
        audit([path], label="y", prediction="guess", sensitive=["g"])


@pytest.mark.parametrize("hole", ["", "NA", "nan"])
def test_rows_without_a_group_are_refused_left_out_or_a_group_of_their_own(
    rows: dict[str, np.ndarray], tmp_path: Path, hole: str
) -> None:
    sex = rows["sex"].astype(object)
    sex[::6] = hole
    path, out = save(rows | {"sex": sex.astype(str)}, tmp_path / "p.csv"), tmp_path / "o.json"
    path.write_text(path.read_text().replace(f'"{hole}"', hole))  # as pandas writes it
    known = {"label": "y", "prediction": "guess", "sensitive": ["sex"], "json": out}
    with pytest.raises(InputError, match=r"100 of 600 rows .* 'sex', the first is row 1"):
        audit([path], **known)
    with pytest.warns(ShasamWarning, match=r"100 of 600 rows .* are left out"):
        audit([path], missing="drop", **known)
    found = json.loads(out.read_text(encoding="utf-8"))["audits"][0]
    assert found["rows"] == 500 and found["groups"] == ["f", "m"]
    audit([path], missing="group", **known)
    found = json.loads(out.read_text(encoding="utf-8"))["audits"][0]
    assert found["rows"] == 600 and found["groups"] == ["(missing)", "f", "m"]


def test_a_threshold_beside_a_prediction_is_refused(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path = save(rows, tmp_path / "p.csv")
    with pytest.raises(InputError, match=r"threshold=0\.7 makes predictions from the score"):
        audit([path], label="y", prediction="guess", sensitive=["sex"], threshold=0.7)


def test_spare_columns_of_one_name_do_not_stop_an_audit(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path = save(rows, tmp_path / "p.csv")
    text = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([text[0] + ",x,x", *(f"{line},1,2" for line in text[1:])]))
    out = tmp_path / "o.json"
    audit([path], label="y", prediction="guess", sensitive=["sex"], json=out)
    assert json.loads(out.read_text(encoding="utf-8"))["audits"][0]["rows"] == 600


def test_semicolons_and_standard_input_are_audited(
    rows: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = save(rows, tmp_path / "p.csv"), tmp_path / "o.json"
    content = path.read_text(encoding="utf-8").replace(",", ";").encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    audit([Path("-")], label="y", prediction="guess", sensitive=["sex"], json=out)
    found = json.loads(out.read_text(encoding="utf-8"))["audits"][0]
    assert found["rows"] == 600 and found["model"] == "standard input"


def test_the_comparison_of_two_files_uses_the_level_draws_seed_and_strata_asked_for(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    a = save(rows, tmp_path / "a.csv")
    worse = np.where(np.arange(600) % 4 == 0, "no", rows["guess"])
    b = save(rows | {"guess": worse}, tmp_path / "b.csv")
    out, page = tmp_path / "o.json", tmp_path / "p.html"
    asked = {"level": 0.8, "draws": 500, "seed": 7, "strata": "group"}
    audit([a, b], label="y", prediction="guess", sensitive=["sex"], json=out, html=page, **asked)
    (found,) = json.loads(out.read_text(encoding="utf-8"))["comparisons"]
    truth = compare(rows["y"], worse, rows["guess"], rows["sex"], **asked)
    assert found["differences"]["eo_mean"] == truth["eo_mean"].as_dict()
    again = compare(rows["y"], worse, rows["guess"], rows["sex"])
    assert found["differences"]["eo_mean"] != again["eo_mean"].as_dict()
    text = page.read_text(encoding="utf-8")
    for flag, value in asked.items():
        assert f"--{flag} {value}" in text


def test_files_of_other_rows_are_not_compared_and_that_is_said(
    rows: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = save(rows, tmp_path / "a.csv")
    b = save({k: v[:500] for k, v in rows.items()}, tmp_path / "b.csv")
    audit([a, b], label="y", prediction="guess", sensitive=["sex"])
    said = " ".join(capsys.readouterr().out.split())
    assert "not compared, because their test rows are not the same (500 and 600)" in said


def test_figures_are_written_without_a_page(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = save(rows, tmp_path / "p.csv")
    audit([path], label="y", prediction="guess", sensitive=["sex"], figures=tmp_path / "figures")
    assert (tmp_path / "figures" / "groups-0.svg").is_file()


def test_every_metric_name_is_whole_at_eighty_columns(
    rows: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    path, out = save(rows, tmp_path / "p.csv"), tmp_path / "o.json"
    audit([path], label="y", prediction="guess", score=["score"], sensitive=["sex"], json=out,
          all_metrics=True)  # fmt: skip
    said = capsys.readouterr().out
    for name in json.loads(out.read_text(encoding="utf-8"))["audits"][0]["metrics"]:
        assert re.search(rf"^ *{re.escape(name)} [↑↓] ", said, re.MULTILINE), name


def test_limits_are_test_cases_for_a_build_and_a_summary_for_people(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    path = save(rows | {"g|<b>\x1b": rows["sex"]}, tmp_path / "p.csv")
    junit, summary = tmp_path / "j.xml", tmp_path / "s.md"
    summary.write_text("before\n", encoding="utf-8")
    known = {"label": "y", "prediction": "guess", "sensitive": ["sex", "g|<b>\x1b"]}
    limits = ["accuracy=0.5", "eo_mean=0.0001"]
    with pytest.raises(SystemExit):
        audit([path], fail_over=limits, junit=junit, summary=summary, **known)
    suite = ElementTree.parse(junit).getroot()
    assert suite.attrib == {"name": "shasam audit", "tests": "6", "failures": "3"}
    names = [case.get("name") for case in suite]
    assert names == ["accuracy=0.5", "eo_mean=0.0001"] * 3
    assert "is over the limit" in suite[1].find("failure").get("message")
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("before\n## shasam audit") and text.count("**failed**") == 3
    assert "<b>" not in text and "\x1b" not in text
    with pytest.raises(SpecError, match="--junit reports limits"):
        audit([path], junit=junit, **known)
