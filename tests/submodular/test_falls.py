"""Bounds that are lowered together, over a symmetric kernel, change the time and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hard_kernels import features

from shasam.submodular import FL1MI, FLCG, FLCMI, FacilityLocation, loops, maximize
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
