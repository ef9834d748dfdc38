"""Batch plans: which rows make each batch (natural, cell-balanced or mined)."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)

from shasam.sampling.balanced import BalancedPlan
from shasam.sampling.mined import MinedPlan, MiningConfig
from shasam.sampling.natural import NaturalPlan
from shasam.sampling.plan import BatchPlan, Draw, TrainingRows
from shasam.sampling.sampler import MiningBatchSampler, batch_triplets

__all__ = [
    "BalancedPlan",
    "BatchPlan",
    "Draw",
    "MinedPlan",
    "MiningBatchSampler",
    "MiningConfig",
    "NaturalPlan",
    "TrainingRows",
    "batch_triplets",
]
