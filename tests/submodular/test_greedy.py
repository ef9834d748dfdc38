"""Greedy maximisation: one answer from every exact optimiser, exactly k picks, lowest ties."""

from __future__ import annotations

import itertools
import math

import naive
import numpy as np
import pytest
import torch
from hard_kernels import NONNEGATIVE, features, gram, kernels
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from shasam.submodular import (
    FL1MI,
    FLCG,
    FLCMI,
    FLQMI,
    GCCG,
    GCMI,
    FacilityLocation,
    GraphCut,
    LogDet,
    LogDetCG,
    LogDetCMI,
    LogDetMI,
    SetFunction,
    maximize,
    mutual_information,
)
from shasam.submodular.greedy import walk

Q, P = [0, 3], [5, 6]
SUBMODULAR = {
    "FacilityLocation": lambda k: FacilityLocation(k),
    "FacilityLocation of some": lambda k: FacilityLocation(k, [1, 2, 4]),
    "GraphCut": lambda k: GraphCut(k, 0.4),
    "GraphCut, not monotone": lambda k: GraphCut(k, 1.5),
    "LogDet": lambda k: LogDet(k, 0.5),
    "FL1MI": lambda k: FL1MI(k, Q, 1.2),
    "FLCG": lambda k: FLCG(k, P, 0.8),
    "FLCMI": lambda k: FLCMI(k, Q, P, 1.2, 0.5),
    "FLQMI": lambda k: FLQMI(k, Q, 0.7),
    "GCMI": lambda k: GCMI(k, Q, 0.4),
    "GCCG": lambda k: GCCG(k, P, 0.4),
    "LogDetCG": lambda k: LogDetCG(k, P, 0.5, 0.9),
}
MONOTONE = {
    "FacilityLocation": lambda k: FacilityLocation(k),
    "GraphCut": lambda k: GraphCut(k, 0.5),
    "LogDet": lambda k: LogDet(k, 1.0),
    "FL1MI": lambda k: FL1MI(k, [8, 9]),
    "FLCG": lambda k: FLCG(k, [8, 9]),
    "FLQMI": lambda k: FLQMI(k, [8, 9]),
    "LogDetCG": lambda k: LogDetCG(k, [8, 9]),
}


def pool_of(f: SetFunction) -> Tensor:
    return torch.arange(f.n) if f.candidates is None else f.candidates


def assert_one_answer(f: SetFunction, k: int) -> None:
    """Compiled and generic, naive and lazy, and stochastic that looks at everything."""
    reference = maximize(f, k, optimizer="naive")
    assert len(reference) == k == len(set(reference.indices.tolist()))
    # ε so small that the sample is everything that is left
    everything = maximize(f, k, optimizer="stochastic", epsilon=1e-300) if k else reference
    answers = {
        "auto": maximize(f, k),
        "lazy": maximize(f, k, optimizer="lazy"),
        "generic naive": walk(f, k, pool_of(f), lazy=False),
        "generic lazy": walk(f, k, pool_of(f), lazy=True),
        "stochastic": everything,
    }
    for name, answer in answers.items():
        assert answer.indices.tolist() == reference.indices.tolist(), name
        np.testing.assert_allclose(
            answer.gains, reference.gains, rtol=1e-6, atol=1e-9, err_msg=name
        )


@pytest.mark.parametrize("kernel", NONNEGATIVE)
@pytest.mark.parametrize("name", SUBMODULAR)
def test_every_exact_optimiser_gives_the_same_picks(name: str, kernel: str) -> None:
    f = SUBMODULAR[name](kernels()[kernel])
    assert_one_answer(f, min(7, len(pool_of(f))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["FacilityLocation", "FLCG", "FL1MI", "FLQMI", "LogDet"])
def test_the_answer_is_one_on_larger_pools_too(name: str, dtype: torch.dtype) -> None:
    z = features(150, 16).to(dtype)
    q = features(5, 16, 1)
    f = {
        "FacilityLocation": lambda: FacilityLocation.from_features(z),
        "FLCG": lambda: FLCG.from_features(z, q),
        "FL1MI": lambda: FL1MI.from_features(z, q),
        "FLQMI": lambda: FLQMI.from_features(z, q),
        "LogDet": lambda: LogDet.from_features(z),
    }[name]()
    assert_one_answer(f, 20)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=9, max_size=14),
    st.integers(0, 5),
    st.sampled_from(["FacilityLocation", "FLCG", "FL1MI", "FLQMI", "FLCMI", "LogDet", "LogDetCG"]),
)
def test_tied_duplicated_and_structured_rows_give_one_answer(
    rows: list[list[int]], k: int, name: str
) -> None:
    # A coarse grid: many equal rows, zero rows and exact ties.
    z = torch.tensor(rows, dtype=torch.float64)
    kernel = torch.exp(-torch.cdist(z, z).square() / 4)
    kernel = ((kernel + kernel.T) / 2 * 2**20).round() / 2**20
    assert_one_answer(SUBMODULAR[name](kernel), k)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(8, 24),
    st.sampled_from([1, 2, 5]),
    st.sampled_from(list(SUBMODULAR)),
)
def test_random_rows_give_one_answer(seed: int, n: int, d: int, name: str) -> None:
    assert_one_answer(SUBMODULAR[name]((1 + gram(features(n, d, seed))) / 2), 5 if n > 8 else 4)


