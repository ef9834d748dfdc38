"""Feature-based functions, saturated coverage and mixtures: values, gradients, laws, picks."""

from __future__ import annotations

import math
from collections.abc import Callable

import naive
import numpy as np
import pytest
import torch
from broken import Coverage
from hard_kernels import N, features, gram, kernels
from torch import Tensor

from shasam.errors import InputError
from shasam.submodular import (
    FLCG,
    FacilityLocation,
    FeatureBased,
    GraphCut,
    LogDet,
    Mixture,
    SaturatedCoverage,
    SetFunction,
    certify,
    conditional_gain,
    maximize,
)
from shasam.testing import check_set_function

X = features(N, 5).clamp_min(0)  # half of the entries are 0: a feature may be missing in A
X[:, 4] = 0  # and one feature nobody has
W = [1.0, 0.0, 2.5, 0.3, 1.0]
K = kernels()["shifted cosine"]
PHI: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "log": math.log1p,
    "saturate": lambda s: s / (1 + s),
}
SETS = [[], [3], [0, 5, 9], list(range(N))]
PAIRS: dict[str, tuple[Callable[[], SetFunction], naive.Value]] = {
    **{
        f"FeatureBased, {name}": (
            lambda name=name: FeatureBased(X, name, W),
            naive.feature_based(X, phi, W),
        )
        for name, phi in PHI.items()
    },
    "SaturatedCoverage": (lambda: SaturatedCoverage(K, 0.2), naive.saturated_coverage(K, 0.2)),
    "SaturatedCoverage of some": (
        lambda: SaturatedCoverage(K, 0.5, [1, 4, 6]),
        naive.saturated_coverage(K, 0.5, [1, 4, 6]),
    ),
    "Mixture": (
        lambda: Mixture([FacilityLocation(K), GraphCut(K, 0.3), LogDet(K)], [1.0, 0.1, 2.0]),
        naive.mixture(
            [naive.facility_location(K), naive.graph_cut(K, 0.3), naive.logdet(K, 1.0)],
            [1.0, 0.1, 2.0],
        ),
    ),
    "Mixture with weight 0": (
        lambda: Mixture([SaturatedCoverage(K), FeatureBased(X)], [0.0, 1.0]),
        naive.feature_based(X, math.sqrt, [1.0] * 5),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_values_picks_and_gains_are_those_of_naive_loops(name: str) -> None:
    make, loop = PAIRS[name]
    f = make()
    for selected in SETS:
        assert float(f(selected)) == pytest.approx(loop(selected), rel=1e-9, abs=1e-12)
    picks, gains = naive.greedy(loop, range(N), 5)
    for optimizer in ("naive", "lazy"):
        chosen = maximize(f, 5, optimizer=optimizer)
        assert chosen.indices.tolist() == picks
        np.testing.assert_allclose(chosen.gains, gains, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", PAIRS)
def test_the_laws_of_set_functions_hold(name: str) -> None:
    f = PAIRS[name][0]()
    laws = check_set_function(f)
    assert f.monotone and {"diminishing returns", "monotonicity", "greedy walk"} <= set(laws)
    best = max(float(f([a, b])) for a in range(N) for b in range(a))
    assert certify(f, maximize(f, 2)).optimum_at_most >= best - 1e-9


GRADIENTS: dict[str, tuple[Callable[[Tensor], SetFunction], Tensor]] = {
    "FeatureBased": (lambda x: FeatureBased(x, "sqrt", W), X + 0.1),
    "FeatureBased, log": (lambda x: FeatureBased(x, "log"), X + 0.1),
    "FeatureBased, saturate": (lambda x: FeatureBased(x, "saturate"), X + 0.1),
    "SaturatedCoverage": (lambda z: SaturatedCoverage.from_features(z, 0.3), features(8, 3)),
    "Mixture": (
        lambda z: Mixture([FacilityLocation.from_features(z), LogDet.from_features(z)], [1.0, 0.5]),
        features(8, 3),
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    make, x = GRADIENTS[name]
    assert torch.autograd.gradcheck(lambda x: make(x)([1, 4, 5]), (x.clone().requires_grad_(),))


def test_a_feature_that_nobody_has_gets_a_finite_gradient() -> None:
    x = X.clone().requires_grad_()
    FeatureBased(x)([0, 1]).backward()
    assert bool(torch.isfinite(x.grad).all()) and bool((x.grad[:, 4] == 0).all())


def test_over_features_and_in_float32_the_laws_hold_too() -> None:
    z = features(40, 5).float()
    for f in (
        SaturatedCoverage.from_features(z, 0.1),
        SaturatedCoverage.from_features(z, 0.1, represented=features(6, 5, 3).float()),
        FeatureBased(z.relu()),
        Mixture([FacilityLocation.from_features(z), FeatureBased(z.relu())]),
        conditional_gain(
            Mixture([FacilityLocation.from_features(z), LogDet.from_features(z)]), [3]
        ),
    ):
        assert "greedy walk" in check_set_function(f)


def test_a_mixture_is_only_what_all_its_functions_are() -> None:
    signed = Mixture([FacilityLocation(K), GraphCut(gram(features()), 0.9)])
    assert not signed.monotone and signed.submodular
    with pytest.raises(InputError, match="GraphCut is submodular only over similarities"):
        maximize(signed, 2)
    private = Mixture([FLCG(K, [5, 6]), FLCG(K, [6, 7])])
    assert private.candidates.tolist() == [v for v in range(N) if v not in (5, 6, 7)]


def test_a_part_of_a_mixture_keeps_the_balance_of_its_terms() -> None:
    z = features(60, 5)
    f = Mixture([FacilityLocation.from_features(z), FeatureBased(z.relu())], [1.0, 2.0])
    index = torch.arange(0, 60, 3)
    part = f.part(index)  # facility location keeps 20 of its 60 rows
    assert part.weights == (3.0, 2.0) and f.represented_rows == 60
    parted, plain = maximize(f, 5, partitions=3), maximize(f, 5)
    assert float(parted.gains.sum()) >= 0.97 * float(plain.gains.sum())
    assert float(parted.gains.sum()) == pytest.approx(float(f(parted.indices)), rel=1e-9)
    assert Mixture([f, Coverage(60)]).part(index) is None


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "negative": (lambda: FeatureBased([[1.0], [-2.0]]), "row 1 holds -2"),
    "concave": (lambda: FeatureBased(X, "sqr"), "did you mean .*sqrt"),
    "too many weights": (lambda: FeatureBased(X, weights=[1.0]), "one number per feature, 5"),
    "negative weight": (lambda: FeatureBased(X, weights=[-1.0] * 5), "not negative"),
    "alpha": (lambda: SaturatedCoverage(K, 1.5), "above 0 and at most 1; got 1.5"),
    "signed": (lambda: maximize(SaturatedCoverage(gram(features())), 2), "not negative"),
    "empty": (lambda: Mixture([]), "at least one"),
    "weights": (lambda: Mixture([FeatureBased(X)], [1.0, 2.0]), "as many weights; got 2"),
    "weight": (lambda: Mixture([FeatureBased(X)], [-1.0]), "not negative"),
    "sizes": (lambda: Mixture([FeatureBased(X), Coverage(3)]), "share one ground set"),
    "nothing left": (
        lambda: Mixture([FLCG(K, range(7)), FLCG(K, range(7, N))]),
        "no common candidate",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_in_a_sentence(name: str) -> None:
    act, sentence = REFUSED[name]
    with pytest.raises(InputError, match=sentence):
        act()
