"""Verdicts of an audit: what is claimed, and what is not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest

from shasam.commands.audit import audit
from shasam.metrics import Comparison, Estimate
from shasam.registry import lookup
from shasam.report.verdict import sureness


def save(rows: dict[str, np.ndarray], path: Path) -> Path:
    pacsv.write_csv(pa.table({k: pa.array(v) for k, v in rows.items()}), path)
    return path


def test_a_verdict_says_what_the_data_could_hide_and_who_is_too_few_to_compare(
    tmp_path: Path,
) -> None:
    y = np.arange(808) // 2 % 2
    guess = np.where(np.arange(808) % 5 == 0, 1 - y, y)  # alike in all groups
    group = np.repeat(["a", "b", "few"], [400, 400, 8])
    path, out = save({"y": y, "guess": guess, "g": group}, tmp_path / "p.csv"), tmp_path / "o.json"
    audit([path], label="y", prediction="guess", sensitive=["g"], json=out)
    found = json.loads(out.read_text(encoding="utf-8"))["audits"][0]
    said = " ".join(found["verdict"])
    high = 100 * found["metrics"]["eo_mean"]["high"]
    assert f"no gap is shown, but it could be up to {high:.1f} points" in said
    assert "One group has fewer than 30 rows of a class (few): shown in grey" in said
    assert found["not_compared"] == ["few"] and found["groups"] == ["a", "b", "few"]
    assert found["claim"]["real"] is False


def test_a_gap_in_accuracy_stands_in_for_eo_under_its_own_name(tmp_path: Path) -> None:
    """An intersection without one class has no EO, and its claim is about accuracy."""
    rng = np.random.default_rng(0)
    sex, age = rng.choice(["f", "m"], 1200), rng.choice(["young", "old"], 1200)
    y = np.where((sex == "f") & (age == "old"), 0, rng.integers(0, 2, 1200))
    wrong = rng.random(1200) < np.where(sex == "f", 0.35, 0.05)
    rows = {"y": y, "guess": np.where(wrong, 1 - y, y), "sex": sex, "age": age}
    path, out = save(rows, tmp_path / "p.csv"), tmp_path / "o.html"
    audit([path], label="y", prediction="guess", sensitive=["sex", "age"], html=out, min_group=0)
    text = " ".join(out.read_text(encoding="utf-8").split())
    assert re.search(r"\(EO\) by sex \(.*?\)\. Largest gap in accuracy by sex &amp; age", text)


def test_claims_about_several_attributes_allow_for_their_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 600)
    rows = {
        "y": y,
        "guess": np.where(rng.random(600) < 0.8, y, 1 - y),
        "sex": rng.choice(["f", "m"], 600),
        "age": rng.choice(["young", "old"], 600),
    }
    path, out = save(rows, tmp_path / "p.csv"), tmp_path / "o.json"
    audit([path], label="y", prediction="guess", sensitive=["sex", "age"], json=out)
    audits = json.loads(out.read_text(encoding="utf-8"))["audits"]
    assert [a["claim"]["attributes"] for a in audits] == [3, 3, 3]
    for a in audits:
        assert a["claim"]["p"] >= a["metrics"]["eo_mean"]["p"]


def test_where_the_label_is_the_attribute_accuracy_is_still_compared(tmp_path: Path) -> None:
    y = np.repeat(["f", "m"], 200)
    guess = np.where(np.arange(400) % np.where(y == "f", 20, 4) == 0, "m", y)
    guess = np.where((y == "m") & (np.arange(400) % 4 == 0), "f", guess)
    path, out = save({"y": y, "guess": guess, "sex": y}, tmp_path / "p.csv"), tmp_path / "o.json"
    audit([path], label="y", prediction="guess", sensitive=["sex"], json=out)
    said = " ".join(json.loads(out.read_text(encoding="utf-8"))["audits"][0]["verdict"])
    assert "Equalized odds has no value here" in said
    assert "accuracy differs by up to 20.0 points" in said and "The gap is real" in said


COMPAS = """two_year_recid,flagged,race,n
no,yes,African-American,805
no,no,African-American,990
yes,no,African-American,532
yes,yes,African-American,1369
no,yes,Caucasian,349
no,no,Caucasian,1139
yes,no,Caucasian,461
yes,yes,Caucasian,505
"""


def test_the_verdict_tells_the_story_of_compas(tmp_path: Path) -> None:
    """ProPublica's counts: false alarms hit one group, misses the other."""
    path, out, page = (tmp_path / name for name in ("compas.csv", "o.json", "p.html"))
    path.write_text(COMPAS, encoding="utf-8")
    asked = {"label": "two_year_recid", "prediction": "flagged", "sensitive": ["race"]}
    audit([path], counts=True, json=out, html=page, **asked)
    found = json.loads(out.read_text(encoding="utf-8"))["audits"][0]
    first, second, third = found["verdict"][:3]
    assert first.startswith(
        "Where two_year_recid is no, the prediction was yes in 44.8 % of cases in group "
        "African-American and 23.5 % in group Caucasian"
    )
    assert "the prediction was no in 47.7 % of cases in group Caucasian and 28.0 %" in second
    assert third.startswith("The gap is real, more than chance gives (p < 0.001)")
    assert 100 * found["metrics"]["fpr_gap"]["value"] == pytest.approx(44.85 - 23.45, abs=0.02)
    shown = page.read_text(encoding="utf-8")
    assert shown.index(first.split(",")[0]) < shown.index("classified correctly")
    assert "False positive rate" in shown and "Average gap between groups (EO)" in shown


