"""Rules: from columns to classes, without code and without guesses."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from shasam.data.rules import apply_rule
from shasam.data.source import Label
from shasam.errors import DataError

TABLE = pa.table(
    {
        "id": ["a", "b", "c", "d", "e"],
        "path": [""] * 5,
        "age": [12, 34, 35, 70, None],
        "race": [0, 1, 0, 2, 0],
        "mood": ["sad", "glad", "glad", None, "sad"],
        "Male": [0, 1, 1, 0, 1],
        "Young": [1, 0, 1, 0, 1],
    }
)


@pytest.mark.parametrize(
    ("rule", "codes", "names"),
    [
        ("age<35", [1, 1, 0, 0, -1], ("age>=35", "age<35")),
        ("age >= 35", [0, 0, 1, 1, -1], ("age<35", "age>=35")),
        ("race==0", [1, 0, 1, 0, 1], ("race!=0", "race==0")),
        ("race", [0, 1, 0, 2, 0], ("0", "1", "2")),
        ("mood", [1, 0, 0, -1, 1], ("glad", "sad")),
        ("mood=='sad'", [1, 0, 0, -1, 1], ("mood!=sad", "mood==sad")),
        ("age:[0,20,40,60]", [0, 1, 1, 3, -1], ("age 0-20", "age 20-40", "age 40-60", "age >=60")),
        ("Male", [0, 1, 1, 0, 1], ("not Male", "Male")),
    ],
)
def test_a_rule_makes_codes_and_names(rule: str, codes: list[int], names: tuple) -> None:
    made = apply_rule(rule, TABLE)
    assert made.codes.tolist() == codes
    assert made.names == names
    assert sorted(made.reasons) == [k for k, code in enumerate(codes) if code < 0]


def test_composites_count_with_the_first_fastest() -> None:
    made = apply_rule("Male&Young", TABLE)
    m, y = (TABLE.column(c).to_numpy() for c in ("Male", "Young"))
    assert np.array_equal(made.codes, m + 2 * y)
    assert made.names == (
        "not Male & not Young", "Male & not Young", "not Male & Young", "Male & Young",
    )  # fmt: skip
    assert apply_rule("Male&age<35", TABLE).codes.tolist() == [2, 3, 1, 0, -1]


def test_a_value_below_the_first_edge_is_said() -> None:
    made = apply_rule("age:[30,50]", TABLE)
    assert made.codes.tolist() == [-1, 0, 0, 1, -1]
    assert made.reasons[0] == "age: below 30, the first edge"


def test_named_labels_stand_for_rules() -> None:
    made = apply_rule("age", TABLE, {"age": Label("age<35", ("old", "young"))})
    assert made.names == ("old", "young") and made.codes.tolist() == [1, 1, 0, 0, -1]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("Mail", "did you mean 'Male'"),
        ("agee<3", "did you mean 'age'"),
        ("mood<3", "not numeric"),
        ("age<old", "should be a number"),
        ("age:[3,2]", "must increase"),
        ("age:[a]", "must be numbers"),
        ("__import__('os').system('true')", "no attribute"),
        ("", "no attribute"),
    ],
)
def test_a_wrong_rule_is_a_sentence(rule: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        apply_rule(rule, TABLE)


def test_one_value_and_too_many_values_are_refused() -> None:
    table = pa.table({"id": [str(k) for k in range(99)], "same": [1] * 99, "n": list(range(99))})
    with pytest.raises(DataError, match="one value only"):
        apply_rule("same", table)
    with pytest.raises(DataError, match="makes 99 groups"):
        apply_rule("n", table)
