"""Weights, a reference group, time, slices and thresholds on the command line of an audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

import shasam
from shasam.commands.audit import audit
from shasam.errors import InputError
from shasam.metrics import Counts, against, evaluate, over_time, worst_slices

N = 1200


@pytest.fixture(scope="module")
def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    y, sex = rng.integers(0, 2, N), rng.choice(["f", "m"], N, p=[0.3, 0.7])
    age = rng.integers(18, 80, N)
    bad = (sex == "f") & (age < 35)
    score = np.clip(0.5 + 0.3 * (2 * y - 1) + rng.normal(0, 0.2, N) - 0.35 * bad, 0, 1).round(3)
    day = np.datetime64("2024-01-10") + np.sort(rng.integers(0, 90, N))
    return {"label": y, "prediction": (score >= 0.4).astype(int), "score": score, "sex": sex,
            "age": age, "w": rng.gamma(3.0, 0.5, N), "day": day}  # fmt: skip


def audited(rows: dict[str, np.ndarray], folder: Path, **flags: Any) -> dict[str, Any]:
    path, out = folder / "p.csv", folder / "o.json"
    pacsv.write_csv(pa.table({k: pa.array(v) for k, v in rows.items()}), path)
    audit([path], sensitive=["sex"], json=out, draws=200, html=folder / "p.html", **flags)
    return json.loads(out.read_text(encoding="utf-8"))


def counts_of(rows: dict[str, np.ndarray]) -> Counts:
    s = (rows["sex"] == "m").astype(int)
    return Counts.from_codes(rows["label"], rows["prediction"], s, ("0", "1"), ("f", "m"))


def test_weights_weigh_every_number_and_the_page_says_so(
    rows: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = audited(rows, tmp_path, weight="w")["audits"]
    truth = evaluate(
        rows["label"], rows["prediction"], rows["sex"], weights=rows["w"], draws=200,
        strata="none", min_group=30, metrics=["all"],
    )  # fmt: skip
    for name, e in truth.items():
        assert found["metrics"][name] == pytest.approx(e.as_dict()), name
    own = (rows["sex"] == "f") & (rows["label"] == 1)
    right = rows["w"][own & (rows["prediction"] == 1)].sum() / rows["w"][own].sum()
    (cell,) = [c for c in found["cells"] if (c["class"], c["group"]) == ("1", "f")]
    assert cell["accuracy"]["value"] == pytest.approx(right)
    assert found["rows"] == N and found["weight"] == "w" and "abcc" not in found["metrics"]
    assert "Rows are weighted by w" in " ".join(capsys.readouterr().out.split())
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "Rows are weighted by w" in page and "--weight w" in page
    same = audited(rows | {"w": np.full(N, 2.0)}, tmp_path, weight="w")["audits"][0]
    plain = audited(rows, tmp_path)["audits"][0]["metrics"]
    for name, e in same["metrics"].items():
        assert e["value"] == pytest.approx(plain[name]["value"]), name


def test_a_reference_is_the_largest_group_or_the_one_asked_for(
    rows: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = audited(rows, tmp_path)["audits"]
    assert found["reference"]["group"] == "m" and not found["reference"]["named"]
    (found,) = audited(rows, tmp_path, reference=["f"])["audits"]
    assert found["reference"]["group"] == "f" and set(found["reference"]["rates"]) >= {"fpr", "ppv"}
    (truth,) = against(counts_of(rows), "selection", "f")
    (mine,) = found["reference"]["rates"]["selection"]
    assert mine["ratio"] == truth.ratio.as_dict() and mine["group"] == "m"
    assert mine["difference"] == truth.difference.as_dict()
    said = " ".join(capsys.readouterr().out.split())
    assert "Against f, as asked for" in said and "the four-fifths rule" in said
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "Every group against f, as asked for" in page and "four-fifths rule" in page
    with pytest.raises(InputError, match="reference='women': there is no such group"):
        audited(rows, tmp_path, reference=["women"])


def test_the_gap_of_every_period_is_printed_written_and_drawn(
    rows: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = audited(rows, tmp_path, time="day", figures=tmp_path / "f")["audits"]
    truth = over_time(
        rows["label"], rows["prediction"], rows["sex"], rows["day"], draws=200, min_group=30
    )
    assert found["over_time"]["periods"] == [p.as_dict() for p in truth]
    assert found["over_time"]["periods"][0]["period"] == "2024-01"
    assert "eo_mean by month of day" in capsys.readouterr().out
    assert "Gap in points by month" in (tmp_path / "p.html").read_text(encoding="utf-8")
    assert (tmp_path / "f" / "time-0.svg").is_file()
    (years,) = audited(rows | {"day": rows["age"] * 0 + 2019}, tmp_path, time="day",
                       period="year")["audits"]  # fmt: skip
    assert [p["period"] for p in years["over_time"]["periods"]] == ["2019"]
    with pytest.raises(InputError, match=r"the time column 'age' of .*: numbers are dates only"):
        audited(rows, tmp_path, time="age")


def test_the_worst_slices_are_those_of_the_columns_and_rules_asked_for(
    rows: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = audited(rows, tmp_path, slices=["sex", "age<35"], min_slice=40)
    (slices,) = found["slices"]
    wrong = rows["label"] != rows["prediction"]
    columns = {"sex": rows["sex"], "age": rows["age"]}
    truth = worst_slices(wrong, columns, ["age<35"], min_support=40)
    assert slices == {"model": "p", **truth.as_dict()}
    assert slices["worst"][0]["slice"] == ["sex = f", "age<35"] and slices["worst"][0]["reported"]
    said = " ".join(capsys.readouterr().out.split())
    assert "sex = f & age<35" in said and "at least 40 rows were searched" in said
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "Worst slices" in page and "sex = f &amp; age&lt;35" in page
    with pytest.raises(InputError, match="no column 'ages' for the slice"):
        audited(rows, tmp_path, slices=["ages<35"])


def test_counted_rows_have_the_slices_and_periods_of_the_rows(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    chosen = {k: rows[k] for k in ("label", "prediction", "sex", "age", "day")}
    flags: dict[str, Any] = {"time": "day", "slices": ["sex", "age<35"]}
    plain = audited(chosen, tmp_path, **flags)
    times = 1 + np.arange(N) % 3
    repeated = audited({k: np.repeat(v, times) for k, v in chosen.items()}, tmp_path, **flags)
    counted = audited(chosen | {"n": times}, tmp_path, counts=True, **flags)
    assert counted["slices"] == repeated["slices"] != plain["slices"]
    over = [found["audits"][0]["over_time"] for found in (counted, repeated)]
    assert over[0] == over[1]


def test_the_page_draws_the_threshold_that_is_in_use(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    audited({k: v for k, v in rows.items() if k != "prediction"}, tmp_path, threshold=0.7)
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "ROC by group" in page and "in use: 0.7<" in page
    audited(rows, tmp_path)  # predictions of their own, which follow the threshold 0.4
    assert "in use: 0.4<" in (tmp_path / "p.html").read_text(encoding="utf-8")
    flipped = rows | {"prediction": 1 - rows["prediction"]}
    audited(flipped, tmp_path)
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "do not follow one threshold" in page and "in use: 0" not in page


def test_weights_exclude_counts_and_comparisons_and_that_is_said(
    rows: dict[str, np.ndarray], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="weight= and counts= exclude each other"):
        audited(rows | {"n": rows["age"]}, tmp_path, weight="w", counts=True)
    with pytest.raises(InputError, match=r"weight column 'w' of .* must not be negative"):
        audited(rows | {"w": rows["w"] - 1}, tmp_path, weight="w")
    audited(rows, tmp_path)
    files, out = [tmp_path / "p.csv", tmp_path / "q.csv"], tmp_path / "two.json"
    files[1].write_bytes(files[0].read_bytes())
    audit(files, sensitive=["sex"], weight="w", json=out, draws=200)
    (pair,) = json.loads(out.read_text(encoding="utf-8"))["comparisons"]
    assert "rows are weighted" in pair["reason"]


def test_a_notebook_takes_the_same_arguments(rows: dict[str, np.ndarray], tmp_path: Path) -> None:
    flags: dict[str, Any] = {"weight": "w", "reference": ["f"], "time": "day", "slices": ["sex"]}
    found = shasam.audit(rows, sensitive="sex", draws=200, name="p", **flags)
    assert found.to_dict() == audited(rows, tmp_path, **flags)
    assert "weight=&#39;w&#39;" in found.to_html() and "time-0" in found.figures


def test_errors_of_a_regression_are_those_of_its_groups(
    rows: dict[str, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(50, 9, N)
    f = y + rng.normal(0, 2, N) + 1.5 * (rows["sex"] == "f")
    table = {"income": y, "guess": f, "sex": rows["sex"]}
    flags: dict[str, Any] = {"label": "income", "prediction": "guess", "regression": True}
    (found,) = audited(table, tmp_path, **flags)["regressions"]
    bias = found["measures"]["bias"]
    for g in "fm":
        own = rows["sex"] == g
        assert bias["groups"][g]["value"] == pytest.approx((f - y)[own].mean())
    assert 1.0 < bias["gap"]["low"] < 1.5 < bias["gap"]["high"] + 0.3
    said = " ".join(capsys.readouterr().out.split())
    assert "bias differs by" in said and "more than chance gives" in said
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "Root mean squared error" in page and "--regression" in page
    with pytest.raises(InputError, match="it cannot be used with"):
        audited(table | {"w": rows["w"]}, tmp_path, weight="w", **flags)
