"""``check_method``: check that a method does what it says, on small images or vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from shasam.extras import need

need("torch", __name__)

import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import Tensor, nn

from shasam.errors import ContractError, DataError
from shasam.methods.base import Method, MethodConfig, Stage
from shasam.mining import Ground, MinedSets, Miner, Pools, RandomMiner
from shasam.mining.pools import Refresh
from shasam.models import Encoder
from shasam.sampling import Draw, MinedPlan
from shasam.testing.bench import Lab, copies, optimizers, take_steps, trained, yields
from shasam.training.stage import check_groups, set_modes
from shasam.types import Batch, Losses
from shasam.window_batches import WindowPlan

# -------------------------------------------------------------------------------------------------
# The part of `check_method` about odd batches, seeds, predictions, files and memory.
# -------------------------------------------------------------------------------------------------

LogitsOracle = Callable[[Method, Tensor], Tensor]


def finite_at_edges(lab: Lab) -> None:
    """Check empty cells, one group, one class, two images, one picture many times."""
    t_N, s_N = lab.t_N, lab.s_N
    rows = torch.arange(len(t_N))
    edges = {
        "an empty cell": rows[~((t_N == 0) & (s_N == 0))][:12],
        "one group": rows[s_N == 0][:12],
        "one class": rows[t_N == 0][:12],
        "a batch of 2": rows[:2],
        "a batch of 2 in one cell": rows[(t_N == 0) & (s_N == 0)][:2],
    }
    for stage in lab.build().stages():
        for word, chosen in edges.items():
            if stage.sampling == "mined":
                continue  # such batches are never drawn
            method = lab.build()
            _finite(method, lab.batch(method, stage, chosen), stage, word)
        method = lab.build()
        drawn = next(lab.batches(method, stage, 1))
        same = lab.batch(method, stage, drawn.rows_B, triplets=drawn.triplets, same=True)
        _finite(method, same, stage, "one picture many times")


def finite_in_bfloat16(lab: Lab) -> None:
    """Check losses and gradients under autocast."""
    method = lab.build()
    for stage in method.stages():
        for batch in lab.batches(method, stage, 2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                _finite(method, batch, stage, "bfloat16")


def _finite(method: Method, batch: Batch, stage: object, word: str) -> None:
    steppers = optimizers(method, stage)  # type: ignore[arg-type]
    for group, losses in yields(method, batch, stage):  # type: ignore[arg-type]
        if not bool(torch.isfinite(losses.total)):
            raise ContractError(f"the loss is {float(losses.total.detach())} with {word}")
        for name, p in method.named_parameters():
            if p.grad is not None and not bool(torch.isfinite(p.grad).all()):
                raise ContractError(f"the gradient of {name} is not finite with {word}")
        steppers[group].step()


def deterministic(lab: Lab) -> None:
    """Check that two runs with one seed end with the same weights."""
    first, second = trained(lab), trained(lab)
    for name, value in first.items():
        if not torch.equal(value, second[name]):
            raise ContractError(f"{name} differs between two runs with one seed")


def predictions(lab: Lab, oracle_logits: LogitsOracle | None) -> str | None:
    """Check shapes, independence of neighbours, and that predicting changes nothing."""
    method = lab.build()
    for stage in method.stages():
        take_steps(method, stage, lab.batches(method, stage, 3), optimizers(method, stage))
    method.eval()
    state = copies(method.state_dict())
    with torch.no_grad():
        found = method.logits(lab.images)
        features = method.features(lab.images)
        for kind, scores in found.items():
            if scores.shape != (len(lab.images), lab.classes):
                raise ContractError(f"the scores {kind!r} have the shape {tuple(scores.shape)}")
            alone = method.logits(lab.images[:1])[kind]
            if not torch.allclose(alone, scores[:1], atol=1e-4, rtol=1e-4):
                raise ContractError("the scores of an image depend on the images beside it")
        for kind, value in features.items():
            if value.ndim != 2 or len(value) != len(lab.images):
                raise ContractError(f"the features {kind!r} have the shape {tuple(value.shape)}")
        if oracle_logits is not None:
            own, wanted = next(iter(found.values())), oracle_logits(method, lab.images)
            if not torch.allclose(own, wanted, atol=1e-4, rtol=1e-3):
                raise ContractError("the scores are not those of the formula")
    if any(not torch.equal(v, state[k]) for k, v in method.state_dict().items()):
        raise ContractError("predicting changes the method")
    return None


def saved_and_loaded(lab: Lab) -> None:
    """Check that what is loaded scores, decides and goes on training alike."""
    method = lab.build()
    for stage in method.stages():
        steppers = optimizers(method, stage, "adam", 5e-3)
        take_steps(method, stage, lab.batches(method, stage, 3), steppers)
    method.eval()
    validation = lab.validation(method)
    method.after_training(validation)
    again = lab.build(seed=1)
    again.load_state_dict(load(save({k: v.contiguous() for k, v in method.state_dict().items()})))
    again.eval()
    with torch.no_grad():
        for kind, scores in method.logits(lab.images).items():
            # not to the bit: where a tensor lies in memory can change the last one
            if not torch.allclose(scores, again.logits(lab.images)[kind], rtol=1e-5, atol=1e-6):
                raise ContractError("the scores differ after saving and loading")
    for other in (method, again):
        decided, first = other.decide(validation), method.decide(validation)
        if (decided.prediction != first.prediction).any():
            raise ContractError("the decisions differ after saving and loading, or by the call")
    stage = method.stages()[-1]
    following = []
    for other in (method, again):
        batch = next(lab.batches(other, stage, 1))  # each asks for its plan, as when resuming
        totals = [float(v.total.detach()) for _, v in yields(other, batch, stage)]
        following.append(torch.tensor(totals))
    if not torch.allclose(following[0], following[1], rtol=1e-5, atol=1e-6):
        raise ContractError("the next losses differ after saving and loading")


def overfits(lab: Lab, early_steps: int, rounds: int = 8, steps: int = 40) -> None:
    """Check that it can overfit a few images: 99 % training accuracy."""
    method = lab.build()
    *early, last = method.stages()
    for stage in early:
        take_steps(
            method,
            stage,
            lab.batches(method, stage, early_steps, 32),
            optimizers(method, stage, "adam", 3e-3),
        )
    steppers = optimizers(method, last, "adam", 3e-3)
    share = 0.0
    for _ in range(rounds):
        take_steps(method, last, lab.batches(method, last, steps, 32), steppers)
        method.eval()
        with torch.no_grad():
            scores = next(iter(method.logits(lab.images).values()))
        share = float((scores.argmax(1) == lab.t_N).float().mean())
        if share >= 0.99:
            return
    raise ContractError(f"overfit check failed: {share:.0%} training accuracy, 99 % required")


# -------------------------------------------------------------------------------------------------
# The part of `check_method` that is about mined batches: labels, embeddings, picks.
#
# A walk over a few steps with a stand-in for the encoder, whose embeddings change at every step.
# So it can be told of each embedding that a miner is given whose it is, and from which step.
# -------------------------------------------------------------------------------------------------

STEPS, WIDTH = 10, 24
SETS = ("anchors", "positives", "negatives")

# raises ContractError where the picks are not those of the formula
PickOracle = Callable[[Method, Ground, Pools, int, MinedSets], None]


def check_mined(lab: Lab, oracle: PickOracle | None) -> str | None:
    """Walk through every mined stage; a reason where there is none."""
    stages = [stage for stage in lab.build().stages() if stage.sampling == "mined"]
    for stage in stages:
        _walk(lab, stage, oracle)
    return None if stages else "it mines nothing"


class ScriptedEncoder:
    """Gives every row a direction that turns a little at each step, and remembers the last ones."""

    def __init__(self, rows: int) -> None:
        self.generator = torch.Generator().manual_seed(9)
        self.base_ND = torch.randn(rows, WIDTH, generator=self.generator)
        self.last_ND = torch.zeros(rows, WIDTH)  # what is known of each row
        self.made_N = torch.full((rows,), -1)  # in which step it was last seen

    def enter(self, step: int) -> None:
        self.step = step
        self.now_ND = self.base_ND + torch.randn(self.base_ND.shape, generator=self.generator)

    def __call__(self, rows: Tensor) -> Tensor:
        """Embed un-augmented images by the present weights, as a trainer's ``embed`` does."""
        self._keep(rows, self.now_ND[rows])
        return self.now_ND[rows].clone().requires_grad_()

    def views(self, rows: Tensor, count: int) -> Tensor:
        """Return what a training step sees of the same rows: views (V*B, D) of unit length."""
        z = F.normalize(torch.cat([self.now_ND[rows].roll(v, 1) for v in range(count)]), dim=1)
        self._keep(rows, z.unflatten(0, (count, len(rows))).mean(0))
        return z

    def _keep(self, rows: Tensor, z: Tensor) -> None:
        self.last_ND[rows] = F.normalize(z, dim=1)
        self.made_N[rows] = self.step


