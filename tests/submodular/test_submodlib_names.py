"""submodlib's names on our engine: its documented examples, and the library itself where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shasam.errors import InputError
from shasam.submodular import submodlib as ours

try:
    import submodlib as theirs
except ImportError:  # no wheel for this Python
    theirs = None

N, Q, P, K = 40, 3, 2, 6
RNG = np.random.default_rng(4)
DATA, QUERY, PRIVATE = (RNG.random((many, 6)) for many in (N, Q, P))
COVER = [set(np.flatnonzero(row).tolist()) for row in RNG.random((N, 12)) < 0.25]
CHANCES = (RNG.random((N, 12)) * 0.6).astype(np.float32).tolist()
WEIGHTS = RNG.random(12).astype(np.float32).tolist()
GIVEN: dict[str, Any] = {"n": N, "data": DATA, "metric": "euclidean"}
ASKED: dict[str, Any] = {"num_queries": Q, "queryData": QUERY}
HIDDEN: dict[str, Any] = {"num_privates": P, "privateData": PRIVATE}
LABELS = (np.arange(N) % 4).tolist()
# name -> the arguments as submodlib's documentation gives them
CALLS: dict[str, dict[str, Any]] = {
    "FacilityLocationFunction": {**GIVEN, "mode": "dense"},
    "FacilityLocationFunction, represented": {
        **GIVEN, "mode": "dense", "separate_rep": True, "n_rep": Q, "data_rep": QUERY},
    "FacilityLocationFunction, clustered": {
        **GIVEN, "mode": "clustered", "cluster_labels": LABELS, "num_clusters": 4},
    "FacilityLocationFunction, sparse": {**GIVEN, "mode": "sparse", "num_neighbors": 7},
    "FacilityLocationMutualInformationFunction": {**GIVEN, **ASKED, "magnificationEta": 0.9},
    "FacilityLocationVariantMutualInformationFunction": {
        **GIVEN, **ASKED, "queryDiversityEta": 0.5},
    "FacilityLocationConditionalGainFunction": {**GIVEN, **HIDDEN, "privacyHardness": 0.8},
    "FacilityLocationConditionalMutualInformationFunction": {**GIVEN, **ASKED, **HIDDEN},
    "GraphCutFunction": {**GIVEN, "mode": "dense", "lambdaVal": 0.4},
    "GraphCutMutualInformationFunction": {**GIVEN, **ASKED},
    "GraphCutConditionalGainFunction": {**GIVEN, **HIDDEN, "lambdaVal": 0.3},
    "LogDeterminantFunction": {**GIVEN, "mode": "dense", "lambdaVal": 1.0},
    "LogDeterminantMutualInformationFunction": {**GIVEN, **ASKED, "lambdaVal": 1.0},
    "LogDeterminantConditionalGainFunction": {**GIVEN, **HIDDEN, "lambdaVal": 1.0},
    "LogDeterminantConditionalMutualInformationFunction": {
        **GIVEN, **ASKED, **HIDDEN, "lambdaVal": 1.0},
    "DisparitySumFunction": {**GIVEN, "mode": "dense"},
    "DisparityMinFunction": {**GIVEN, "mode": "dense"},
    "SetCoverFunction": {
        "n": N, "cover_set": COVER, "num_concepts": 12, "concept_weights": WEIGHTS},
    "SetCoverMutualInformationFunction": {
        "n": N, "cover_set": COVER, "num_concepts": 12, "query_concepts": {1, 4, 7},
        "concept_weights": WEIGHTS},
    "SetCoverConditionalGainFunction": {
        "n": N, "cover_set": COVER, "num_concepts": 12, "private_concepts": {0, 2},
        "concept_weights": WEIGHTS},
    "SetCoverConditionalMutualInformationFunction": {
        "n": N, "cover_set": COVER, "num_concepts": 12, "query_concepts": {1, 4, 7},
        "private_concepts": {4, 2}, "concept_weights": WEIGHTS},
    "ProbabilisticSetCoverFunction": {
        "n": N, "probs": CHANCES, "num_concepts": 12, "concept_weights": WEIGHTS},
    "ProbabilisticSetCoverMutualInformationFunction": {
        "n": N, "probs": CHANCES, "num_concepts": 12, "query_concepts": {1, 4, 7},
        "concept_weights": WEIGHTS},
    "ProbabilisticSetCoverConditionalGainFunction": {
        "n": N, "probs": CHANCES, "num_concepts": 12, "private_concepts": {0, 2},
        "concept_weights": WEIGHTS},
    "ProbabilisticSetCoverConditionalMutualInformationFunction": {
        "n": N, "probs": CHANCES, "num_concepts": 12, "query_concepts": {1, 4, 7},
        "private_concepts": {4, 2}, "concept_weights": WEIGHTS},
}  # fmt: skip


def made(library: Any, name: str) -> Any:
    return getattr(library, name.split(",")[0])(**CALLS[name])


@pytest.mark.parametrize("name", CALLS)
def test_every_function_can_be_made_evaluated_and_maximised(name: str) -> None:
    """The calls of submodlib's pages: evaluate, marginalGain, maximize, and the memoised names."""
    f = made(ours, name)
    assert f.getEffectiveGroundSet() == set(range(N))
    assert f.evaluate(set()) == 0
    picked = f.maximize(
        budget=K, optimizer="NaiveGreedy", stopIfZeroGain=False, stopIfNegativeGain=False,
        verbose=False,
    )  # fmt: skip
    assert len({v for v, _ in picked}) == K
    chosen: set[int] = set()
    for v, gain in picked:
        assert f.marginalGain(chosen, v) == pytest.approx(gain, abs=1e-6)
        best = max(f.marginalGain(chosen, u) for u in set(range(N)) - chosen)
        assert gain == pytest.approx(best, abs=1e-6)
        before = f.evaluate(chosen)
        chosen.add(v)
        f.setMemoization(chosen)
        assert f.evaluateWithMemoization(chosen) - before == pytest.approx(gain, abs=1e-6)
    assert f.marginalGain(chosen, picked[0][0]) == 0
    if f.f.submodular:
        lazy = f.maximize(budget=K, optimizer="LazyGreedy", show_progress=False)
        assert [v for v, _ in lazy] == [v for v, _ in picked]
    drawn = f.maximize(budget=K, optimizer="LazierThanLazyGreedy", epsilon=0.1)
    assert drawn == f.maximize(budget=K, optimizer="StochasticGreedy", epsilon=0.1)


