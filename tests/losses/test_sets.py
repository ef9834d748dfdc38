"""FLCMI and LogDetCMI as objectives: equal to the set functions, and what collapses them."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from shasam.errors import InputError
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
@pytest.mark.parametrize("smooth", ["lse", "none", "exact", "linear"])
def test_gradients_are_those_of_the_formula(smooth, represented):
    z, a, p, n = triple(k=3, d=6)
    z.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: flcmi(x, a, p, n, smooth=smooth, represented=represented, conditional_gain=0.3),
        z,
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


# -- the exact form: soft facility location ------------------------------------------------------


def soft_facility_location(z, rows, members, tau, weights=None):
    """f(X) = Σ_i τ log Σ_{j∈X} w_j exp(S_ij/τ), from its definition."""
    w = torch.ones(len(z), dtype=z.dtype) if weights is None else weights
    total = 0.0
    for i in rows.tolist():
        total += tau * math.log(
            sum(float(w[j]) * math.exp(float(z[i] @ z[j]) / tau) for j in members.tolist())
        )
    return total


def rows_of(represented, a, p, n):
    return {"anchors": a, "target": torch.cat([a, p]), "batch": torch.cat([a, p, n])}[represented]


@pytest.mark.parametrize("represented", ["anchors", "target", "batch"])
@pytest.mark.parametrize("tau", [0.1, 0.7, 2.0])
def test_exact_is_the_conditional_mutual_information_of_soft_facility_location(represented, tau):
    for seed in range(6):
        z, a, p, n = triple(k=4, seed=seed)
        a, n = a[: 2 + seed % 3], n[: 1 + seed % 4]  # the sets need not be of one size
        rows = rows_of(represented, a, p, n)

        def f(*sets, rows=rows, z=z):
            return soft_facility_location(z, rows, torch.cat(sets), tau)

        wanted = f(a, p) + f(n, p) - f(a, n, p) - f(p)
        terms = flcmi_terms(z, a, p, n, smooth="exact", temperature=tau, represented=represented)
        assert float(terms.sum()) == pytest.approx(wanted, abs=1e-9)
        with_gain = flcmi_terms(
            z, a, p, n, smooth="exact", temperature=tau, represented=represented,
            conditional_gain=0.5,
        )  # fmt: skip
        gain = f(a, p) - f(p)  # H_f(A | P)
        assert float(with_gain.sum()) == pytest.approx(wanted + 0.5 * gain, abs=1e-9)


def test_soft_facility_location_is_monotone_and_submodular_on_non_empty_sets():
    z, *_ = triple(k=4)
    rows = torch.arange(len(z))

    def f(members):
        return soft_facility_location(z, rows, torch.tensor(members), 0.5)

    g = torch.Generator().manual_seed(0)
    for _ in range(60):
        order = torch.randperm(len(z), generator=g).tolist()
        small, large, v = order[:2], order[:6], order[7]
        assert f(large) > f(small)
        assert f([*small, v]) - f(small) >= f([*large, v]) - f(large) - 1e-12


def test_exact_with_weights_is_that_of_soft_membership():
    z, a, p, n = triple(k=4)
    w = torch.rand(len(z), dtype=z.dtype, generator=torch.Generator().manual_seed(1)) + 0.1
    tau = 0.7

    def f(*sets):
        return soft_facility_location(z, a, torch.cat(sets), tau, w)

    terms = flcmi_terms(z, a, p, n, smooth="exact", temperature=tau, weights=(w[a], w[p], w[n]))
    wanted = f(a, p) + f(n, p) - f(a, n, p) - f(p)
    assert float(terms.sum()) == pytest.approx(wanted, abs=1e-9)
    mean = flcmi(z, a, p, n, smooth="exact", temperature=tau, weights=(w[a], w[p], w[n]))
    assert float(mean) == pytest.approx(float((terms * w[a]).sum() / w[a].sum()), abs=1e-12)
    # a row of weight 0 is not there, and a row twice is a row of weight 2
    ones = [torch.ones(len(x), dtype=z.dtype) for x in (a, p, n)]
    without = flcmi(z, a, p, n[:-1], smooth="exact")
    gone = ones[2].clone()
    gone[-1] = 0
    assert float(flcmi(z, a, p, n, smooth="exact", weights=(ones[0], ones[1], gone))) == (
        pytest.approx(float(without), abs=1e-12)
    )
    plain = flcmi(z, a, p, n, smooth="lse", weights=tuple(ones))
    assert float(plain) == pytest.approx(float(flcmi(z, a, p, n, smooth="lse")), abs=1e-12)


@pytest.mark.parametrize("represented", ["anchors", "target", "batch"])
def test_exact_tends_to_the_printed_form_as_the_temperature_falls(represented):
    for seed in range(5):
        z, a, p, n = triple(seed=seed)
        hard = flcmi_terms(z, a, p, n, smooth="none", represented=represented)
        soft = flcmi_terms(z, a, p, n, smooth="exact", temperature=1e-4, represented=represented)
        assert torch.allclose(soft, hard, atol=1e-3)


def test_lse_is_an_upper_bound_of_exact_on_anchors_and_is_reached_by_cohesive_ones():
    for seed in range(10):
        z, a, p, n = triple(seed=seed)
        exact = flcmi_terms(z, a, p, n, smooth="exact", temperature=0.7) / 0.7
        assert bool((exact < flcmi_terms(z, a, p, n, smooth="lse")).all())
    z = F.normalize(torch.tensor([[1.0, 0], [1, 1e-6], [-1, 1], [-1, 2]]).double(), dim=1)
    sets = (torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3]))
    near = flcmi_terms(z, *sets, smooth="exact", temperature=0.05) / 0.05
    assert torch.allclose(near, flcmi_terms(z, *sets, temperature=0.05), rtol=1e-6)


@pytest.mark.parametrize("tau", [0.1, 0.7])
def test_all_equal_embeddings_cost_tau_log_four_thirds_in_the_exact_form(tau):
    z = F.normalize(torch.ones(12, 8, dtype=torch.float64), dim=1)
    sets = torch.arange(12).split(4)
    for represented in ("anchors", "batch"):
        value = flcmi(z, *sets, smooth="exact", temperature=tau, represented=represented)
        assert float(value) == pytest.approx(tau * math.log(4 / 3), abs=1e-12)


@pytest.mark.parametrize("smooth", ["exact", "linear"])
@pytest.mark.parametrize("sizes", [(2, 12, 2), (3, 1, 7)])
def test_the_level_of_the_other_forms_is_their_term_where_all_is_equal(smooth, sizes):
    sets = torch.arange(sum(sizes)).split(list(sizes))
    form = {"smooth": smooth, "temperature": 0.3, "conditional_gain": 0.4}
    equal = flcmi_terms(torch.ones(sum(sizes), 1).double(), *sets, **form)
    # the linear form also has the similarity itself, which is the same for P and N
    assert torch.allclose(equal, torch.full_like(equal, level_term(*sizes, **form)), atol=1e-12)


def test_the_linear_form_does_not_saturate():
    """A row that is far on the right side keeps its gradient; under lse it loses it."""
    z = torch.tensor([[1.0, 0.0], [0.99, 0.14], [-1.0, 0.0]], dtype=torch.float64)
    z = F.normalize(z, dim=1).requires_grad_()
    sets = tuple(torch.tensor([i]) for i in range(3))
    sizes = {}
    for smooth in ("lse", "exact", "linear"):
        loss = flcmi(z, *sets, smooth=smooth, temperature=0.1)
        scale = 1.0 if smooth != "lse" else 0.1  # in units of the similarity
        sizes[smooth] = float(torch.autograd.grad(scale * loss, z)[0].norm())
    assert sizes["linear"] > 1.0 and sizes["lse"] < 1e-6 and sizes["exact"] < 1e-6


def test_forms_that_there_are_not_are_refused():
    z, a, p, n = triple()
    for call in (flcmi, flcmi_terms):
        with pytest.raises(InputError, match="there is no smooth='exat'"):
            call(z, a, p, n, smooth="exat")
    with pytest.raises(InputError, match="there is no smooth='soft'"):
        FLCMILoss(smooth="soft")
    with pytest.raises(InputError, match="measure of sets"):
        flcmi(z, a, p, n, smooth="exact", positive_form="each")
    with pytest.raises(InputError, match="weights need"):
        flcmi(z, a, p, n, smooth="none", weights=(z[a, 0], z[p, 0], z[n, 0]))


def aligned(represented, seed, steps=300):
    """Mean cosines A to P, A to N and N to P of free embeddings that the exact form has trained."""
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(18, 4, generator=g, dtype=torch.float64).requires_grad_()
    sets = torch.arange(18).split(6)
    optimizer = torch.optim.Adam([z], lr=0.05)
    for _ in range(steps):
        loss = flcmi(F.normalize(z, dim=1), *sets, smooth="exact", temperature=0.3,
                     represented=represented)  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    unit = F.normalize(z.detach(), dim=1)
    a, p, n = (unit[part] for part in sets)
    return float((a @ p.T).mean()), float((a @ n.T).mean()), float((n @ p.T).mean())


def test_only_rows_of_the_anchors_align_the_positives_with_the_anchors():
    """Over all rows the objective is symmetric in A and N, and P goes with neither of them."""
    for seed in range(3):
        to_p, to_n, _ = aligned("anchors", seed)
        assert to_p > 0.3 > 0 > to_n
        to_p, to_n, of_n = aligned("batch", seed)
        assert to_p < 0.1 and abs(to_p - of_n) < 0.1 and to_n < -0.9
