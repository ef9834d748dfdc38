"""Rows without a group in training: what each method makes of them, from the formulas."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.methods.oracles import ce

from shasam.losses import distillation_mmd
from shasam.methods.lisa import partners
from shasam.registry import lookup
from shasam.sampling import TrainingRows
from shasam.testing.bench import Lab
from shasam.training.stage import PartlyKnownPlan, plan_of
from shasam.types import Batch


def lab(name: str, **options: object) -> Lab:
    method = lookup("method", name)
    return Lab(method, method.Config(**options), None, 2, 2, "vectors")


def learning(own: Lab, size: int = 16) -> tuple:
    """A method, its main stage, and a batch in which every other row has no group."""
    method = own.build()
    stage = method.stages()[-1]
    rows = torch.arange(size)
    return method.eval(), stage, own.partly_known().batch(method, stage, rows)


def test_groupdro_adds_their_cross_entropy_by_their_share():
    method, stage, b = learning(lab("groupdro", step=0.5))
    scores = method.classifier(method.encoder(b.images))
    q, losses = [0.25] * 4, []
    for t in range(2):
        for s in range(2):
            cell = (b.t_B == t) & (b.s_B == s)
            losses.append(ce(scores[cell], b.t_B[cell]) if cell.any() else torch.zeros(()))
    q = [w * math.exp(0.5 * float(v.detach())) for w, v in zip(q, losses, strict=True)]
    worst = sum(w / sum(q) * v for w, v in zip(q, losses, strict=True))
    unknown = b.s_B < 0
    share = int(unknown.sum()) / len(unknown)
    expected = (1 - share) * worst + share * ce(scores[unknown], b.t_B[unknown])
    (found,) = [losses.total for _, losses in method.steps(b, stage.name)]
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("name", ["grl", "lnl"])
def test_an_adversary_is_asked_for_known_groups_alone(name: str):
    method, stage, b = learning(lab(name))
    known = b.s_B >= 0
    some = replace(b, images=b.images[known], t_B=b.t_B[known], s_B=b.s_B[known])
    parts = [dict(losses.parts) for _, losses in method.steps(b, stage.name)]
    own = [dict(losses.parts) for _, losses in method.steps(some, stage.name)]
    assert float(parts[-1]["group"]) == pytest.approx(float(own[-1]["group"]), rel=1e-5)
    target = ce(method.classifier(method.encoder(b.images)), b.t_B)
    assert float(parts[0]["target"]) == pytest.approx(float(target), rel=1e-5)


def test_distillation_compares_the_rows_that_have_a_group():
    method, stage, b = learning(lab("mfd"))
    known = b.s_B >= 0
    encoder = method.teacher["encoder"]
    (_, student), (_, teacher) = (method._pass(e, b.images) for e in (method.encoder, encoder))
    gap = distillation_mmd(student[known], teacher[known], b.t_B[known], b.s_B[known])
    (found,) = [losses for _, losses in method.steps(b, stage.name)]
    assert float(found.parts["mmd"]) == pytest.approx(float(gap), rel=1e-5)
    target = ce(method.classifier(method.encoder(b.images)), b.t_B)
    assert float(found.parts["target"]) == pytest.approx(float(target), rel=1e-5)


@pytest.mark.parametrize("within", [True, False])
def test_a_row_without_a_group_is_mixed_with_none(within: bool):
    t = torch.tensor([0, 0, 1, 1, 0, 1])
    s = torch.tensor([0, 1, 0, 1, -1, -1])
    found = partners(t, s, within)
    assert found[4:].tolist() == [4, 5]
    assert found[:4].tolist() == ([1, 0, 3, 2] if within else [2, 3, 0, 1])


def test_the_rows_of_a_new_last_layer_have_a_group():
    own = lab("dfr")
    method = own.build()
    learn, classify = method.stages()
    s_N = own.partly_known().s_N
    data = TrainingRows(own.t_N, s_N, torch.arange(len(s_N)), 16, seed=5)
    held = method.held_out(data)
    assert bool((s_N[held] >= 0).all()) and int(held.sum()) > 0
    of_known = method.held_out(replace(data, rows=data.rows[s_N >= 0]))
    assert data.rows[held].tolist() == data.rows[s_N >= 0][of_known].tolist()
    drawn = plan_of(method, classify, data).draw(0, 0, lambda rows: rows).rows_B
    assert set(drawn.tolist()) <= set(data.rows[held].tolist())
    seen = {
        row
        for step in range(8)
        for row in plan_of(method, learn, data).draw(step, step, lambda rows: rows).rows_B.tolist()
    }
    assert seen & set(data.rows[s_N < 0].tolist())


@pytest.mark.parametrize("name", ["fscl", "fscl+"])
def test_fscl_learns_from_known_groups_and_classifies_all_rows(name: str):
    own = lab(name)
    method, s_N = own.build(), own.partly_known().s_N
    learn, classify = method.stages()
    data = TrainingRows(own.t_N, s_N, torch.arange(len(s_N)), 16, seed=5)
    assert bool((s_N[plan_of(method, learn, data).draw(0, 0, None).rows_B] >= 0).all())
    method.begin_stage(classify, data)
    plan = plan_of(method, classify, data)
    rows = torch.cat([plan.draw(0, step, None).rows_B for step in range(plan.steps_per_epoch)])
    assert len(rows.unique()) == len(rows) > 0.7 * len(s_N) and bool((s_N[rows] < 0).any())
    few = torch.where(torch.arange(len(s_N)) < 10, own.s_N, -1)  # fewer than a batch
    data = replace(data, s_N=few)
    assert sorted(plan_of(method, learn, data).draw(0, 0, None).rows_B.tolist()) == list(range(10))


@pytest.mark.parametrize("name", ["balanced", "groupdro"])
def test_few_groups_do_not_shorten_training(name: str):
    t_N = torch.arange(1000) % 2
    method = lab(name).build()
    (stage,) = method.stages()
    lengths = {}
    for known in (1000, 500, 100, 50):
        s_N = torch.where(torch.arange(1000) < known, torch.arange(1000) // 2 % 2, -1)
        plan = plan_of(method, stage, TrainingRows(t_N, s_N, torch.arange(1000), 20, seed=0))
        lengths[known] = plan.steps_of(2)
        assert plan.epoch_of(lengths[known] - 1) == 1 and plan.epoch_of(lengths[known]) == 2
        if known < 1000:
            assert isinstance(plan, PartlyKnownPlan)
            s_B = s_N[plan.draw(0, 0, None).rows_B]
            assert int((s_B >= 0).sum()) == 10
    assert set(lengths.values()) == {100}


def test_a_batch_reads_no_group_where_none_is_known_to_scaling():
    method, stage, b = learning(lab("scaling"))
    (found,) = [losses.total for _, losses in method.steps(b, stage.name)]
    scores = method.classifier(method.encoder(b.images))
    assert float(found) == pytest.approx(float(F.cross_entropy(scores, b.t_B)), rel=1e-6)
    assert isinstance(b, Batch) and bool((b.s_B < 0).any())
