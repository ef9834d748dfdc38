"""Intervals: coverage at several true gaps including 0, comparisons, seeds."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from shasam.errors import InputError
from shasam.metrics import Counts, compare, compare_seeds, evaluate_counts, over_seeds, wilson
from shasam.metrics.intervals import quantile, two_sided_p

NO_SCIPY = "our Student distribution was not compared with SciPy's: pip install scipy"
ABOUT = ("accuracy", "worst_group_accuracy", "eo_mean", "eo_max", "demographic_parity")


def draw(rng: np.random.Generator, p_CG: np.ndarray, size: int) -> Counts:
    """A test set of a binary classifier with these cell accuracies."""
    right = rng.binomial(size, p_CG)
    n = np.zeros((2, 2, p_CG.shape[1]), int)
    n[0, 0], n[1, 1] = right
    n[0, 1], n[1, 0] = size - right
    return Counts(n, ("a", "b"), tuple(map(str, range(p_CG.shape[1]))))


def truth_of(p_CG: np.ndarray) -> dict[str, float]:
    p, G = p_CG, p_CG.shape[1]
    pairs = [(i, j) for i in range(G) for j in range(i + 1, G)]
    gaps = [abs(row[i] - row[j]) for row in p for i, j in pairs]
    rate = (1 - p[0] + p[1]) / 2
    return {
        "accuracy": float(p.mean()),
        "worst_group_accuracy": float(p.min()),
        "eo_mean": statistics.mean(gaps),
        "eo_max": max(gaps),
        "demographic_parity": float(rate.max() - rate.min()),
    }


def coverage(p_CG: np.ndarray, size: int, sims: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    truth = truth_of(p_CG)
    hits = dict.fromkeys(ABOUT, 0)
    for i in range(sims):
        e = evaluate_counts(draw(rng, p_CG, size), draws=400, seed=i)
        for name in ABOUT:
            hits[name] += e[name].low - 1e-12 <= truth[name] <= e[name].high + 1e-12
    return {name: n / sims for name, n in hits.items()}


GAPS = {
    "no gap": [[0.8, 0.8], [0.9, 0.9]],
    "small": [[0.8, 0.82], [0.9, 0.9]],
    "one-sided": [[0.8, 0.85], [0.9, 0.9]],
    "both": [[0.8, 0.85], [0.9, 0.95]],
    "large": [[0.7, 0.9], [0.85, 0.95]],
    "four equal groups": [[0.8] * 4, [0.9] * 4],
    "four groups": [[0.8, 0.85, 0.8, 0.82], [0.9, 0.9, 0.95, 0.9]],
}


@pytest.mark.parametrize("gap", ["no gap", "both", "large"])
def test_intervals_cover_the_truth_nineteen_times_in_twenty(gap: str) -> None:
    for name, share in coverage(np.array(GAPS[gap]), 400, 150, 7).items():
        assert share >= 0.90, name  # 150 test sets: five points below 95 % is 2.8 sigma


@pytest.mark.slow
@pytest.mark.parametrize("gap", list(GAPS))
@pytest.mark.parametrize("size", [100, 400])
def test_coverage_does_not_fall_below_93_per_cent(gap: str, size: int) -> None:
    for name, share in coverage(np.array(GAPS[gap]), size, 400, 11).items():
        # Three sigma of 400 simulations are 3.8 points. The worst cell is covered more often than
        # 97 % in small cells, which is on the careful side: see experiments/coverage.
        assert share >= 0.93 - 0.038, name


def test_the_plain_bootstrap_would_never_cover_a_gap_of_zero() -> None:
    rng = np.random.default_rng(0)
    p = np.array([[0.8, 0.8], [0.9, 0.9]])
    inside = 0
    for i in range(60):
        c = draw(rng, p, 400)
        e = evaluate_counts(c, draws=300, seed=i)["eo_mean"]
        right = np.stack([np.diagonal(c.n_CPG[:, :, g]) for g in range(2)], 1)
        again = rng.binomial(400, right / 400, (300, 2, 2)) / 400
        naive = np.quantile(np.abs(again[..., 0] - again[..., 1]).mean(-1), 0.025)
        assert naive > 0
        inside += e.low == 0
    assert inside >= 52


def test_an_interval_that_starts_at_zero_means_no_gap_was_shown() -> None:
    far = np.array([[[380, 300], [20, 100]], [[20, 100], [380, 300]]])
    near = np.array([[[362, 360], [38, 40]], [[40, 38], [360, 362]]])
    for n, starts in ((far, False), (near, True)):
        e = evaluate_counts(Counts(n, ("a", "b"), ("x", "y")))
        assert (e["eo_mean"].low == 0) is starts


def test_a_cell_without_an_error_still_has_an_interval() -> None:
    n = np.array([[[50, 50], [0, 0]], [[0, 0], [50, 50]]])
    e = evaluate_counts(Counts(n, ("a", "b"), ("x", "y")))
    assert e["accuracy"].value == 1 and 0.96 < e["accuracy"].low < 1
    assert e["eo_mean"].value == 0 and e["eo_mean"].high > 0.005


def test_the_same_seed_gives_the_same_interval_and_another_nearly() -> None:
    c = draw(np.random.default_rng(1), np.array(GAPS["both"]), 400)
    a, b = evaluate_counts(c, seed=3), evaluate_counts(c, seed=3)
    other = evaluate_counts(c, seed=4)
    assert a == b
    assert abs(a["eo_mean"].high - other["eo_mean"].high) < 0.005


def test_strata_that_are_not_kept_widen_what_depends_on_the_mix() -> None:
    n = np.array([[[390, 190], [10, 10]], [[10, 10], [190, 390]]])
    c = Counts(n, ("a", "b"), ("x", "y"))
    width = {}
    for strata in ("cell", "group", "none"):
        e = evaluate_counts(c, strata=strata)["demographic_parity"]
        width[strata] = e.high - e.low
    assert width["cell"] < 0.6 * width["group"]
    with pytest.raises(InputError, match="not known"):
        evaluate_counts(c, strata="rows")


def test_wilson_matches_its_textbook_value() -> None:
    e = wilson(15, 20)
    assert (round(e.low, 4), round(e.high, 4)) == (0.5313, 0.8881)
    assert math.isnan(wilson(0, 0).value) and wilson(0, 0).reason


def test_student_matches_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason=NO_SCIPY)
    for df in (1, 2, 5, 30, 200):
        assert quantile(0.95, df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-9)
        for t in (0.1, 1.0, 2.5, 8.0):
            assert two_sided_p(t, df) == pytest.approx(2 * stats.t.sf(t, df), rel=1e-9)


def test_seeds_give_students_interval_and_one_seed_says_that_it_is_alone() -> None:
    s = over_seeds([0.1, 0.2, 0.3])
    assert s.mean == pytest.approx(0.2) and s.sd == pytest.approx(0.1)
    assert s.high - s.mean == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-6)
    assert over_seeds([0.4]).reason == "one seed has no spread"
    assert "1 of 2" in str(over_seeds([0.4, math.nan]).reason)


def test_paired_seeds_match_scipys_paired_t() -> None:
    stats = pytest.importorskip("scipy.stats", reason=NO_SCIPY)
    a, b = [0.81, 0.84, 0.80, 0.86], [0.79, 0.80, 0.81, 0.82]
    assert compare_seeds(a, b).p == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)
    with pytest.raises(InputError, match="same seeds"):
        compare_seeds([0.1], [0.1, 0.2])


def models(rng: np.random.Generator, n: int, wrong_a: float, wrong_b: np.ndarray) -> tuple:
    t, s = np.arange(n) % 2, (np.arange(n) // 2) % 2
    hard = rng.random(n)
    a = np.where(hard < wrong_a, 1 - t, t)
    b = np.where(rng.random(n) * 0.5 + hard * 0.5 < wrong_b[s], 1 - t, t)
    return t, a, b, s


def test_a_model_compared_with_itself_does_not_differ() -> None:
    rng = np.random.default_rng(0)
    t, a, _, s = models(rng, 2000, 0.2, np.array([0.2, 0.2]))
    found = compare(t, a, a, s, draws=500)
    for c in found.values():
        assert c.difference == 0 and c.p == 1


def test_the_accuracy_p_agrees_with_mcnemars_test() -> None:
    rng = np.random.default_rng(2)
    t, a, b, s = models(rng, 1500, 0.18, np.array([0.26, 0.26]))
    only_a = int(((a == t) & (b != t)).sum())
    only_b = int(((a != t) & (b == t)).sum())
    k, n = min(only_a, only_b), only_a + only_b
    exact = min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n)
    assert compare(t, a, b, s, draws=20_000)["accuracy"].p == pytest.approx(exact, abs=0.015)


def test_two_equally_good_models_are_told_apart_one_time_in_twenty() -> None:
    rng = np.random.default_rng(5)
    false = {"accuracy": 0, "eo_mean": 0, "eo_max": 0}
    sims = 100
    for i in range(sims):
        n = 800
        t, s, hard = np.arange(n) % 2, (np.arange(n) // 2) % 2, rng.random(n)
        a, b = (np.where(0.6 * hard + 0.4 * rng.random(n) < 0.25, 1 - t, t) for _ in range(2))
        found = compare(t, a, b, s, draws=300, seed=i)
        for name in false:
            false[name] += found[name].p < 0.05
    for name, hits in false.items():
        assert hits / sims < 0.05 + 0.066, name  # three sigma


def test_the_difference_to_a_model_without_a_gap_is_covered() -> None:
    rng = np.random.default_rng(8)
    t, s = np.repeat([0, 0, 1, 1], 300), np.tile(np.repeat([0, 1], 300), 2)
    sims, inside = 120, 0
    for i in range(sims):
        hard = rng.random(1200)
        a = np.where(hard < np.array([0.8, 0.9])[s], t, 1 - t)
        b = np.where(np.where(rng.random(1200) < 0.6, hard, rng.random(1200)) < 0.85, t, 1 - t)
        c = compare(t, a, b, s, draws=300, seed=i)["eo_mean"]
        inside += c.low <= 0.1 <= c.high
    assert inside / sims >= 0.89  # three sigma; percentiles alone reach 0.79


def test_a_model_that_is_less_fair_is_found_out() -> None:
    rng = np.random.default_rng(3)
    t, a, b, s = models(rng, 4000, 0.2, np.array([0.2, 0.4]))
    c = compare(t, a, b, s, draws=1000)["eo_mean"]
    assert c.difference < 0 and c.high < 0 and c.p < 0.01