class _Spy(Miner):
    """Passes everything on to a miner, and keeps what it was given and what it picked."""

    def __init__(self, miner: Miner) -> None:
        self.miner = miner
        self.calls: list[tuple[Ground, Pools, int, MinedSets]] = []

    def pick(self, ground: Ground, pools: Pools, k: int, generator: torch.Generator) -> MinedSets:
        mined = self.miner.pick(ground, pools, k, generator)
        self.calls.append((ground, pools, k, mined))
        return mined


def _walk(lab: Lab, stage: Stage, oracle: PickOracle | None) -> None:
    method, encoder = lab.build(), ScriptedEncoder(len(lab.t_N))
    plan = lab.plan(method, stage, 16)
    plan.total_steps = STEPS
    spy = None
    refresh: Refresh = "free"
    if isinstance(plan, MinedPlan):
        refresh = plan.config.refresh
        if not isinstance(plan.miner, RandomMiner):
            plan.miner = spy = _Spy(plan.miner)
    calls = 0
    for step in range(STEPS):
        encoder.enter(step)
        drawn = plan.draw(plan.epoch_of(step), step, encoder)
        _labels(lab, drawn)
        if isinstance(plan, WindowPlan):
            _memberships(plan, drawn)
        while isinstance(plan, MinedPlan) and spy is not None and spy.calls:
            ground, pools, k, mined = spy.calls.pop()
            _picked(lab, refresh, encoder, drawn, ground, pools, mined)
            if isinstance(plan, WindowPlan):
                _in_one_window(plan, _nearest_rows(encoder, ground)[1], pools)
            if oracle is not None:
                oracle(method, ground, pools, k, mined)
            calls += 1
        if refresh == "live":  # nothing that a training step has left may be used
            plan.observe(drawn.rows_B, F.normalize(encoder.base_ND[drawn.rows_B], dim=1))
        else:
            plan.observe(drawn.rows_B, encoder.views(drawn.rows_B, stage.views))
    if spy is not None and calls == 0:
        raise ContractError(f"its miner was asked for nothing in {STEPS} steps")


