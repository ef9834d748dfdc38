"""Values: exact against fractions, equal to fairlearn, undefined with a reason."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from tests.metrics.tables import exact, random_table

from shasam.errors import InputError
from shasam.metrics import (
    Counts,
    Estimate,
    as_json,
    catalogue,
    compare,
    evaluate,
    evaluate_counts,
    intersect,
    values,
)
from shasam.metrics.resampling import Gap


def counts_of(n: np.ndarray) -> Counts:
    return Counts(n, tuple(map(str, range(n.shape[0]))), tuple(map(str, range(n.shape[2]))))


@pytest.mark.parametrize("tables", [800, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_metric_equals_rational_arithmetic_on_random_tables(tables: int) -> None:
    rng = np.random.default_rng(0)
    undefined = 0
    for _ in range(tables):
        n = random_table(rng)
        found, truth = values(counts_of(n)), exact(n)
        assert set(found) == set(truth)
        for name, value in truth.items():
            if value is None:
                undefined += 1
                assert math.isnan(found[name]), (name, n)
            else:
                assert abs(found[name] - float(value)) <= 1e-12, (name, n)
    assert undefined > tables / 10


@pytest.mark.parametrize("seed", range(25))
def test_evaluate_gives_the_same_values_with_intervals_around_them(seed: int) -> None:
    n = random_table(np.random.default_rng(seed))
    truth = exact(n)
    for name, e in evaluate_counts(counts_of(n), draws=200).items():
        if truth[name] is None:
            assert math.isnan(e.value) and e.reason and math.isnan(e.low)
        else:
            assert abs(e.value - float(truth[name])) <= 1e-12
            assert 0 <= e.low <= e.value <= e.high <= (1 if name != "eo_sum" else 60)
            assert e.reason is None and e.support >= 1


@pytest.mark.parametrize("groups", [2, 3, 5])
def test_binary_disparities_equal_fairlearn(groups: int) -> None:
    fairlearn = pytest.importorskip(
        "fairlearn.metrics", reason="our disparities were not compared with fairlearn's"
    )
    rng = np.random.default_rng(groups)
    for _ in range(3):
        y, s = rng.integers(0, 2, 400), rng.integers(0, groups, 400)
        p = np.where(rng.random(400) < 0.7 + 0.05 * s, y, 1 - y)
        e = evaluate(y, p, s, draws=100)
        odds = fairlearn.equalized_odds_difference
        assert e["eo_max"].value == pytest.approx(odds(y, p, sensitive_features=s), abs=1e-12)
        mean = odds(y, p, sensitive_features=s, agg="mean")
        assert e["eo_mean_range"].value == pytest.approx(mean, abs=1e-12)
        if groups == 2:
            assert e["eo_mean"].value == pytest.approx(mean, abs=1e-12)
        parity = fairlearn.demographic_parity_difference(y, p, sensitive_features=s)
        assert e["demographic_parity"].value == pytest.approx(parity, abs=1e-12)
        opportunity = fairlearn.equal_opportunity_difference(y, p, sensitive_features=s)
        assert e["equal_opportunity"].value == pytest.approx(opportunity, abs=1e-12)


def test_the_hand_example_has_an_eo_of_a_fifth() -> None:
    n = np.zeros((2, 2, 2), int)
    n[0, 0], n[0, 1] = [8, 6], [2, 4]
    n[1, 1], n[1, 0] = [7, 9], [3, 1]
    found = values(counts_of(n))
    assert found["eo_mean"] == pytest.approx(0.2)
    assert found["cell_balanced_accuracy"] == pytest.approx(0.75)


@pytest.mark.parametrize(("classes", "groups", "terms"), [(2, 2, 2), (4, 2, 4), (2, 4, 12)])
def test_eo_has_a_term_for_each_class_and_pair_of_groups(
    classes: int, groups: int, terms: int
) -> None:
    eo = catalogue.named("eo_sum").value
    assert isinstance(eo, Gap)
    rates_RG = eo.rates(np.ones((classes, classes, groups)), None)
    assert rates_RG.shape == (classes, groups)
    one_apart = np.zeros((classes, groups))
    one_apart[:, 0] = 1.0  # each class has a gap of 1 between the first group and each other
    assert eo.norm(one_apart) == pytest.approx(classes * (groups - 1))
    assert eo.norm(one_apart) / catalogue.named("eo_mean").value.norm(one_apart) == pytest.approx(
        terms
    )


def test_values_do_not_depend_on_the_order_of_rows_or_the_names_of_groups() -> None:
    rng = np.random.default_rng(3)
    t, p, s = rng.integers(0, 3, 500), rng.integers(0, 3, 500), rng.integers(0, 3, 500)
    order = rng.permutation(500)
    a = evaluate(t, p, s, draws=100)
    b = evaluate(t[order], p[order], (s[order] + 1) % 3, draws=100)
    for name in a:
        if a[name].defined:
            assert a[name].value == pytest.approx(b[name].value, abs=1e-12)


def test_opposite_gaps_do_not_cancel() -> None:
    t = np.repeat([0, 0, 1, 1], 100)
    s = np.tile(np.repeat([0, 1], 100), 2)
    right = np.concatenate([np.arange(100) < k for k in (90, 70, 70, 90)])
    e = evaluate(t, np.where(right, t, 1 - t), s, draws=100)
    assert e["accuracy_gap"].value == pytest.approx(0)
    assert e["eo_mean"].value == pytest.approx(0.2)


def test_an_empty_cell_is_undefined_and_named_never_zero() -> None:
    e = evaluate(["a", "a", "b"], ["a", "b", "b"], ["x", "y", "x"], draws=100)
    assert math.isnan(e["eo_mean"].value)
    assert "class 'b' in group 'y'" in str(e["eo_mean"].reason)
    assert e["eo_mean"].support == 0
    assert e["accuracy"].value == pytest.approx(2 / 3)


def test_an_empty_cell_is_treated_alike_by_evaluate_and_compare() -> None:
    t, p, s = ["a", "a", "b"], ["a", "b", "b"], ["x", "y", "x"]
    alone, paired = evaluate(t, p, s, draws=100), compare(t, p, p, s, draws=100)
    for name, e in alone.items():
        assert e.defined == (not math.isnan(paired[name].difference)), name
        assert e.reason == paired[name].reason and e.support == paired[name].support, name
    # every class has a row, so balanced accuracy is defined although a cell is empty
    assert alone["balanced_accuracy"].value == pytest.approx(0.75)


def test_labels_of_different_kinds_are_refused() -> None:
    with pytest.raises(InputError, match=r"label is text \('no', 'yes'\).*numbers \(0, 1\)"):
        evaluate(["no", "yes"], [0, 1], ["x", "y"])
    with pytest.raises(InputError, match="write them alike"):
        compare(["0", "1"], ["0", "1"], [0, 1], ["x", "y"])
    named = evaluate(["no", "yes"] * 9, [0, 1] * 9, [0, 1, 1] * 6, classes=["no", "yes"], draws=100)
    assert named["accuracy"].value == 1.0
    objects = evaluate(
        np.array([0, 1] * 9, dtype=object), [False, True] * 9, [0, 1, 1] * 6, draws=100
    )
    assert objects["accuracy"].value == 1.0


def test_a_missing_group_is_refused_instead_of_becoming_a_group_called_nan() -> None:
    for nothing in (None, math.nan):
        with pytest.raises(InputError, match="1 of 3 rows have no group, the first is row 2"):
            evaluate([0, 1, 1], [0, 1, 1], np.array(["x", "y", nothing], dtype=object))


def test_a_group_that_was_promised_but_has_no_rows_is_undefined() -> None:
    e = evaluate([0, 1, 0, 1], [0, 1, 1, 1], [0, 0, 1, 1], groups=["x", "y", "z"], draws=100)
    assert math.isnan(e["demographic_parity"].value) and "'z'" in str(e["eo_mean"].reason)


def test_one_group_has_no_gap_to_measure() -> None:
    e = evaluate([0, 1, 0, 1], [0, 1, 1, 1], ["only"] * 4, draws=100)
    for name in ("eo_mean", "demographic_parity", "accuracy_gap"):
        assert "one group only" in str(e[name].reason)


def test_equal_opportunity_of_many_classes_asks_for_the_positive_one() -> None:
    rng = np.random.default_rng(0)
    t, p, s = rng.integers(0, 3, 300), rng.integers(0, 3, 300), rng.integers(0, 2, 300)
    assert "positive class" in str(evaluate(t, p, s, draws=100)["equal_opportunity"].reason)
    assert evaluate(t, p, s, positive=2, draws=100)["equal_opportunity"].defined


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_group_of_one_row_that_is_surely_right_has_no_calibration_error() -> None:
    y = np.array([0, 1] * 40 + [1])
    s = np.array([0] * 40 + [1] * 40 + [2])
    scores = np.where(y == 1, 0.7, 0.3)
    scores[-1] = 1.0
    e = evaluate(y, y, s, np.stack([1 - scores, scores], 1), draws=200)["ece_2"]
    assert (e.value, e.low, e.high) == (0.0, 0.0, 0.0)


def test_calibration_error_equals_a_loop_over_bins() -> None:
    rng = np.random.default_rng(4)
    t, s, score = rng.integers(0, 2, 600), rng.integers(0, 2, 600), rng.random(600)
    p = (score > 0.5).astype(int)
    e = evaluate(t, p, s, score, draws=100)
    for g in (0, 1):
        confidence = np.where(p == 1, score, 1 - score)[s == g]
        right = (p == t)[s == g]
        total = 0.0
        for b in range(15):
            inside = (confidence > b / 15) & (confidence <= (b + 1) / 15)
            if inside.any():
                total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
        assert e[f"ece_{g}"].value == pytest.approx(total, abs=1e-12)
    assert e["ece_max"].value == max(e["ece_0"].value, e["ece_1"].value)


def test_score_gap_is_the_parity_gap_averaged_over_thresholds() -> None:
    rng = np.random.default_rng(5)
    s = rng.integers(0, 2, 400)
    score = rng.beta(2 + s, 2)
    t = rng.integers(0, 2, 400)
    e = evaluate(t, (score > 0.5).astype(int), s, score, draws=100)
    thresholds = (np.arange(200_000) + 0.5) / 200_000
    curves = [np.searchsorted(np.sort(score[s == g]), thresholds) / (s == g).sum() for g in (0, 1)]
    assert e["abcc"].value == pytest.approx(np.abs(curves[0] - curves[1]).mean(), abs=1e-5)
    assert 0 <= e["abpc"].value <= 2


def test_score_gap_of_separate_groups_is_the_whole_area() -> None:
    s = np.repeat([0, 1], 200)
    score = np.where(s == 0, 0.0, 1.0)
    e = evaluate(np.tile([0, 1], 200), s, s, score, draws=100)
    assert e["abcc"].value == pytest.approx(1.0)
    assert e["abpc"].value == pytest.approx(2.0, abs=0.02)


def test_nan_scores_and_logits_are_refused_with_advice() -> None:
    t, s = [0, 1] * 10, [0, 0, 1, 1] * 5
    with pytest.raises(InputError, match="NaN or infinite, the first is row 3"):
        evaluate(t, t, s, [0.5, 0.5, 0.5, math.nan] * 5)
    with pytest.raises(InputError, match="softmax or a sigmoid"):
        evaluate(t, t, s, [3.0] * 20)
    with pytest.raises(InputError, match="shape"):
        evaluate(t, t, s, np.ones((20, 3)) / 3)


def test_unknown_labels_are_answered_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'male'"):
        evaluate(["mal"], ["male"], ["x"], classes=["female", "male"])
    with pytest.raises(InputError, match="code 2 is outside"):
        evaluate([2], [0], [0], classes=["a", "b"])
    with pytest.raises(InputError, match="one of each"):
        evaluate([0, 1], [0], [0, 1])


def test_intersections_are_named_by_all_their_parts() -> None:
    codes, names = intersect(
        [np.array([0, 1, 1, 0]), np.array([1, 0, 1, 1])], [("old", "young"), ("f", "m")]
    )
    assert [names[c] for c in codes] == ["old & m", "young & f", "young & m", "old & m"]


def test_the_json_form_is_strict_json_and_comes_back() -> None:
    e = evaluate(["a", "a", "b"], ["a", "b", "b"], ["x", "y", "x"], draws=100)
    text = json.dumps(as_json(e), allow_nan=False)
    back = {k: Estimate.from_dict(v) for k, v in json.loads(text).items()}
    assert back["accuracy"] == e["accuracy"]
    assert math.isnan(back["eo_mean"].value) and back["eo_mean"].reason == e["eo_mean"].reason


def test_metrics_work_without_torch_and_without_scipy() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['scipy'] = None\n"
        "from shasam.metrics import evaluate\n"
        "assert evaluate([0, 1] * 9, [0, 1] * 9, [0, 0, 1] * 6)['accuracy'].value == 1.0"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
