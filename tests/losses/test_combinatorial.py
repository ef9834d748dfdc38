"""FLCMI and LogDetCMI as objectives: equal to the set functions, and what collapses them."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from shasam.losses.sets import FLCMILoss, LogDetCMILoss, flcmi, flcmi_terms, level_term, logdetcmi
from shasam.submodular import FLCMI, FacilityLocation, LogDet, conditional_mutual_information


def triple(k=5, d=12, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    z = F.normalize(torch.randn(3 * k, d, generator=g, dtype=dtype), dim=1)
    return z, *torch.arange(3 * k).split(k)


def test_literal_flcmi_is_the_set_function_over_the_batch():
    for seed in range(20):
        z, a, p, n = triple(seed=seed)
        loss = flcmi(z, a, p, n, smooth="none", represented="batch") * len(z)
        f = FacilityLocation(z @ z.T)
        for form in ("auto", "definition"):
            value = conditional_mutual_information(f, n, p, form=form)(a)
            assert float(loss) == pytest.approx(float(value), abs=1e-9)


@pytest.mark.parametrize("represented", ["anchors", "target"])
def test_represented_rows_are_those_of_the_set_function(represented):
    z, a, p, n = triple()
    rows = a if represented == "anchors" else torch.cat([a, p])
    loss = flcmi(z, a, p, n, smooth="none", represented=represented) * len(rows)
    value = FLCMI(z @ z.T, query=n, private=p, represented=rows)(a)
    assert float(loss) == pytest.approx(float(value), abs=1e-9)


def test_logdetcmi_is_the_set_function():
    for seed in range(10):
        z, a, p, n = triple(seed=seed)
        f = LogDet(z @ z.T, ridge=0.5)
        value = conditional_mutual_information(f, n, p)(a)
        assert float(logdetcmi(z, a, p, n) * len(z)) == pytest.approx(float(value), abs=1e-9)


def test_smooth_anchor_rows_read_as_a_naive_loop():
    z, a, p, n = triple(k=3)
    tau, total = 0.7, 0.0
    for i in a.tolist():
        near_p = sum(math.exp(float(z[i] @ z[j]) / tau) for j in p.tolist())
        near_n = sum(math.exp(float(z[i] @ z[j]) / tau) for j in n.tolist())
        total -= math.log(near_p / (near_p + near_n))
    assert float(flcmi(z, a, p, n)) == pytest.approx(total / 3, abs=1e-12)
    one_by_one = 0.0
    for i in a.tolist():
        near_n = sum(math.exp(float(z[i] @ z[j]) / tau) for j in n.tolist())
        for j in p.tolist():
            e = math.exp(float(z[i] @ z[j]) / tau)
            one_by_one -= math.log(e / (e + near_n)) / 9
    assert float(flcmi(z, a, p, n, positive_form="each")) == pytest.approx(one_by_one, abs=1e-12)


def test_smooth_tends_to_the_hard_form_as_the_temperature_falls():
    z, a, p, n = triple()
    hard = float(flcmi(z, a, p, n, smooth="none", represented="batch"))
    soft = float(flcmi(z, a, p, n, temperature=1e-4, represented="batch")) * 1e-4
    assert soft == pytest.approx(hard, abs=1e-3)


def test_all_equal_embeddings_cost_nothing_literally_and_log_2_when_mended():
    z = F.normalize(torch.ones(12, 8, dtype=torch.float64), dim=1)
    sets = torch.arange(12).split(4)
    assert float(flcmi(z, *sets, smooth="none", represented="batch")) == 0.0
    assert float(flcmi(z, *sets)) == pytest.approx(math.log(2))
    collapsed = float(logdetcmi(z, *sets, ridge=1e-9) * 12)
    assert collapsed == pytest.approx(math.log(4 / 3), abs=1e-5)


def test_the_paper_objective_is_symmetric_in_anchors_and_negatives_and_the_mended_is_not():
    z, a, p, n = triple()
    literal = {"smooth": "none", "represented": "batch"}
    assert float(flcmi(z, a, p, n, **literal)) == pytest.approx(float(flcmi(z, n, p, a, **literal)))
    assert float(logdetcmi(z, a, p, n)) == pytest.approx(float(logdetcmi(z, n, p, a)))
    assert abs(float(flcmi(z, a, p, n)) - float(flcmi(z, n, p, a))) > 1e-3
    pulled, swapped = logdetcmi(z, a, p, n, attraction=1.0), logdetcmi(z, n, p, a, attraction=1.0)
    assert abs(float(pulled) - float(swapped)) > 1e-4


def test_rows_of_the_positives_never_count_literally():
    z, a, p, n = triple()
    terms = flcmi_terms(z, a, p, n, smooth="none", represented="batch")
    assert float(terms[len(a) : len(a) + len(p)].abs().max()) == 0.0


@pytest.mark.parametrize("represented", ["anchors", "target", "batch"])
@pytest.mark.parametrize("smooth", ["lse", "none"])
def test_gradients_are_those_of_the_formula(smooth, represented):
    z, a, p, n = triple(k=3, d=6)
    z.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: flcmi(x, a, p, n, smooth=smooth, represented=represented), z
    )
    assert torch.autograd.gradcheck(lambda x: logdetcmi(x, a, p, n, attraction=0.5), z)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_no_number_is_lost_to_16_bits_duplicates_or_more_rows_than_dimensions(dtype):
    z = F.normalize(torch.randn(144, 64, generator=torch.Generator().manual_seed(0)), dim=1)
    z[10:20] = z[10]
    z = z.to(dtype).requires_grad_()
    sets = torch.arange(144).split(48)
    for loss in (FLCMILoss(), FLCMILoss("none", represented="batch"), LogDetCMILoss(0.5, 1.0)):
        value = loss(z, *sets)
        (gradient,) = torch.autograd.grad(value, z)
        assert value.dtype == torch.float32
        assert bool(torch.isfinite(value)) and bool(torch.isfinite(gradient).all())


def test_autocast_does_not_change_the_losses():
    z, a, p, n = triple(dtype=torch.float32)
    plain = [flcmi(z, a, p, n), logdetcmi(z, a, p, n)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = [flcmi(z, a, p, n), logdetcmi(z, a, p, n)]
    assert [float(x) for x in plain] == [float(x) for x in cast]


@pytest.mark.parametrize("represented", ["anchors", "target", "batch"])
@pytest.mark.parametrize("positive_form", ["set", "each"])
@pytest.mark.parametrize("sizes", [(2, 12, 2), (3, 1, 7), (4, 4, 4)])
def test_the_meter_of_the_wrong_side_does_not_depend_on_the_sizes_of_the_sets(
    represented, positive_form, sizes
):
    sets = torch.arange(sum(sizes)).split(list(sizes))
    form = {"represented": represented, "positive_form": positive_form}
    level = level_term(*sizes, **form)
    equal = flcmi_terms(torch.ones(sum(sizes), 1), *sets, **form)
    assert torch.allclose(equal, torch.full_like(equal, level), atol=1e-5)
    if represented != "anchors":
        return
    near, far = torch.tensor([1.0, 0.0]), torch.tensor([0.9, 0.1])
    for of_positives, of_negatives, wrong in ((far, near, True), (near, far, False)):
        z = near.repeat(sum(sizes), 1)
        z[sets[1]], z[sets[2]] = of_positives, of_negatives
        assert bool(((flcmi_terms(z, *sets, **form) > level) == wrong).all())