def _labels(lab: Lab, drawn: Draw) -> None:
    if not drawn.triplets:
        raise ContractError("a mined batch has no triplets")
    for triplet in drawn.triplets:
        for name, same_t, same_s in zip(
            SETS, (True, True, False), (True, False, True), strict=True
        ):
            rows = drawn.rows_B[getattr(triplet, name)]
            fits = (lab.t_N[rows] == triplet.target) == same_t
            if lab.windows is None:
                fits &= (lab.s_N[rows] == triplet.sensitive) == same_s
            if len(rows) == 0 or not bool(fits.all()):
                raise ContractError(
                    f"the {name} of target {triplet.target} and group {triplet.sensitive} are "
                    f"rows with other labels, or none"
                )


def _nearest_rows(encoder: ScriptedEncoder, ground: Ground) -> tuple[Tensor, Tensor]:
    """Find whose embeddings a ground set has: cosine to the nearest that is known, and its row."""
    cosine, rows_V = (F.normalize(ground.z_VD, dim=1) @ encoder.last_ND.T).max(dim=1)
    return cosine, rows_V


def _memberships(plan: WindowPlan, drawn: Draw) -> None:
    """Check that the weights of a triplet are those of one window of the step, and none is 0."""
    windows = plan.windows
    near_BK = windows.near(drawn.rows_B, plan.middles).float()
    for triplet in drawn.triplets:
        if triplet.weights is None:
            raise ContractError("a mined batch along a number has triplets without weights")
        fits = torch.ones(len(plan.middles), dtype=torch.bool)
        for name, own in zip(SETS, triplet.weights, strict=True):
            wanted = near_BK[getattr(triplet, name)]
            wanted = 1 - wanted if name == "positives" else wanted
            fits &= (wanted - own[:, None]).abs().amax(0) < 1e-6
            if not bool((own > 0).all()):
                raise ContractError(f"{name} have rows that do not belong to them at all")
        if not bool(fits.any()):
            raise ContractError("the weights of a triplet are those of no window of its step")