@pytest.mark.parametrize("kernel", ["rbf", "duplicates", "blocks", "identity"])
@pytest.mark.parametrize("name", ["FacilityLocation", "GraphCut", "LogDet", "FLQMI", "FLCG"])
def test_picks_are_those_of_a_naive_loop(name: str, kernel: str) -> None:
    k = kernels()[kernel]
    loop = {
        "FacilityLocation": naive.facility_location(k),
        "GraphCut": naive.graph_cut(k, 0.4),
        "LogDet": naive.logdet(k, 0.5),
        "FLQMI": naive.flqmi(k, Q, 0.7),
        "FLCG": naive.conditional_gain(naive.facility_location(k), P),
    }[name]
    f = FLCG(k, P) if name == "FLCG" else SUBMODULAR[name](k)
    picks, gains = naive.greedy(loop, pool_of(f).tolist(), 6)
    chosen = maximize(f, 6)
    assert chosen.indices.tolist() == picks
    np.testing.assert_allclose(chosen.gains, gains, rtol=1e-9, atol=1e-12)


def test_ties_go_to_the_lowest_index() -> None:
    same = torch.ones(9, 9)
    for f in (FacilityLocation(same), GraphCut(same), LogDet(same), FLQMI(same, [8])):
        for optimizer in ("auto", "naive", "lazy"):
            picked = maximize(f, 4, candidates=[7, 2, 5, 1, 6], optimizer=optimizer)
            assert picked.indices.tolist() == [1, 2, 5, 6]


def test_gains_that_differ_by_rounding_only_are_a_tie() -> None:
    k = torch.eye(4, dtype=torch.float64)
    k[3, 3] += 1e-12
    assert maximize(FacilityLocation(k), 1).indices.tolist() == [0]
    k[3, 3] += 1e-6
    assert maximize(FacilityLocation(k), 1).indices.tolist() == [3]


@pytest.mark.parametrize("name", SUBMODULAR)
def test_zero_all_and_candidates_in_any_order(name: str) -> None:
    f = SUBMODULAR[name](kernels()["shifted cosine"])
    pool = pool_of(f).tolist()
    none = maximize(f, 0)
    assert len(none) == 0 and none.gains.shape == (0,)
    assert sorted(maximize(f, len(pool)).indices.tolist()) == pool
    some = pool[:6]
    turned = maximize(f, 3, candidates=some[::-1])
    assert set(turned.indices.tolist()) <= set(some)
    assert turned.indices.tolist() == maximize(f, 3, candidates=some).indices.tolist()


def test_one_element_is_enough() -> None:
    one = torch.full((1, 1), 0.7)
    for f in (FacilityLocation(one), GraphCut(one), LogDet(one)):
        picked = maximize(f, 1)
        assert picked.indices.tolist() == [0]
        assert float(picked.gains[0]) == pytest.approx(float(f([0])))
    assert maximize(FLQMI.from_features([[1.0, 2.0]], [[1.0, 1.0]]), 1).indices.tolist() == [0]


@pytest.mark.parametrize("optimizer", ["naive", "lazy", "stochastic"])
def test_negative_gains_do_not_stop_the_walk(optimizer: str) -> None:
    f = LogDet(kernels()["rbf"], 1e-3)
    picked = maximize(f, 8, optimizer=optimizer)  # type: ignore[arg-type]
    assert len(picked) == 8 and float(picked.gains[-1]) < 0


@pytest.mark.parametrize("name", SUBMODULAR)
def test_gains_add_up_to_the_value_and_never_grow(name: str) -> None:
    f = SUBMODULAR[name](kernels()["shifted cosine"])
    picked = maximize(f, 7)
    assert float(picked.gains.sum()) == pytest.approx(float(f(picked.indices)), rel=1e-9)
    drops = picked.gains[:-1] - picked.gains[1:]
    assert float(drops.min()) >= -1e-9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", MONOTONE)
