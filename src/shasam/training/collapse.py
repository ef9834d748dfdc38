"""Collapse: all embeddings become nearly equal, and nothing can be learnt from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from shasam.errors import TrainingError
from shasam.methods.base import Method, Stage
from shasam.runs.log import RunLog
from shasam.training.fabric import Fabric
from shasam.training.inference import TrainingData, features_of
from shasam.training.meters import effective_rank, mean_cosine
from shasam.training.progress import TrainingProgress
from shasam.training.state import State

PROBE_ROWS = 256  # validation images whose embeddings are measured every epoch


def spread_of_embeddings(
    method: Method, stage: Stage, data: TrainingData, val_rows: Tensor, fabric: Fabric
) -> dict[str, float]:
    """Mean cosine and effective rank of the embeddings of up to 256 validation images."""
    if stage.inputs == "features" or len(val_rows) < 2:
        return {}
    # spread over the split, so that every class is among them
    picks = torch.linspace(0, len(val_rows) - 1, min(PROBE_ROWS, len(val_rows)))
    features = features_of(method, data, val_rows[picks.long()], fabric)
    z = features.get("projection", features.get("encoder"))
    return {} if z is None else {"mean_cosine": mean_cosine(z), "effective_rank": effective_rank(z)}


class CollapseWatch:
    """Announces a collapse once, with what to change, and ends the run where asked to."""

    def __init__(
        self,
        state: State,
        log: RunLog,
        progress: TrainingProgress,
        first: bool,
        limit: float,
        on_collapse: Literal["warn", "stop"],
    ) -> None:
        self.state, self.log, self.progress = state, log, progress
        self.first, self.limit, self.on_collapse = first, limit, on_collapse

    def look(self, method: Method, stage: Stage, meters: Mapping[str, float]) -> None:
        """Judge the meters of an epoch."""
        # encoder features behind a ReLU all point into one orthant: only projections are judged
        cosine = meters.get("mean_cosine", 0.0)
        if not hasattr(method, "projection") or not cosine > self.limit:
            self.state.collapsed = False
            return
        advice = (
            f"the embeddings have collapsed in stage {stage.name}: their mean cosine is "
            f"{cosine:.3f}, effective rank {meters['effective_rank']:.1f}. Try a smooth objective, "
            "a batch-normalised projection, a smaller learning rate, or a later start of mining"
        )
        if self.first and not self.state.collapsed:
            self.log.write("collapse", stage=stage.name, step=self.state.step, message=advice)
            self.progress.say("COLLAPSE: " + advice, "bold red")
        self.state.collapsed = True
        if self.on_collapse == "stop":
            raise TrainingError(advice + " (stopped by --on-collapse stop)")