# submodlib's own value of a sparse kernel is no sum of its largest entries by row or by column
@pytest.mark.skipif(theirs is None, reason="submodlib has no wheel for this Python")
@pytest.mark.parametrize("name", [name for name in CALLS if not name.endswith("sparse")])
def test_values_and_picks_are_those_of_submodlib(name: str) -> None:
    f, g = made(ours, name), made(theirs, name)
    rng = np.random.default_rng(1)
    for size in (1, 2, 5, 9):
        chosen = set(rng.choice(N, size, replace=False).tolist())
        assert f.evaluate(chosen) == pytest.approx(g.evaluate(chosen), rel=1e-4, abs=1e-5)
    # where several gain the same each library takes its own: theirs must be a best one of ours
    before: set[int] = set()
    for v, gain in g.maximize(budget=K, optimizer="NaiveGreedy", show_progress=False):
        gains = {u: f.marginalGain(before, u) for u in range(N) if u not in before}
        assert gains[v] == pytest.approx(max(gains.values()), rel=1e-3, abs=1e-4)
        assert gains[v] == pytest.approx(gain, rel=1e-3, abs=1e-4)
        before.add(v)


def test_a_sparse_kernel_is_the_dense_one_without_what_is_far() -> None:
    near = ours.create_kernel(DATA, "sparse", "euclidean", num_neigh=7)
    dense = ours.create_kernel(DATA, metric="euclidean")
    kept = dense >= np.sort(dense, axis=1)[:, -7][:, None]
    np.testing.assert_array_equal(near, dense * kept)
    f = made(ours, "FacilityLocationFunction, sparse")
    for chosen in ({3}, {1, 2, 9}):
        assert f.evaluate(chosen) == pytest.approx(near[:, sorted(chosen)].max(axis=1).sum())


