"""SHaSaM: choose anchors, positives and negatives, mined or drawn, and minimise I_f(A; N | P).

Majee and Iyer, "SHaSaM: Submodular Hard Sample Mining for Fair Facial Attribute Recognition", 2026.
Four names: ``shasam`` is the paper's system, MINE + LEARN, in a form of the objective that learns;
``shasam-random`` is LEARN on random sets; ``shasam-ld`` has LogDetCMI instead of FLCMI;
``shasam-literal`` is everything as printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from shasam.errors import InputError, SpecError
from shasam.losses.sets import (
    Membership,
    PositiveForm,
    Represented,
    Smooth,
    check_form,
    flcmi_terms,
    level_term,
    logdetcmi,
    mean_term,
    unit_length,
)
from shasam.methods.base import Dial, Stage
from shasam.methods.two_stage import TwoStage, TwoStageConfig
from shasam.mining import MiningConfig
from shasam.models import Classifier, Encoder
from shasam.registry import register
from shasam.types import Batch, Losses


class SetsConfig(TwoStageConfig):
    """The objective, its companion, and how the sets are chosen."""

    objective: Literal["flcmi", "logdetcmi"] = Field(
        "flcmi", description="I_f(A; N | P) of facility location, or of the log-determinant."
    )
    smooth: Smooth = Field(
        "lse",
        description="Form of FLCMI: exact (of soft facility location), lse (its upper bound on "
        "anchors), linear (does not saturate), or none (Table 1 as printed).",
    )
    temperature: float = Field(0.7, gt=0, description="τ of the log-sum-exp; the paper's is 0.7.")
    represented: Represented = Field(
        "anchors",
        description="Rows whose terms count: the anchors, which align P with A, anchors and "
        "positives (target), or the batch, as printed.",
    )
    positive_form: PositiveForm = Field(
        "set", description="Nearness to the set of positives, or to each of them (lse and none)."
    )
    conditional_gain: float = Field(
        0.0, ge=0, description="λ of a term + λ·H_f(A | P), which draws A into what P covers."
    )
    ridge: float = Field(0.5, description="λ of LogDetCMI: what is added to the diagonal.")
    attraction: float = Field(
        0.0, description="μ of a term −μ·I(A; P) beside LogDetCMI, which is symmetric without it."
    )
    weight: float = Field(
        1.0, ge=0, json_schema_extra={"weight": None}, description="Weight of the set objective."
    )
    companion: float = Field(
        1.0,
        ge=0,
        json_schema_extra={"weight": None},
        description="Weight of cross-entropy of a linear head on the encoder, on the same batch.",
    )
    # The projection is normalised, so the gradient of the set objective is as large on features
    # without the target as on others. Beside it the companion's fades, and a small target is never
    # found (docs/training.md): the objective waits until the target is.
    weight_from: float = Field(
        0.25, ge=0, le=1, description="Share of the stage that the set objective waits."
    )
    weight_ramp: float = Field(
        0.25, ge=0, le=1, description="Share of the stage over which its weight then grows."
    )
    sampling: Literal["mined"] = Field(
        "mined", description="Batches of (A, P, N): the objective is one of sets."
    )
    mining: MiningConfig = Field(
        MiningConfig(greedy="stochastic"),
        description="How anchors, positives and negatives are chosen.",
    )
    stage2_sampling: Literal["natural", "balanced"] = Field(
        "balanced", description="How often the method's own classifier sees each cell."
    )

    @model_validator(mode="after")
    def _form_fits(self) -> SetsConfig:
        try:
            check_form(self.smooth, self.positive_form)
        except InputError as error:
            raise ValueError(str(error)) from error
        return self

    def weight_at(self, progress: float) -> float:
        """Return the weight of the set objective when a share ``progress`` of the stage is done."""
        if not self.companion:  # alone it has nothing to wait for
            return self.weight
        if progress < self.weight_from:
            return 0.0
        if self.weight_ramp == 0:
            return self.weight
        return self.weight * min(1.0, (progress - self.weight_from) / self.weight_ramp)


class ShasamConfig(SetsConfig):
    """The form that validation chose: a narrow embedding, and decisions on it.

    It holds the target and little of the group; experiments/mining-learn has the figures.
    """

    projection_dim: int = Field(
        8, description="Numbers of an embedding, on which stage 1 acts: fewer are fairer."
    )
    primary_features: Literal["encoder", "projection"] = Field(
        "projection",
        description="Features that the method's own predictions come from; both are evaluated.",
    )


@register("shasam", kind="method")
class Shasam(TwoStage):
    """weight · mean over pairs (i, j) of I_f(A_ij; N_ij | P_ij) + companion · CE(t, linear(h)).

    Three sets are mined over the whole ground set for every step. paper: the set objective alone,
    one pair a batch, stage 2 on natural batches. Here all pairs share a batch (Eq. 3), the
    objective is smooth (losses/sets.py), a linear companion on the encoder speeds it off
    the plateau, and stage 2 sees the cells equally often; docs/paper.md says why.
    """

    summary = "the paper's system: sets mined by submodular functions, and FLCMI over them"
    groups_in_turns = True
    unknown_groups = True
    continuous = True
    reference = "Majee & Iyer, WACV 2026; in a form that learns, see docs/paper.md"
    # narrower embeddings hold less of the group; its weight hardly changes anything
    dial = Dial("projection_dim", (128, 32, 8))
    Config: ClassVar[type[SetsConfig]] = ShasamConfig
    config: SetsConfig

    def __init__(self, config: SetsConfig, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        if groups == 0 and (config.objective == "logdetcmi" or config.smooth == "none"):
            raise SpecError(
                "the rows of a window have weights, which log-determinants and hard maxima do not "
                "take; choose shasam or shasam-random with smooth lse, exact or linear"
            )
        if groups == 0:
            check_form(config.smooth, config.positive_form, weighted=True)
        self.companion: nn.Module | None = None
        if config.companion:
            self.companion = Classifier(encoder.out_dim, None, classes)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        groups = super().parameter_groups()
        if self.companion is not None:
            groups["main"] += list(self.companion.parameters())
        return groups

    def uses_unknown(self, stage: Stage) -> bool:
        """Use them: the companion learns from them, and the classifiers of the second stage."""
        return stage.name != "learn" or self.companion is not None

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
        """Return Σ over the triplets of the batch, each over all views of its images."""
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
            weights: Membership | None = None
            if triplet.weights is not None:
                a, p, n = (w.to(z.device).repeat(batch.views) for w in triplet.weights)
                weights = (a, p, n)
            form: dict[str, Any] = {
                "smooth": c.smooth,
                "temperature": c.temperature,
                "represented": c.represented,
                "positive_form": c.positive_form,
                "conditional_gain": c.conditional_gain,
            }
            terms = flcmi_terms(z, *sets, **form, weights=weights)
            values.append(mean_term(terms, c.represented, weights))
            sizes = map(len, sets) if weights is None else (float(w.sum()) for w in weights)
            wrong.append((terms.detach() > level_term(*sizes, **form)).float().mean())
        # a small batch may lack every window of its step
        value = torch.stack(values).mean() if values else z.sum() * 0.0
        share = float(torch.stack(wrong).mean()) if wrong else None
        # under log-sum-exp every term has a gradient, on either side
        active, wrong_side = (share, None) if c.smooth == "none" else (None, share)
        weight = c.weight_at(batch.progress)
        return Losses(weight * value, {c.objective: value.detach()}, active, wrong_side)


class RandomSetsConfig(ShasamConfig):
    """The same objective on sets that are drawn at random."""

    mining: MiningConfig = Field(
        MiningConfig(
            anchors="random",
            positives="random",
            negatives="random",
            roles="shared",  # random sets are larger and no less random
            epoch="images",
        ),
        description="How anchors, positives and negatives are drawn; a rule turns mining on.",
    )


@register("shasam-random", kind="method")
class ShasamRandom(Shasam):
    """LEARN without MINE: every triplet of a pair is all images of the batch that fit it."""

    summary = "SHaSaM's objective on sets that are drawn at random, not mined"
    groups_in_turns = True
    unknown_groups = True
    continuous = True
    Config = RandomSetsConfig


class LogDetConfig(SetsConfig):
    """LogDetCMI with the term that breaks its symmetry."""

    objective: Literal["flcmi", "logdetcmi"] = Field(
        "logdetcmi", description="I_f(A; N | P) of facility location, or of the log-determinant."
    )
    attraction: float = Field(
        1.0, description="μ of a term −μ·I(A; P) beside LogDetCMI, which is symmetric without it."
    )
    # the loss is a mean over views and small: times 10 as in SCoRe
    weight: float = Field(
        10.0, ge=0, json_schema_extra={"weight": None}, description="Weight of the set objective."
    )


@register("shasam-ld", kind="method")
class ShasamLogDet(Shasam):
    """The same with LogDetCMI, made asymmetric by -I(A; P)."""

    summary = "SHaSaM with the LogDetCMI objective"
    groups_in_turns = True
    unknown_groups = True
    Config = LogDetConfig


class LiteralConfig(SetsConfig):
    """Table 1 and Alg. 1 as printed; docs/paper.md lists what the paper leaves open.

    One pair of class and group a batch, k = 16, three sets mined by lazy greedy over the whole of
    V with the present weights, |V|/b steps of 96 views, V without the one before, no companion, and
    a second stage on natural batches.
    """

    smooth: Smooth = Field("none", description="Form of FLCMI: none is Table 1 as printed.")
    represented: Represented = Field(
        "batch", description="Rows whose terms count: the whole batch, as printed."
    )
    companion: float = Field(
        0.0,
        ge=0,
        json_schema_extra={"weight": None},
        description="Weight of cross-entropy of a linear head on the encoder; the paper has none.",
    )
    weight_from: float = Field(
        0.0, ge=0, le=1, description="Share of the stage that the set objective waits: none."
    )
    weight_ramp: float = Field(
        0.0, ge=0, le=1, description="Share of the stage over which its weight then grows: none."
    )
    mining: MiningConfig = Field(
        MiningConfig(k=16, pairs="one", refresh="live", ground_shrinks=True),
        description="How anchors, positives and negatives are chosen: Alg. 1.",
    )
    stage2_sampling: Literal["natural", "balanced"] = Field(
        "natural", description="How often the method's own classifier sees each cell."
    )


@register("shasam-literal", kind="method")
class ShasamLiteral(Shasam):
    """The printed formulas: hard maxima and hinge over the whole batch, one mined pair a batch."""

    summary = "SHaSaM with everything as printed in the paper"
    groups_in_turns = True
    unknown_groups = True
    reference = "Majee & Iyer, WACV 2026"
    Config = LiteralConfig
