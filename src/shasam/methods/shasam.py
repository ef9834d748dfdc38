"""SHaSaM: choose anchors, positives and negatives, drawn or mined, and minimise I_f(A; N | P).

Majee and Iyer, "SHaSaM: Submodular Hard Sample Mining for Fair Facial Attribute Recognition", 2026.
Three names: ``shasam`` (the default), ``shasam-ld`` (LogDetCMI instead of FLCMI)
and ``shasam-literal`` (the paper's formulas as printed, which do not learn).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.losses.sets import flcmi_terms, level_term, logdetcmi, unit_length
from shasam.methods.two_stage import TwoStage, TwoStageConfig
from shasam.mining import MiningConfig
from shasam.mining.miners import NegativeRule
from shasam.models import Classifier, Encoder
from shasam.registry import register
from shasam.types import Batch, Losses


class ShasamMining(MiningConfig):
    """The sets of SHaSaM, drawn at random unless a rule is named.

    Mined negatives did not change accuracy or EO in fifteen paired runs, and cost five times the
    time of random ones (docs/results.md); ``negatives="flqmi"`` turns them on.
    """

    negatives: NegativeRule = "random"


class ShasamConfig(TwoStageConfig):
    """The objective, its companion, and how the sets are chosen."""

    objective: Literal["flcmi", "logdetcmi"] = "flcmi"
    smooth: Literal["lse", "none"] = "lse"
    temperature: float = Field(0.7, gt=0)
    represented: Literal["anchors", "target", "batch"] = "anchors"
    positive_form: Literal["set", "each"] = "set"
    ridge: float = 0.5  # λ of LogDetCMI
    attraction: float = 0.0  # μ of LogDetCMI's companion -I(A; P)
    # of the set objective, and of cross-entropy on the same cell-balanced batch
    weight: float = Field(1.0, ge=0, json_schema_extra={"weight": None})
    companion: float = Field(1.0, ge=0, json_schema_extra={"weight": None})
    # shares of the stage: how long the set objective waits, and over how much its weight then
    # grows. The projection is normalised, so that the objective's gradient is as large on features
    # without the target as on others; beside it the companion's fades, and a small target is never
    # found (docs/training.md)
    weight_from: float = Field(0.25, ge=0, le=1)
    weight_ramp: float = Field(0.25, ge=0, le=1)
    sampling: Literal["mined"] = "mined"  # batches of (A, P, N): the objective is one of sets
    mining: ShasamMining = ShasamMining()
    stage2_sampling: Literal["natural", "balanced"] = "balanced"

    def weight_at(self, progress: float) -> float:
        """The weight of the set objective when a share ``progress`` of the stage is done."""
        if not self.companion:  # alone it has nothing to wait for
            return self.weight
        if progress < self.weight_from:
            return 0.0
        if self.weight_ramp == 0:
            return self.weight
        return self.weight * min(1.0, (progress - self.weight_from) / self.weight_ramp)


@register("shasam", kind="method")
class Shasam(TwoStage):
    """weight · mean over pairs (i, j) of I_f(A_ij; N_ij | P_ij) + companion · CE(t, linear(h)).

    paper: the set objective alone, one pair a batch, stage 2 on natural batches. Here all pairs
    share a batch (Eq. 3), the objective is mended (losses/sets.py), a linear companion on
    the encoder speeds it off the plateau, and stage 2 sees the cells equally often; docs/paper.md
    says why, docs/results.md what each of these is worth.
    """

    summary = "an FLCMI objective over sets of class and group, drawn or mined; ours, the default"
    reference = "Majee & Iyer, WACV 2026; mended as docs/paper.md says"
    Config = ShasamConfig
    config: ShasamConfig

    def __init__(self, config: ShasamConfig, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        self.companion: nn.Module | None = None
        if config.companion:
            self.companion = Classifier(encoder.out_dim, None, classes)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        groups = super().parameter_groups()
        if self.companion is not None:
            groups["main"] += list(self.companion.parameters())
        return groups

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        if stage != "learn":
            yield from super().steps(batch, stage)
            return
        h = self.encoder(batch.images)
        z = unit_length(self.projection(h).float())
        batch.observe(z)
        losses = self.learn(z, batch)
        if self.companion is not None:
            ce = F.cross_entropy(self.companion(h).float(), batch.t_VB)
            losses = replace(
                losses,
                total=losses.total + self.config.companion * ce,
                parts={**losses.parts, "companion": ce.detach()},
            )
        yield "main", losses

    def learn(self, z: Tensor, batch: Batch) -> Losses:
        """Σ over the triplets of the batch, each over all views of its images."""
        c, size = self.config, len(batch.t_B)
        values, wrong = [], []
        for triplet in batch.triplets:
            sets = [
                torch.cat([rows.to(z.device) + view * size for view in range(batch.views)])
                for rows in (triplet.anchors, triplet.positives, triplet.negatives)
            ]
            if c.objective == "logdetcmi":
                values.append(logdetcmi(z, *sets, ridge=c.ridge, attraction=c.attraction))
                continue
            terms = flcmi_terms(
                z,
                *sets,
                smooth=c.smooth,
                temperature=c.temperature,
                represented=c.represented,
                positive_form=c.positive_form,
            )
            values.append(terms.mean())
            level = level_term(
                *map(len, sets),
                smooth=c.smooth,
                represented=c.represented,
                positive_form=c.positive_form,
            )
            wrong.append((terms.detach() > level).float().mean())
        value = torch.stack(values).mean()
        share = float(torch.stack(wrong).mean()) if wrong else None
        # under log-sum-exp every term has a gradient, on either side
        active, wrong_side = (share, None) if c.smooth == "none" else (None, share)
        weight = c.weight_at(batch.progress)
        return Losses(weight * value, {c.objective: value.detach()}, active, wrong_side)


class LogDetConfig(ShasamConfig):
    """LogDetCMI with the companion that breaks its symmetry."""

    objective: Literal["flcmi", "logdetcmi"] = "logdetcmi"
    attraction: float = 1.0
    # the loss is a mean over views and small: times 10 as in SCoRe
    weight: float = Field(10.0, ge=0, json_schema_extra={"weight": None})


@register("shasam-ld", kind="method")
class ShasamLogDet(Shasam):
    """The same with LogDetCMI, made asymmetric by -I(A; P)."""

    summary = "SHaSaM with the LogDetCMI objective"
    Config = LogDetConfig


class LiteralConfig(ShasamConfig):
    """Table 1 and Alg. 1 as printed, but for three settings that docs/methods.md declares.

    Pools of 8 candidates per pick instead of the whole ground set, a ground set that does not
    shrink, and the batch norm of the projection head.
    """

    smooth: Literal["lse", "none"] = "none"
    represented: Literal["anchors", "target", "batch"] = "batch"
    companion: float = Field(0.0, ge=0, json_schema_extra={"weight": None})
    weight_from: float = Field(0.0, ge=0, le=1)
    weight_ramp: float = Field(0.0, ge=0, le=1)
    mining: ShasamMining = ShasamMining(
        anchors="logdet",
        positives="flcg",
        negatives="fl1mi",
        start=0.0,
        ramp=0.0,
        pool=8.0,
        trim=0.0,
        refresh="live",
        pairs="one",
    )
    stage2_sampling: Literal["natural", "balanced"] = "natural"


@register("shasam-literal", kind="method")
class ShasamLiteral(Shasam):
    """The printed formulas: hard maxima and hinge over the whole batch, one mined pair a batch."""

    summary = "SHaSaM as printed in the paper; collapses, kept for every table"
    reference = "Majee & Iyer, WACV 2026"
    Config = LiteralConfig
