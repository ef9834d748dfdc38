"""Audits along a sensitive number: when it is taken as one, what is printed, written and gated."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shasam
from shasam.commands.audit import audit
from shasam.errors import InputError, LimitError, SpecError
from shasam.metrics import evaluate_curves

N = 900
DRAWS = 300


@pytest.fixture
def people() -> dict[str, Any]:
    """Positives are missed the more often the older they are."""
    rng = np.random.default_rng(0)
    age, y = rng.integers(18, 80, N), rng.integers(0, 2, N)
    wrong = rng.random(N) < np.where(y == 1, (age - 18) / 120, 0.1)
    return {
        "label": np.array(["no", "yes"])[y],
        "prediction": np.array(["no", "yes"])[np.where(wrong, 1 - y, y)],
        "age": age,
        "sex": np.array(["f", "m"])[rng.integers(0, 2, N)],
    }


@pytest.fixture
def table(people: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "people.parquet"
    pq.write_table(pa.table(people), path)
    return path


def test_a_column_of_many_numbers_is_followed_and_the_output_says_so(
    table: Path, capsys: pytest.CaptureFixture
) -> None:
    audit([table], sensitive=["age"], draws=DRAWS)
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "age has 62 different values and is followed as a number, without groups" in said
    assert "Class yes is called yes for" in said and "more than chance gives" in said
    assert "within what chance gives" in said  # of the other class
    for metric in ("curve_gap_tpr", "curve_mean_gap", "curve_slope_fpr", "dependence_selection"):
        assert metric in said


def test_python_json_and_the_command_give_the_numbers_of_the_metrics(
    people: dict[str, Any], table: Path, tmp_path: Path
) -> None:
    y, p = ((people[k] == "yes").astype(int) for k in ("label", "prediction"))
    expected = evaluate_curves(y, p, people["age"], classes=("no", "yes"), draws=DRAWS)
    found = shasam.audit(people, sensitive="age", draws=DRAWS)
    assert found.subjects == () and found["curve_gap"] == expected.estimates["curve_gap"]
    assert found.numbers[0].found.as_dict() == expected.as_dict()
    assert found.to_frame() is not None
    audit([table], sensitive=["age"], draws=DRAWS, json=tmp_path / "a.json")
    written = json.loads((tmp_path / "a.json").read_text())
    assert written["audits"] == []
    assert written["numbers"][0]["metrics"] == found.to_dict()["numbers"][0]["metrics"]
    assert len(written["numbers"][0]["curves"][0]["curve"]) == 37
    with pytest.raises(InputError, match="there are no groups"):
        _ = found.by_group


def test_few_numbers_are_groups_and_both_can_be_asked_for(people: dict[str, Any]) -> None:
    few = people | {"age": people["age"] % 20}
    assert len(shasam.audit(few, sensitive="age", draws=DRAWS).subjects[0].counts.groups) == 20
    forced = shasam.audit(few, sensitive="age", continuous="age", draws=DRAWS)
    assert forced["curve_gap"].defined and forced.subjects == ()
    more = people | {"age": people["age"] % 30}
    assert shasam.audit(more, sensitive="age", draws=DRAWS).numbers
    groups = shasam.audit(more, sensitive="age", discrete="age", draws=DRAWS)
    assert len(groups.subjects[0].counts.groups) == 30 and groups.numbers == ()
    by_rule = shasam.audit(people, sensitive="age:[18,40,60,80]", draws=DRAWS)
    assert by_rule.subjects and by_rule.numbers == ()


def test_fractions_are_followed_too(people: dict[str, Any]) -> None:
    years = shasam.audit(people, sensitive="age", draws=DRAWS)
    scaled = shasam.audit(people | {"age": people["age"] / 7}, sensitive="age", draws=DRAWS)
    assert years["curve_gap"] == scaled["curve_gap"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"continuous": "sex"}, "sex.*holds string, no numbers"),
        ({"continuous": "height"}, "'height' is none; add sensitive='?height"),
        ({"continuous": "age", "discrete": "age"}, "cannot be both"),
        ({"weight": "w"}, "weight= needs groups"),
        ({"sensitive": "age", "reference": "30"}, "reference= needs groups"),
        ({"sensitive": "age", "slices": "sex"}, "slices= needs groups"),
        ({"missing": "group", "age": "hole"}, "1 of 900 rows .* have no value in the column 'age'"),
    ],
)
def test_what_does_not_go_with_a_number_is_refused(
    people: dict[str, Any], given: dict[str, Any], says: str
) -> None:
    rows = people | {"w": np.ones(N)}
    if given.pop("age", None):
        rows["age"] = np.where(np.arange(N) == 5, np.nan, rows["age"])
    with pytest.raises(InputError, match=says):
        shasam.audit(rows, **{"sensitive": ["age", "sex"], "draws": DRAWS} | given)


def test_rows_without_the_number_are_left_out_where_that_is_asked_for(
    people: dict[str, Any],
) -> None:
    rows = people | {"age": np.where(np.arange(N) < 9, np.nan, people["age"])}
    with pytest.warns(shasam.errors.ShasamWarning, match="9 of 900 rows"):
        found = shasam.audit(rows, sensitive="age", missing="drop", draws=DRAWS)
    kept = {k: v[9:] for k, v in people.items()}
    assert found["curve_gap"] == shasam.audit(kept, sensitive="age", draws=DRAWS)["curve_gap"]


def test_counted_rows_give_the_same_numbers(people: dict[str, Any]) -> None:
    counted = (
        pa.table(people).group_by(["label", "prediction", "age"]).aggregate([("age", "count")])
    ).rename_columns(["label", "prediction", "age", "n"])
    found = shasam.audit(counted, sensitive="age", counts=True, draws=DRAWS)
    assert found["curve_gap"] == shasam.audit(people, sensitive="age", draws=DRAWS)["curve_gap"]


def test_limits_name_metrics_of_curves(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    passed = ["curve_gap=0.9", "curve_slope_tpr.low=0.5", "dependence=0.9", "accuracy=0.5"]
    audit([table], sensitive=["age"], draws=DRAWS, fail_over=passed, junit=tmp_path / "j.xml")
    assert 'failures="0"' in (tmp_path / "j.xml").read_text()
    for limit in ("curve_gap.low=0.05", "curve_slope_tpr.low=0.05", "dependence_tpr=0.05"):
        capsys.readouterr()
        with pytest.raises(SystemExit):
            audit([table], sensitive=["age"], draws=DRAWS, fail_over=[limit])
        assert "is over the limit" in capsys.readouterr().err
    with pytest.raises(SpecError, match="no metric 'curve_slope'"):
        audit([table], sensitive=["age"], fail_over=["curve_slope=0.1"])


def test_a_limit_on_groups_is_not_passed_by_a_number_and_the_other_way_round(
    people: dict[str, Any],
) -> None:
    number = shasam.audit(people, sensitive="age", draws=DRAWS)
    with pytest.raises(LimitError, match="compares groups, and age is followed as a number"):
        number.check(eo_mean=0.9)
    with pytest.raises(LimitError, match=r"curve_gap_trp was not computed.*curve_gap_tpr"):
        number.check(curve_gap_trp=0.9)
    groups = shasam.audit(people, sensitive="sex", draws=DRAWS)
    with pytest.raises(LimitError, match="no attribute is followed as a number"):
        groups.check(curve_gap=0.9)
    both = shasam.audit(people, sensitive=["sex", "age"], draws=DRAWS)
    assert both.check(curve_gap=0.9, eo_mean=0.9) is both
    with pytest.raises(LimitError, match=r"curve_gap = .* by age"):
        both.check(curve_gap=0.01, eo_mean=0.9)


def test_scenarios_take_metrics_of_curves(people: dict[str, Any]) -> None:
    agreed = [
        {"metric": "curve_gap", "at_most": 0.1},
        {"metric": "eo_mean", "at_most": 0.9},
        {"metric": "selection", "group": "f", "at_least": 0.1},
    ]
    found = shasam.audit(people, sensitive=["sex", "age"], scenarios=agreed, draws=DRAWS)
    assert [(j.attribute, j.broken) for j in found.scenarios] == [
        ("age", True), ("sex", False), ("sex", False),
    ]  # fmt: skip


def test_several_numbers_are_adjusted_and_not_crossed(people: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    rows = people | {"height": rng.integers(150, 200, N)}
    alone = shasam.audit(rows, sensitive="age", draws=DRAWS)["curve_gap"]
    both = shasam.audit(rows, sensitive=["age", "height"], draws=DRAWS)["curve_gap"]
    assert set(both) == {"age", "height"}
    assert both["age"].p == pytest.approx(2 * alone.p)


def test_the_page_has_a_curve_with_its_band_for_every_rate(
    people: dict[str, Any], table: Path, tmp_path: Path
) -> None:
    page = shasam.audit(people, sensitive="age", draws=DRAWS).to_html()
    assert page.count('class="area c0"') == 3 and "is followed as a number" in page
    assert 'id="numbers"' in page and 'id="details"' not in page
    both = shasam.audit(people, sensitive=["sex", "age"], draws=DRAWS)
    page = both.to_html()
    assert 'id="numbers"' in page and 'id="groups"' in page
    verdict = page.partition('id="verdict-title"')[2]
    # the gap along age is sure and the one between the sexes is not: it is said first
    assert verdict.index("By age: Class yes is called yes") < verdict.index("Between the groups")
    assert {"curve-0-0", "curve-0-1", "curve-0-2", "groups-0"} <= set(both.figures)
    out = {"html": tmp_path / "a.html", "figures": tmp_path / "f", "summary": tmp_path / "s.md"}
    audit([table, table], sensitive=["age"], draws=DRAWS, **out)
    assert (tmp_path / "a.html").read_text().count('class="area c0"') == 6
    assert (tmp_path / "f" / "curve-1-0.svg").is_file()
    assert "| `curve_gap` |" in (tmp_path / "s.md").read_text()


def test_a_class_with_few_rows_has_a_reason_instead_of_a_curve(people: dict[str, Any]) -> None:
    keep = (people["label"] == "no") | (np.arange(N) < 100)
    few = {k: v[keep] for k, v in people.items()}
    found = shasam.audit(few, sensitive="age", draws=DRAWS)
    assert "Class yes has no curve along age: it has" in str(found)
    assert "a curve needs 120" in found.to_html()
    with pytest.raises(LimitError, match="curve_gap_tpr is undefined"):
        found.check(curve_gap_tpr=0.9)


def test_names_from_a_table_are_escaped_on_the_page(people: dict[str, Any]) -> None:
    rows = {("<b>age" if k == "age" else k): v for k, v in people.items()}
    assert "<b>age" not in shasam.audit(rows, sensitive="<b>age", draws=DRAWS).to_html()
