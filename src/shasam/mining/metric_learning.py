"""Triplets as tuples of indices, the form that pytorch-metric-learning uses."""

from __future__ import annotations

import torch
from torch import Tensor

from shasam.types import Triplet


def triplet_tuple(triplet: Triplet) -> tuple[Tensor, Tensor, Tensor]:
    """(anchor, positive, negative) of every combination: k³ entries."""
    a, p, n = torch.meshgrid(triplet.anchors, triplet.positives, triplet.negatives, indexing="ij")
    return a.flatten(), p.flatten(), n.flatten()


def pair_tuple(triplet: Triplet) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(anchor, positive, anchor, negative) of every pair: k² entries each."""
    a1, p = torch.meshgrid(triplet.anchors, triplet.positives, indexing="ij")
    a2, n = torch.meshgrid(triplet.anchors, triplet.negatives, indexing="ij")
    return a1.flatten(), p.flatten(), a2.flatten(), n.flatten()
