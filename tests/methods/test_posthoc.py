"""Equalised-odds post-processing against fairlearn, and its randomness."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from fairlearn.postprocessing import ThresholdOptimizer
from sklearn.base import BaseEstimator, ClassifierMixin

from shasam.methods.posthoc import PostHoc
from shasam.metrics.odds import fit_binary, fit_classes, uniform_by_id
from shasam.models import ResNet18
from shasam.types import Predictions


class Scores(ClassifierMixin, BaseEstimator):
    """A 'classifier' whose only feature is the score."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> Scores:
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return np.stack([1 - x[:, 0], x[:, 0]], axis=1)


def scored(seed: int, groups: int = 2, classes: int = 2, n: int = 600) -> Predictions:
    r = np.random.default_rng(seed)
    s, t = r.integers(groups, size=n), r.integers(classes, size=n)
    logits = r.normal(size=(n, classes)) + np.eye(classes)[t] * (0.7 + 0.8 * s[:, None])
    logits[:, -1] += 0.6 * s
    scores = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    ids = np.array([f"{seed}-{i}" for i in range(n)])
    return Predictions(ids, t, scores.argmax(1), s, scores.astype(np.float32))


def fitted(p: Predictions, groups: int, classes: int = 2, seed: int = 0) -> PostHoc:
    method = PostHoc(PostHoc.Config(seed=seed), ResNet18("imagenet", 2, 4), classes, groups)
    method.after_training(p)
    return method


def positive_rate(p: Predictions, rules: np.ndarray) -> np.ndarray:
    """P(1) of each row under the rules, by hand."""
    out = []
    for score, s in zip(p.scores[:, 1].astype(np.float64), p.sensitive, strict=True):
        ignore, constant, p0, threshold0, p1, threshold1 = rules[s]
        mixed = p0 * float(score > threshold0) + p1 * float(score > threshold1)
        out.append(ignore * constant + (1 - ignore) * mixed)
    return np.array(out)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("groups", [2, 3])
def test_expected_decisions_equal_fairlearns(seed: int, groups: int) -> None:
    p = scored(seed, groups)
    optimizer = ThresholdOptimizer(
        estimator=Scores().fit(p.scores, p.target),
        constraints="equalized_odds",
        prefit=True,
        predict_method="predict_proba",
    )
    x = p.scores[:, 1:].astype(np.float64)
    optimizer.fit(x, p.target, sensitive_features=p.sensitive)
    theirs = optimizer._pmf_predict(x, sensitive_features=p.sensitive)[:, 1]
    rules, ready = fit_binary(p.scores, p.target, p.sensitive, groups, grid=1000)
    ours = positive_rate(p, rules)
    assert ready.all()
    for s in range(groups):
        for t in (0, 1):
            cell = (p.sensitive == s) & (p.target == t)
            assert ours[cell].mean() == pytest.approx(theirs[cell].mean(), abs=1e-9)


@pytest.mark.parametrize("groups", [2, 4])
def test_expected_error_rates_are_equal_over_groups(groups: int) -> None:
    p = scored(1, groups)
    rules, _ = fit_binary(p.scores, p.target, p.sensitive, groups, grid=1000)
    rate = positive_rate(p, rules)
    for t in (0, 1):
        cells = [rate[(p.sensitive == s) & (p.target == t)].mean() for s in range(groups)]
        assert np.ptp(cells) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("classes", "groups"), [(3, 2), (4, 3)])
def test_every_group_gets_one_expected_confusion(classes: int, groups: int) -> None:
    p = scored(2, groups, classes, 3000)
    swaps, ready = fit_classes(p.scores, p.target, p.sensitive, groups)
    assert ready.all() and (swaps >= 0).all() and np.allclose(swaps.sum(2), 1)
    confusions = []
    for s in range(groups):
        rows = [
            np.mean(
                [swaps[s, old] for old in p.prediction[(p.sensitive == s) & (p.target == t)]],
                axis=0,
            )
            for t in range(classes)
        ]
        confusions.append(rows)
    assert np.allclose(confusions, confusions[0], atol=1e-9)
    assert np.trace(confusions[0]) > 1.05  # better than not looking at the image


