"""The same selection by shasam, submodlib and apricot: from embeddings, and select-only.

submodlib is measured twice: as its users call it, with embeddings and a metric, and given
similarity kernels that our own code has built, which spares it most of its construction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

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
from shasam.submodular.kernels import Similarity, kernel_matrix, similarity_matrix

FUNCTIONS = ("FL", "FLCG", "FL1MI", "FLQMI", "LogDet", "LogDetCG")
OTHERS = 16  # queries or privates
WIDTH = 128


def embeddings(n: int) -> tuple[Tensor, Tensor]:
    """Random candidates (n, 128) and queries or privates (16, 128), the same in each process."""
    generator = torch.Generator().manual_seed(n)
    return (
        torch.randn(n, WIDTH, generator=generator),
        torch.randn(OTHERS, WIDTH, generator=generator),
    )


def ours(name: str, z: Tensor, y: Tensor) -> SetFunction:
    makers: dict[str, Callable[[], SetFunction]] = {
        "FL": lambda: FacilityLocation.from_features(z),
        "FLCG": lambda: FLCG.from_features(z, y),
        "FL1MI": lambda: FL1MI.from_features(z, y),
        "FLQMI": lambda: FLQMI.from_features(z, y),
        "LogDet": lambda: LogDet.from_features(z),
        "LogDetCG": lambda: LogDetCG.from_features(z, y),
    }
    return makers[name]()


def submodlib(name: str, z: Tensor, y: Tensor) -> Any:
    import submodlib as peer

    n = len(z)
    similarity: Similarity = "cosine" if name.startswith("LogDet") else "shifted_cosine"
    cross = similarity_matrix(z, y, similarity).numpy()
    if name == "FLQMI":
        return peer.FacilityLocationVariantMutualInformationFunction(
            n=n, num_queries=OTHERS, query_sijs=cross
        )
    own = kernel_matrix(z, similarity).numpy()
    if name == "FL":
        return peer.FacilityLocationFunction(n=n, mode="dense", sijs=own, separate_rep=False)
    if name == "FLCG":
        return peer.FacilityLocationConditionalGainFunction(
            n=n, num_privates=OTHERS, data_sijs=own, private_sijs=cross
        )
    if name == "FL1MI":
        return peer.FacilityLocationMutualInformationFunction(
            n=n, num_queries=OTHERS, data_sijs=own, query_sijs=cross
        )
    if name == "LogDet":
        return peer.LogDeterminantFunction(n=n, mode="dense", lambdaVal=1, sijs=own)
    return peer.LogDeterminantConditionalGainFunction(
        n=n,
        num_privates=OTHERS,
        lambdaVal=1,
        data_sijs=own,
        private_sijs=cross,
        private_private_sijs=kernel_matrix(y, similarity).numpy(),
    )


def submodlib_from_embeddings(name: str, z: Tensor, y: Tensor) -> Any:
    """As submodlib's users call it: it builds its own kernels."""
    import submodlib as peer

    n, data, others = len(z), z.numpy(), y.numpy()
    makers: dict[str, Callable[[], Any]] = {
        "FL": lambda: peer.FacilityLocationFunction(
            n=n, mode="dense", data=data, separate_rep=False, metric="cosine"
        ),
        "FLCG": lambda: peer.FacilityLocationConditionalGainFunction(
            n=n, num_privates=OTHERS, data=data, privateData=others, metric="cosine"
        ),
        "FL1MI": lambda: peer.FacilityLocationMutualInformationFunction(
            n=n, num_queries=OTHERS, data=data, queryData=others, metric="cosine"
        ),
        "FLQMI": lambda: peer.FacilityLocationVariantMutualInformationFunction(
            n=n, num_queries=OTHERS, data=data, queryData=others, metric="cosine"
        ),
        "LogDet": lambda: peer.LogDeterminantFunction(
            n=n, mode="dense", lambdaVal=1, data=data, metric="cosine"
        ),
        "LogDetCG": lambda: peer.LogDeterminantConditionalGainFunction(
            n=n, num_privates=OTHERS, lambdaVal=1, data=data, privateData=others, metric="cosine"
        ),
    }
    return makers[name]()


def submodlib_picks(function: Any, k: int) -> list[int]:
    told = function.maximize(
        budget=k,
        optimizer="LazyGreedy",
        stopIfZeroGain=False,
        stopIfNegativeGain=False,
        show_progress=False,
    )
    return [int(v) for v, _ in told]


def apricot_picks(kernel: Any, k: int) -> list[int]:
    from apricot import FacilityLocationSelection

    chosen = FacilityLocationSelection(k, metric="precomputed", optimizer="lazy").fit(kernel)
    return [int(v) for v in chosen.ranking]


def agreement(f: SetFunction, name: str, k: int, theirs: list[int]) -> str:
    """Are the picks the same, apart from ties (they take the highest index, we the lowest)?"""
    words = "equal"
    if name == "LogDet":  # unit vectors: the first pick is a tie of all, so start from theirs
        f, k, theirs = conditional_gain(f, theirs[:1]), k - 1, theirs[1:]
        words = "equal after the tied first"
    mine = maximize(f, k)
    picks = mine.indices.tolist()
    if picks == theirs:
        return words
    same = next(i for i, (a, b) in enumerate(zip(picks, theirs, strict=True)) if a != b)
    if bool((mine.gains[same:] <= 1e-6 * mine.gains[0]).all()):
        return f"equal in all {same} gains above 0"
    # their float32 kernels and sums cannot tell gains apart that differ in the seventh digit
    gains = f.gains(f.start(picks[:same]), torch.tensor([picks[same], theirs[same]]))
    if abs(float(gains[0] - gains[1])) <= 1e-6 * max(abs(float(mine.gains[0])), 1.0):
        return f"{words} up to a float32 tie at {same}"
    return f"differ from pick {same}"
