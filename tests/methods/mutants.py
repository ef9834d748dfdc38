"""Broken variants of the methods, each with one fault that has been or could be made.

A mutant is a subclass, or a method with one function of its module replaced. Two are transcribed
from public benchmarks: MEDFAIR's LNL, whose predictor's optimiser holds the network's parameters,
and VB-Mitigator's EnD, whose fairness term is overwritten by plain cross-entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import shasam.methods.fairvit
import shasam.methods.fdvae
import shasam.methods.fscl
import shasam.methods.grl
import shasam.methods.lisa
import shasam.methods.lnl
import shasam.methods.mfd
import shasam.methods.posthoc
import shasam.methods.tadet
import shasam.methods.two_stage
from shasam.losses import fscl, mean_alignment, mmd, reverse_gradient, supcon
from shasam.methods.base import Stage
from shasam.methods.baselines import CE, Balanced, BalancedHidden, GroupDRO, Reweight
from shasam.methods.fairvit import FairViT
from shasam.methods.fdvae import FDVAE
from shasam.methods.fscl import FSCL, FSCLPlus, SupCon
from shasam.methods.grl import GRL
from shasam.methods.jtt import JTT
from shasam.methods.lisa import LISA
from shasam.methods.lnl import LNL
from shasam.methods.mfd import MFD
from shasam.methods.posthoc import PostHoc, Thresholds
from shasam.methods.tadet import TADeT, TADeTMMD
from shasam.models import Classifier
from shasam.sampling import TrainingRows
from shasam.types import Batch, Losses, Predictions

Step = Iterator[tuple[str, Losses]]


@dataclass(frozen=True)
class Mutant:
    """One fault: a class, or a method and a function to put in the place of another."""

    name: str
    base: str  # the case whose configuration and oracles apply
    cls: type
    module: Any = None
    attribute: str = ""
    replacement: Callable | None = None


MUTANTS: list[Mutant] = []


def mutant(base: str) -> Callable[[type], type]:
    def add(cls: type) -> type:
        MUTANTS.append(Mutant(cls.__name__, base, cls))
        return cls

    return add


def patched(name: str, base: str, cls: type, module: Any, attribute: str, new: Callable) -> None:
    MUTANTS.append(Mutant(name, base, cls, module, attribute, new))


def swapped(batch: Batch) -> Batch:
    """Target and group exchanged."""
    return replace(batch, t_B=batch.s_B, s_B=batch.t_B)


# -- cross-entropy and its relatives -----------------------------------------------------------


@mutant("ce")
class LearnsTheGroup(CE):
    def steps(self, batch: Batch, stage: str) -> Step:
        yield from super().steps(swapped(batch), stage)


@mutant("ce")
class DetachedFeatures(CE):
    def steps(self, batch: Batch, stage: str) -> Step:
        loss = F.cross_entropy(self.classifier(self.encoder(batch.images).detach()), batch.t_B)
        yield "main", Losses(loss)


@mutant("ce")
class SoftmaxTwice(CE):
    def steps(self, batch: Batch, stage: str) -> Step:
        scores = self.classifier(self.encoder(batch.images)).softmax(1)
        yield "main", Losses(F.cross_entropy(scores, batch.t_B))


@mutant("ce")
class SmoothsLabels(CE):
    def steps(self, batch: Batch, stage: str) -> Step:
        scores = self.classifier(self.encoder(batch.images))
        yield "main", Losses(F.cross_entropy(scores, batch.t_B, label_smoothing=0.1))


@mutant("ce")
class SumsInsteadOfAveraging(CE):
    def steps(self, batch: Batch, stage: str) -> Step:
        scores = self.classifier(self.encoder(batch.images))
        yield "main", Losses(F.cross_entropy(scores, batch.t_B, reduction="sum"))


@mutant("ce")
class ForgetsTheClassifier(CE):
    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"main": list(self.encoder.parameters())}


@mutant("ce")
class StepsByItself(CE):
    def steps(self, batch: Batch, stage: str) -> Step:
        yield from super().steps(batch, stage)
        with torch.no_grad():
            for p in self.classifier.parameters():
                p.mul_(0.99)
        yield from super().steps(batch, stage)


@mutant("ce")
class HoldsAnOptimiser(CE):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.optimiser = torch.optim.SGD(self.parameters(), lr=0.1)


@mutant("ce")
class PredictsInTrainingMode(CE):
    def logits(self, images: Tensor) -> dict[str, Tensor]:
        self.train()
        return super().logits(images)


@mutant("ce")
class PredictsTheOtherClass(CE):
    def logits(self, images: Tensor) -> dict[str, Tensor]:
        return {k: v.flip(1) for k, v in super().logits(images).items()}


@mutant("ce")
class DropsOutAtTest(CE):
    def logits(self, images: Tensor) -> dict[str, Tensor]:
        return {k: F.dropout(v, 0.5, training=True) for k, v in super().logits(images).items()}


@mutant("ce")
class UnseededNoise(CE):
    def steps(self, batch: Batch, stage: str) -> Step:
        g = torch.Generator()
        g.seed()
        noisy = batch.images + 0.1 * torch.randn(batch.images.shape, generator=g)
        yield from super().steps(replace(batch, images=noisy), stage)


@mutant("ce")
class PartsKeepTheGraph(CE):
    def steps(self, batch: Batch, stage: str) -> Step:
        loss = F.cross_entropy(self.classifier(self.encoder(batch.images)), batch.t_B)
        yield "main", Losses(loss, {"ce": loss})


@mutant("balanced")
class NotBalanced(Balanced):
    def stages(self) -> tuple[Stage, ...]:
        return (Stage("learn", ("main",)),)


@mutant("balanced-hidden")
class HiddenNotBalanced(BalancedHidden):
    def stages(self) -> tuple[Stage, ...]:
        return (Stage("learn", ("main",)),)


@mutant("balanced-hidden")
class NothingHidden(BalancedHidden):
    def __init__(self, config: Any, encoder: Any, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        self.classifier = Classifier(encoder.out_dim, None, classes)


@mutant("balanced-hidden")
class HiddenBeforeTheReLU(BalancedHidden):
    def features(self, images: Tensor) -> dict[str, Tensor]:
        found = super().features(images)
        return {**found, "hidden": self.classifier.hidden(found["encoder"])}


@mutant("reweight")
class WeighsByFrequency(Reweight):
    def _weights(self, n_CG: Tensor) -> Tensor:
        return 1 / super()._weights(n_CG)


@mutant("reweight")
class WeighsByClassAlone(Reweight):
    def _weights(self, n_CG: Tensor) -> Tensor:
        return (n_CG.sum() / (self.classes * n_CG.sum(1, keepdim=True))).expand_as(n_CG)


@mutant("reweight")
class CountsTheBatch(Reweight):
    def _count(self, t_B: Tensor, s_B: Tensor) -> Tensor:
        return super()._count(t_B[:8], s_B[:8]) + 1


@mutant("groupdro")
class WeightsNeverMove(GroupDRO):
    def steps(self, batch: Batch, stage: str) -> Step:
        kept = self.weights_K.clone()
        yield from super().steps(batch, stage)
        self.weights_K.copy_(kept)


@mutant("groupdro")
class FavoursTheBestCell(GroupDRO):
    def __init__(self, config: Any, *args: Any) -> None:
        super().__init__(config.model_copy(update={"step": -config.step}), *args)
        self.config = config

    def steps(self, batch: Batch, stage: str) -> Step:
        self.config = self.config.model_copy(update={"step": -0.01})
        yield from super().steps(batch, stage)
        self.config = self.config.model_copy(update={"step": 0.01})


@mutant("groupdro")
class ForgetsItsWeights(GroupDRO):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        weights = self.weights_K
        del self._buffers["weights_K"]
        self.register_buffer("weights_K", weights, persistent=False)


@mutant("posthoc")
class ForgetsItsThresholds(PostHoc):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for name in ("rule_G6", "swap_GCC", "fitted_G"):
            value = self._buffers.pop(name)
            self.register_buffer(name, value, persistent=False)


@mutant("posthoc")
class ThrowsNewCoins(PostHoc):
    def decide(self, predictions: Predictions) -> Predictions:
        decided = super().decide(predictions)
        coin = np.random.default_rng().random(len(decided.prediction)) < 0.3
        return replace(decided, prediction=np.where(coin, 1, decided.prediction))


@mutant("thresholds")
class HeadShapesTheFeatures(Thresholds):
    def steps(self, batch: Batch, stage: str) -> Step:
        features = self.encoder(batch.images)
        loss = F.cross_entropy(self.classifier(features), batch.t_B)
        yield "main", Losses(loss + F.cross_entropy(self.group_head(features), batch.s_B))


@mutant("thresholds")
class HeadLearnsTheTarget(Thresholds):
    def steps(self, batch: Batch, stage: str) -> Step:
        features = self.encoder(batch.images)
        loss = F.cross_entropy(self.classifier(features), batch.t_B)
        yield "main", Losses(loss + F.cross_entropy(self.group_head(features.detach()), batch.t_B))


@mutant("thresholds")
class ForgetsItsOffsets(Thresholds):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.register_buffer("offset_GC", self._buffers.pop("offset_GC"), persistent=False)


# -- two models, and mixtures ------------------------------------------------------------------


@mutant("jtt")
class TrainsOnce(JTT):
    """The plan of the second stage is that of the first."""

    def begin_stage(self, stage: Stage, data: TrainingRows) -> None:
        pass


@mutant("jtt")
class UpweightsWhatIsRight(JTT):
    def _errors(self, data: TrainingRows) -> Tensor:
        wrong = super()._errors(data)
        return data.rows[~torch.isin(data.rows, wrong)]


@mutant("jtt")
class ErrorsOfTheSecondModel(JTT):
    def _first_scores(self, images: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return super()._first_scores(images)
        return self.classifier(self.encoder(images))


@mutant("jtt")
class GoesOnWithTheFirstModel(JTT):
    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"main": [*self.classifier.parameters()], "first": [*self.encoder.parameters()]}


@mutant("lisa")
class MixesAnything(LISA):
    def steps(self, batch: Batch, stage: str) -> Step:
        yield from super().steps(replace(batch, s_B=torch.arange(len(batch.s_B))), stage)


@mutant("lisa")
class MixesWithoutTheLabels(LISA):
    def steps(self, batch: Batch, stage: str) -> Step:
        within = bool(torch.rand(()) < self.config.within_class)
        partner = shasam.methods.lisa.partners(batch.t_B, batch.s_B, within)
        alpha = torch.tensor(self.config.alpha)
        share = torch.distributions.Beta(alpha, alpha).sample((len(partner),))
        share = share.view(-1, *[1] * (batch.images.ndim - 1))
        mixed = share * batch.images + (1 - share) * batch.images[partner]
        loss = F.cross_entropy(self.classifier(self.encoder(mixed)), batch.t_B)
        yield "main", Losses(loss)


@mutant("lisa")
class MixesNaturalBatches(LISA):
    def stages(self) -> tuple[Stage, ...]:
        return (Stage("learn", ("main",)),)


patched(
    "lisa always mixes within the class",
    "lisa",
    LISA,
    shasam.methods.lisa,
    "partners",
    lambda t, s, within, _own=shasam.methods.lisa.partners: _own(t, s, True),
)


# -- adversaries -------------------------------------------------------------------------------


def not_reversed(x: Tensor, factor: float = 1.0) -> Tensor:
    return x


def helping(x: Tensor, factor: float = 1.0) -> Tensor:
    return reverse_gradient(x, -factor)


def cut_off(x: Tensor, factor: float = 1.0) -> Tensor:
    return x.detach()


for _base, _cls, _module in (
    ("grl", GRL, shasam.methods.grl),
    ("lnl", LNL, shasam.methods.lnl),
    ("tadet", TADeT, shasam.methods.tadet),
    ("fdvae", FDVAE, shasam.methods.fdvae),
):
    patched(f"{_base} without reversal", _base, _cls, _module, "reverse_gradient", not_reversed)
    patched(f"{_base} with the wrong sign", _base, _cls, _module, "reverse_gradient", helping)
    patched(f"{_base} cut off", _base, _cls, _module, "reverse_gradient", cut_off)

patched("grl without ramp", "grl", GRL, shasam.methods.grl, "dann_ramp", lambda p, slope: 1.0)
patched("tadet without ramp", "tadet", TADeT, shasam.methods.tadet, "dann_ramp", lambda p, s: 1.0)


@mutant("grl")
class OverwrittenLoss(GRL):
    """As in VB-Mitigator's EnD: the fairness term is computed, and then not used."""

    def steps(self, batch: Batch, stage: str) -> Step:
        features = self.encoder(batch.images)
        scores = self.classifier(features)
        loss = F.cross_entropy(scores, batch.t_B)
        loss = loss + F.cross_entropy(self.adversary(reverse_gradient(features, 1.0)), batch.s_B)
        loss = F.cross_entropy(scores, batch.t_B)
        yield "main", Losses(loss)


