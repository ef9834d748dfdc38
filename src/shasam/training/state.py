"""The progress of a run: everything of it that a checkpoint keeps as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class State:
    """The numbers of a run under way; all of them are in the checkpoint, as JSON."""

    stage: int = 0
    step: int = 0
    images_seen: int = 0
    seconds: float = 0.0
    learn_seconds: float = 0.0
    mine_seconds: float = 0.0
    inactive: int = 0  # steps in a row without any active term of the loss
    ema_count: int = 0
    best: float | None = None
    collapsed: bool = False
    sums: dict[str, float] = field(default_factory=dict)  # of the epoch that is under way

    def add(self, name: str, value: float) -> None:
        """Add to a sum of the epoch."""
        self.sums[name] = self.sums.get(name, 0.0) + value

    @property
    def mine_fraction(self) -> float | None:
        """Share of the mined stage's time that went into mining."""
        return self.mine_seconds / self.learn_seconds if self.learn_seconds else None