def _in_one_window(plan: WindowPlan, rows_V: Tensor, pools: Pools) -> None:
    """Check that candidates belong to their set more than to another, by one window of the step."""
    near = [plan.windows.near(rows_V[getattr(pools, name)], plan.middles) > 0.5 for name in SETS]
    if not bool((near[0].all(0) & (~near[1]).all(0) & near[2].all(0)).any()):
        raise ContractError("candidates of a window do not belong to it, or positives do")


def _picked(
    lab: Lab,
    refresh: Refresh,
    encoder: ScriptedEncoder,
    drawn: Draw,
    ground: Ground,
    pools: Pools,
    mined: MinedSets,
) -> None:
    """Check that what the miner was given is fresh and has the right labels, and its picks are
    used.
    """
    if ground.z_VD.requires_grad:
        raise ContractError("the embeddings that it mines have a gradient")
    cosine, rows_V = _nearest_rows(encoder, ground)
    limit = 0 if refresh == "live" else refresh if isinstance(refresh, int) else STEPS
    if float(cosine.min()) < 1 - 1e-4 or int(encoder.made_N[rows_V].min()) < encoder.step - limit:
        raise ContractError(f"it mines from embeddings older than refresh={refresh!r}")
    if not torch.equal(lab.t_N[rows_V], ground.t_V) or not torch.equal(lab.s_N[rows_V], ground.s_V):
        raise ContractError("the ground set that it mines from has other labels than its rows")
    t, s = pools.target, pools.sensitive
    for name, same_t, same_s in zip(SETS, (True, True, False), (True, False, True), strict=True):
        rows = rows_V[getattr(pools, name)]
        fits = (lab.t_N[rows] == t) == same_t
        if lab.windows is None:
            fits &= (lab.s_N[rows] == s) == same_s
        if not bool(fits.all()):
            raise ContractError(f"candidates for {name} of target {t}, group {s} have other labels")
        chosen = rows_V[getattr(mined, name)]
        if not bool(torch.isin(chosen, rows).all()):
            raise ContractError(f"{name} are picked that are no candidates")
        if not bool(torch.isin(chosen, drawn.rows_B).all()):
            raise ContractError(f"{name} that were picked are not in the batch")


# -------------------------------------------------------------------------------------------------
# The part of `check_method` that is about losses: formulas, weights of parts, targets.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpectedLoss:
    """Hold what a yielded loss must be: its value, and gradients by parameter name.

    Parameters
    ----------
    value
        The value.
    gradients
        Parameter name to gradient.
    """

    value: float
    gradients: Mapping[str, Tensor]


# One entry per yield. A scalar tensor stands for itself and its gradients; a mapping from
# prefixes of parameter names to scalars says what each parameter minimises (the longest prefix
# counts), with the value under "value". Written as naive loops, from the formula.
Oracle = Callable[[Method, Batch, str], Sequence["Tensor | Mapping[str, Tensor] | ExpectedLoss"]]