def test_several_attributes_of_one_model_are_one_verdict_and_one_forest(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y, sex = rng.integers(0, 2, 1200), rng.choice(["f", "m"], 1200)
    wrong = rng.random(1200) < np.where(sex == "f", 0.35, 0.1)
    rows = {"y": y, "guess": np.where(wrong, 1 - y, y), "sex": sex}
    rows["area"] = rng.choice([f"area {k}" for k in range(12)], 1200)
    page = tmp_path / "p.html"
    path = save(rows, tmp_path / "p.csv")
    audit([path], label="y", prediction="guess", sensitive=["sex", "area"], html=page, draws=200)
    text = page.read_text(encoding="utf-8")
    opening = text[text.index('id="verdict"') : text.index('id="details"')]
    assert "By sex: where the true class is" in opening
    assert opening.count("by attribute and group, sorted") == 2  # one picture for each error
    assert "Accuracy by class and group, sorted" in text  # dots, because there are twelve areas


def test_a_gap_that_may_be_nearly_nothing_is_not_said_to_be_at_least_zero() -> None:
    from types import SimpleNamespace
    from typing import Any

    def said(low: float) -> str:
        claim: Any = SimpleNamespace(
            estimate=Estimate(0.097, low, 0.13, 16), metric="eo_mean", level=0.95, p=0.009,
            real=True, attributes=1,
        )  # fmt: skip
        return sureness(claim, SimpleNamespace(attribute="race", unit="images"))  # type: ignore[arg-type]

    assert said(0.021).endswith("so at least 2.1 points.")
    assert "at least" not in said(8.8e-05) and said(8.8e-05).endswith("above 0 to 13.0).")


@pytest.mark.needs_torch
def test_what_to_do_names_the_plain_model_only_if_the_interval_does_too() -> None:
    from typing import Any

    from shasam.report.answer import RunAnswer

    def advice(low: float, **data: str) -> str:
        gap = Comparison(0.041, low, 0.132, p=0.03, support=16)
        answer: Any = object.__new__(RunAnswer)
        object.__setattr__(answer, "found", {"eo_mean": gap})
        object.__setattr__(answer, "run", SimpleNamespace(settings={"data": data}))
        return answer._which()

    assert "plain model has the smaller gap" in advice(0.002)
    assert "One run does not show" in advice(-0.002) and "groupdro,posthoc" in advice(-0.002)
    for data in ({"missing": "use"}, {"groups": "each"}):  # which those two refuse
        named = re.search(r"--methods (\S+?)[. ]", advice(0.002, **data)).group(1).split(",")
        methods = [lookup("method", name) for name in named]
        assert all(method.unknown_groups and method.groups_in_turns for method in methods)
    named = re.search(r"--methods (\S+?)[. ]", advice(0.002, sensitive_as="number")).group(1)
    assert all(lookup("method", name).continuous for name in named.split(","))


def test_classes_of_a_rule_are_not_called_values_of_it(tmp_path: Path) -> None:
    """Not 'where age<35 is age<35'."""
    y = np.where(np.arange(800) // 2 % 2, "age<35", "age>=35")
    wrong = np.where(y == "age<35", "age>=35", "age<35")
    group = np.repeat(["a", "b"], 400)
    guess = np.where(np.arange(800) % np.where(group == "a", 3, 10) == 0, wrong, y)
    rows = {"age<35": y, "guess": guess, "g": group}
    path, out = save(rows, tmp_path / "p.csv"), tmp_path / "o.json"
    audit([path], label="age<35", prediction="guess", sensitive=["g"], json=out)
    said = " ".join(json.loads(out.read_text(encoding="utf-8"))["audits"][0]["verdict"])
    assert "Where the true class is age<35, the prediction was age>=35" in said
    assert "age<35 is age" not in said


def test_groups_that_do_not_surely_differ_are_not_called_so(tmp_path: Path) -> None:
    """Three groups that are treated alike: the two furthest apart are so by chance."""
    rng = np.random.default_rng(0)
    y, g = rng.integers(0, 2, 900), rng.choice(["a", "b", "c"], 900)
    guess = np.where(rng.random(900) < 0.8, y, 1 - y)
    path, out = save({"y": y, "guess": guess, "g": g}, tmp_path / "p.csv"), tmp_path / "o.json"
    audit([path], label="y", prediction="guess", sensitive=["g"], json=out)
    said = " ".join(json.loads(out.read_text(encoding="utf-8"))["audits"][0]["verdict"])
    assert "no gap is shown" in said and "surely" not in said
    assert "(of 3 groups, the two furthest apart, perhaps by chance)" in said
