"""Mining of triplets: pools of candidates, miners and the embedding bank."""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)

from shasam.mining.miners import (
    EmbeddingBank,
    Ground,
    MinedSets,
    Miner,
    MiningConfig,
    Pools,
    RandomMiner,
    ShasamMiner,
    feasible_pairs,
    pools_of,
)

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