@mutant("grl")
class AdversaryReadsTheTarget(GRL):
    def steps(self, batch: Batch, stage: str) -> Step:
        yield from super().steps(replace(batch, s_B=batch.t_B), stage)


@mutant("grl")
class StrengthIgnored(GRL):
    def steps(self, batch: Batch, stage: str) -> Step:
        own = self.config
        self.config = own.model_copy(update={"strength": 1.0})
        yield from super().steps(batch, stage)
        self.config = own


@mutant("grl")
class AdversaryWithoutOptimiser(GRL):
    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"main": [*self.encoder.parameters(), *self.classifier.parameters()]}


@mutant("lnl")
class MedfairDeadPredictor(LNL):
    """As in MEDFAIR: the predictor's optimiser is given the network's parameters."""

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        network = [*self.encoder.parameters(), *self.classifier.parameters()]
        return {"network": network, "predictor": list(self.encoder.parameters())}


@mutant("lnl")
class PredictorInTheWrongGroup(LNL):
    """The same fault kept a partition: the predictor's parameters are stepped by nobody."""

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        groups = super().parameter_groups()
        return {
            "network": list(self.classifier.parameters()),
            "predictor": list(self.encoder.parameters()),
            "unused": groups["predictor"],
        }


@mutant("lnl")
class PredictorNeverStepped(LNL):
    def steps(self, batch: Batch, stage: str) -> Step:
        for _, losses in super().steps(batch, stage):
            if losses.total.requires_grad:
                yield "network", losses


