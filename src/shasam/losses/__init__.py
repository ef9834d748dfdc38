"""Objectives as functions of tensors; methods put them together."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)

from shasam.losses.rivals import (
    conditional_group_mmd,
    conditional_hsic,
    dann_ramp,
    distillation_mmd,
    fscl,
    mean_alignment,
    mmd,
    negative_entropy,
    permute_blocks,
    reverse_gradient,
    soft_gap,
    standard_normal_kl,
    supcon,
    total_correlation,
)
from shasam.losses.sets import FLCMILoss, LogDetCMILoss, flcmi, logdetcmi, unit_length

__all__ = [
    "FLCMILoss",
    "LogDetCMILoss",
    "conditional_group_mmd",
    "conditional_hsic",
    "dann_ramp",
    "distillation_mmd",
    "flcmi",
    "fscl",
    "logdetcmi",
    "mean_alignment",
    "mmd",
    "negative_entropy",
    "permute_blocks",
    "reverse_gradient",
    "soft_gap",
    "standard_normal_kl",
    "supcon",
    "total_correlation",
    "unit_length",
]
