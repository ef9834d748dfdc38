"""Bad input gets a sentence that says what is wrong, where, and what to do; nothing is silent."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hard_kernels import features, kernels

from shasam.errors import InputError, MemoryLimitError
from shasam.submodular import (
    FL1MI,
    FLCG,
    FLCMI,
    FLQMI,
    GCCG,
    GCMI,
    FacilityLocation,
    GraphCut,
    LogDet,
    LogDetCG,
    LogDetCMI,
    LogDetMI,
    conditional_gain,
    conditional_mutual_information,
    maximize,
    mutual_information,
)
from shasam.submodular import kernels as kernel_room

K = kernels()["rbf"]
SIGNED = kernels()["signed cosine"]
Z = features(8, 4)
NEAR = torch.full((14, 14), 0.9, dtype=torch.float64) + 0.1 * torch.eye(14)  # all much alike
INDEFINITE = LogDet(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), 0.0)
BROKEN_BY_NU = conditional_gain(LogDet(NEAR, ridge=0.1), [0, 1], nu=3.0, form="definition")


def spoiled(value: float, row: int) -> torch.Tensor:
    z = Z.clone()
    z[row, 2] = value
    return z


def asymmetric() -> torch.Tensor:
    k = K.clone()
    k[2, 5] += 0.25
    return k


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "k above n": (
        lambda: maximize(FacilityLocation(K), 15),
        "cannot pick k = 15 of 14 candidates; ask for at most 14",
    ),
    "k above the candidates": (
        lambda: maximize(FacilityLocation(K), 3, candidates=[1, 2]),
        "cannot pick k = 3 of 2 candidates",
    ),
    "negative k": (lambda: maximize(FacilityLocation(K), -1), "k must not be negative; got -1"),
    "k of another type": (
        lambda: maximize(FacilityLocation(K), 2.0),  # type: ignore[arg-type]
        "k must be a whole number; got 2.0",
    ),
    "no candidates": (
        lambda: maximize(FacilityLocation(K), 1, candidates=[]),
        "the candidate set is empty",
    ),
    "candidates outside": (
        lambda: maximize(FacilityLocation(K), 1, candidates=[3, 14]),
        r"indices must be within 0..13; got 3..14",
    ),
    "candidates from the query": (
        lambda: maximize(FLQMI(K, [3]), 1, candidates=[2, 3]),
        "candidate 3 belongs to the query or private set",
    ),
    "a candidate twice": (
        lambda: maximize(FacilityLocation(K), 1, candidates=[2, 2]),
        "each index once",
    ),
    "a mask for a set": (
        lambda: FacilityLocation(K)(torch.tensor([True, False])),
        "indices of its elements, whole numbers; got a mask",
    ),
    "floats for a set": (lambda: FacilityLocation(K)([0.5, 1.5]), "got floats"),
    "an unknown optimizer": (
        lambda: maximize(FacilityLocation(K), 1, optimizer="lazzy"),  # type: ignore[arg-type]
        "there is no optimizer 'lazzy'.*lazy",
    ),
    "epsilon": (
        lambda: maximize(FacilityLocation(K), 1, optimizer="stochastic", epsilon=1.0),
        "epsilon must be between 0 and 1; got 1.0",
    ),
    "no rows": (lambda: FacilityLocation.from_features(torch.zeros(0, 4)), "features is empty"),
    "no columns": (lambda: LogDet.from_features(torch.zeros(4, 0)), "features is empty"),
    "an empty kernel": (lambda: LogDet(torch.zeros(0, 0)), "kernel is empty"),
    "NaN": (lambda: LogDet.from_features(spoiled(torch.nan, 5)), "NaN or infinity in row 5"),
    "infinity": (
        lambda: FacilityLocation.from_features(spoiled(-torch.inf, 2)),
        r"features has NaN or infinity in row 2 \(1 such rows\)",
    ),
    "NaN in the query": (
        lambda: FLQMI.from_features(Z, spoiled(torch.nan, 1)),
        "query features has NaN or infinity in row 1",
    ),
    "NaN in the kernel": (
        lambda: GraphCut(K.masked_fill(torch.eye(14) > 0, torch.nan)),
        r"kernel has NaN or infinity in row 0 \(14 such rows\)",
    ),
    "not a matrix": (lambda: LogDet(torch.zeros(3)), r"kernel must be a matrix.*shape \(3,\)"),
    "not square": (
        lambda: FacilityLocation(torch.zeros(3, 4)),
        "kernel must be square; got 3×4. .*from_features",
    ),
    "not symmetric": (
        lambda: LogDet(asymmetric()),
        r"not symmetric: entries \(2, 5\) and \(5, 2\) differ by 0.25; use \(K \+ K.T\)/2",
    ),
    "negative entries, FL": (
        lambda: maximize(FacilityLocation(SIGNED), 2),
        r"FacilityLocation needs similarities that are not negative.*\(1 \+ K\)/2.*shifted_cosine",
    ),
    "negative entries, FLCG": (
        lambda: maximize(FLCG(SIGNED, [0]), 2),
        "FLCG needs similarities that are not negative",
    ),
    "negative entries, FLQMI": (
        lambda: maximize(FLQMI.from_features(Z, Z[:2], similarity="cosine"), 2),
        "FLQMI needs similarities that are not negative",
    ),
    "negative entries, GraphCut": (
        lambda: maximize(GraphCut(SIGNED), 2),
        r"GraphCut is submodular only over .* not negative; map cosines with \(1 \+ K\)/2",
    ),
    "negative entries, GraphCut over features": (
        lambda: maximize(GraphCut.from_features(Z, similarity="cosine"), 2),
        "GraphCut is submodular only over similarities that are not negative",
    ),
    "negative entries, GCCG": (lambda: maximize(GCCG(SIGNED, [0]), 2), "GCCG is submodular only"),
    "negative entries, measure by definition": (
        lambda: maximize(mutual_information(FacilityLocation(SIGNED), [0], form="definition"), 2),
        "not negative",
    ),
    "overlap, FLCMI": (
        lambda: FLCMI(K, [1, 2], [2, 3]),
        r"query and private set overlap in 1 elements \(the first is 2\)",
    ),
    "overlap, LogDetCMI": (lambda: LogDetCMI(K, [1, 2], [1, 2]), "overlap in 2 elements"),
    "overlap, measure": (
        lambda: conditional_mutual_information(GraphCut(K), [1], [1]),
        "cannot be both wanted and unwanted",
    ),
    "no query": (lambda: FL1MI(K, []), "the query set is empty"),
    "no private set": (lambda: conditional_gain(LogDet(K), []), "the private set is empty"),
    "nothing represented": (lambda: FacilityLocation(K, []), "the represented set is empty"),
    "represented by floats": (
        lambda: FacilityLocation.from_features(Z, [[0.1, 0.2, 0.3, 0.4]]),
        "represented must hold row indices within 0..7, or the features of another set",
    ),
    "widths": (
        lambda: FLQMI.from_features(Z, features(2, 3)),
        "query features have 3 columns and the candidates 4",
    ),
    "ridge": (lambda: LogDet(K, -0.1), "ridge must not be negative; got -0.1"),
    "lam": (lambda: GraphCut(K, float("nan")), "lam must not be negative; got nan"),
    "eta": (lambda: FLQMI(K, [0], eta=-1.0), "eta must be a number that is not negative; got -1"),
    "nu": (lambda: GCCG(K, [0], nu=float("nan")), "nu must be a number that is not negative"),
    "gamma": (
        lambda: LogDet.from_features(Z, similarity="rbf", gamma=0.0),
        "gamma must be a positive number; got 0.0",
    ),
    "similarity": (
        lambda: LogDet.from_features(Z, similarity="cosin"),  # type: ignore[arg-type]
        "there is no similarity 'cosin'.*cosine",
    ),
    "lazy, LogDetMI": (
        lambda: maximize(LogDetMI(K, [0]), 2, optimizer="lazy"),
        "LogDetMI is not submodular, so an old gain is no upper bound .*'naive' or 'auto'",
    ),
    "lazy, LogDetCMI": (
        lambda: maximize(LogDetCMI(K, [0], [1]), 2, optimizer="lazy"),
        "LogDetCMI is not submodular",
    ),
    "an indefinite kernel": (
        lambda: LogDet(torch.tensor([[1.0, 2.0], [2.0, 1.0]]), 0.0)([0, 1]),
        "not positive semi-definite.*a ridge above 1",
    ),
    "nu that breaks the kernel": (
        lambda: maximize(LogDetCG(K, [0, 1], ridge=0.1, nu=3.0), 12),
        r"eta and nu \(\[3.0\]\) leave no positive semi-definite kernel",
    ),
    "eta that breaks the kernel": (
        lambda: maximize(LogDetMI(K, [0, 1], ridge=0.1, eta=3.0), 3),
        "leave no positive semi-definite kernel here; use values up to 1, or a larger ridge",
    ),
    "gains over an indefinite kernel": (
        lambda: INDEFINITE.gains(INDEFINITE.start([0]), torch.tensor([1])),
        "not positive semi-definite.*smallest eigenvalue -1",
    ),
    "adding to a set over an indefinite kernel": (
        lambda: INDEFINITE.add(INDEFINITE.start([0]), 1),
        "not positive semi-definite",
    ),
    "picks over an indefinite kernel": (
        lambda: maximize(INDEFINITE, 2),
        "not positive semi-definite",
    ),
    "gains by the definition, nu that breaks the kernel": (
        lambda: BROKEN_BY_NU.gains(BROKEN_BY_NU.start(), torch.arange(2, 14)),
        "not positive semi-definite",
    ),
    "adding by the definition, nu that breaks the kernel": (
        lambda: BROKEN_BY_NU.add(BROKEN_BY_NU.start(), 2),
        "not positive semi-definite",
    ),
    "adding to a closed form, nu that breaks the kernel": (
        lambda: (f := LogDetCG(NEAR, [0, 1], ridge=0.1, nu=3.0)).add(f.start(), 2),
        "leave no positive semi-definite kernel",
    ),
    "a singular private set without ridge": (
        lambda: LogDetCG(torch.ones(4, 4), [0, 1], ridge=0.0),
        "the kernel of the given set is singular.*use a ridge above 0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_with_what_to_do(name: str) -> None:
    act, sentence = REFUSED[name]
    with pytest.raises(InputError, match=f"(?s){sentence}"):
        act()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opposite_rows_are_accepted_by_the_default_similarity(dtype: torch.dtype) -> None:
    z = torch.randn(20, 16, dtype=dtype, generator=torch.Generator().manual_seed(0))
    both = torch.cat([z, -z])
    assert len(maximize(GraphCut.from_features(both), 5)) == 5
    assert len(maximize(GCCG.from_features(both[:30], both[30:]), 5)) == 5
    # (1 + cos)/2 of a row and its opposite is 0, which rounding may put just below zero
    kernel = kernel_room.kernel_matrix(both, "shifted_cosine")
    kernel[0, 20] = kernel[20, 0] = -2 * torch.finfo(dtype).eps
    assert len(maximize(GraphCut(kernel), 5)) == 5


def test_evaluating_a_signed_kernel_is_fine() -> None:
    for f in (FacilityLocation(SIGNED), GraphCut(SIGNED), LogDet(SIGNED), FLQMI(SIGNED, [0])):
        assert bool(torch.isfinite(f([1, 2, 3])))
    assert float(FacilityLocation(SIGNED)([4])) == pytest.approx(float(SIGNED[4].sum()))
    assert maximize(LogDet(SIGNED), 2).indices.shape == (2,)
    assert maximize(GCMI(SIGNED, [0]), 2).indices.shape == (2,)


def test_mapped_cosines_can_be_maximised() -> None:
    assert len(maximize(FacilityLocation((1 + SIGNED) / 2), 3)) == 3
    assert len(maximize(GraphCut.from_features(Z), 3)) == 3


def test_duplicates_without_ridge_are_not_taken_for_an_indefinite_kernel() -> None:
    f = LogDet(torch.ones(4, 4), 0.0)
    assert float(f([0, 1])) == -torch.inf
    assert bool(torch.isfinite(f.gains(f.start([0]), torch.tensor([1, 2, 3]))).all())
    assert maximize(f, 4).indices.tolist() == [0, 1, 2, 3]


def test_rounding_is_not_asymmetry() -> None:
    k = K.float()
    k[0, 1] *= 1 + 1e-6
    assert len(maximize(FacilityLocation(k), 2)) == 2


def test_entries_whose_sum_overflows_are_still_finite() -> None:
    k = torch.full((4, 4), 3e38)
    assert LogDet(k).n == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda z: FacilityLocation.from_features(z),
        lambda z: FacilityLocation.from_features(z, similarity="rbf"),
        lambda z: FL1MI.from_features(z, z[:2]),
        lambda z: LogDet.from_features(z, similarity="rbf"),
    ],
)
def test_a_kernel_that_would_not_fit_is_refused_before_it_is_made(
    make: Callable[[torch.Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_room, "available_bytes", lambda device: 1_000_000)
    z = torch.randn(2000, 4)
    tracemalloc.start()
    with pytest.raises(MemoryLimitError) as refused:
        maximize(make(z), 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    sentence = str(refused.value)
    assert "a 2,000×2,000 kernel needs 16,000,000 bytes" in sentence
    fits = int((0.9 * 1_000_000 / 4) ** 0.5)
    assert f"a pool of up to {fits:,} fits" in sentence
    assert isinstance(refused.value, MemoryError)
    assert peak < 1_000_000
    assert len(maximize(make(z[:fits]), 2)) == 2  # what the sentence promises is true


def test_a_kernel_of_a_terabyte_is_refused_on_this_machine() -> None:
    z = torch.zeros(600_000, 1)
    z[:, 0] = 1
    with pytest.raises(MemoryLimitError, match="a pool of up to"):
        maximize(FacilityLocation.from_features(z), 1)


def test_fewer_represented_rows_need_no_square_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_room, "available_bytes", lambda device: 1_000_000)
    z = torch.randn(2000, 4)
    assert len(maximize(FacilityLocation.from_features(z, range(100)), 3)) == 3
    assert len(maximize(FLQMI.from_features(z, z[:16]), 3)) == 3
    assert len(maximize(LogDet.from_features(z), 3)) == 3
    assert len(maximize(GraphCut.from_features(z), 3)) == 3


def test_importing_the_package_does_not_import_torch_nor_numba() -> None:
    code = (
        "import sys, shasam; shasam.__version__; dir(shasam);"
        "print([m for m in ('torch', 'numba', 'numpy', 'pandas') if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert told.stdout.strip() == "[]"


def test_the_public_names_lead_to_the_room() -> None:
    import shasam

    assert shasam.FacilityLocation is FacilityLocation and shasam.maximize is maximize
    with pytest.raises(AttributeError, match="no attribute 'Facility'"):
        shasam.Facility  # noqa: B018


def test_numpy_kernels_are_checked_too() -> None:
    with pytest.raises(InputError, match="row 1"):
        LogDet(np.array([[1.0, 0.0], [0.0, np.nan]]))