def rows_of(p: Predictions, rows: np.ndarray) -> Predictions:
    """Some rows of predictions, in the order asked for."""
    columns = ("ids", "target", "prediction", "sensitive", "scores")
    return replace(p, **{name: getattr(p, name)[rows] for name in columns})


def test_decisions_follow_their_probabilities_and_the_id_alone() -> None:
    p = scored(3, n=4000)
    method = fitted(p, 2)
    decided = method.decide(p).prediction
    expected = positive_rate(p, method.rule_G6.numpy())
    for s in (0, 1):
        for t in (0, 1):
            cell = (p.sensitive == s) & (p.target == t)
            assert decided[cell].mean() == pytest.approx(expected[cell].mean(), abs=0.03)
    order = np.random.default_rng(0).permutation(len(p.ids))
    shuffled = rows_of(p, order)
    assert (method.decide(shuffled).prediction == decided[order]).all()
    assert (fitted(p, 2, seed=1).decide(p).prediction != decided).any()


def test_gap_closes_on_the_rows_it_was_fitted_on() -> None:
    p = scored(4, n=4000)
    after = fitted(p, 2).decide(p)

    def eo(q: Predictions) -> float:
        gaps = []
        for t in (0, 1):
            a, b = (
                (q.prediction == t)[(q.target == t) & (q.sensitive == s)].mean() for s in (0, 1)
            )
            gaps.append(abs(a - b))
        return float(np.mean(gaps))

    assert eo(p) > 0.1 and eo(after) < 0.04


def test_a_group_without_a_class_keeps_the_arg_max_with_a_warning() -> None:
    p = scored(5)
    keep = ~((p.sensitive == 1) & (p.target == 1))
    part = rows_of(p, keep)
    with pytest.warns(UserWarning, match=r"groups \[1\] lack a class"):
        method = fitted(part, 2)
    decided = method.decide(p).prediction
    assert (decided[p.sensitive == 1] == p.prediction[p.sensitive == 1]).all()


def test_before_fitting_decisions_are_the_arg_max() -> None:
    p = scored(6)
    method = PostHoc(PostHoc.Config(), ResNet18("imagenet", 2, 4), 2, 2)
    assert (method.decide(p).prediction == p.prediction).all()
    assert not bool(torch.any(method.fitted_G))


def test_uniform_numbers_are_uniform_and_keyed() -> None:
    ids = np.array([f"image {i}" for i in range(4000)])
    u = uniform_by_id(ids, 0)
    assert ((u >= 0) & (u < 1)).all()
    assert np.abs(np.histogram(u, 10, (0, 1))[0] - 400).max() < 80
    assert (u == uniform_by_id(ids, 0)).all() and (u != uniform_by_id(ids, 1)).any()


