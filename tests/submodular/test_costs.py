"""Costs and a budget, and picks that go on from given ones."""

from __future__ import annotations

import itertools
import math

import naive
import pytest
import torch
from broken import Coverage
from hard_kernels import features, kernels

from shasam.errors import InputError
from shasam.submodular import (
    FL1MI,
    FLCG,
    FLQMI,
    FacilityLocation,
    GraphCut,
    LogDet,
    LogDetCG,
    LogDetMI,
    conditional_gain,
    maximize,
)

K = kernels()["rbf"]
COSTS = (torch.arange(14) % 4 + 1).double() / 2
MAKERS = {
    "FacilityLocation": lambda: FacilityLocation(K),
    "GraphCut": lambda: GraphCut(K, 0.4),
    "LogDet": lambda: LogDet(K),
    "FL1MI": lambda: FL1MI(K, [0, 3]),
    "FLQMI": lambda: FLQMI(K, [0, 3]),
    "FLCG": lambda: FLCG(K, [5, 6]),
    "LogDetCG": lambda: LogDetCG(K, [5, 6]),
    "LogDetMI": lambda: LogDetMI(K, [0, 3]),
    "somebody else's": lambda: Coverage(14),
}


def pool_of(f) -> list[int]:
    return list(range(f.n)) if f.candidates is None else f.candidates.tolist()


@pytest.mark.parametrize("optimizer", ["auto", "naive"])
@pytest.mark.parametrize("name", MAKERS)
def test_the_budget_is_kept_and_the_picks_are_those_of_a_naive_loop(
    name: str, optimizer: str
) -> None:
    f = MAKERS[name]()
    for budget in (0.5, 2.0, 5.5):
        chosen = maximize(f, costs=COSTS, budget=budget, optimizer=optimizer)  # type: ignore[arg-type]
        assert float(COSTS[chosen.indices].sum()) <= budget
        slow = naive.knapsack(lambda a: float(f(a)), pool_of(f), COSTS.tolist(), budget)
        assert chosen.indices.tolist() == slow
        assert float(chosen.gains.sum()) == pytest.approx(float(f(chosen.indices)), rel=1e-9)


def test_half_of_greedys_share_of_the_optimum_is_reached() -> None:
    for f in (FacilityLocation(K), LogDet(K), Coverage(14)):
        for budget in (1.0, 2.5, 4.0):
            best = max(
                float(f(list(a)))
                for size in range(1, 9)
                for a in itertools.combinations(range(14), size)
                if float(COSTS[list(a)].sum()) <= budget
            )
            reached = float(maximize(f, costs=COSTS, budget=budget).gains.sum())
            assert (1 - 1 / math.e) / 2 * best <= reached <= best + 1e-9


def test_the_walk_by_gain_saves_what_the_ratio_misses() -> None:
    # A cheap element with the better ratio leaves no room for the one that matters.
    f = FacilityLocation(torch.diag(torch.tensor([0.1, 5.0], dtype=torch.float64)))
    assert maximize(f, costs=[0.01, 1.0], budget=1.0).indices.tolist() == [1]


def test_k_limits_the_number_of_picks_within_a_budget() -> None:
    f = FacilityLocation(K)
    assert len(maximize(f, 2, costs=COSTS, budget=100.0)) == 2
    assert len(maximize(f, costs=COSTS, budget=100.0)) == 14


def test_nothing_that_gains_nothing_is_bought() -> None:
    same = FacilityLocation(torch.ones(5, 5))
    assert maximize(same, costs=torch.ones(5), budget=5.0).indices.tolist() == [0]


@pytest.mark.parametrize("name", MAKERS)
def test_picks_go_on_from_the_given_ones(name: str) -> None:
    f = MAKERS[name]()
    whole = maximize(f, 5)
    first = whole.indices[:2]
    rest = maximize(f, 3, initial=first)
    assert rest.indices.tolist() == whole.indices[2:].tolist()
    assert rest.gains.tolist() == pytest.approx(whole.gains[2:].tolist(), rel=1e-9, abs=1e-12)
    assert not set(rest.indices.tolist()) & set(first.tolist())


def test_initial_picks_may_come_with_parts_costs_and_candidates() -> None:
    f = FacilityLocation.from_features(features(50, 4))
    for chosen in (
        maximize(f, 3, initial=[7], partitions=3),
        maximize(f, 3, initial=[7], candidates=range(6, 30)),
        maximize(f, initial=[7], costs=torch.ones(50), budget=3.0),
        maximize(f, 3, initial=[7], optimizer="stochastic"),
    ):
        assert len(chosen) == 3 and 7 not in chosen.indices.tolist()
        with_given = float(f([7, *chosen.indices.tolist()])) - float(f([7]))
        assert float(chosen.gains.sum()) == pytest.approx(with_given, rel=1e-6)
    assert maximize(f, 3, initial=[]).indices.tolist() == maximize(f, 3).indices.tolist()


def test_the_raised_floor_is_the_conditional_gain() -> None:
    f = FLQMI(K, [0, 3], 0.7)
    given = torch.tensor([1, 4])
    slow = conditional_gain(f, given, form="definition")
    fast = f.after(given)
    for selected in ([], [2], [2, 8, 9]):
        assert float(fast(selected)) == pytest.approx(float(slow(selected)), rel=1e-9, abs=1e-12)


REFUSED = {
    "no k": (lambda f: maximize(f), "say how many to pick"),
    "costs alone": (lambda f: maximize(f, costs=COSTS), "costs and budget belong together"),
    "budget alone": (lambda f: maximize(f, budget=1.0), "costs and budget belong together"),
    "too few": (
        lambda f: maximize(f, costs=[1.0], budget=1.0),
        "costs must hold one number per element, 14; got 1",
    ),
    "free": (
        lambda f: maximize(f, costs=[0.0] + [1.0] * 13, budget=1.0),
        "costs must be positive numbers; element 0 costs 0.0",
    ),
    "nothing fits": (
        lambda f: maximize(f, costs=[2.0] * 14, budget=1.0),
        "no candidate fits: the cheapest costs 2 and the budget is 1",
    ),
    "budget": (lambda f: maximize(f, costs=COSTS, budget=-1.0), "budget must be above 0; got -1"),
    "strangers": (lambda f: maximize(f, 1, initial=[14]), "indices must be within 0..13"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_costs_are_refused(name: str) -> None:
    act, sentence = REFUSED[name]
    with pytest.raises(InputError, match=sentence):
        act(FacilityLocation(K))