def objective(lab: Lab, oracle: Oracle | None) -> str | None:
    """Compare losses and gradients of every yield with those of the oracle."""
    if oracle is None:
        return "no oracle given"
    method = lab.build()
    names = dict(method.named_parameters())
    for stage in method.stages():
        steppers = optimizers(method, stage, "adam", 5e-3)
        for batch in lab.batches(method, stage, 3):
            state = copies(method.state_dict())
            set_modes(method, stage)
            torch.manual_seed(11 + batch.step)
            wanted = [_expected(names, entry) for entry in oracle(method, batch, stage.name)]
            method.load_state_dict(state)
            seen: list[tuple[str, Losses]] = []
            for group, losses in yields(method, batch, stage):
                where = f"yield {len(seen) + 1} of stage {stage.name!r}"
                if len(seen) == len(wanted):
                    raise ContractError(f"{where} is one more than the formula has")
                _compare(method, group, losses, wanted[len(seen)], where)
                seen.append((group, losses))
            if len(seen) < len(wanted):
                raise ContractError(f"stage {stage.name!r} yields {len(seen)}, not {len(wanted)}")
            method.load_state_dict(state)
            take_steps(method, stage, iter([batch]), steppers)
    return None


def _expected(names: Mapping[str, nn.Parameter], entry: object) -> ExpectedLoss:
    if isinstance(entry, ExpectedLoss):
        return entry
    objectives = {"": entry, "value": entry} if isinstance(entry, Tensor) else dict(entry)  # type: ignore[call-overload]
    value = objectives.pop("value")
    gradients = {}
    for prefix in sorted(objectives, key=len):
        chosen = {
            n: p
            for n, p in names.items()
            if n.startswith(prefix)
            and p.requires_grad
            and not any(n.startswith(o) for o in objectives if len(o) > len(prefix))
        }
        found = torch.autograd.grad(
            objectives[prefix], list(chosen.values()), retain_graph=True, allow_unused=True
        )
        for (name, p), gradient in zip(chosen.items(), found, strict=True):
            gradients[name] = torch.zeros_like(p) if gradient is None else gradient
    return ExpectedLoss(float(value.detach()), gradients)


def _compare(method: Method, group: str, losses: Losses, wanted: ExpectedLoss, where: str) -> None:
    value = float(losses.total.detach())
    if abs(value - wanted.value) > 1e-4 * max(1.0, abs(wanted.value)):
        raise ContractError(f"{where} is {value:.6g}, the formula gives {wanted.value:.6g}")
    members = {id(p) for p in method.parameter_groups()[group]}
    scale = _size(wanted.gradients.values())
    for name, p in method.named_parameters():
        if id(p) in members and name in wanted.gradients:
            own = torch.zeros_like(p) if p.grad is None else p.grad
            _same_gradient(name, own, wanted.gradients[name], f"of the formula in {where}", scale)


def _size(gradients: Iterable[Tensor | None]) -> float:
    return sum(float(g.double().pow(2).sum()) for g in gradients if g is not None) ** 0.5


def _same_gradient(name: str, own: Tensor, wanted: Tensor, whose: str, scale: float) -> None:
    gap = float((own - wanted).double().norm())
    if gap > 1e-3 * float(wanted.double().norm()) + 1e-5 * scale:
        raise ContractError(
            f"the gradient of {name} is not that {whose}: it is off by {gap:.3g} of "
            f"{float(wanted.double().norm()):.3g}"
        )


def _weights(lab: Lab) -> dict[str, str | None]:
    """Return fields of the configuration that weigh a part, and what is left at 0."""
    found = {}
    for name, info in type(lab.config).model_fields.items():
        extra = info.json_schema_extra
        if isinstance(extra, dict) and "weight" in extra and getattr(lab.config, name) > 0:
            found[name] = extra["weight"]
    return found  # type: ignore[return-value]


def parts_are_alive(lab: Lab) -> str | None:
    """Check that every field that weighs a part of the loss changes what is learnt."""
    weights = _weights(lab)
    if not weights:
        return "its Config marks no weight"
    start = copies(dict(lab.build().named_parameters()))
    full = trained(lab)
    for name in weights:
        without = trained(lab, {name: 0.0})
        # the largest change of a parameter, against how far that parameter has moved
        change = max(
            float((full[k] - without[k]).norm() / (full[k] - start[k]).norm().clamp(min=1e-12))
            for k in full.keys() & without.keys()
        )
        if change < 1e-6:
            raise ContractError(f"{name} = {getattr(lab.config, name)} trains as {name} = 0 does")
    return None