@mutant("lnl")
class NoEntropy(LNL):
    def steps(self, batch: Batch, stage: str) -> Step:
        own = self.config
        self.config = own.model_copy(update={"entropy": 0.0})
        yield from super().steps(batch, stage)
        self.config = own


@mutant("lnl")
class NoSecondUpdate(LNL):
    def steps(self, batch: Batch, stage: str) -> Step:
        own = self.config
        self.config = own.model_copy(update={"reversal": 0.0})
        yield from super().steps(batch, stage)
        self.config = own


@mutant("lnl")
class PredictsTheTarget(LNL):
    def _group_loss(self, map_BDHW: Tensor, batch: Batch) -> Tensor:
        return super()._group_loss(map_BDHW, replace(batch, s_B=batch.t_B))


patched(
    "lnl rewards certainty",
    "lnl",
    LNL,
    shasam.methods.lnl,
    "negative_entropy",
    lambda scores: -(scores.softmax(1) * scores.log_softmax(1)).sum(1).mean(),
)
patched(
    "tadet averages the query to one number",
    "tadet",
    TADeT,
    shasam.methods.tadet,
    "mean_alignment",
    lambda q, s: mean_alignment(q.mean(1, keepdim=True), s),
)
patched(
    "tadet names its groups the other way",
    "tadet",
    TADeT,
    shasam.methods.tadet,
    "mean_alignment",
    lambda q, s: mean_alignment(q, 1 - s),
)
patched(
    "tadet-mmd over all classes at once",
    "tadet-mmd",
    TADeTMMD,
    shasam.methods.tadet,
    "conditional_group_mmd",
    lambda q, t, s, sigma: (
        mmd(q[s == 0], q[s == 1], sigma * torch.cdist(q, q).pow(2).mean().item())
        if len(s.unique()) > 1
        else q.sum() * 0
    ),
)


