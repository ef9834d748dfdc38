"""Sparse kernels: exactly the nearest neighbours, and the functions over them."""

from __future__ import annotations

import naive
import numpy as np
import pytest
import torch
from hard_kernels import features
from torch import Tensor

from shasam.errors import InputError, MemoryLimitError, MissingExtraError
from shasam.submodular import (
    FacilityLocation,
    GraphCut,
    LogDet,
    Neighbours,
    SparseFacilityLocation,
    maximize,
    sparse,
)
from shasam.submodular.kernels import kernel_matrix
from shasam.testing import check_set_function

N, K = 40, 5
Z = features(N, 4)


def dense(z: Tensor, k: int, similarity: str = "shifted_cosine") -> Tensor:
    """All pairs of which one is among the k nearest of the other, and the diagonal."""
    kernel = kernel_matrix(z, similarity)  # type: ignore[arg-type]
    kept = torch.zeros(len(z), len(z), dtype=torch.bool)
    for i in range(len(z)):
        others = sorted((j for j in range(len(z)) if j != i), key=lambda j: -float(kernel[i, j]))
        kept[i, others[:k]] = kept[others[:k], i] = kept[i, i] = True
    return kernel * kept


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "_ROWS", 7)
    monkeypatch.setattr(sparse, "_COLUMNS", 11)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("similarity", ["shifted_cosine", "rbf"])
def test_the_kernel_holds_the_nearest_neighbours_of_every_row(similarity: str) -> None:
    near = Neighbours(Z, K, similarity)  # type: ignore[arg-type]
    found, true = near.block(None, torch.arange(N)), dense(Z, K, similarity)
    torch.testing.assert_close(found, true, rtol=1e-12, atol=1e-12)
    assert torch.equal(found, found.T) and near.edges == int((true > 0).sum())
    torch.testing.assert_close(near.sums(None), true.sum(dim=1))
    torch.testing.assert_close(near.sums(torch.tensor([1, 3])), true[:, [1, 3]].sum(dim=1))
    torch.testing.assert_close(near.diagonal(), true.diagonal())


def test_copies_of_a_row_and_zero_rows_keep_their_own_entry() -> None:
    z = torch.cat([torch.ones(6, 3), torch.zeros(2, 3), features(4, 3).float()])
    near = Neighbours(z, 2)
    assert near.diagonal().tolist() == [1.0] * 6 + [0.5] * 2 + [1.0] * 4
    own = near.block(None, torch.arange(len(z))).diagonal()
    torch.testing.assert_close(own, near.diagonal())
    assert len(maximize(SparseFacilityLocation(near), 12)) == 12


def test_functions_over_neighbours_are_those_over_the_dense_kernel() -> None:
    near, true = Neighbours(Z, K), dense(Z, K)
    loops = naive.facility_location(true), naive.graph_cut(true, 0.3)
    for f, loop in zip((SparseFacilityLocation(near), GraphCut(near, 0.3)), loops, strict=True):
        for selected in ([], [3], [0, 5, 9, 30]):
            assert float(f(selected)) == pytest.approx(loop(selected), rel=1e-9)
        picks, gains = naive.greedy(loop, range(N), 6)
        for optimizer in ("naive", "lazy"):
            chosen = maximize(f, 6, optimizer=optimizer)
            assert chosen.indices.tolist() == picks
            np.testing.assert_allclose(chosen.gains, gains, rtol=1e-9)
        assert "greedy walk" in check_set_function(f)
    parted = maximize(GraphCut(near, 0.3), 6, partitions=3)
    assert float(parted.gains.sum()) == pytest.approx(
        float(GraphCut(true, 0.3)(parted.indices)), rel=1e-9
    )


def test_with_all_neighbours_it_is_facility_location() -> None:
    f, g = SparseFacilityLocation(Neighbours(Z, N - 1)), FacilityLocation.from_features(Z)
    assert maximize(f, 8).indices.tolist() == maximize(g, 8).indices.tolist()
    few = SparseFacilityLocation(Neighbours(Z, K))
    assert float(few([1, 2, 3])) <= float(g([1, 2, 3]))


