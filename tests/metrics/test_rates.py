"""Error rates by name, ranking, weights, numbers, time and slices: equal to other people's code."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shasam.errors import InputError
from shasam.metrics import (
    Comparison,
    Counts,
    against,
    by_group,
    compare,
    evaluate,
    evaluate_counts,
    evaluate_regression,
    evaluate_scores,
    over_time,
    roc_curve,
    threshold_curves,
    worst_slices,
)
from shasam.metrics.rates import RATES
from shasam.metrics.resampling import Ratio, Resampling
from shasam.metrics.scores import auc_and_error, gap_of_means
from shasam.metrics.slices import _Tail, benjamini_hochberg
from shasam.report.verdict import levelled_down

PROPUBLICA = Counts(
    np.array([[[990, 1139], [805, 349]], [[532, 461], [1369, 505]]]),
    ("stayed", "reoffended"),
    ("African-American", "Caucasian"),
)


def rows(seed: int, n: int = 900, groups: int = 3) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    t, s = rng.integers(0, 2, n), rng.integers(0, groups, n)
    score = np.clip(0.5 + 0.2 * (2 * t - 1) + 0.05 * s + rng.normal(0, 0.2, n), 0, 1)
    return t, (score > 0.5).astype(int), s, score


def test_rates_of_every_group_equal_fairlearns_metric_frame() -> None:
    fairlearn = pytest.importorskip("fairlearn.metrics")
    skm = pytest.importorskip("sklearn.metrics")
    t, p, s, _ = rows(0)
    frame = fairlearn.MetricFrame(
        metrics={
            "selection": fairlearn.selection_rate,
            "tpr": fairlearn.true_positive_rate,
            "fnr": fairlearn.false_negative_rate,
            "fpr": fairlearn.false_positive_rate,
            "tnr": fairlearn.true_negative_rate,
            "ppv": skm.precision_score,
        },
        y_true=t, y_pred=p, sensitive_features=s,
    )  # fmt: skip
    counts = Counts.from_codes(t, p, s, ("0", "1"), ("0", "1", "2"))
    found, e = by_group(counts), evaluate(t, p, s, draws=100, metrics=["all"])
    for name in frame.by_group.columns:
        assert [x.value for x in found[name]] == pytest.approx(frame.by_group[name].tolist())
        gap, ratio = frame.difference()[name], frame.ratio()[name]
        assert e[f"{name}_gap"].value == pytest.approx(gap)
        assert e[f"{name}_ratio"].value == pytest.approx(ratio)


def test_propublicas_error_rates_are_reproduced() -> None:
    found = by_group(PROPUBLICA)
    assert [round(100 * e.value, 2) for e in found["fpr"]] == [44.85, 23.45]
    assert [round(100 * e.value, 2) for e in found["fnr"]] == [27.99, 47.72]
    (white,) = against(PROPUBLICA, "fpr", "African-American")
    assert white.ratio.value == pytest.approx(0.523, abs=1e-3) and white.ratio.high < 0.6
    (black,) = against(PROPUBLICA, "fpr", "Caucasian")
    assert black.ratio.value == pytest.approx(1.912, abs=1e-3)
    assert black.difference.value == pytest.approx(0.2139, abs=1e-4)


def test_the_largest_group_is_the_reference_unless_one_is_named() -> None:
    assert against(PROPUBLICA, "selection")[0].reference == "African-American"
    with pytest.raises(InputError, match="did you mean 'Caucasian'"):
        against(PROPUBLICA, "selection", "Caucasien")
    with pytest.raises(InputError, match="there is no rate 'fprr'"):
        against(PROPUBLICA, "fprr")


def test_a_rate_without_rows_is_undefined_and_says_which() -> None:
    n = np.zeros((2, 2, 2), int)
    n[0, 0], n[1, 0] = [50, 50], [10, 10]  # nobody is predicted positive
    e = evaluate_counts(Counts(n, ("a", "b"), ("x", "y")), draws=100, metrics=["all"])
    assert "no row predicted positive of group 'x'" in str(e["ppv_gap"].reason)
    assert "0 in every group" in str(e["selection_ratio"].reason)
    assert e["selection_gap"].value == 0
    three = Counts(np.ones((3, 3, 2), int), ("a", "b", "c"), ("x", "y"))
    assert "positive class" in str(
        evaluate_counts(three, draws=100, metrics=["all"])["fpr_gap"].reason
    )


def test_a_ratio_of_equal_groups_is_covered_and_a_true_one_too() -> None:
    rng = np.random.default_rng(1)
    sims = 120
    for shares, truth in (((0.4, 0.4, 0.4), 1.0), ((0.3, 0.4, 0.5), 0.6)):
        held = called = 0
        for i in range(sims):
            part = rng.binomial(300, shares)
            n = np.zeros((2, 2, 3), int)
            n[0, 1], n[0, 0], n[1, 1] = part, 300 - part, 1
            n[0, 1] -= 1
            made = Resampling(Counts(n, ("a", "b"), tuple("xyz")), 1, 300, i, strata="none")
            e = Ratio(RATES[0].table).estimate(made, 0)
            held += e.low - 1e-9 <= truth <= e.high + 1e-9
            called += e.high < 1
        assert held / sims >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / sims)
        assert (called / sims > 0.9) is (truth < 1)


def test_auc_equals_scikit_learns_and_its_error_the_bootstraps() -> None:
    skm = pytest.importorskip("sklearn.metrics")
    t, p, s, score = rows(2)
    score = score.round(2)  # with ties
    e = evaluate(t, p, s, score, draws=100, metrics=["auc", "auc_gap"])
    truth = [skm.roc_auc_score(t[s == g], score[s == g]) for g in range(3)]
    assert [e[f"auc_{g}"].value for g in range(3)] == pytest.approx(truth)
    assert e["auc_gap"].value == pytest.approx(max(truth) - min(truth))
    rng = np.random.default_rng(0)
    again = []
    for _ in range(400):
        i = rng.integers(0, len(t), len(t))
        again.append(auc_and_error(t[i], score[i])[0])
    assert auc_and_error(t, score)[1] == pytest.approx(np.std(again), rel=0.15)
    twice = auc_and_error(t, score, np.full(len(t), 2))
    assert twice == pytest.approx(auc_and_error(np.repeat(t, 2), np.repeat(score, 2)))
    perfect = evaluate(t, t, s, t * 0.8, draws=100, metrics=["auc"])["auc_0"]
    assert perfect.value == 1 and 0.9 < perfect.low < 1


def test_the_curve_and_the_rates_at_a_threshold_equal_scikit_learn_and_counting() -> None:
    skm = pytest.importorskip("sklearn.metrics")
    t, _, s, score = rows(3)
    score = score.round(2)
    curve = roc_curve(t, score)
    fpr, tpr, _ = skm.roc_curve(t, score, drop_intermediate=False)
    assert curve.fpr == pytest.approx(fpr) and curve.tpr == pytest.approx(tpr)
    found = threshold_curves(t, score, s, ("x", "y", "z"), steps=20, chosen=0.5)
    for i, threshold in enumerate(found.thresholds):
        p = (score >= threshold).astype(int)
        truth = by_group(Counts.from_codes(t, p, s, ("0", "1"), ("x", "y", "z")))
        for name, estimates in truth.items():
            for g, e in enumerate(estimates):
                assert found.value[name][i, g] == pytest.approx(e.value, nan_ok=True)
                if e.defined:
                    assert found.low[name][i, g] == pytest.approx(e.low)


def test_weighted_rates_equal_fairlearns_and_weights_of_one_change_nothing() -> None:
    fairlearn = pytest.importorskip("fairlearn.metrics")
    skm = pytest.importorskip("sklearn.metrics")
    t, p, s, _ = rows(4)
    w = np.random.default_rng(0).uniform(0.2, 3, len(t))
    e = evaluate(t, p, s, draws=200, weights=w, metrics=["all"], strata="none")
    odds = fairlearn.equalized_odds_difference(t, p, sensitive_features=s, sample_weight=w)
    parity = fairlearn.demographic_parity_difference(t, p, sensitive_features=s, sample_weight=w)
    assert e["eo_max"].value == pytest.approx(odds)
    assert e["demographic_parity"].value == pytest.approx(parity)
    assert e["accuracy"].value == pytest.approx(skm.accuracy_score(t, p, sample_weight=w))
    plain = evaluate(t, p, s, draws=200, strata="none")
    ones = evaluate(t, p, s, draws=200, weights=np.ones(len(t)), strata="none")
    for name, found in plain.items():
        assert ones[name].value == pytest.approx(found.value), name
        assert (ones[name].low, ones[name].high) == pytest.approx((found.low, found.high)), name
    width = {k: v["accuracy"].high - v["accuracy"].low for k, v in (("w", e), ("1", plain))}
    assert width["w"] > width["1"]  # unequal weights are worth fewer rows
    for bad, says in (([1.0] * 3, "3 weights for 900"), (-w, "not negative")):
        with pytest.raises(InputError, match=says):
            evaluate(t, p, s, weights=bad)


def test_errors_of_a_regression_equal_pandas() -> None:
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    y, s = rng.normal(50, 10, 600), rng.choice(["a", "b", "c"], 600)
    f = y + rng.normal(0, 3, 600) + 2 * (s == "c")
    found = evaluate_regression(y, f, s)
    frame = pd.DataFrame({"e": f - y, "s": s}).groupby("s")["e"]
    for name, truth in (
        ("mae", frame.apply(lambda e: e.abs().mean())),
        ("rmse", frame.apply(lambda e: (e**2).mean() ** 0.5)),
        ("bias", frame.mean()),
    ):
        assert [e.value for e in found[name].values] == pytest.approx(truth.tolist())
        assert found[name].gap.value == pytest.approx(truth.max() - truth.min())
        assert all(e.low < e.value < e.high for e in found[name].values)
    assert found["bias"].gap.low > 1 and found["bias"].gap.p < 0.01
    with pytest.raises(InputError, match="no finite target, the first is row 1"):
        evaluate_regression([1.0, math.nan], [1, 1], ["a", "b"])


def test_a_gap_of_means_is_covered_and_rarely_false() -> None:
    rng = np.random.default_rng(5)
    sims = 120
    s = np.repeat([0, 1, 2], [200, 60, 40])
    for shift in (0.0, 0.4):
        held = 0
        for i in range(sims):
            x = rng.normal(0, 1, 300) + shift * (s == 1)
            mean = np.array([x[s == g].mean() for g in range(3)])
            error = np.array([x[s == g].std(ddof=1) / math.sqrt((s == g).sum()) for g in range(3)])
            gap = gap_of_means(mean, error, 300, i, 0.95, 40)
            held += gap.low - 1e-9 <= shift <= gap.high + 1e-9
        assert held / sims >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / sims)


def test_scores_alone_have_means_and_areas() -> None:
    _, _, s, score = rows(6)
    means, areas = evaluate_scores(score, s)
    assert [e.value for e in means.values] == pytest.approx(
        [score[s == g].mean() for g in range(3)]
    )
    assert areas["abcc"].value > 0.02 and evaluate_scores(10 * score, s)[1] == {}


def test_the_gap_of_every_month_is_that_of_its_rows() -> None:
    t, p, s, _ = rows(7, groups=2)
    day = np.datetime64("2024-01-10") + np.arange(900) // 10
    found = over_time(t, p, s, day, draws=200)
    assert [x.name for x in found] == ["2024-01", "2024-02", "2024-03", "2024-04"]
    february = (day >= np.datetime64("2024-02-01")) & (day < np.datetime64("2024-03-01"))
    alone = evaluate(t[february], p[february], s[february], draws=200, strata="none")["eo_mean"]
    assert found[1].estimate.value == alone.value and found[1].rows == 290
    names = [x.name for x in over_time(t, p, s, day.astype(str), period="quarter", draws=100)]
    assert names == ["2024-Q1", "2024-Q2"]
    with pytest.raises(InputError, match="write them like 2024-03-18"):
        over_time(t, p, s, ["soon"] * 900)
    with pytest.raises(InputError, match="did you mean 'month'"):
        over_time(t, p, s, day, period="months")


def test_the_worst_slice_is_found_with_its_support_and_interval() -> None:
    rng = np.random.default_rng(0)
    n = 6000
    sex, region, age = rng.choice(["f", "m"], n), rng.integers(0, 8, n), rng.integers(18, 80, n)
    bad = (sex == "f") & (region == 3) & (age < 35)
    wrong = rng.random(n) < np.where(bad, 0.5, 0.1)
    columns = {"sex": sex, "region": region, "age": age}
    found = worst_slices(wrong, columns, ["age<35"], depth=3, min_support=40)
    worst = found.reported[0]
    assert set(worst.conditions) == {"sex = f", "region = 3", "age<35"}
    assert worst.rate.support == bad.sum() and worst.rate.value == wrong[bad].mean()
    assert worst.rest == pytest.approx(wrong[~bad].mean())
    assert worst.rate.low < 0.5 < worst.rate.high and worst.q < 1e-6
    assert len(found.found) == 10 and found.searched > 50


def test_where_nothing_is_wrong_slices_are_rarely_reported() -> None:
    rng = np.random.default_rng(1)
    sims, any_found = 60, 0
    for _ in range(sims):
        columns = {c: rng.integers(0, 6, 3000) for c in "abcd"}
        found = worst_slices(rng.random(3000) < 0.2, columns)
        any_found += bool(found.reported)
        assert found.found[0].p < 0.05  # without the adjustment there is always one
    assert any_found / sims <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / sims)


def test_tails_and_adjustments_equal_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    tail = _Tail(1000, 120)
    for n, k in ((50, 12), (400, 60), (30, 0), (900, 119)):
        assert tail(n, k) == pytest.approx(stats.hypergeom.sf(k - 1, 1000, 120, n), rel=1e-6)
    p = np.random.default_rng(0).random(30) ** 3
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p))


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("age", "is not a rule"),
        ("agee<3", "did you mean 'age'"),
        ("age<young", "compares numbers"),
        ("sex<f", "orders text"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rule: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        worst_slices([True, False], {"age": [1, 2], "sex": ["f", "m"]}, [rule])


def test_a_smaller_gap_by_harm_alone_is_called_levelling_down() -> None:
    t, s = np.repeat([0, 0, 1, 1], 500), np.tile(np.repeat([0, 1], 500), 2)
    place = np.tile(np.arange(500), 4)

    def model(well: float, ill: float) -> np.ndarray:
        return np.where(place < 500 * np.where(s == 0, well, ill), t, 1 - t)

    before = model(0.95, 0.75)
    down = compare(t, model(0.76, 0.75), before, s, draws=300)
    up = compare(t, model(0.95, 0.93), before, s, draws=300)
    assert levelled_down(down) and not levelled_down(up)
    nothing = Comparison(math.nan, math.nan, math.nan, math.nan, 0, "no value")
    assert not levelled_down(
        {"eo_mean": nothing, "worst_group_accuracy": nothing, "accuracy": nothing}
    )
