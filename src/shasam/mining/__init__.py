"""Mining of triplets: pools of candidates, miners and the embedding bank."""

from shasam.extras import need

need("torch", __name__)

from shasam.mining.bank import EmbeddingBank
from shasam.mining.config import MiningConfig
from shasam.mining.miner import Mined, Miner
from shasam.mining.pools import Pools, feasible_pairs, pools_of
from shasam.mining.random import RandomMiner
from shasam.mining.shasam import ShasamMiner

__all__ = [
    "EmbeddingBank",
    "Mined",
    "Miner",
    "MiningConfig",
    "Pools",
    "RandomMiner",
    "ShasamMiner",
    "feasible_pairs",
    "pools_of",
]