def test_greedy_reaches_its_share_of_the_optimum(name: str, seed: int) -> None:
    f = MONOTONE[name]((1 + gram(features(10, 3, seed))) / 2)
    assert f.monotone and f.submodular
    for k in (2, 4):
        best = max(float(f(list(a))) for a in itertools.combinations(pool_of(f).tolist(), k))
        for optimizer in ("naive", "lazy"):
            reached = float(maximize(f, k, optimizer=optimizer).gains.sum())
            assert (1 - 1 / math.e) * best - 1e-9 <= reached <= best + 1e-9


def test_lazy_looks_at_less_than_naive() -> None:
    f = FacilityLocation.from_features(features(300, 8))
    assert maximize(f, 20).evaluations < maximize(f, 20, optimizer="naive").evaluations / 2


def test_stochastic_follows_its_generator_and_its_sample_size() -> None:
    f = FacilityLocation.from_features(features(200, 8))

    def run(seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        return maximize(f, 10, optimizer="stochastic", generator=generator).indices.tolist()

    assert run(1) == run(1) != run(2)
    picked = maximize(f, 10, optimizer="stochastic", epsilon=0.1)
    assert picked.evaluations == 10 * math.ceil(200 / 10 * math.log(10))
    assert float(picked.gains.sum()) >= 0.9 * float(maximize(f, 10).gains.sum())


@pytest.mark.parametrize("name", ["LogDetMI", "LogDetCMI"])
def test_auto_is_naive_where_the_function_is_not_submodular(name: str) -> None:
    k = kernels()["rbf"]
    f = LogDetMI(k, Q, 0.1) if name == "LogDetMI" else LogDetCMI(k, Q, P, 0.1)
    picked = maximize(f, 5)
    assert picked.optimizer == "naive" and f.monotone
    loop = naive.logdet(k, 0.1)
    measure = (
        naive.mutual_information(loop, Q)
        if name == "LogDetMI"
        else naive.conditional_mutual_information(loop, Q, P)
    )
    assert picked.indices.tolist() == naive.greedy(measure, pool_of(f).tolist(), 5)[0]


def test_two_different_strengths_make_no_promise_of_monotonicity() -> None:
    k = kernels()["rbf"]
    assert not LogDetCMI(k, Q, P, eta=1.0, nu=0.0).monotone
    assert LogDetCMI(k, Q, P, eta=0.5, nu=0.5).monotone


def test_maximising_leaves_no_gradient_and_no_trace() -> None:
    z = features(12, 4).requires_grad_()
    f = FacilityLocation.from_features(z)
    first = maximize(f, 4)
    assert not first.gains.requires_grad and first.gains.dtype == torch.float64
    assert maximize(f, 4).indices.tolist() == first.indices.tolist()
    f(first.indices).backward()
    assert z.grad is not None


@pytest.mark.parametrize("seed", range(3))
def test_fl_information_saturates_where_flqmi_keeps_finding_hard_elements(seed: int) -> None:
    # Two clusters in 128 dimensions: queries from one, candidates from the other.
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(2, 128, generator=generator, dtype=torch.float64)
    queries = torch.randn(16, 128, generator=generator, dtype=torch.float64) + centre[0]
    pool = torch.randn(400, 128, generator=generator, dtype=torch.float64) + centre[1]
    mined = maximize(FLQMI.from_features(pool, queries), 10)
    saturated = maximize(FL1MI.from_features(pool, queries), 10)
    assert int((saturated.gains <= 1e-9 * saturated.gains[0]).sum()) == 9  # all but the first
    assert bool((mined.gains > 0).all())
    nearest_N = FLQMI.from_features(pool, queries).kernel_NR.amax(dim=1)
    hardness_N = nearest_N.argsort().argsort() / 399  # share of candidates that are farther away
    assert float(hardness_N[mined.indices].mean()) > 0.95
    assert float(hardness_N[saturated.indices].mean()) < 0.7


def test_a_measure_by_definition_is_maximised_like_its_closed_form() -> None:
    f = FacilityLocation(kernels()["rbf"])
    closed = maximize(mutual_information(f, Q, eta=0.8), 5)
    slow = maximize(mutual_information(f, Q, eta=0.8, form="definition"), 5)
    assert closed.indices.tolist() == slow.indices.tolist()


def test_mapped_cosines_are_modular_for_gcmi_even_when_signed() -> None:
    k = kernels()["signed cosine"]
    f = GCMI(k, Q)
    order = k[:, Q].sum(dim=1)
    left = [v for v in range(len(k)) if v not in Q]
    assert maximize(f, 3).indices.tolist() == sorted(left, key=lambda v: -float(order[v]))[:3]
