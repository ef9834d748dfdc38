"""Rates along a sensitive number: oracles written row by row, properties, and error rates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.continuous import HELD, simulate
from hypothesis import given, settings
from hypothesis import strategies as st

from shasam.errors import InputError, MemoryLimitError
from shasam.metrics import curves, evaluate_curves, holm
from shasam.metrics.curves import GRID, Along, distance_covariance, distance_scale, measure_of

CLASSES = ("no", "yes")
DRAWS = 300


def rows(
    n: int = 800, *, slope: float = 0.0, values: int | None = 60, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, predictions and numbers; the chance of an error grows with the rank by ``slope``."""
    rng = np.random.default_rng(seed)
    s = rng.normal(size=n) if values is None else rng.integers(0, values, n).astype(float)
    t = rng.integers(0, 2, n)
    rank = np.argsort(np.argsort(s)) / n
    wrong = rng.random(n) < 0.1 + slope * rank
    return t, np.where(wrong, 1 - t, t), s


def quantiles(s: np.ndarray) -> np.ndarray:
    """The middle of the ranks of equal numbers, by counting."""
    return np.array([((s < x).sum() + (s <= x).sum()) / 2 / len(s) for x in s])


def naive_curve(s: np.ndarray, y: np.ndarray, h: float) -> np.ndarray:
    """Weighted least squares at every quantile, over rows."""
    u, out = quantiles(s), []
    for q in GRID:
        w = np.maximum(1 - ((u - q) / h) ** 2, 0)
        X = np.stack([np.ones_like(u), u - q], 1)
        out.append(np.linalg.solve(X.T @ (w[:, None] * X), X.T @ (w * y))[0])
    return np.array(out)


def naive_distance_correlation(x: np.ndarray, y: np.ndarray) -> float:
    def centred(v: np.ndarray) -> np.ndarray:
        far = np.abs(v[:, None] - v[None, :])
        return far - far.mean(0) - far.mean(1)[:, None] + far.mean()

    a, b = centred(x), centred(y.astype(float))
    return math.sqrt((a * b).mean() / math.sqrt((a * a).mean() * (b * b).mean()))


def test_curve_gaps_and_slope_are_those_of_a_computation_over_rows() -> None:
    t, p, s = rows(slope=0.3)
    found = evaluate_curves(t, p, s, classes=CLASSES, draws=DRAWS)
    for curve, about, hit in zip(
        found.curves,
        (t == 1, t == 0, np.ones(len(t), bool)),
        (p == 1, p == 1, p == 1),
        strict=True,
    ):
        own, y = s[about], hit[about]
        assert curve.rows == about.sum()
        assert curve.bandwidth == pytest.approx(0.5 * about.sum() ** -0.2)
        expected = naive_curve(own, y, curve.bandwidth)
        np.testing.assert_allclose(curve.curve, np.clip(expected, 0, 1), atol=1e-9)
        of = found.estimates
        gap = expected.max() - expected.min()
        assert of[f"curve_gap_{curve.rate}"].value == pytest.approx(gap)
        far = np.abs(expected[:, None] - expected[None, :])
        mean = far.sum() / (len(far) * (len(far) - 1))
        assert of[f"curve_mean_gap_{curve.rate}"].value == pytest.approx(mean)
        line = np.polyfit(quantiles(own), y.astype(float), 1)[0]
        assert of[f"curve_slope_{curve.rate}"].value == pytest.approx(0.5 * line)
        correlation = naive_distance_correlation(quantiles(own), y)
        assert of[f"dependence_{curve.rate}"].value == pytest.approx(correlation)


def test_over_all_classes_it_is_the_largest_gap_and_the_mean_of_mean_gaps() -> None:
    t, p, s = rows(slope=0.3)
    of = evaluate_curves(t, p, s, classes=CLASSES, draws=DRAWS).estimates
    assert of["curve_gap"].value == max(of[f"curve_gap_{r}"].value for r in ("tpr", "fpr"))
    means = [of[f"curve_mean_gap_{r}"].value for r in ("tpr", "fpr")]
    assert of["curve_mean_gap"].value == pytest.approx(np.mean(means))
    assert of["dependence"].value == max(of[f"dependence_{r}"].value for r in ("tpr", "fpr"))
    assert of["accuracy"].value == pytest.approx((t == p).mean())


