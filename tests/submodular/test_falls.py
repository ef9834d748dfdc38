"""Bounds that are lowered together, over a symmetric kernel, change the time and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch
from hard_kernels import features

from shasam.submodular import (
    FL1MI,
    FLCG,
    FLCMI,
    FacilityLocation,
    LogDet,
    LogDetCG,
    SetFunction,
    loops,
    maximize,
)
from shasam.submodular.facility_location import ClampedFacilityLocation
from shasam.submodular.kernels import kernel_matrix

MAKERS = {
    "random": lambda z, q: FacilityLocation.from_features(z),
    "ties": lambda z, q: FacilityLocation.from_features(z.sign()),
    "rbf": lambda z, q: FacilityLocation.from_features(z, similarity="rbf"),
    "FL1MI": lambda z, q: FL1MI.from_features(z, q),
    "FLCG": lambda z, q: FLCG.from_features(z, q),
    "FLCMI": lambda z, q: FLCMI.from_features(z, q[:3], q[3:]),
    "kernel and sets": lambda z, q: FLCG(kernel_matrix(z, "shifted_cosine"), range(7)),
}


@pytest.fixture(params=[1, 3])
def number(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(loops, "_WORTH", 1)
    monkeypatch.setattr(loops, "free_now", lambda: 64)
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MAKERS)
def test_picks_and_gains_are_those_without(name: str, dtype: torch.dtype, number: int) -> None:
    f = MAKERS[name](features(600, 12).to(dtype), features(8, 12, 1).to(dtype))
    assert isinstance(f, ClampedFacilityLocation) and f.rows.mirrored
    for k in (4, 60):
        lowered = maximize(f, k)
        f.rows.mirrored = False
        plain, naive = maximize(f, k), maximize(f, k, optimizer="naive")
        f.rows.mirrored = True
        assert lowered.indices.tolist() == plain.indices.tolist() == naive.indices.tolist()
        assert lowered.gains.tolist() == plain.gains.tolist()


def test_fewer_gains_are_summed() -> None:
    f = FacilityLocation.from_features(features(800, 32).float())
    lowered = maximize(f, 16).evaluations
    f.rows.mirrored = False
    assert 2 * lowered < maximize(f, 16).evaluations


def floors(n: int, kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What 3 picks leave, and what 3 more raise it to."""
    return kernel[:3].max(axis=0), kernel[-3:].max(axis=0).clip(kernel[:3].max(axis=0))


def error(dtype: type) -> float:
    return loops.BOUND_ERROR * float(np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [3, 4, 5, 31, 300, 1030])
@pytest.mark.parametrize("capped", [False, True])
def test_gains_of_all_are_those_of_a_sum_up_to_the_error_that_is_said(
    n: int, dtype: type, capped: bool
) -> None:
    kernel = kernel_matrix(features(n, 9), "shifted_cosine").numpy().astype(dtype)
    low, high = floors(n, kernel)
    cap = high if capped else None
    raised = np.maximum(kernel, low).astype(np.float64)
    exact = ((np.minimum(raised, high) if capped else raised) - low).sum(axis=1)
    for ends in ([0, n], [0, n // 2 // 4 * 4, n]):
        told = sum(loops.gain_bounds(kernel, low, cap, *end) for end in pairwise(ends))
        assert (np.abs(told - exact) <= error(dtype) * exact + 1e-12).all()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 32, 33, 70])
def test_falls_are_those_of_a_sum_up_to_the_error_that_is_said(count: int) -> None:
    kernel = kernel_matrix(features(150, 9).float(), "shifted_cosine").numpy()
    low, high = floors(150, kernel)
    rows = np.random.default_rng(count).permutation(150)[:count]
    wide = kernel.astype(np.float64)
    exact = (np.minimum(np.maximum(wide, low), high) - low)[:, rows].sum(axis=1)
    left = np.full(150, 7.0)
    for start, stop in ((0, 70), (70, 150)):
        loops.fall_range(kernel, rows, high, low, left, start, stop)
    assert (np.abs(7.0 - left - exact) <= error(np.float32) * exact + 1e-12).all()


DETERMINANTS = {
    "LogDet": lambda z, q: LogDet.from_features(z),
    "no ridge": lambda z, q: LogDet.from_features(z, ridge=0.0),
    "ties": lambda z, q: LogDet.from_features(z.sign()),
    "LogDetCG": lambda z, q: LogDetCG.from_features(z, q),
    "hard": lambda z, q: LogDetCG.from_features(z, q, nu=0.5),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", DETERMINANTS)
def test_rough_products_change_no_pick_and_no_gain(name: str, dtype: torch.dtype) -> None:
    z, q = features(500, 24).to(dtype), features(8, 24, 1).to(dtype)
    z[100:200] = z[:100]  # exact duplicates
    f: SetFunction = DETERMINANTS[name](z, q)
    for k in (5, 20, 60 if name != "no ridge" else 23):
        lazy, naive = maximize(f, k), maximize(f, k, optimizer="naive")
        assert lazy.indices.tolist() == naive.indices.tolist()
        assert lazy.gains.tolist() == naive.gains.tolist()
        assert lazy.evaluations < naive.evaluations


def test_a_kernel_that_is_symmetric_only_nearly_is_not_read_by_columns() -> None:
    kernel = kernel_matrix(features(90, 5).float(), "shifted_cosine")
    assert FacilityLocation(kernel).rows.mirrored
    kernel[3, 4] = torch.nextafter(kernel[3, 4], torch.tensor(2.0))
    assert not FacilityLocation(kernel).rows.mirrored
    assert not FacilityLocation(kernel, represented=range(50)).rows.mirrored
    z = features(90, 5).float()
    assert not FacilityLocation.from_features(z, represented=range(90)).rows.mirrored
    assert not FacilityLocation.from_cross(kernel_matrix(z, "shifted_cosine")).rows.mirrored


@pytest.mark.parametrize("n", [100, 512, 1300])
@pytest.mark.parametrize("similarity", ["cosine", "shifted_cosine", "rbf"])
def test_kernels_of_features_are_symmetric_to_the_last_bit(n: int, similarity: str) -> None:
    kernel = kernel_matrix(features(n, 9).float(), similarity)  # type: ignore[arg-type]
    assert torch.equal(kernel, kernel.T)
