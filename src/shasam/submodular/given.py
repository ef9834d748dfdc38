"""Checks of query and private sets, and of their strengths η and ν."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shasam.errors import InputError


def outside(n: int, *given: Tensor) -> Tensor:
    """What may be picked: all of 0..n-1 but the given sets."""
    free_N = torch.ones(n, dtype=torch.bool, device=given[0].device)
    for index in given:
        free_N[index] = False
    return free_N.nonzero().flatten()


def check_given(index: Tensor, name: str) -> Tensor:
    """A query or private set must not be empty."""
    if len(index) == 0:
        raise InputError(f"the {name} set is empty; without it use the plain function")
    return index


def check_disjoint(query: Tensor, private: Tensor) -> None:
    """A query and a private set must not share elements."""
    shared = np.intersect1d(query.cpu().numpy(), private.cpu().numpy())
    if len(shared):
        raise InputError(
            f"query and private set overlap in {len(shared)} elements (the first is {shared[0]}); "
            "an element cannot be both wanted and unwanted"
        )


def check_strength(eta: float, nu: float) -> None:
    """η and ν multiply similarities: finite, not negative."""
    for name, value in (("eta", eta), ("nu", nu)):
        if not 0 <= value < float("inf"):
            raise InputError(f"{name} must be a number that is not negative; got {value}")
