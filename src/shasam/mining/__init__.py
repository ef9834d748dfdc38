"""Mining of triplets: pools of candidates, miners and the embedding bank."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)

from shasam.mining.pools import (
    EmbeddingBank,
    Ground,
    MinedSets,
    Miner,
    Pools,
    RandomMiner,
    feasible_pairs,
    pools_of,
)
from shasam.mining.shasam_miner import MiningConfig, ShasamMiner

__all__ = [
    "EmbeddingBank",
    "Ground",
    "MinedSets",
    "Miner",
    "MiningConfig",
    "Pools",
    "RandomMiner",
    "ShasamMiner",
    "feasible_pairs",
    "pools_of",
]