def plain_at_zero(lab: Lab) -> str | None:
    """Check that with the marked weights at 0 the gradients are those of cross-entropy."""
    zeros = {name: 0.0 for name, rest in _weights(lab).items() if rest == "ce"}
    if not zeros:
        return "its Config promises nothing at weight 0"
    method = lab.build(changes=zeros)
    stage = method.stages()[-1]
    batch = next(lab.batches(method, stage, 1))
    names = dict(method.named_parameters())
    total = {name: torch.zeros_like(p) for name, p in names.items()}
    for _ in yields(method, batch, stage):
        for name, p in names.items():
            if p.grad is not None:
                total[name] += p.grad
    set_modes(method, stage)
    scores = next(iter(method.logits(batch.images).values()))
    loss = F.cross_entropy(scores.float(), batch.t_VB)
    moving = {name: p for name, p in names.items() if p.requires_grad}
    plain = torch.autograd.grad(loss, list(moving.values()), allow_unused=True)
    for (name, _), gradient in zip(moving.items(), plain, strict=True):
        if gradient is not None:
            _same_gradient(name, total[name], gradient, "of cross-entropy", _size(plain))
    return None


def targets_matter(lab: Lab) -> None:
    """Check that other targets give other losses."""
    method = lab.build()
    for stage in method.stages():
        batch = next(lab.batches(method, stage, 1))
        if batch.triplets:
            continue  # targets are in the triplets
        state = copies(method.state_dict())
        first = [float(v.total.detach()) for _, v in yields(method, batch, stage)]
        method.load_state_dict(state)
        other = Batch(**{**vars(batch), "t_B": (batch.t_B + batch.s_B) % lab.classes})
        second = [float(v.total.detach()) for _, v in yields(method, other, stage)]
        if first == second:
            raise ContractError(f"the losses of stage {stage.name!r} do not depend on the target")


def rows_without_group(lab: Lab) -> str | None:
    """Check that rows without a group teach the target, and are in no set and of none of the
    groups.
    """
    if not lab.method.unknown_groups:
        return "it needs the group of every row"
    method, partly, taught = lab.build(), lab.partly_known(), False
    for stage in method.stages():
        batch = next(partly.batches(method, stage, 1, max(16, 4 * lab.classes * lab.groups)))
        t_B, s_B, state = batch.t_B, batch.s_B, copies(method.state_dict())

        def losses(
            batch: Batch = batch,
            stage: Stage = stage,
            state: Mapping[str, Tensor] = state,
            **other: Tensor,
        ) -> list[float]:
            method.load_state_dict(state)
            changed = Batch(**{**vars(batch), **other})
            return [float(v.total.detach()) for _, v in yields(method, changed, stage)]

        unknown_B = s_B < 0
        sets = [getattr(triplet, name) for triplet in batch.triplets for name in SETS]
        if any(bool(unknown_B[rows].any()) for rows in sets):
            raise ContractError(f"rows without a group are in its sets of stage {stage.name!r}")
        found = losses()
        if not all(map(math.isfinite, found)):
            raise ContractError(f"the losses of stage {stage.name!r} are {found} with them")
        if not bool(unknown_B.any()):
            continue
        taught = True
        if losses(t_B=torch.where(unknown_B, (t_B + 1) % lab.classes, t_B)) == found:
            raise ContractError(f"their targets do not matter in stage {stage.name!r}")
        reads = losses(s_B=torch.where(unknown_B, s_B, (s_B + 1) % lab.groups)) != found
        if reads and losses(s_B=torch.where(unknown_B, lab.groups - 1, s_B)) == found:
            raise ContractError(f"stage {stage.name!r} takes them for rows of the last group")
    if not taught:
        raise ContractError("no stage learns from them")
    return None


def along_a_number(lab: Lab) -> str | None:
    """Check the promises that a sensitive number could break, with soft sets in place of groups."""
    if not lab.method.continuous:
        return "it takes groups alone"
    other = replace(lab, number=True)
    _movement(other)
    check_mined(other, None)
    finite_at_edges(other)
    deterministic(other)
    predictions(other, None)
    saved_and_loaded(other)
    return None