def test_bins_change_a_curve_by_less_than_their_width_allows() -> None:
    t, p, s = rows(4000, slope=0.3, values=None)
    curve = evaluate_curves(t, p, s, classes=CLASSES, draws=DRAWS).curves[0]
    along = Along.of(s[t == 1], p[t == 1] == 1, None)
    assert along.values > 1500 and len(along.n_B) == curves.BINS
    assert along.n_B.sum() == (t == 1).sum() and along.k_B.sum() == ((t == 1) & (p == 1)).sum()
    naive = naive_curve(s[t == 1], p[t == 1] == 1, curve.bandwidth)
    np.testing.assert_allclose(curve.curve, naive, atol=0.002)


def test_the_permutation_test_is_the_one_that_shuffles_rows() -> None:
    t, p, s = rows(300, slope=0.15, seed=3)
    own, y = s[t == 1], p[t == 1] == 1
    u, rng = quantiles(own), np.random.default_rng(1)
    seen = naive_distance_correlation(u, y)
    as_large = [naive_distance_correlation(u, rng.permutation(y)) >= seen for _ in range(1000)]
    expected = np.mean(as_large)
    assert 0.01 < expected < 0.9  # otherwise the comparison says nothing
    drawn = curves._RateDraws(Along.of(own, y, None), 4000, 0, 0.95)
    error = math.sqrt(expected * (1 - expected) / 1000)
    assert abs(drawn.p[1] - expected) < 4 * error


def test_p_values_are_adjusted_for_the_classes_and_agree_with_the_intervals() -> None:
    for seed in range(8):
        t, p, s = rows(600, slope=0.02 * seed, seed=seed)
        of = evaluate_curves(t, p, s, classes=CLASSES, draws=DRAWS, seed=seed).estimates
        drawn = [
            curves._RateDraws(Along.of(s[t == c], p[t == c] == 1, None), DRAWS, seed, 0.95)
            for c in (1, 0)
        ]
        for place, measure in enumerate(("curve_gap", "dependence")):
            expected = holm([d.p[place] for d in drawn])
            assert [of[f"{measure}_{r}"].p for r in ("tpr", "fpr")] == expected
        for name, e in of.items():
            if e.p is None:
                continue
            excluded = e.low > 0 or e.high < 0
            assert excluded == (e.p <= 0.05), name
            assert e.low <= e.value <= e.high


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000))
def test_order_of_rows_and_monotone_transformations_change_nothing(
    seed: int,
) -> None:
    t, p, s = rows(500, slope=0.2, seed=seed)
    first = evaluate_curves(t, p, s, classes=CLASSES, draws=100)
    order = np.random.default_rng(seed).permutation(len(t))
    second = evaluate_curves(t[order], p[order], np.exp(s[order] / 10), classes=CLASSES, draws=100)
    assert first.estimates == second.estimates
    for a, b in zip(first.curves, second.curves, strict=True):
        for x, y in ((a.curve, b.curve), (a.low, b.low), (a.high, b.high)):
            np.testing.assert_array_equal(x, y)


def test_a_number_turned_round_turns_the_slope_and_keeps_the_gaps() -> None:
    t, p, s = rows(slope=0.3)
    up, down = (evaluate_curves(t, p, x, classes=CLASSES, draws=DRAWS).estimates for x in (s, -s))
    for rate in ("tpr", "fpr", "selection"):
        assert up[f"curve_slope_{rate}"].value == pytest.approx(-down[f"curve_slope_{rate}"].value)
        for name in (f"curve_gap_{rate}", f"curve_mean_gap_{rate}", f"dependence_{rate}"):
            assert up[name].value == pytest.approx(down[name].value)


def test_counted_rows_are_the_rows_they_stand_for() -> None:
    t, p, s = rows(900, slope=0.2, values=30)
    table, n = np.unique(np.stack([t, p, s], 1), axis=0, return_counts=True)
    counted = evaluate_curves(
        table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2], classes=CLASSES,
        draws=DRAWS, repeats=n,
    )  # fmt: skip
    assert counted.as_dict() == evaluate_curves(t, p, s, classes=CLASSES, draws=DRAWS).as_dict()


def test_the_band_holds_its_curve_and_stays_between_0_and_1() -> None:
    t, p, s = rows(600)
    p = np.where((t == 1) & (s < 30), 1, p)  # no error in half of a class
    for curve in evaluate_curves(t, p, s, classes=CLASSES, draws=DRAWS).curves:
        assert (curve.low >= 0).all() and (curve.high <= 1).all()
        assert (curve.low <= curve.curve).all() and (curve.curve <= curve.high).all()
        assert (curve.low < curve.high).all()  # also where no row is wrong


