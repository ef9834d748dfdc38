"""The picks are submodlib's where it is installed (it comes with the ``test`` extra)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from shasam.submodular import (
    FL1MI,
    FLCG,
    FLQMI,
    FacilityLocation,
    LogDet,
    LogDetCG,
    SetFunction,
    conditional_gain,
    maximize,
)
from shasam.submodular.kernels import kernel_matrix, similarity_matrix

submodlib = pytest.importorskip(
    "submodlib",
    reason="our picks were not compared with submodlib's: it has no wheel for this Python",
)

BUDGET, OTHERS = 16, 16


def pair(name: str, n: int) -> tuple[SetFunction, Any]:
    """Our function and theirs over the same float32 similarities."""
    generator = torch.Generator().manual_seed(n)
    z = torch.randn(n, 24, generator=generator)
    y = torch.randn(OTHERS, 24, generator=generator)
    map_ = "cosine" if name.startswith("LogDet") else "shifted_cosine"
    own = kernel_matrix(z, map_).numpy()  # type: ignore[arg-type]
    cross = similarity_matrix(z, y, map_).numpy()  # type: ignore[arg-type]
    inner = kernel_matrix(y, map_).numpy()  # type: ignore[arg-type]
    if name == "FL":
        return FacilityLocation.from_features(z), submodlib.FacilityLocationFunction(
            n=n, mode="dense", sijs=own, separate_rep=False, pybind_mode="array"
        )
    if name == "FLCG":
        return FLCG.from_features(z, y), submodlib.FacilityLocationConditionalGainFunction(
            n=n, num_privates=OTHERS, data_sijs=own, private_sijs=cross
        )
    if name == "FL1MI":
        return FL1MI.from_features(z, y), submodlib.FacilityLocationMutualInformationFunction(
            n=n, num_queries=OTHERS, data_sijs=own, query_sijs=cross
        )
    if name == "FLQMI":
        theirs = submodlib.FacilityLocationVariantMutualInformationFunction(
            n=n, num_queries=OTHERS, query_sijs=cross
        )
        return FLQMI.from_features(z, y), theirs
    if name == "LogDet":  # rows of different length: with a unit diagonal the first pick is a tie
        plain = (z @ z.T / 24).numpy()
        plain = (plain + plain.T) / 2
        return LogDet(plain), submodlib.LogDeterminantFunction(
            n=n, mode="dense", lambdaVal=1, sijs=plain
        )
    return LogDetCG.from_features(z, y), submodlib.LogDeterminantConditionalGainFunction(
        n=n,
        num_privates=OTHERS,
        lambdaVal=1,
        data_sijs=own,
        private_sijs=cross,
        private_private_sijs=inner,
    )


@pytest.mark.parametrize("n", [200, 500])
@pytest.mark.parametrize("name", ["FL", "FLCG", "FL1MI", "FLQMI", "LogDet", "LogDetCG"])
def test_picks_and_gains_are_those_of_submodlib(name: str, n: int) -> None:
    ours, theirs = pair(name, n)
    told = theirs.maximize(budget=BUDGET, optimizer="NaiveGreedy", show_progress=False)
    mine = maximize(ours, BUDGET)
    # Where a gain is zero the order is free: they take the highest index, we the lowest.
    clear = int((mine.gains.abs() > 1e-6).sum())
    assert clear >= (2 if name == "FL1MI" else BUDGET)
    assert mine.indices.tolist()[:clear] == [v for v, _ in told][:clear]
    np.testing.assert_allclose(
        mine.gains[:clear], [g for _, g in told][:clear], rtol=1e-3, atol=1e-3
    )


def test_over_unit_vectors_the_picks_are_submodlibs_after_the_first_tied_one() -> None:
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(300, 24, generator=generator)
    theirs = submodlib.LogDeterminantFunction(
        n=300, mode="dense", lambdaVal=1, sijs=kernel_matrix(z, "cosine").numpy()
    )
    told = theirs.maximize(budget=BUDGET, optimizer="LazyGreedy", show_progress=False)
    picks = [v for v, _ in told]
    mine = maximize(conditional_gain(LogDet.from_features(z), picks[:1]), BUDGET - 1)
    assert mine.indices.tolist() == picks[1:]
    assert maximize(LogDet.from_features(z), 1).indices.tolist() == [0]