def _scored(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    t, s = rng.integers(0, 2, n), rng.integers(0, 2, n)
    logit = rng.normal(0, 1, n) + np.where(s == 0, 2.0, 0.9) * (2 * t - 1) + 0.8 * s
    q = 1 / (1 + np.exp(-logit))
    return np.stack([1 - q, q], 1), t, s


def _expected_rates(rule: np.ndarray, scores: np.ndarray, t: np.ndarray, s: np.ndarray):
    """(accuracy, largest difference of either rate between groups), over the coin."""
    r = rule[s]
    share = r[:, 2] * (scores[:, 1] > r[:, 3]) + r[:, 4] * (scores[:, 1] > r[:, 5])
    positive = r[:, 0] * r[:, 1] + (1 - r[:, 0]) * share
    rate = [[positive[(t == c) & (s == g)].mean() for g in (0, 1)] for c in (0, 1)]
    accuracy = np.where(t == 1, positive, 1 - positive).mean()
    return accuracy, max(abs(a - b) for a, b in rate)


def test_a_tolerance_is_kept_and_buys_accuracy() -> None:
    scores, t, s = _scored(4000, 0)
    found = []
    for tolerance in (0.0, 0.05, 0.2, 0.9):
        rule, _ = fit_binary(scores, t, s, 2, grid=1000, tolerance=tolerance)
        accuracy, gap = _expected_rates(rule, scores, t, s)
        assert gap <= tolerance + 0.005
        found.append(accuracy)
    assert found == sorted(found) and found[2] > found[0] + 0.01
    best = sum(max(np.mean((scores[s == g, 1] > c) == t[s == g]) for c in np.linspace(0, 1, 400))
               * (s == g).mean() for g in (0, 1))  # fmt: skip
    assert found[-1] == pytest.approx(best, abs=0.01)  # no constraint left


def test_scales_are_the_best_of_the_grid_for_two_classes() -> None:
    from shasam.methods.baselines import fit_scales

    scores, t, s = _scored(600, 1)
    log_q = np.log(scores)

    def lowest(b: float) -> float:
        right = (log_q + np.array([0.0, b])).argmax(1) == t
        return min(right[(t == c) & (s == g)].mean() for c in (0, 1) for g in (0, 1))

    b = fit_scales(log_q, t, t * 2 + s, worst=1.0)
    assert b[0] == 0 and lowest(b[1]) == max(lowest(x) for x in np.linspace(-4, 4, 81))
    plain = fit_scales(log_q, t, t * 2 + s, worst=0.0)
    accuracy = [np.mean((log_q + np.array([0.0, x])).argmax(1) == t) for x in (0.0, plain[1], b[1])]
    assert accuracy[1] >= max(accuracy)


def test_dfr_keeps_the_rows_of_its_last_layer_from_the_features() -> None:
    import torch

    from shasam.methods.base import Stage
    from shasam.methods.baselines import DFR
    from shasam.models import ResNet18
    from shasam.sampling import TrainingRows

    n = 400
    data = TrainingRows(torch.arange(n) % 2, torch.arange(n) // 2 % 2, torch.arange(n), 16, 0)
    method = DFR(DFR.Config(), ResNet18("cifar", 4, None), 2, 2)
    seen = {}
    for stage in method.stages():
        plan = method.batch_plan(Stage(stage.name, stage.groups, sampling=stage.sampling), data)
        drawn = [plan.draw(0, step, lambda rows: rows).rows_B for step in range(60)]
        seen[stage.name] = set(torch.cat(drawn).tolist())
    assert seen["learn"].isdisjoint(seen["classify"])
    assert len(seen["classify"]) == 80 and len(seen["learn"]) > 300


def test_a_tolerance_of_many_classes_is_kept_exactly_on_the_rows_it_was_fitted_on() -> None:
    rng = np.random.default_rng(4)
    t, s = rng.integers(0, 3, 3000), rng.integers(0, 2, 3000)
    scores = rng.dirichlet(np.ones(3), 3000) + (0.6 + 0.5 * s)[:, None] * np.eye(3)[t]
    scores /= scores.sum(1, keepdims=True)

    def widest(swaps: np.ndarray) -> float:
        confusions = [
            np.stack([swaps[g, scores[(s == g) & (t == c)].argmax(1)].mean(0) for c in range(3)])
            for g in (0, 1)
        ]
        return float(np.abs(confusions[0] - confusions[1]).max())

    plain = widest(np.tile(np.eye(3), (2, 1, 1)))
    for tolerance in (0.0, 0.03, plain / 2):
        swaps, _ = fit_classes(scores, t, s, 2, tolerance=tolerance)
        assert widest(swaps) == pytest.approx(tolerance, abs=1e-9)
    swaps, _ = fit_classes(scores, t, s, 2, tolerance=1.0)
    assert np.allclose(swaps, np.eye(3))