def test_the_first_example_of_the_readme() -> None:
    groundData = np.random.default_rng(0).random((43, 2))
    objFL = ours.FacilityLocationFunction(n=43, data=groundData, mode="dense", metric="euclidean")
    greedyList = objFL.maximize(budget=10, optimizer="NaiveGreedy")
    assert len(greedyList) == 10
    gains = [gain for _, gain in greedyList]
    assert gains == sorted(gains, reverse=True)


def test_given_kernels_are_used_as_they_are() -> None:
    own = ours.create_kernel(DATA, mode="dense", metric="euclidean")
    near = ours.create_kernel(QUERY, metric="euclidean", X_rep=DATA)
    assert own.shape == (N, N) and near.shape == (N, Q)
    given = ours.FacilityLocationMutualInformationFunction(
        n=N, num_queries=Q, data_sijs=own, query_sijs=near
    )
    from_data = ours.FacilityLocationMutualInformationFunction(**GIVEN, **ASKED)
    assert given.maximize(budget=5) == from_data.maximize(budget=5)


def test_a_walk_stops_where_it_is_told_to() -> None:
    cover = [{0, 1}, {1}, {2}, {0}]
    f = ours.SetCoverFunction(n=4, cover_set=cover, num_concepts=3)
    assert [v for v, _ in f.maximize(budget=3, stopIfZeroGain=True)] == [0, 2]
    cut = ours.GraphCutFunction(n=N, mode="dense", lambdaVal=30.0, data=DATA, metric="euclidean")
    assert len(cut.maximize(budget=5, stopIfNegativeGain=True)) < 5
    costs = [1.0, 1.0, 5.0, 1.0]
    assert [v for v, _ in f.maximize(budget=2, costs=costs)] == [0]
    by_ratio = f.maximize(budget=6, costs=costs, costSensitiveGreedy=True)
    assert [v for v, _ in by_ratio] == [0, 2]


def test_features_are_taken_as_matrix_and_as_pairs() -> None:
    x = np.abs(np.random.default_rng(0).standard_normal((6, 4))) * (np.arange(24).reshape(6, 4) % 3)
    pairs = [[(d, float(row[d])) for d in np.flatnonzero(row)] for row in x]
    dense = ours.FeatureBasedFunction(6, x, 4, False, mode=ours.FeatureBasedFunction.squareRoot)
    sparse = ours.FeatureBasedFunction(6, pairs, 4, True, mode=ours.FeatureBasedFunction.squareRoot)
    assert dense.evaluate({1, 4}) == pytest.approx(float(np.sqrt(x[1] + x[4]).sum()), rel=1e-6)
    assert dense.maximize(budget=3) == sparse.maximize(budget=3)


def test_what_is_wrong_is_said() -> None:
    f = ours.FacilityLocationFunction(n=N, mode="dense", data=DATA)
    wrong: list[tuple[Any, str]] = [
        (lambda: f.maximize(budget=2, optimizer="LazyGredy"), "did you mean"),
        (lambda: f.evaluate({N}), "within 0..39"),
        (lambda: ours.FacilityLocationFunction(n=N, mode="dense"), "give the similarities"),
        (lambda: ours.FacilityLocationFunction(n=3, mode="dense", data=DATA), "shape"),
        (lambda: ours.FacilityLocationFunction(n=N, mode="clustered", data=DATA), "cluster_labels"),
        (lambda: ours.create_kernel(DATA, metric="cosin"), "did you mean"),
        (lambda: made(ours, "DisparitySumFunction").maximize(2, "LazyGreedy"), "not submodular"),
    ]
    for make, message in wrong:
        with pytest.raises(InputError, match=message):
            make()
