"""Values, gains and picks of submodlib and apricot on data of many kinds; both are optional."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from shasam.submodular import (
    FacilityLocation,
    FeatureBased,
    GraphCut,
    LogDet,
    SaturatedCoverage,
    SetFunction,
    maximize,
)
from shasam.submodular.kernels import kernel_matrix

pytestmark = pytest.mark.slow
N, BUDGET = 120, 12


def data(kind: str, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(N, 8, generator=generator)
    if kind == "clusters":
        return z * 0.3 + torch.randn(6, 8, generator=generator)[torch.arange(N) % 6] * 2
    if kind == "few dimensions":
        return z[:, :3].contiguous()
    return z * torch.rand(N, 1, generator=generator) if kind == "lengths" else z


KINDS = ("normal", "clusters", "few dimensions", "lengths")


def check_same_picks(f: SetFunction, picks: list[int], gains: list[float] | None) -> None:
    """Each of their picks is a best one for us, given those before it, up to float32."""
    mine = maximize(f, len(picks))
    state, scale = f.start(), max(abs(float(mine.gains[0])), 1.0)
    pool = torch.arange(f.n)
    for step, v in enumerate(picks):
        gains_N = f.gains(state, pool)
        gains_N[picks[:step]] = -torch.inf
        assert float(gains_N[v]) >= float(gains_N.max()) - 1e-5 * scale, (step, v)
        if gains is not None:
            assert gains[step] == pytest.approx(float(gains_N[v]), rel=1e-4, abs=1e-4 * scale)
        state = f.add(state, v)
    assert float(f(picks)) == pytest.approx(float(f(mine.indices)), rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_submodlib_agrees_on_values_gains_and_picks(kind: str, seed: int) -> None:
    peer = pytest.importorskip("submodlib", reason="submodlib is not installed")
    z = data(kind, seed)
    kernel = kernel_matrix(z, "shifted_cosine")
    plain = z @ z.T / 8
    pairs: list[tuple[SetFunction, Any]] = [
        (
            FacilityLocation(kernel),
            peer.FacilityLocationFunction(
                n=N, mode="dense", sijs=kernel.numpy(), separate_rep=False, pybind_mode="array"
            ),
        ),
        (
            GraphCut(kernel, 0.4),
            peer.GraphCutFunction(n=N, mode="dense", lambdaVal=0.4, ggsijs=kernel.numpy()),
        ),
        (
            LogDet((plain + plain.T) / 2),
            peer.LogDeterminantFunction(
                n=N, mode="dense", lambdaVal=1, sijs=((plain + plain.T) / 2).numpy()
            ),
        ),
    ]
    random = np.random.default_rng(seed)
    for f, theirs in pairs:
        for size in (1, 3, 9):
            chosen = {int(v) for v in random.permutation(N)[:size]}
            assert theirs.evaluate(chosen) == pytest.approx(float(f(sorted(chosen))), rel=1e-4)
        told = theirs.maximize(budget=BUDGET, optimizer="NaiveGreedy", show_progress=False)
        check_same_picks(f, [int(v) for v, _ in told], [float(g) for _, g in told])


@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("kind", KINDS)
def test_apricot_agrees_on_gains_and_picks(kind: str, seed: int) -> None:
    apricot = pytest.importorskip("apricot", reason="apricot is not installed")
    z = data(kind, seed)
    kernel = kernel_matrix(z.double(), "shifted_cosine")
    given: dict[str, Any] = {"metric": "precomputed", "optimizer": "naive"}
    counts = z.double().abs()
    pairs: list[tuple[SetFunction, Callable[[], Any], Tensor]] = [
        (
            FacilityLocation(kernel),
            lambda: apricot.FacilityLocationSelection(BUDGET, **given),
            kernel,
        ),
        (
            SaturatedCoverage(kernel, 0.3),
            lambda: apricot.SaturatedCoverageSelection(BUDGET, alpha=0.3, **given),
            kernel,
        ),
        (
            FeatureBased(counts, "sqrt"),
            lambda: apricot.FeatureBasedSelection(BUDGET, concave_func="sqrt", optimizer="naive"),
            counts,
        ),
        (
            FeatureBased(counts, "log"),
            lambda: apricot.FeatureBasedSelection(BUDGET, concave_func="log", optimizer="naive"),
            counts,
        ),
    ]
    for f, make, x in pairs:
        theirs = make().fit(x.numpy().copy())
        check_same_picks(f, [int(v) for v in theirs.ranking], None)
