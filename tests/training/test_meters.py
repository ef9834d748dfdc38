from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from shasam.spec.fields import StageSpec, TrainSpec
from shasam.spec.layers import full_keys
from shasam.training.inference import effective_rank, mean_cosine
from shasam.training.stage import learning_rate


def test_mean_cosine_equals_the_loop_over_pairs():
    z = torch.randn(9, 5, dtype=torch.float64)
    pairs = itertools.combinations(range(9), 2)
    expected = sum(float(F.cosine_similarity(z[a], z[b], dim=0)) for a, b in pairs) / 36
    assert mean_cosine(z) == pytest.approx(expected, abs=1e-12)


def test_effective_rank_counts_orthogonal_directions_and_sees_collapse():
    assert effective_rank(torch.eye(6)) == pytest.approx(6)
    assert effective_rank(torch.ones(6, 4)) == pytest.approx(1)
    assert mean_cosine(torch.ones(6, 4)) == pytest.approx(1)


def test_the_rate_grows_linearly_then_falls_along_a_cosine():
    spec = StageSpec(steps=100, lr=1.0, warmup=0.1, final=0.01)
    rates = [learning_rate(spec, step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * (n + 1) for n in range(10)])
    assert rates[10] == pytest.approx(1.0)
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    assert learning_rate(spec, 100, 100) == pytest.approx(0.01)


def test_the_rate_of_the_schedule_step_drops_after_each_share_of_the_stage():
    spec = StageSpec(
        epochs=30, lr=1.0, warmup=0, schedule="step", step_every=1 / 6, step_factor=0.5
    )
    rates = [learning_rate(spec, epoch, 30) for epoch in range(30)]
    assert rates == pytest.approx([0.5 ** (epoch // 5) for epoch in range(30)])


def test_short_keys_of_train_belong_to_the_learning_stage():
    layer = full_keys({"train": {"epochs": 3, "lr": 0.5, "learn": {"steps": 7}}})
    spec = TrainSpec.model_validate(layer["train"])
    assert (spec.learn.epochs, spec.learn.steps, spec.learn.lr) == (3, None, 0.5)
    assert spec.stage("teacher") == spec.learn and spec.stage("classify") == spec.classify
