"""The options of mining: functions, hardness, schedule, and age of the embeddings."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer

from shasam.mining.bank import Refresh
from shasam.mining.miner import Miner
from shasam.mining.pools import PairSampling
from shasam.mining.random import RandomMiner
from shasam.mining.shasam import AnchorRule, NegativeRule, PositiveRule, ShasamMiner
from shasam.registry import did_you_mean, lookup, names


class MiningConfig(BaseModel):
    """What is mined, how hard, from when, and from which embeddings."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    miner: str = "shasam"  # any registered one; the seven keys below are those of "shasam" alone
    anchors: AnchorRule = "random"
    positives: PositiveRule = "random"
    negatives: NegativeRule = "flqmi"
    ridge: float = 1.0
    nu: float = 1.0
    eta: float = 1.0
    trim: float = Field(0.15, ge=0, lt=1)  # least typical of a pool: outliers, wrong labels
    start: float = Field(0.4, ge=0, le=1)  # share of the stage with random sets
    ramp: float = Field(0.2, ge=0, le=1)  # share of the stage over which pools grow to full size
    pool: float = Field(6.0, ge=1)  # candidates per pick at full hardness
    # images of each set (the paper's budget): the batch follows; null: as many as the batch holds
    k: int | None = Field(None, ge=1, le=100_000)
    refresh: Refresh = "free"
    pairs: Literal["all", "one"] = "all"  # Eq. 3: every (i, j) in a batch; Alg. 1: one
    pair_sampling: PairSampling = "uniform"
    small_pool: Literal["redraw", "repeat", "shrink"] = "repeat"
    ground: float = Field(0.2, gt=0, le=1)  # share of the training set that is V in an epoch
    ground_shrinks: bool = False  # paper, literally: sample(0.2) \ V_prev

    @field_validator("miner")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in names("miner"):
            raise ValueError(f"there is no miner {name!r}{did_you_mean(name, names('miner'))}")
        return name

    @model_serializer(mode="wrap")
    def _dump(self, dump: Any) -> dict[str, Any]:
        """Without keys that were added later and are not used: older runs keep their names."""
        body: dict[str, Any] = dump(self)
        if self.k is None:
            body.pop("k", None)
        if self.miner == "shasam":
            body.pop("miner")
        return body

    def make_miner(self) -> Miner:
        if self.miner != "shasam":
            made: Miner = lookup("miner", self.miner)()
            return made
        rules = (self.anchors, self.positives, self.negatives)
        if rules == ("random",) * 3:
            return RandomMiner()
        return ShasamMiner(*rules, ridge=self.ridge, nu=self.nu, eta=self.eta, trim=self.trim)

    def picks(self, role: str) -> bool:
        """Whether the miner chooses among candidates for a role, or takes what is drawn."""
        return self.miner != "shasam" or getattr(self, role) != "random"
