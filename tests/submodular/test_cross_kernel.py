"""Facility location over a kernel of candidates against V: the picks of brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from shasam.errors import InputError
from shasam.submodular import FL1MI, FLCG, FLCMI, FLQMI, FacilityLocation, LogDet, maximize
from shasam.submodular.kernels import CrossKernel


def brute_force(
    kernel_NR: np.ndarray,
    k: int,
    lo_R: np.ndarray | float = 0.0,
    hi_R: np.ndarray | float = np.inf,
) -> list[int]:
    """Greedy picks of Σ max(min(max_a K, hi), lo) - lo, every gain summed anew."""

    def value(rows: list[int]) -> float:
        best = kernel_NR[rows].astype(np.float64).max(axis=0)
        return float((np.maximum(np.minimum(best, hi_R), lo_R) - lo_R).sum())

    picked: list[int] = []
    for _ in range(k):
        values = [-1.0 if v in picked else value([*picked, v]) for v in range(len(kernel_NR))]
        picked.append(int(np.argmax(values)))
    return picked


@pytest.fixture(scope="module")
def sets() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    z = torch.nn.functional.normalize(torch.randn(150, 8, generator=generator), dim=1)
    kernel = (1 + z @ z.T) / 2
    return {"z": z, "cell": kernel[:40], "a": kernel[40:44], "b": kernel[44:49]}


def test_picks_are_those_of_brute_force(sets: dict[str, torch.Tensor]) -> None:
    cell, a, b = sets["cell"], sets["a"], sets["b"]
    rows = cell.numpy()
    near_a, near_b = a.amax(0).double().numpy(), b.amax(0).double().numpy()
    for f, lo, hi in (
        (FacilityLocation.from_cross(cell), 0.0, np.inf),
        (FLCG.from_cross(cell, a), near_a, np.inf),
        (FLCG.from_cross(cell, a, nu=0.5), 0.5 * near_a, np.inf),
        (FL1MI.from_cross(cell, a), 0.0, near_a),
        (FLCMI.from_cross(cell, a, b, nu=0.75), 0.75 * near_b, near_a),
    ):
        assert maximize(f, 4).indices.tolist() == brute_force(rows, 4, lo, hi), type(f).__name__


def test_a_kernel_and_the_features_it_was_made_of_agree(sets: dict[str, torch.Tensor]) -> None:
    z, cell, a = sets["z"], sets["cell"], sets["a"]
    of_features = FLCG.from_features(z[:40], z[40:44], represented=z)
    picked, other = maximize(of_features, 6), maximize(FLCG.from_cross(cell, a), 6)
    assert picked.indices.tolist() == other.indices.tolist()
    torch.testing.assert_close(picked.gains, other.gains)
    some = FLCG.from_cross(cell, a, represented=range(30))
    assert float(some([1, 2])) == float(FLCG.from_cross(cell[:, :30], a[:, :30])([1, 2]))
    query = FLQMI.from_features(z[:40], z[40:44])
    crossed = FLQMI.from_cross(cell[:, 40:44])
    assert maximize(query, 5).indices.tolist() == maximize(crossed, 5).indices.tolist()


def test_a_value_has_a_gradient_in_the_kernel(sets: dict[str, torch.Tensor]) -> None:
    cell = sets["cell"].clone().requires_grad_()
    FLCG.from_cross(cell, sets["a"])([0, 3]).backward()
    assert cell.grad is not None and int((cell.grad != 0).sum()) > 0


def test_what_a_cross_kernel_cannot_say_is_refused(sets: dict[str, torch.Tensor]) -> None:
    cell, a = sets["cell"], sets["a"]
    wrong: list[tuple[Any, str]] = [
        (lambda: FLCG.from_cross(cell, a[:, :9]), "the same represented rows"),
        (lambda: FLCG.from_cross(cell, a[:0]), "private set is empty"),
        (lambda: FacilityLocation.from_cross(cell[:0]), "kernel is empty"),
        (lambda: FacilityLocation.from_cross(cell * float("nan")), "NaN or infinity in row 0"),
        (lambda: LogDet(CrossKernel(cell)), "does not hold the similarities"),
        (lambda: FLQMI(CrossKernel(cell), a), "does not hold the similarities"),
        (lambda: maximize(FacilityLocation.from_cross(cell - 1), 2), "not negative"),
    ]
    for make, message in wrong:
        with pytest.raises(InputError, match=message):
            make()
