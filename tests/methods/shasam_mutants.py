"""Broken variants of SHaSaM: its objective, its companion, its mining, its bank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from tests.methods.mutants import Step, mutant, patched, swapped
from torch import Tensor

import shasam.methods.shasam
from shasam.losses.sets import flcmi_terms, logdetcmi
from shasam.methods.base import Stage
from shasam.methods.shasam import Shasam, ShasamLiteral, ShasamLogDet
from shasam.mining import EmbeddingBank, Ground, Pools, ShasamMiner
from shasam.sampling import BatchPlan, MinedPlan, NaturalPlan, TrainingRows
from shasam.types import Batch, Losses

# -- the set objective -------------------------------------------------------------------------


def _objective(word: str, new: Any, base: str = "shasam", cls: type = Shasam) -> None:
    name = "logdetcmi" if base == "shasam-ld" else "flcmi_terms"
    patched(f"{base}: {word}", base, cls, shasam.methods.shasam, name, new)


@mutant("shasam")
class WeightDoesNotGrow(Shasam):
    def learn(self, z: Tensor, batch: Batch) -> Losses:
        return super().learn(z, replace(batch, progress=1.0))


_objective("A and N swapped", lambda z, a, p, n, **k: flcmi_terms(z, n, p, a, **k))
_objective("P and N swapped", lambda z, a, p, n, **k: flcmi_terms(z, a, n, p, **k))
_objective("positives are the anchors", lambda z, a, p, n, **k: flcmi_terms(z, a, a, n, **k))
_objective("its temperature is ignored", lambda z, a, p, n, **k: flcmi_terms(z, a, p, n))
_objective(
    "negatives have no gradient",
    lambda z, a, p, n, **k: flcmi_terms(
        torch.where(torch.isin(torch.arange(len(z)), n)[:, None], z.detach(), z), a, p, n, **k
    ),
)
_objective(
    "every term is counted twice",
    lambda z, a, p, n, **k: 2 * flcmi_terms(z, a, p, n, **k),
)
_objective("as printed", lambda z, a, p, n, **k: flcmi_terms(z, a, p, n, smooth="none"))
_objective(
    "smooth where the paper is not",
    lambda z, a, p, n, **k: flcmi_terms(z, a, p, n, **{**k, "smooth": "lse"}),
    "shasam-literal",
    ShasamLiteral,
)
_objective(
    "anchors alone are represented",
    lambda z, a, p, n, **k: flcmi_terms(z, a, p, n, **{**k, "represented": "anchors"}),
    "shasam-literal",
    ShasamLiteral,
)
_objective(
    "P and N swapped",
    lambda z, a, p, n, **k: flcmi_terms(z, a, n, p, **k),
    "shasam-literal",
    ShasamLiteral,
)
_objective(
    "A and N swapped",
    lambda z, a, p, n, **k: flcmi_terms(z, n, p, a, **k),
    "shasam-literal",
    ShasamLiteral,
)
_objective(
    "nothing attracts",
    lambda z, a, p, n, **k: logdetcmi(z, a, p, n, ridge=k["ridge"]),
    "shasam-ld",
    ShasamLogDet,
)
_objective(
    "another ridge",
    lambda z, a, p, n, **k: logdetcmi(z, a, p, n, **{**k, "ridge": 1.0}),
    "shasam-ld",
    ShasamLogDet,
)
_objective(
    "A and N swapped",
    lambda z, a, p, n, **k: logdetcmi(z, n, p, a, **k),
    "shasam-ld",
    ShasamLogDet,
)


@mutant("shasam")
class SetObjectiveUnweighted(Shasam):
    def learn(self, z: Tensor, batch: Batch) -> Losses:
        losses = super().learn(z, batch)
        return replace(losses, total=losses.total / self.config.weight)


@mutant("shasam")
class OneViewOnly(Shasam):
    def learn(self, z: Tensor, batch: Batch) -> Losses:
        return super().learn(z, replace(batch, views=1))


@mutant("shasam")
class OneTripletOnly(Shasam):
    def learn(self, z: Tensor, batch: Batch) -> Losses:
        return super().learn(z, replace(batch, triplets=batch.triplets[:1]))


@mutant("shasam")
class GradientThroughMining(Shasam):
    """The value is right, but how hard the negatives are is differentiated as well."""

    def learn(self, z: Tensor, batch: Batch) -> Losses:
        losses = super().learn(z, batch)
        hardness = torch.stack(
            [(z[t.anchors] @ z[t.negatives].T).amax(1).mean() for t in batch.triplets]
        ).mean()
        return replace(losses, total=losses.total + hardness - hardness.detach())


# -- the companion -----------------------------------------------------------------------------


@mutant("shasam")
class CompanionDropped(Shasam):
    def steps(self, batch: Batch, stage: str) -> Step:
        if stage != "learn":
            yield from super().steps(batch, stage)
            return
        z = self.features(batch.images)["projection"]
        yield "main", self.learn(z, batch)


def _companion(self: Shasam, batch: Batch, labels: Tensor, weight: float, cut: bool) -> Step:
    h = self.encoder(batch.images)
    losses = self.learn(F.normalize(self.projection(h), dim=1), batch)
    scores = self.companion(h.detach() if cut else h)
    yield "main", Losses(losses.total + weight * F.cross_entropy(scores, labels))


@mutant("shasam")
class CompanionReadsTheGroup(Shasam):
    def steps(self, batch: Batch, stage: str) -> Step:
        if stage == "learn":
            yield from _companion(self, batch, batch.s_VB, self.config.companion, cut=False)
        else:
            yield from super().steps(batch, stage)


@mutant("shasam")
class CompanionUnweighted(Shasam):
    def steps(self, batch: Batch, stage: str) -> Step:
        if stage == "learn":
            yield from _companion(self, batch, batch.t_VB, 1.0, cut=False)
        else:
            yield from super().steps(batch, stage)


@mutant("shasam")
class CompanionCutOff(Shasam):
    def steps(self, batch: Batch, stage: str) -> Step:
        if stage == "learn":
            yield from _companion(self, batch, batch.t_VB, self.config.companion, cut=True)
        else:
            yield from super().steps(batch, stage)


@mutant("shasam")
class CompanionWithoutOptimiser(Shasam):
    def parameter_groups(self) -> dict:
        return super(Shasam, self).parameter_groups()


# -- batches -----------------------------------------------------------------------------------


@mutant("shasam")
class NothingMined(Shasam):
    def batch_plan(self, stage: Stage, data: TrainingRows) -> BatchPlan:
        return NaturalPlan(data)


@mutant("shasam")
class MinesWithoutLabels(Shasam):
    def batch_plan(self, stage: Stage, data: TrainingRows) -> BatchPlan:
        if stage.sampling == "mined":
            order = torch.randperm(len(data.t_N), generator=torch.Generator().manual_seed(0))
            data = replace(data, t_N=data.t_N[order])
        return super().batch_plan(stage, data)


@mutant("shasam")
class MinesGroupsAsTargets(Shasam):
    def batch_plan(self, stage: Stage, data: TrainingRows) -> BatchPlan:
        if stage.sampling == "mined":
            data = replace(data, t_N=data.s_N, s_N=data.t_N)
        return super().batch_plan(stage, data)


@mutant("shasam")
class OnePairABatch(Shasam):
    def batch_plan(self, stage: Stage, data: TrainingRows) -> BatchPlan:
        if stage.sampling != "mined":
            return super().batch_plan(stage, data)
        return MinedPlan(data, self.config.mining.model_copy(update={"pairs": "one"}))


@mutant("shasam")
class NaturalSecondStage(Shasam):
    def stages(self) -> tuple[Stage, ...]:
        learn, classify = super().stages()
        return learn, replace(classify, sampling="natural")


@mutant("shasam")
class ClassifiesGroups(Shasam):
    def steps(self, batch: Batch, stage: str) -> Step:
        yield from super().steps(swapped(batch) if stage == "classify" else batch, stage)


# -- pools, picks and the bank -----------------------------------------------------------------

_candidates = MinedPlan._candidates


def _pool_of(role_of: dict[str, str], group: int = 0) -> Any:
    """Candidates of a role are taken from those of another one, or of another group."""

    def pool(self: MinedPlan, pair: tuple[int, int], role: str, *rest: Any) -> Tensor:
        other = role_of.get(role, role)
        if role in role_of and group:
            pair = (pair[0], 1 - pair[1])
        return _candidates(self, pair, other, *rest)

    return pool


for _word, _new in (
    ("negatives from another group", _pool_of({"negatives": "negatives"}, group=1)),
    ("positives from the anchors' group", _pool_of({"positives": "anchors"})),
    ("anchors from another group", _pool_of({"anchors": "positives"})),
):
    patched(f"shasam: {_word}", "shasam", Shasam, MinedPlan, "_candidates", _new)

patched(
    "shasam: the bank is never refreshed",
    "shasam",
    Shasam,
    EmbeddingBank,
    "observe",
    lambda self, rows_B, z, step: None,
)


def _of_one_view(self: EmbeddingBank, rows_B: Tensor, z: Tensor, step: int) -> None:
    self._write(rows_B, z[: len(rows_B)].detach(), step)


patched("shasam: the bank keeps one view", "shasam", Shasam, EmbeddingBank, "observe", _of_one_view)


def _with_graph(self: EmbeddingBank, rows: Tensor, embed: Any) -> Tensor:
    return F.normalize(embed(rows).float(), dim=1)


patched("shasam: the bank keeps the graph", "shasam", Shasam, EmbeddingBank, "_embed", _with_graph)


def _from_the_bank(self: EmbeddingBank, rows: Tensor, embed: Any, step: int) -> Tensor:
    unknown = rows[self.stamp_N[self.place[rows]] < 0].unique()
    if len(unknown):
        self._write(unknown, self._embed(unknown, embed), step)
    return self.z_ND[self.place[rows]]


patched(
    "shasam-literal: old embeddings instead of live ones",
    "shasam-literal",
    ShasamLiteral,
    EmbeddingBank,
    "read",
    _from_the_bank,
)
_pick = ShasamMiner.pick


def _easiest(self: ShasamMiner, ground: Ground, pools: Pools, *rest: Any) -> Any:
    turned = ground.z_VD.clone()
    turned[pools.negatives] *= -1
    return _pick(self, replace(ground, z_VD=turned, kept=None), pools, *rest)


def _picks_first(self: ShasamMiner, ground: Ground, pools: Pools, k: int, g: Any) -> Any:
    found = _pick(self, ground, pools, k, g)
    return replace(found, anchors=pools.anchors[:k], negatives=pools.negatives[:k])


def _keeps_outliers(self: ShasamMiner, *rest: Any) -> Any:
    return _pick(ShasamMiner(self.config.model_copy(update={"trim": 0.0})), *rest)


def _given_nothing(self: ShasamMiner, ground: Ground, pools: Pools, *rest: Any) -> Any:
    """Hard with respect to other rows than the anchors."""
    turned = ground.z_VD.clone()
    turned[pools.anchors] = turned[pools.anchors].flip(1)
    other = _pick(self, replace(ground, z_VD=turned), pools, *rest)
    return replace(other, anchors=_pick(self, ground, pools, *rest).anchors)


def _over_candidates(self: ShasamMiner, *rest: Any) -> Any:
    """Facility location over the candidates alone."""
    changed = self.config.model_copy(update={"represented": "candidates"})
    return _pick(ShasamMiner(changed), *rest)


for _word, _base, _cls, _new in (
    ("the easiest negatives", "shasam", Shasam, _easiest),
    ("the first of each pool", "shasam-literal", ShasamLiteral, _picks_first),
    ("outliers are kept", "shasam", Shasam, _keeps_outliers),
    ("hard for others than the anchors", "shasam-literal", ShasamLiteral, _given_nothing),
    ("not over the ground set", "shasam", Shasam, _over_candidates),
):
    patched(f"{_base}: {_word}", _base, _cls, ShasamMiner, "pick", _new)

_sets = MinedPlan._sets


def _never_mines(self: MinedPlan, step: int) -> float:
    return 0.0


def _forgets_picks(self: MinedPlan, *args: Any) -> Any:
    parts = _sets(self, *args)
    i, j = args[0]
    fresh = [self.cells[i, j], self.cells[i, 1 - j], self.cells[1 - i, j]]
    return [rows[: len(part)] for rows, part in zip(fresh, parts, strict=True)]


patched("shasam: never mines", "shasam", Shasam, MinedPlan, "hardness", _never_mines)
patched("shasam: does not use its picks", "shasam", Shasam, MinedPlan, "_sets", _forgets_picks)

# in the fast tier; the others take half a minute together
QUICK = {
    "shasam: A and N swapped",
    "SetObjectiveUnweighted",
    "GradientThroughMining",
    "CompanionDropped",
    "MinesWithoutLabels",
    "shasam: negatives from another group",
    "shasam: positives from the anchors' group",
    "shasam: the bank is never refreshed",
    "shasam: the easiest negatives",
}
# why the contract cannot find these: they are no faults
SURVIVORS = {
    "shasam-literal: A and N swapped": "the printed formula does not change when A and N are",
}
