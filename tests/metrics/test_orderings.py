"""Intervals of one audit agree with each other, on random tables and on well-known ones."""

from __future__ import annotations

import numpy as np
import pytest

from shasam.metrics import Counts, adjusted, evaluate, evaluate_counts
from shasam.metrics.intervals import RATES, average_orderings, gap_orderings

RACES = ("African-American", "Asian", "Caucasian", "Hispanic", "Native American", "Other")
# ProPublica's two-year table by race, high risk from decile 5 on: (class, prediction, group).
COMPAS = Counts(
    np.array(
        [
            [[990, 21, 1139, 318, 5, 208], [805, 2, 349, 87, 3, 36]],
            [[532, 3, 461, 129, 1, 90], [1369, 6, 505, 103, 9, 43]],
        ]
    ),
    ("no", "yes"),
    RACES,
)
EQUAL = (
    ("tpr_gap", "fnr_gap", "equal_opportunity"),
    ("fpr_gap", "tnr_gap"),
    ("selection_gap", "demographic_parity"),
)


def check_orderings(
    counts: Counts, *, strata: str = "none", min_group: int = 0, draws: int = 200
) -> None:
    """Assert every ordering and agreement of one audit."""
    found = evaluate_counts(
        counts, positive=1, draws=draws, strata=strata, min_group=min_group, metrics=["all"]
    )
    defined = {name: e for name, e in found.items() if e.defined}
    for name, e in defined.items():
        assert e.low - 1e-9 <= e.value <= e.high + 1e-9, name
        if e.p is not None:  # shown if and only if the interval excludes "no gap"
            excluded = e.high < 1 if name.endswith("_ratio") else e.low > 0
            assert excluded is (e.p <= 0.05 + 1e-12), (name, e)
    two = len(counts.classes) == 2
    kept_CG = counts.cells_CG >= max(min_group, 1e-9)
    orderings = gap_orderings(len(counts.classes), int(kept_CG.sum(1).max()), 1)
    if kept_CG.all():
        orderings += average_orderings()
    for o in orderings:
        if o.lower in defined and o.upper in defined:
            a, b = defined[o.lower], defined[o.upper]
            for end in ("value", "low", "high"):
                assert getattr(a, end) <= o.times * getattr(b, end) + 1e-9, (o, end)
    for rate in RATES:
        if f"{rate}_ratio" in defined:
            ratio, gap = defined[f"{rate}_ratio"], defined[f"{rate}_gap"]
            assert ratio.high <= 1 - gap.low + 1e-9 and ratio.low <= 1 - gap.high + 1e-9
            assert ratio.p == gap.p
    for names in EQUAL if two else EQUAL[:1]:
        ends = [[e.value, e.low, e.high, e.p] for n in names if (e := found[n]).defined]
        assert all(x == pytest.approx(ends[0], abs=1e-9) for x in ends), names
    shared = {
        defined[n].p for n in ("eo_mean", "eo_max", "eo_sum", "eo_mean_range") if n in defined
    }
    assert len(shared) <= 1


def random_counts(rng: np.random.Generator) -> Counts:
    C, G = int(rng.integers(2, 4)), int(rng.integers(2, 8))
    n = rng.poisson(rng.gamma(0.7, float(rng.choice([5, 50, 500])), (C, C, G)))
    n[np.arange(C), np.arange(C)] += rng.integers(1, 60, (C, G))
    return Counts(n, tuple("abc"[:C]), tuple("stuvwxyz"[:G]))


@pytest.mark.parametrize("strata", ["none", "cell"])
def test_orderings_hold_on_random_tables(strata: str) -> None:
    rng = np.random.default_rng(11)
    for _ in range(25):
        check_orderings(
            random_counts(rng), strata=strata, min_group=int(rng.choice([0, 30])), draws=100
        )


def test_orderings_hold_on_compas_with_and_without_its_small_groups() -> None:
    for strata in ("none", "cell"):
        for min_group in (0, 30, 40):
            check_orderings(COMPAS, strata=strata, min_group=min_group, draws=500)