# -------------------------------------------------------------------------------------------------
# `check_method`: a method does what it says, on small images or vectors, in seconds.
#
# It raises `ContractError` for the first promise that is broken. A method marks the weights of its
# loss parts in its `Config`: `Field(1.0, json_schema_extra={"weight": "ce"})` says that the field
# weighs a part of the loss, and that with all fields so marked at 0 the rest is cross-entropy;
# `{"weight": None}` says only the first.
# -------------------------------------------------------------------------------------------------

__all__ = ["ExpectedLoss", "MethodReport", "check_method"]

# what a broken method may raise by accident
_BROKEN = (
    ArithmeticError,
    AttributeError,
    DataError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class MethodReport:
    """List the promises that were checked, and those that were not and why.

    Parameters
    ----------
    checked
        Names of the promises.
    skipped
        Name of a promise to the reason.
    """

    checked: tuple[str, ...]
    skipped: Mapping[str, str]


def check_method(
    method: type[Method],
    *,
    config: MethodConfig | None = None,
    encoder: Callable[[], Encoder] | None = None,
    classes: int = 2,
    groups: int = 2,
    oracle: Oracle | None = None,
    oracle_logits: LogitsOracle | None = None,
    oracle_mined: PickOracle | None = None,
    inputs: Literal["images", "vectors"] = "images",
    overfit: bool = True,
    overfit_steps: int = 40,
) -> MethodReport:
    """Check a method class; raise ``ContractError`` if it breaks a promise.

    Parameters
    ----------
    method
        The class.
    config
        Options, by default the method's own defaults.
    encoder
        Makes an encoder for images of 32 px (default: a small ResNet-18, or ViT for methods
        that refuse it) or, with inputs="vectors", for vectors of 24 numbers (default: a small
        MLP).
    classes
        Number of classes.
    groups
        Number of groups.
    oracle
        Naive version of the losses.
    oracle_logits
        Naive version of the class scores.
    oracle_mined
        Naive version of what is mined.
    inputs
        "images" or "vectors".
    overfit
        Train until all images (about 64, or 320 if a method mines) are known by heart.
    overfit_steps
        Steps on each but the last stage.

    Returns
    -------
    MethodReport
        The promises that were checked, and those that were not and why.
    """
    chosen = config if config is not None else method.Config()
    try:
        lab = Lab(method, chosen, encoder, classes, groups, inputs)
    except _BROKEN as error:
        raise ContractError(f"{method.__name__}: it cannot be built: {error!r}") from error
    checks: dict[str, Callable[[], str | None]] = {
        "description": lambda: _description(lab),
        "parameter groups": lambda: _partition(lab),
        "steps move their own group": lambda: _movement(lab),
        "mined batches": lambda: check_mined(lab, oracle_mined),
        "objective": lambda: objective(lab, oracle),
        "loss parts are alive": lambda: parts_are_alive(lab),
        "weights of 0 give cross-entropy": lambda: plain_at_zero(lab),
        "targets matter": lambda: targets_matter(lab),
        "rows without a group": lambda: rows_without_group(lab),
        "finite at the edges": lambda: finite_at_edges(lab),
        "finite in bfloat16": lambda: finite_in_bfloat16(lab),
        "deterministic": lambda: deterministic(lab),
        "predictions": lambda: predictions(lab, oracle_logits),
        "saved and loaded": lambda: saved_and_loaded(lab),
        "along a number": lambda: along_a_number(lab),
        "overfits": lambda: overfits(lab, overfit_steps) if overfit else "not asked for",
    }
    checked, skipped = [], {}
    for name, check in checks.items():
        try:
            reason = check()
        except ContractError as error:
            raise ContractError(f"{method.__name__}: {name}: {error}") from error
        except _BROKEN as error:
            raise ContractError(f"{method.__name__}: {name}: it raised {error!r}") from error
        if reason is None:
            checked.append(name)
        else:
            skipped[name] = reason
    return MethodReport(tuple(checked), skipped)


def _description(lab: Lab) -> None:
    cls = lab.method
    for word in ("summary", "reference"):
        text = getattr(cls, word, "")
        if not isinstance(text, str) or not text.strip() or "\n" in text:
            raise ContractError(f"`{word}` must be one line of text")
    if not issubclass(cls.Config, MethodConfig):
        raise ContractError("Config must be a MethodConfig")
    _check_dial(cls)
    again = cls.Config.model_validate_json(lab.config.model_dump_json())
    if again != lab.config:
        raise ContractError("its configuration changes when it is written to JSON and read back")
    for name, value in vars(lab.build()).items():
        if isinstance(value, torch.optim.Optimizer):
            raise ContractError(f"it holds an optimiser ({name}); the trainer does the steps")


def _check_dial(cls: type[Method]) -> None:
    """Check that the strength is an option of the method; its values are allowed and differ."""
    if cls.dial is None:
        return
    option, values = cls.dial.option, cls.dial.values
    if option not in cls.Config.model_fields:
        raise ContractError(f"its dial {option!r} is no option of it")
    if len(set(values)) != len(values) or len(values) < 2:
        raise ContractError("its dial needs at least two different values, from mild to strong")
    for value in values:
        try:
            cls.Config.model_validate({option: value})
        except ValueError as error:
            raise ContractError(f"its dial {option!r} cannot be {value}") from error


def _partition(lab: Lab) -> None:
    method = lab.build()
    groups = check_groups(method)
    stages = method.stages()
    if not stages or len({s.name for s in stages}) != len(stages):
        raise ContractError("it needs stages with different names")
    own = {id(p) for p in method.parameters()}
    for name, members in groups.items():
        if not all(id(p) in own for p in members):
            raise ContractError(f"group {name!r} has parameters that are not the method's")
        moves = any(name in stage.groups for stage in stages)
        if not moves and any(p.requires_grad for p in members):
            raise ContractError(f"no stage moves the group {name!r}; freeze it, or give it one")


def _movement(lab: Lab) -> None:
    method = lab.build()
    groups, names = method.parameter_groups(), dict(method.named_parameters())
    member = {id(p): group for group, members in groups.items() for p in members}
    for stage in method.stages():
        steppers = optimizers(method, stage)
        alive: set[int] = set()
        stepped: set[str] = set()
        for batch in lab.batches(method, stage, 3):
            last, before = None, copies(names)
            for group, losses in yields(method, batch, stage):
                _only_moved(names, before, member, last, "between two yields")
                if group not in stage.groups:
                    raise ContractError(f"stage {stage.name!r} yields the foreign group {group!r}")
                if not losses.total.requires_grad:
                    raise ContractError(f"the loss of {stage.name}/{group} has no gradient")
                if losses.total.ndim or not bool(torch.isfinite(losses.total)):
                    raise ContractError(f"the loss of {stage.name}/{group} is not a finite scalar")
                gone = [k for k, v in losses.parts.items() if getattr(v, "requires_grad", False)]
                if gone:
                    raise ContractError(f"the parts {gone} must be detached")
                stepped.add(group)
                alive |= {id(p) for p in groups[group] if p.grad is not None and bool(p.grad.any())}
                before = copies(names)
                steppers[group].step()
                _only_moved(names, before, member, group, "in its step")
                last, before = group, copies(names)
            _only_moved(names, before, member, last, "after the last yield")
        never = set(stage.groups) - stepped
        if never:
            raise ContractError(f"stage {stage.name!r} never steps {sorted(never)}")
        dead = [n for n, p in names.items() if member[id(p)] in stepped and id(p) not in alive]
        if dead:
            raise ContractError(
                f"in stage {stage.name!r} no gradient ever reaches {', '.join(dead[:4])}"
                + (f" and {len(dead) - 4} more" if len(dead) > 4 else "")
            )


def _only_moved(
    names: Mapping[str, Tensor],
    before: Mapping[str, Tensor],
    member: Mapping[int, str],
    group: str | None,
    when: str,
) -> None:
    for name, p in names.items():
        if member[id(p)] != group and not torch.equal(p.detach(), before[name]):
            raise ContractError(f"{name} moved {when}, but the step was that of {group!r}")