@pytest.mark.usefixtures("small_tiles")
def test_neighbours_among_some_elements() -> None:
    some = [3, 8, 9, 20, 21, 22, 39]
    f = SparseFacilityLocation(Neighbours(Z, 3, among=some))
    kernel = kernel_matrix(Z, "shifted_cosine")
    kept = torch.zeros(N, N, dtype=torch.float64)
    for i in range(N):
        others = sorted((j for j in some if j != i), key=lambda j: -float(kernel[i, j]))
        for j in others[:3]:
            kept[i, j] = kernel[i, j]
        if i in some:
            kept[i, i] = kernel[i, i]
    for selected in ([3], [8, 20, 39]):
        assert float(f(selected)) == pytest.approx(float(kept[:, selected].amax(1).sum()), rel=1e-9)
    assert set(maximize(f, 7).indices.tolist()) == set(some)
    assert "greedy walk" in check_set_function(f)
    with pytest.raises(InputError, match="leave out among"):
        GraphCut(Neighbours(Z, 3, among=some))


@pytest.mark.parametrize("similarity", ["shifted_cosine", "rbf"])
def test_gradients_are_those_of_finite_differences(similarity: str) -> None:
    def value(z: Tensor) -> Tensor:
        near = Neighbours(z, 2, similarity)  # type: ignore[arg-type]
        return SparseFacilityLocation(near)([1, 4]) + GraphCut(near, 0.3)([2, 5])

    assert torch.autograd.gradcheck(value, (features(8, 3).requires_grad_(),))


def test_what_neighbours_cannot_do_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    near = Neighbours(Z, K)
    for act, sentence in (
        (lambda: FacilityLocation(near), "use SparseFacilityLocation"),
        (lambda: LogDet(near).start(), "not positive semi-definite"),
        (lambda: SparseFacilityLocation(Z), "give the neighbours"),  # type: ignore[arg-type]
        (lambda: Neighbours(Z, N), "from 1 to 39 of them; got 40"),
        (lambda: Neighbours(features(3, 2) * torch.tensor([[1], [-1], [1]]), 2, "cosine"), "negat"),
    ):
        with pytest.raises(InputError, match=sentence):
            act()
    monkeypatch.setattr(sparse, "available_memory", lambda: 1000)
    with pytest.raises(MemoryLimitError, match="keep fewer neighbours"):
        Neighbours(Z, K)


@pytest.mark.parametrize("similarity", ["shifted_cosine", "cosine", "rbf"])
@pytest.mark.parametrize("some", [None, range(0, 600, 2)])
def test_faiss_finds_nearly_all_neighbours_with_their_exact_similarities(similarity, some):
    pytest.importorskip("faiss", reason="the extra faiss is not installed")
    z = features(600, 12).abs()  # no negative cosines
    exact = Neighbours(z, 5, similarity, among=some)
    found = Neighbours(z, 5, similarity, among=some, search="faiss")
    again = Neighbours(z, 5, similarity, among=some, search="faiss")
    columns = torch.arange(600) if some is None else torch.tensor(some)
    true, near = exact.block(None, columns), found.block(None, columns)
    both = (true > 0) & (near > 0)
    assert both.sum() >= 0.97 * (true > 0).sum()
    torch.testing.assert_close(near[both], true[both])
    assert np.array_equal(found.row_E, again.row_E) and np.array_equal(found.value_E, again.value_E)
    picks = maximize(SparseFacilityLocation(found), 8).indices
    value, best = (SparseFacilityLocation(near)(picks) for near in (found, exact))
    assert abs(float(value - best)) <= 0.03 * float(best)


def test_without_faiss_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("shasam.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'shasam\[faiss\]'"):
        Neighbours(Z, K, search="faiss")
    with pytest.raises(InputError, match="'exact' or 'faiss'"):
        Neighbours(Z, K, search="near")  # type: ignore[arg-type]
