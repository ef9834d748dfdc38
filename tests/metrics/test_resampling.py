"""Claims: a gap is called real one time in twenty at most when there is none."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from shasam.metrics import (
    Counts,
    adjusted,
    catalogue,
    claim_of,
    compare,
    evaluate,
    evaluate_counts,
    holm,
    widest,
    wilson,
)
from shasam.metrics.counts import right, right_by_class
from shasam.metrics.intervals import binomial_upper, newcombe
from shasam.metrics.resampling import Gap, Resampling, average, multinomial, shrunken, shuffled
from shasam.metrics.scores import ScoreRows, calibration_error

COMPAS = (3175, 31, 2103, 509, 11, 343)  # rows of six races
# ProPublica's table of two of them: true negatives, false positives, false negatives, true ones
PROPUBLICA = Counts(
    np.array([[[990, 1139], [805, 349]], [[532, 461], [1369, 505]]]),
    ("stayed", "reoffended"),
    ("African-American", "Caucasian"),
)


def fair(rng: np.random.Generator, sizes: tuple[int, ...]) -> Counts:
    """A model that treats all groups alike."""
    share = np.array([0.55 * 0.7, 0.55 * 0.3, 0.45 * 0.35, 0.45 * 0.65])
    n = rng.multinomial(sizes, share).T.reshape(2, 2, len(sizes))
    return Counts(n, ("no", "yes"), tuple(map(str, range(len(sizes)))))


def test_shuffled_tables_are_what_permuting_rows_gives() -> None:
    rng = np.random.default_rng(0)
    n_SKG = np.array([[[3, 1, 4], [1, 5, 2], [2, 0, 1]]])
    outcome = np.repeat([0, 1, 2], n_SKG[0].sum(1))
    group = np.concatenate([np.repeat([0, 1, 2], row) for row in n_SKG[0]])
    draws = 20_000
    found = shuffled(n_SKG, draws, rng)
    assert (found.sum(2) == n_SKG.sum(1)).all() and (found.sum(3) == n_SKG.sum(2)).all()
    by_rows = np.zeros((draws, 3, 3))
    for d in range(draws):
        np.add.at(by_rows[d], (outcome, rng.permutation(group)), 1)
    for a, b in ((found[:, 0], by_rows), (found[:, 0] ** 2, by_rows**2)):
        assert np.allclose(a.mean(0), b.mean(0), atol=6 * b.std(0).max() / math.sqrt(draws))


def test_more_rows_than_numpy_can_draw_from_are_shuffled_all_the_same() -> None:
    n_SKG = np.array([[[900_000_000, 800_000_000], [100_000_000, 200_000_000]]])
    found = shuffled(n_SKG, 200, np.random.default_rng(0))
    assert (found >= 0).all() and (found.sum(2) == n_SKG.sum(1)).all()
    assert np.allclose(found[:, 0, 0, 0].mean() / 1e9, 0.85, atol=1e-5)


def test_the_p_of_one_class_and_two_groups_is_fishers() -> None:
    stats = pytest.importorskip("scipy.stats")
    n = np.array([[[14, 20], [6, 2]]])  # right and wrong of two groups
    exact = stats.fisher_exact(n[0])[1]
    counts = Counts(np.array([[[14, 20], [6, 2]], [[0, 0], [0, 0]]]), ("a", "b"), ("x", "y"))
    p = Gap(right, average).estimate(Resampling(counts, 1, 40_000, strata="none"), 0).p
    assert p == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("sizes", [COMPAS, tuple(np.geomspace(10, 2000, 20).astype(int))])
def test_a_fair_model_is_called_unfair_one_time_in_twenty(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    sims = 150
    false = {"eo_mean": 0, "demographic_parity": 0}
    for i in range(sims):
        counts = fair(rng, sizes)
        made = Resampling(counts.only(counts.large(30)), 1, 200, i, strata="none")
        for name in false:
            e = catalogue.named(name).value.estimate(made, 0)
            claim = claim_of(made.counts, {"eo_mean": e})
            assert claim is not None
            false[name] += claim.real
    for name, wrong in false.items():
        assert wrong / sims <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / sims), name


def test_ten_attributes_without_a_gap_err_together_one_time_in_twenty() -> None:
    rng = np.random.default_rng(7)
    sims, alone, together = 60, 0, 0
    for i in range(sims):
        found = []
        for k in range(10):
            made = Resampling(fair(rng, (300, 300)), 1, 300, 10 * i + k, strata="none")
            found.append({"eo_mean": Gap(right_by_class, average).estimate(made, 0)})
        alone += any(e["eo_mean"].low > 0 for e in found)
        together += any(e["eo_mean"].low > 0 for e in adjusted(found))
    assert alone / sims > 0.2  # what one would say without the adjustment
    assert together / sims <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / sims)


def test_holm_orders_and_never_lowers_a_p() -> None:
    rng = np.random.default_rng(0)
    for n in range(1, 8):
        p = rng.random(n).tolist()
        found = holm(p)
        order = sorted(range(n), key=p.__getitem__)
        naive = [max(min(1.0, (n - j) * p[order[j]]) for j in range(i + 1)) for i in range(n)]
        assert [found[i] for i in order] == pytest.approx(naive)
        assert all(a >= b for a, b in zip(found, p, strict=True))


def test_propublicas_gap_is_real_and_names_who_is_harmed() -> None:
    e = evaluate_counts(PROPUBLICA, strata="none")
    claim = claim_of(PROPUBLICA, e)
    assert claim is not None and claim.real and claim.p < 0.001
    found = claim.contrast
    assert found is not None
    assert (found.rate, found.low_group, found.high_group) == (
        "stayed",
        "African-American",
        "Caucasian",
    )
    assert 1 - found.low.value == pytest.approx(0.4485, abs=5e-5)  # false positive rates
    assert 1 - found.high.value == pytest.approx(0.2345, abs=5e-5)
    assert found.gap.low < found.gap.value < found.gap.high
    assert found.gap.low > 0.17 and found.gap.high < 0.25


def test_the_widest_of_many_gaps_has_an_interval_for_all_of_them() -> None:
    rng = np.random.default_rng(3)
    sims, inside = 300, 0
    for _ in range(sims):
        found = widest(fair(rng, (200,) * 6))
        assert found is not None
        inside += found.gap.low == 0  # the true gap of every pair is 0
    assert inside / sims >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / sims)


def test_small_groups_are_not_compared_and_the_others_are_as_if_alone() -> None:
    counts = fair(np.random.default_rng(0), COMPAS)
    counts.n_CPG[:, :, 1] *= 5  # every class has 30 rows in all groups but the fifth
    e = evaluate_counts(counts, strata="none", draws=300, min_group=30)
    alone = evaluate_counts(counts.only(np.array([0, 1, 2, 3, 5])), strata="none", draws=300)
    whole = evaluate_counts(counts, strata="none", draws=300)
    for name in ("eo_mean", "eo_max", "demographic_parity"):
        assert e[name].as_dict() == pytest.approx(alone[name].as_dict())
    assert e["accuracy"] == whole["accuracy"]  # all rows count
    nothing = evaluate_counts(counts, draws=300, min_group=3000)["eo_mean"]
    assert "fewer than two groups have 3000 rows" in str(nothing.reason)


def test_comparisons_leave_small_groups_out_as_well() -> None:
    rng = np.random.default_rng(2)
    t, a, b = rng.integers(0, 2, (3, 408))
    s = np.repeat([0, 1, 2], [200, 200, 8])
    some = compare(t, a, b, s, draws=200, min_group=30)
    alone = compare(*(x[s < 2] for x in (t, a, b, s)), draws=200)
    whole = compare(t, a, b, s, draws=200)
    assert some["eo_mean"].difference == pytest.approx(alone["eo_mean"].difference)
    assert some["eo_mean"].support == alone["eo_mean"].support
    assert some["accuracy"] == whole["accuracy"]
    none = compare(t, a, b, s, draws=200, min_group=300)["eo_mean"]
    assert "fewer than two groups" in str(none.reason)


def test_scores_of_small_groups_are_not_compared_either() -> None:
    rng = np.random.default_rng(1)
    s = np.repeat([0, 1, 2], [200, 200, 8])
    score = rng.random(408)
    t, p = (rng.random(408) < score).astype(int), (score > 0.5).astype(int)
    some = evaluate(t, p, s, score, draws=200, min_group=30)
    alone = evaluate(*(x[s < 2] for x in (t, p, s, score)), draws=200)
    for name in ("abcc", "abpc", "ece_max"):
        assert some[name].value == alone[name].value
    assert some["ece_2"].defined  # shown all the same


def test_a_minimum_does_not_exceed_what_any_group_can_have() -> None:
    # race of COMPAS: the lowest group has its own interval to 65.4, the small one is anything
    n = np.zeros((2, 2, 4), int)
    sizes, rights = (3175, 2103, 509, 11), (2026, 1410, 360, 8)
    for g, (size, hits) in enumerate(zip(sizes, rights, strict=True)):
        n[0, 0, g], n[1, 1, g] = hits // 2, hits - hits // 2
        n[0, 1, g], n[1, 0, g] = (size - hits) // 2, size - hits - (size - hits) // 2
    e = evaluate_counts(Counts(n, ("a", "b"), tuple("wxyz")), strata="none")["min_group_accuracy"]
    own = wilson(rights[0], sizes[0], 1 - 0.05 / 4)
    assert e.value == rights[0] / sizes[0]
    assert e.high <= own.high + 1e-3
    for size, hits in zip(sizes, rights, strict=True):
        assert e.high <= binomial_upper(hits, size, 0.025 / 4) + 1e-9


def test_a_small_group_that_looks_good_may_still_be_the_worst() -> None:
    n = np.array([[[700, 12], [300, 3]], [[300, 3], [700, 12]]])  # 70 % of 2,000 and 80 % of 30
    e = evaluate_counts(Counts(n, ("a", "b"), ("x", "y")), strata="none")["min_group_accuracy"]
    assert e.low < 0.66  # the 30 rows do not exclude it


def test_the_upper_limit_of_a_rate_is_clopper_and_pearsons() -> None:
    stats = pytest.importorskip("scipy.stats")
    for hits, size in ((0, 3), (2, 3), (15, 20), (500, 1000)):
        exact = stats.beta.ppf(1 - 0.01, hits + 1, size - hits)
        assert binomial_upper(hits, size, 0.01) == pytest.approx(exact, abs=1e-9)
    assert binomial_upper(3, 3, 0.01) == 1.0


def test_newcombes_interval_matches_his_paper() -> None:
    # Newcombe 1998, table II, method 10, example (a): 56/70 - 48/80
    low, high = newcombe(56 / 70, 70, 48 / 80, 80)
    assert (round(low, 4), round(high, 4)) == (0.0524, 0.3339)


def test_shrunken_rates_are_pooled_where_groups_agree_and_own_where_they_differ() -> None:
    alike = np.array([[[70, 71, 3], [30, 29, 0]]])
    assert np.allclose(shrunken(alike)[0, 0], 0.71, atol=0.01)
    apart = np.array([[[900, 100], [100, 900]]])
    assert np.allclose(shrunken(apart)[0, 0], [0.9, 0.1], atol=0.01)
    drawn, expected = multinomial(alike, 400, np.random.default_rng(0))
    assert (drawn.sum(2) == alike.sum(1)).all()
    assert drawn[..., 0, 2].min() < 3 and expected[0, 0, 2] == pytest.approx(2.13, abs=0.05)


@pytest.mark.parametrize("rows", [20, 200])
def test_a_calibrated_model_is_not_called_badly_calibrated(rows: int) -> None:
    rng = np.random.default_rng(rows)
    sims, inside = 120, 0
    for i in range(sims):
        score = rng.beta(2, 2, 2 * rows)
        t = (rng.random(2 * rows) < score).astype(int)
        s = np.repeat([0, 1], rows)
        p = (score > 0.5).astype(int)
        counts = Counts.from_codes(t, p, s, ("a", "b"), ("x", "y"))
        scored = ScoreRows(Resampling(counts, 1, 200, i), t, p, s, np.stack([1 - score, score], 1))
        inside += calibration_error(scored, 0).low == 0
    assert inside / sims >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / sims)  # was 85 % at 20 rows


def test_where_equalized_odds_has_no_value_accuracy_is_compared() -> None:
    n = np.zeros((2, 2, 2), int)
    n[0, 0, 0], n[0, 1, 0], n[1, 1, 1], n[1, 0, 1] = 180, 20, 120, 80  # the label is the group
    counts = Counts(n, ("a", "b"), ("x", "y"))
    claim = claim_of(counts, evaluate_counts(counts, strata="none"))
    assert claim is not None and claim.metric == "accuracy_gap" and claim.real
    assert claim.contrast is not None and claim.contrast.low_group == "y"
    assert not replace(claim, p=0.06).real


def test_the_gap_of_every_pair_is_at_most_the_widest() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        counts = fair(rng, (40, 50, 60))
        rates = right_by_class(counts.n_CPG)
        share = rates[:, 0] / rates.sum(1)
        gaps = [abs(a - b) for row in share for a, b in itertools.combinations(row, 2)]
        found = widest(counts)
        assert found is not None and found.gap.value == pytest.approx(max(gaps))
