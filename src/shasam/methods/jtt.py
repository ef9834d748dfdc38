"""Just train twice: the rows that a first model gets wrong come more often for the second."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.errors import ContractError
from shasam.methods.base import Dial, Stage
from shasam.methods.baselines import CE, CEConfig
from shasam.models import Encoder
from shasam.registry import register
from shasam.sampling import BatchPlan, TrainingRows
from shasam.types import Batch, Losses

_SCORED = 256  # rows that are scored together


@register("jtt", kind="method")
class JTT(CE):
    """Stage identify: CE of a first model. Stage learn: CE of a second one, from the same start, on
    the training rows and ``upweight`` more copies of each that the first one gets wrong.

    No group is read in training; groups in validation choose ``upweight`` and the length of the
    first stage, if anything does. The rows are scored as they are, without augmentation.
    """

    summary = "cross-entropy twice; what the first model gets wrong is drawn more often"
    groups_in_turns = True
    unknown_groups = True
    continuous = True
    reference = "Liu et al., ICML 2021 (Just Train Twice)"
    dial = Dial("upweight", (2, 6, 20))

    class Config(CEConfig):
        upweight: int = Field(
            6, ge=0, description="Further copies of each row that the first model gets wrong."
        )

    config: Config

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        self.first = nn.ModuleDict(
            {"encoder": copy.deepcopy(encoder), "classifier": copy.deepcopy(self.classifier)}
        )
        # found anew at the start of the second stage, also of one that is resumed: the first model
        # does not move any more
        self._wrong = torch.zeros(0, dtype=torch.int64)

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("identify", ("first",)), Stage("learn", ("main",)))

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        main = [*self.encoder.parameters(), *self.classifier.parameters()]
        return {"main": main, "first": list(self.first.parameters())}

    def begin_stage(self, stage: Stage, data: TrainingRows) -> None:
        if stage.name == "learn":
            self._wrong = self._errors(data)

    def batch_plan(self, stage: Stage, data: TrainingRows) -> BatchPlan:
        if stage.name == "learn":
            more = self._wrong.repeat(self.config.upweight)
            data = replace(data, rows=torch.cat([data.rows.cpu(), more]))
        return super().batch_plan(stage, data)

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        if stage == "learn":
            yield from super().steps(batch, stage)
            return
        loss = F.cross_entropy(self._first_scores(batch.images).float(), batch.t_VB)
        yield "first", Losses(loss, {"ce": loss.detach()})

    def _first_scores(self, images: Tensor) -> Tensor:
        scores: Tensor = self.first["classifier"](self.first["encoder"](images))
        return scores

    @torch.no_grad()
    def _errors(self, data: TrainingRows) -> Tensor:
        """Return the training rows that the first model gets wrong."""
        if data.images is None:
            raise ContractError(
                "JTT reads the training rows between its stages: TrainingRows.images"
            )
        self.first.eval()
        found = [torch.zeros(0, dtype=torch.int64)]
        for rows in data.rows.cpu().split(_SCORED):
            guessed = self._first_scores(data.images(rows)).argmax(1).cpu()
            found.append(rows[guessed != data.t_N.cpu()[rows]])
        return torch.cat(found)
