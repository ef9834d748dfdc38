"""Objectives as functions of tensors; methods put them together."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)

from shasam.losses.adversarial import dann_ramp, negative_entropy, reverse_gradient
from shasam.losses.combinatorial import FLCMILoss, LogDetCMILoss, flcmi, logdetcmi
from shasam.losses.contrastive import fscl, supcon
from shasam.losses.distribution import (
    conditional_group_mmd,
    distillation_mmd,
    mean_alignment,
    mmd,
    permute_blocks,
    standard_normal_kl,
    total_correlation,
)
from shasam.losses.unit import unit_length

__all__ = [
    "FLCMILoss",
    "LogDetCMILoss",
    "conditional_group_mmd",
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
    "standard_normal_kl",
    "supcon",
    "total_correlation",
    "unit_length",
]