def test_orderings_hold_for_twenty_groups_and_for_groups_of_31_rows() -> None:
    rng = np.random.default_rng(2)
    sizes = np.geomspace(40, 5000, 20).astype(int)
    states = rng.multinomial(sizes, [0.45, 0.15, 0.1, 0.3]).T.reshape(2, 2, 20)
    states[0, 0, 3] //= 3
    check_orderings(Counts(states, ("no", "yes"), tuple(map(str, range(20)))), min_group=30)
    small = rng.multinomial(np.full(6, 31), [0.4, 0.1, 0.15, 0.35]).T.reshape(2, 2, 6)
    for min_group in (0, 30):
        check_orderings(Counts(small, ("no", "yes"), tuple("abcdef")), min_group=min_group)


def test_orderings_hold_where_the_race_of_30_per_cent_is_unknown() -> None:
    rng = np.random.default_rng(4)
    hidden = rng.binomial(COMPAS.n_CPG, 0.3)
    n_CPG = np.concatenate([COMPAS.n_CPG - hidden, hidden.sum(2, keepdims=True)], 2)
    for min_group in (0, 30):
        check_orderings(Counts(n_CPG, ("no", "yes"), (*RACES, "(missing)")), min_group=min_group)


def test_small_groups_do_not_drag_the_gap_of_compas_to_zero() -> None:
    """Two groups with cells of 8 to 23 rows made EO's interval start at 0.00 next to FPR's 20."""
    whole = evaluate_counts(COMPAS, strata="none", metrics=["eo_max", "fpr_gap"], draws=500)
    assert whole["eo_max"].low > 0.2 and whole["eo_max"].p <= 0.005
    some = evaluate_counts(COMPAS, strata="none", min_group=30, draws=500)
    assert some["eo_max"].value == pytest.approx(1369 / 1901 - 43 / 133)
    assert some["eo_max"].support == 133  # cells of 8 to 23 rows are in no value


def test_an_interval_does_not_depend_on_what_else_was_asked_for() -> None:
    alone = evaluate_counts(COMPAS, metrics=["eo_mean"], draws=200)
    together = evaluate_counts(COMPAS, metrics=["all"], draws=200)
    assert alone["eo_mean"] == together["eo_mean"]


def test_weights_that_differ_by_class_keep_the_power_of_equalized_odds() -> None:
    """Rows of one class weigh 50 times as much: counted by group, few rows would be left."""
    rng = np.random.default_rng(5)
    called, held, models = 0, 0, 40
    for seed in range(models):
        t = (rng.random(4000) < 0.1).astype(int)
        s = rng.integers(0, 2, 4000)
        wrong = np.where(t == 0, 0.2 + 0.1 * s, 0.2)
        p = np.where(rng.random(4000) < wrong, 1 - t, t)
        weights = np.where(t == 1, 50.0, 1.0)
        found = evaluate(t, p, s, weights=weights, draws=100, seed=seed, strata="none",
                         metrics=["eo_mean", "tpr_gap"])  # fmt: skip
        called += found["eo_mean"].low > 0
        held += found["tpr_gap"].low <= 0 <= found["tpr_gap"].high
    assert called >= 38  # 10 points between 1,800 rows are plain to see
    assert held >= 34


def test_several_attributes_are_adjusted_in_interval_and_p_alike() -> None:
    rng = np.random.default_rng(3)
    found = []
    for seed in range(6):
        n = rng.multinomial([120, 120], [0.4, 0.1, 0.1, 0.4]).T.reshape(2, 2, 2)
        n[0, 0, 0] -= 6 * (seed == 0)
        found.append(evaluate_counts(Counts(n, ("a", "b"), ("x", "y")), draws=200, seed=seed))
    for before, after in zip(found, adjusted(found), strict=True):
        assert after["eo_mean"].p >= before["eo_mean"].p
        assert (after["eo_mean"].low > 0) is (after["eo_mean"].p <= 0.05)