def test_a_trend_is_found_and_its_interval_holds_it() -> None:
    t, p, s = rows(6000, slope=0.4)
    of = evaluate_curves(t, p, s, classes=CLASSES, draws=DRAWS).estimates
    slope = of["curve_slope_tpr"]
    assert slope.low < -0.2 < slope.high < 0
    assert of["curve_gap_tpr"].low > 0.1 and of["dependence_tpr"].p <= 0.05


def test_too_few_rows_or_values_are_undefined_with_the_reason() -> None:
    t, p, s = rows(400)
    kept = (t == 1) | (np.cumsum(t == 0) <= 50)
    found = evaluate_curves(t[kept], p[kept], s[kept], classes=CLASSES, draws=DRAWS)
    tpr, fpr, _ = found.curves
    assert tpr.defined and fpr.reason == "it has 50 rows; a curve needs 120"
    assert found.estimates["curve_gap_fpr"].reason == fpr.reason
    assert found.estimates["curve_gap"].value == found.estimates["curve_gap_tpr"].value
    few = evaluate_curves(t, p, s % 3, classes=CLASSES, draws=DRAWS)
    assert few.curves[0].reason == "its rows have 3 different values; a curve needs 10"
    assert few.estimates["curve_gap"].reason == "no class has a curve"


def test_a_model_without_errors_has_no_gap_and_an_undefined_dependence() -> None:
    t, _, s = rows(600)
    of = evaluate_curves(t, t, s, classes=CLASSES, draws=DRAWS).estimates
    gap = of["curve_gap_tpr"]
    assert (gap.value, gap.low, gap.p) == (0.0, 0.0, 1.0) and 0 < gap.high < 0.2
    assert of["dependence_tpr"].reason == "the outcome is the same in every row"
    assert of["dependence"].reason == "the outcome is the same in every row"


def test_more_than_two_classes_have_a_recall_and_a_selection_each() -> None:
    rng = np.random.default_rng(0)
    t, s = rng.integers(0, 3, 900), rng.integers(0, 50, 900)
    p = np.where(rng.random(900) < 0.8, t, (t + 1) % 3)
    found = evaluate_curves(t, p, s, classes=("a", "b", "c"), draws=DRAWS)
    assert [c.rate for c in found.curves] == [
        f"{kind}_{name}" for kind in ("recall", "selection") for name in "abc"
    ]
    recalls = [found.estimates[f"curve_gap_recall_{name}"].value for name in "abc"]
    assert found.estimates["curve_gap"].value == max(recalls)


def test_equal_numbers_that_fill_many_quantiles_still_have_a_curve() -> None:
    t, p, s = rows(1000)
    s = np.where(s < 35, 0.0, s)  # more than half of the rows are 0
    for curve in evaluate_curves(t, p, s, classes=CLASSES, draws=DRAWS).curves:
        assert np.isfinite(curve.curve).all() and np.isfinite(curve.high).all()


def test_names_of_limits_are_understood() -> None:
    assert measure_of("curve_mean_gap_tpr").key == "curve_mean_gap"
    assert measure_of("dependence").key == "dependence"
    assert measure_of("curve_slope") is None  # there is none over all classes
    assert measure_of("eo_mean") is None


def test_what_cannot_be_measured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    t, p, s = rows(300)
    with pytest.raises(InputError, match="300, 300 and 299"):
        evaluate_curves(t, p, s[1:], classes=CLASSES)
    with pytest.raises(InputError, match="missing or infinite"):
        evaluate_curves(t, p, np.where(s == s[0], np.nan, s), classes=CLASSES)
    with pytest.raises(InputError, match="at least 100 draws"):
        evaluate_curves(t, p, s, classes=CLASSES, draws=99)
    monkeypatch.setattr(curves, "memory_limit", lambda: 2**20)
    with pytest.raises(MemoryLimitError, match="3 curves need 10"):
        evaluate_curves(t, p, s, classes=CLASSES)


def test_the_scale_of_the_correlation_is_that_of_a_perfect_split() -> None:
    """A rate that jumps from 0 to 1 in the middle has the distance correlation of its rows."""
    s, y = np.arange(200.0), np.arange(200) >= 100
    along = Along.of(s, y, None)
    found = float(distance_covariance(along, along.rates_B)) / distance_scale(along, along.rate)
    assert found == pytest.approx(naive_distance_correlation(quantiles(s), y))


@pytest.mark.slow
def test_flat_rates_are_called_flat_at_the_stated_rate() -> None:
    """False alarms of 5 %; 60 test sets have 9 or more in fewer than one of 500 cases."""
    tally = simulate(("flat", 500), 60, 200, (7,))
    assert max(tally.called.values()) <= 8
    for name in HELD:
        assert tally.held[name] >= 0.87 * tally.checks, name
