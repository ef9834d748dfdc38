"""Covers and disparities against their definitions; quotas against naive greedy within them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from shasam.errors import InputError
from shasam.submodular import (
    DisparityMin,
    DisparitySum,
    FacilityLocation,
    LogDetMI,
    ProbabilisticSetCover,
    SetCover,
    SetFunction,
    conditional_gain,
    conditional_mutual_information,
    maximize,
    mutual_information,
)
from shasam.testing import check_set_function


def chances(n: int = 14, concepts: int = 9, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random((n, concepts)) * (rng.random((n, concepts)) < 0.4)


def kernel(n: int = 14, seed: int = 0) -> np.ndarray:
    z = np.random.default_rng(seed).standard_normal((n, 5))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return (1 + z @ z.T) / 2


def subsets(n: int, seed: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.choice(n, size, replace=False).tolist() for size in (0, 1, 2, 3, 5, 8)]


WEIGHTS = np.linspace(0.5, 2.0, 9)


def expected_cover(p: np.ndarray, selected: Any) -> float:
    """Σ_u w_u · P(at least one of the set covers u), written out."""
    return sum(w * (1 - np.prod([1 - p[a, u] for a in selected])) for u, w in enumerate(WEIGHTS))


def test_covers_are_their_definitions() -> None:
    p = chances()
    sets = [set(np.flatnonzero(row).tolist()) for row in p]
    soft, hard = ProbabilisticSetCover(p, WEIGHTS), SetCover(sets, 9, WEIGHTS)
    matrix = SetCover((p > 0).astype(float), weights=WEIGHTS)
    for chosen in subsets(14):
        assert float(soft(chosen)) == pytest.approx(expected_cover(p, chosen))
        covered = set().union(*(sets[a] for a in chosen))
        assert float(hard(chosen)) == pytest.approx(sum(WEIGHTS[u] for u in covered))
        assert float(matrix(chosen)) == pytest.approx(float(hard(chosen)))


def test_disparities_are_their_definitions() -> None:
    K = kernel()
    for chosen in subsets(14):
        apart = [1 - K[a, b] for a, b in combinations(chosen, 2)]
        assert float(DisparitySum(K)(chosen)) == pytest.approx(sum(apart))
        assert float(DisparityMin(K)(chosen)) == pytest.approx(min(apart, default=0.0))


@pytest.mark.parametrize("f", [
    ProbabilisticSetCover(chances(), WEIGHTS),
    SetCover(chances() > 0.2),
    ProbabilisticSetCover(chances()).about(query=[0, 3], private=[5]),
    ProbabilisticSetCover(chances()).about_concepts(query=[0, 3, 4], private=[4]),
    DisparitySum(kernel()),
    DisparityMin(kernel()),
    DisparitySum.from_features(np.random.default_rng(0).random((12, 4))),
], ids=lambda f: type(f).__name__)  # fmt: skip
def test_the_laws_hold(f: SetFunction) -> None:
    checked = check_set_function(f)
    assert ("diminishing returns" in checked) == isinstance(f, ProbabilisticSetCover)


def test_measures_of_covers_are_the_definition_in_closed_form() -> None:
    q, p = [0, 3], [5, 6]
    for f in (ProbabilisticSetCover(chances(), WEIGHTS), SetCover(chances() > 0.2)):
        pairs = [
            (mutual_information(f, q), mutual_information(f, q, form="definition")),
            (conditional_gain(f, p), conditional_gain(f, p, form="definition")),
            (
                conditional_mutual_information(f, q, p),
                conditional_mutual_information(f, q, p, form="definition"),
            ),
        ]
        for closed, definition in pairs:
            assert isinstance(closed, ProbabilisticSetCover) and closed.submodular
            assert closed.candidates is not None and definition.candidates is not None
            assert closed.candidates.tolist() == definition.candidates.tolist()
            check_set_function(definition)
            for chosen in subsets(14):
                chosen = [v for v in chosen if v in closed.candidates]
                assert float(closed(chosen)) == pytest.approx(float(definition(chosen)), abs=1e-9)
        with pytest.raises(InputError, match="magnified"):
            mutual_information(f, q, eta=2.0)


def test_a_disparity_is_refused_where_greedy_would_not_be_exact() -> None:
    """The sum is supermodular: gains grow, so an old one is no bound."""
    f = DisparitySum(kernel())
    one, two = f.start([0]), f.start([0, 1])
    assert float(f.gains(two, torch.tensor([7]))[0]) > float(f.gains(one, torch.tensor([7]))[0])
    for g in (f, DisparityMin(kernel())):
        with pytest.raises(InputError, match="not submodular"):
            maximize(g, 3, optimizer="lazy")
        assert not mutual_information(g, [0]).submodular


def test_greedy_disparity_min_is_the_farthest_first_walk() -> None:
    K = kernel(40)
    picks = [0]
    while len(picks) < 6:
        nearest = (1 - K[:, picks]).min(axis=1)
        nearest[picks] = -1
        picks.append(int(nearest.argmax()))
    assert maximize(DisparityMin(K), 6).indices.tolist() == picks


def test_wrong_covers_are_refused() -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: ProbabilisticSetCover([[0.5, 1.5]]), "within 0..1"),
        (lambda: ProbabilisticSetCover([[0.5]], weights=[-1.0]), "not negative"),
        (lambda: SetCover([{0, 7}], 3), "within 0..2"),
        (lambda: SetCover([[0.5]]), "0 and 1"),
        (lambda: SetCover([{0}, {1}]).about_concepts(query=[4]), "within 0..1"),
        (lambda: SetCover([{0}, {1}]).about(query=[0], private=[0]), "both"),
    ]
    for make, message in wrong:
        with pytest.raises(InputError, match=message):
            make()


# -- quotas ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda: FacilityLocation(kernel(60)),
    lambda: ProbabilisticSetCover(chances(60)),
    lambda: LogDetMI(kernel(60), [58, 59]),
])  # fmt: skip
@pytest.mark.parametrize("at_most", [3, {"a": 1, "b": 4}])
def test_at_most_so_many_of_each_group_is_naive_greedy_within_the_quotas(
    make: Any, at_most: Any
) -> None:
    f = make()
    names = np.array(["a", "b", "c"])[np.arange(60) % 3]
    room = {name: at_most if isinstance(at_most, int) else at_most.get(name, 60) for name in "abc"}
    pool = range(60) if f.candidates is None else f.candidates.tolist()
    chosen: list[int] = []
    for _ in range(8):
        left = [
            v for v in pool
            if v not in chosen and sum(names[u] == names[v] for u in chosen) < room[names[v]]
        ]  # fmt: skip
        gains = f.gains(f.start(chosen), torch.tensor(left))
        chosen.append(left[int(gains.argmax())])
    picked = maximize(f, 8, groups=names, at_most=at_most)
    assert picked.indices.tolist() == chosen
    torch.testing.assert_close(picked.gains.double(), f.gains_along(picked.indices).double())


def test_without_k_the_groups_decide_how_many() -> None:
    f, names = FacilityLocation(kernel(10)), [0] * 7 + [1] * 3
    assert len(maximize(f, groups=names, at_most=4)) == 4 + 3
    assert 9 not in maximize(f, groups=names, at_most={1: 0}).indices
    more = maximize(f, 2, groups=names, at_most=1, initial=[0])
    assert sorted(names[v] for v in more.indices.tolist()) == [0, 1]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"k": 8, "groups": names, "at_most": 4}, "k = 8 of 7"),
        ({"groups": names[:3], "at_most": 4}, "one group per element"),
        ({"groups": names, "at_most": {2: 1}}, "no element"),
        ({"groups": names, "at_most": -1}, "whole numbers"),
        ({"k": 2, "groups": names}, "belong together"),
        ({"k": 2, "groups": names, "at_most": 1, "partitions": 2}, "partitions"),
    ]
    for arguments, message in wrong:
        with pytest.raises(InputError, match=message):
            maximize(f, **arguments)