@mutant("tadet")
class ReadsTheClassToken(TADeT):
    def _pass(self, batch: Batch) -> tuple[Tensor, Tensor]:
        features = self.encoder(batch.images)
        return F.cross_entropy(self.classifier(features), batch.t_B), features


# -- distillation ------------------------------------------------------------------------------


@mutant("mfd")
class DistilsFromItself(MFD):
    def _pass(self, encoder: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
        return super()._pass(self.encoder, images)


@mutant("mfd")
class TeacherNeverTrained(MFD):
    def stages(self) -> tuple[Stage, ...]:
        return super().stages()[-1:]


@mutant("mfd")
class TeacherMovesWithTheStudent(MFD):
    def stages(self) -> tuple[Stage, ...]:
        teacher, learn = super().stages()
        return teacher, replace(learn, groups=("main", "teacher"))


def _mmd_of_classes(student: Tensor, teacher: Tensor, t: Tensor, s: Tensor, sigma: float) -> Tensor:
    return shasam.losses.distillation_mmd(student, teacher, t, torch.zeros_like(s), sigma=sigma)


def _mmd_of_groups(student: Tensor, teacher: Tensor, t: Tensor, s: Tensor, sigma: float) -> Tensor:
    return shasam.losses.distillation_mmd(student, teacher, torch.zeros_like(t), s, sigma=sigma)


def _mmd_of_noise(student: Tensor, teacher: Tensor, t: Tensor, s: Tensor, sigma: float) -> Tensor:
    return shasam.losses.distillation_mmd(student.detach(), teacher, t, s, sigma=sigma)


for _word, _new in (
    ("forgets the groups", _mmd_of_classes),
    ("forgets the classes", _mmd_of_groups),
    ("sends no gradient", _mmd_of_noise),
):
    patched(f"mfd {_word}", "mfd", MFD, shasam.methods.mfd, "distillation_mmd", _new)


# -- contrastive -------------------------------------------------------------------------------


def variant(
    *, positives_below: bool = False, negatives: str = "same", positives: str = "any"
) -> Callable[..., Tensor]:
    """FSCL with another choice of pairs."""

    def loss(z: Tensor, t: Tensor, s: Tensor, *, temperature: float, **_: Any) -> Tensor:
        logits = z @ z.T / temperature
        logits = logits - logits.max(1, keepdim=True).values.detach()
        same_t, same_s = t[:, None] == t, s[:, None] == s
        other = ~torch.eye(len(z), dtype=torch.bool)
        positive = same_t & other & (same_s if positives == "same" else torch.ones_like(same_s))
        below = ~same_t & {"same": same_s, "other": ~same_s, "any": same_s | ~same_s}[negatives]
        below = below | (positive & other if positives_below else torch.zeros_like(below))
        sums = (logits.exp() * below).sum(1, keepdim=True)
        logs = torch.log(sums + (sums == 0))
        rows = ((logits - logs) * positive).sum(1) / positive.sum(1).clamp(min=1)
        return -(temperature / 0.07) * rows.mean()

    return loss


for _word, _new in (
    ("positives in the denominator", variant(positives_below=True)),
    ("negatives of any group", variant(negatives="any")),
    ("negatives of the other group", variant(negatives="other")),
    ("positives of the same group only", variant(positives="same")),
):
    patched(f"fscl: {_word}", "fscl", FSCL, shasam.methods.fscl, "fscl", _new)


@mutant("fscl+")
class NotNormalised(FSCLPlus):
    group_normalised = False


@mutant("fscl")
class NormalisedAnyway(FSCL):
    group_normalised = True


def _row_wise(z: Tensor, t: Tensor, s: Tensor, *, temperature: float, **_: Any) -> Tensor:
    """FSCL+ with rows divided by their own g instead of columns by theirs."""
    total = torch.zeros(())
    for i in range(len(z)):
        g = int(((t == t[i]) & (s == s[i])).sum()) - 1
        weights = torch.zeros(len(z))
        weights[(t == t[i])] = 1.0
        weights[i] = 0.0
        logits = z[i] @ z.T / temperature - 1 / temperature
        negative = (t != t[i]) & (s == s[i])
        below = logits[negative].logsumexp(0) if negative.any() else torch.zeros(())
        total = total + ((logits - below) * weights).sum() / max(g, 1) / (g + 1)
    return -(temperature / 0.07) * total / 8


patched("fscl+ weighs rows", "fscl+", FSCLPlus, shasam.methods.fscl, "fscl", _row_wise)
patched(
    "supcon with itself in the denominator",
    "supcon",
    SupCon,
    shasam.methods.fscl,
    "supcon",
    lambda z, t, temperature: (
        -(temperature / 0.07)
        * (
            (
                (z @ z.T / temperature).log_softmax(1)
                * ((t[:, None] == t) & ~torch.eye(len(z)).bool())
            )
            .sum(1)
            .div(((t[:, None] == t).sum(1) - 1).clamp(min=1))
            .mean()
        )
    ),
)
patched(
    "supcon ignores its temperature",
    "supcon",
    SupCon,
    shasam.methods.fscl,
    "supcon",
    lambda z, t, temperature: supcon(z, t, temperature=0.5),
)
patched(
    "supcon without a base temperature",
    "supcon",
    SupCon,
    shasam.methods.fscl,
    "supcon",
    lambda z, t, temperature: supcon(z, t, temperature=temperature, base=temperature),
)


@mutant("supcon")
class SupConOfGroups(SupCon):
    def learn(self, z: Tensor, batch: Batch) -> Losses:
        return super().learn(z, swapped(batch))


@mutant("supcon")
class ViewsInterleaved(SupCon):
    """Views stand B rows apart; this one believes that they stand side by side."""

    def learn(self, z: Tensor, batch: Batch) -> Losses:
        return Losses(supcon(z, batch.t_B.repeat_interleave(2), temperature=0.1))


@mutant("supcon")
class SkipsTheProjection(SupCon):
    def features(self, images: Tensor) -> dict[str, Tensor]:
        found = super().features(images)
        h = F.normalize(self.encoder(images), dim=1)
        return {**found, "projection": F.pad(h, (0, 128 - h.shape[1]))}


@mutant("fscl")
class ClassifiesTheGroup(FSCL):
    def steps(self, batch: Batch, stage: str) -> Step:
        yield from super().steps(swapped(batch) if stage == "classify" else batch, stage)


@mutant("fscl")
class EncoderInTheSecondStage(FSCL):
    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        groups = super().parameter_groups()
        encoder = list(self.encoder.parameters())
        return {
            "main": list(self.projection.parameters()),
            "classifier": [*groups["classifier"], *encoder],
        }


# -- FairViT -----------------------------------------------------------------------------------


@mutant("fairvit")
class MasksIgnoredAtTest(FairViT):
    def features(self, images: Tensor) -> dict[str, Tensor]:
        self.state.weights_G = None
        return {"encoder": self.encoder(images)}


@mutant("fairvit")
class MissingMask(FairViT):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        mlp = self.encoder.blocks[-1].mlp
        plain = nn.Linear(mlp.fc2.in_features, mlp.fc2.out_features)
        plain.weight, plain.bias = mlp.fc2.weight, mlp.fc2.bias
        mlp.fc2 = plain


@mutant("fairvit")
class NoDeepSupervision(FairViT):
    def steps(self, batch: Batch, stage: str) -> Step:
        own = self.config
        self.config = own.model_copy(update={"supervision": 0.0})
        yield from super().steps(batch, stage)
        self.config = own


@mutant("fairvit")
class DistanceTurnedRound(FairViT):
    def _distance(self, scores_BC: Tensor, batch: Batch) -> Tensor:
        return -super()._distance(scores_BC, batch)


@mutant("fairvit")
class DistanceDetached(FairViT):
    def _distance(self, scores_BC: Tensor, batch: Batch) -> Tensor:
        return super()._distance(scores_BC, batch).detach()


@mutant("fairvit")
class OneMaskForAll(FairViT):
    def steps(self, batch: Batch, stage: str) -> Step:
        yield from super().steps(replace(batch, s_B=torch.zeros_like(batch.s_B)), stage)


@mutant("fairvit")
class WeightsNotClipped(FairViT):
    """Survives: the weights are far from their ceiling in the few steps of the check."""

    def __init__(self, config: Any, *args: Any) -> None:
        super().__init__(config, *args)
        self.config = config.model_copy(update={"weight_ceiling": 1e9})


def _ordinary(ctx: Any, grad_R: Tensor) -> tuple[Tensor, None]:
    scores_RG, weights_G, _ = ctx.saved_tensors
    own_G = grad_R @ scores_RG
    before_G = ctx.state.gradient_G
    ctx.state.gradient_G = own_G if before_G is None else before_G + own_G
    return grad_R[:, None] * weights_G, None


patched(
    "fairvit: every mask learns from every image",
    "fairvit",
    FairViT,
    shasam.methods.fairvit._Mask,
    "backward",
    staticmethod(_ordinary),
)


def _bias_free(self: nn.Module, x: Tensor) -> Tensor:
    if self.state.weights_G is None:
        return F.linear(x, self.weight, self.bias)
    mask = shasam.methods.fairvit.adaptive_mask(self.scores, self.state)
    if self.heads is not None:
        mask = mask.repeat_interleave(self.out_features // 3 // self.heads).repeat(3)
    return F.linear(x, self.weight * mask[:, None], self.bias)


patched(
    "fairvit: the bias is not masked",
    "fairvit",
    FairViT,
    shasam.methods.fairvit.MaskedLinear,
    "forward",
    _bias_free,
)


# -- FD-VAE ------------------------------------------------------------------------------------

patched(
    "fdvae: nothing is shuffled",
    "fdvae",
    FDVAE,
    shasam.methods.fdvae,
    "permute_blocks",
    lambda z, sizes: z,
)
patched(
    "fdvae: all blocks shuffled together",
    "fdvae",
    FDVAE,
    shasam.methods.fdvae,
    "permute_blocks",
    lambda z, sizes: z[torch.randperm(len(z))],
)
patched(
    "fdvae: the KL is turned round",
    "fdvae",
    FDVAE,
    shasam.methods.fdvae,
    "standard_normal_kl",
    lambda mean, log_variance: (
        0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1).mean()
    ),
)
patched(
    "fdvae: no total correlation",
    "fdvae",
    FDVAE,
    shasam.methods.fdvae,
    "total_correlation",
    lambda scores: (scores[:, 0] - scores[:, 1]).mean().detach(),
)


@mutant("fdvae")
class AttributesExchanged(FDVAE):
    def steps(self, batch: Batch, stage: str) -> Step:
        yield from super().steps(swapped(batch) if stage == "learn" else batch, stage)


@mutant("fdvae")
class ClassifiesTheProtectedBlock(FDVAE):
    def classify(self, features: Any) -> dict[str, Tensor]:
        turned = {k: v.roll(self.config.block, 1) for k, v in features.items()}
        return super().classify(turned)


@mutant("fdvae")
class ClassifierReadsMeans(FDVAE):
    def _classifier_losses(self, batch: Batch) -> Losses:
        still = {k: v - 1e3 if k == "log_variance" else v for k, v in batch.features.items()}
        return super()._classifier_losses(replace(batch, features=still))


@mutant("fdvae")
class UnkeyedLatents(FDVAE):
    def steps(self, batch: Batch, stage: str) -> Step:
        torch.seed()
        yield from super().steps(batch, stage)


# a fault that changes nothing that could be seen, with the reason
SURVIVORS = {
    "WeightsNotClipped": "three steps do not bring a weight to its ceiling",
    "tadet names its groups the other way": "the distance of two means has no order",
}

_ = fscl  # the patched modules hold their own references
