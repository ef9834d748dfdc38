"""Set up a stage: what is trained, its optimisers, averaged weights, and the state of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from shasam.errors import ContractError, DataError, SpecError
from shasam.keyed import keyed
from shasam.methods.base import Method, Stage
from shasam.models import Encoder
from shasam.sampling import BatchPlan, Draw, TrainingRows
from shasam.spec.fields import StageSpec, TrainSpec
from shasam.training.checkpoint import Checkpoint, must_fit
from shasam.training.runtime import Fabric
from shasam.windows import Windows

# -------------------------------------------------------------------------------------------------
# The progress of a run: everything of it that a checkpoint keeps as JSON.
# -------------------------------------------------------------------------------------------------


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
    best_accuracy: float | None = None  # of the epoch that is kept; for the least leakage
    top_accuracy: float | None = None  # of all epochs
    collapsed: bool = False
    at_chance: int = 0  # looks in a row at which the stage had found nothing of the target
    found_target: bool = False  # in this stage, which is then no longer looked at
    slowed: int = 0  # times that the rate of this stage was lowered
    sums: dict[str, float] = field(default_factory=dict)  # of the epoch that is under way

    @classmethod
    def of(cls, numbers: Mapping[str, Any]) -> State:
        """Read what a checkpoint says; an error where something is too much or of another kind."""
        state = cls(**numbers)
        for name, start in vars(cls()).items():
            value = getattr(state, name)
            number = start is None or isinstance(start, float)
            kinds = (int, float) if number else (type(start),)
            if type(value) not in kinds and not (start is None and value is None):
                raise ValueError(f"{name} is {value!r:.40}")
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{name} is below zero")
        if not all(type(value) in (int, float) for value in state.sums.values()):
            raise ValueError("a sum is no number")
        return state

    def add(self, name: str, value: float) -> None:
        """Add to a sum of the epoch."""
        self.sums[name] = self.sums.get(name, 0.0) + value

    @property
    def mine_fraction(self) -> float | None:
        """Share of the mined stage's time that went into mining."""
        return self.mine_seconds / self.learn_seconds if self.learn_seconds else None


# -------------------------------------------------------------------------------------------------
# An exponential moving average of the weights, offered to all methods alike.
# -------------------------------------------------------------------------------------------------


class Ema:
    """average <- d average + (1 - d) weights, with d = min(decay, (1 + n) / (10 + n)) at step n."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay = decay
        self.count = 0
        self.average = {k: v.detach().clone() for k, v in module.state_dict().items()}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Take in the weights after a step; counters are copied, not averaged."""
        decay = min(self.decay, (1 + self.count) / (10 + self.count))
        self.count += 1
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                self.average[name].lerp_(value, 1 - decay)
            else:
                self.average[name].copy_(value)

    def load(self, average: dict[str, Tensor], count: int) -> None:
        """Go on from a checkpoint."""
        for name, value in average.items():
            self.average[name].copy_(value)
        self.count = count


# -------------------------------------------------------------------------------------------------
# Which parameters are trained in a stage, and which modules are in training mode.
# -------------------------------------------------------------------------------------------------


def check_groups(method: Method) -> dict[str, list[nn.Parameter]]:
    """Return the method's parameter groups, after checking that they are a partition.

    Frozen parameters are left out of what is returned.
    """
    groups = method.parameter_groups()
    names = {id(p): name for name, p in method.named_parameters()}
    seen: dict[int, str] = {}
    for group, members in groups.items():
        for p in members:
            if id(p) in seen:
                raise ContractError(
                    f"{names.get(id(p), 'a parameter')} of {type(method).__name__} is in the "
                    f"groups {seen[id(p)]!r} and {group!r}; it may be in one only"
                )
            seen[id(p)] = group
    lost = [name for key, name in names.items() if key not in seen]
    if lost:
        raise ContractError(
            f"{type(method).__name__}.parameter_groups() leaves out {', '.join(lost[:5])}"
        )
    for stage in method.stages():
        for group in stage.groups:
            if group not in groups:
                raise ContractError(
                    f"stage {stage.name!r} of {type(method).__name__} moves the group {group!r}, "
                    f"which parameter_groups() does not have"
                )
    frozen = _frozen(method)
    learning = {g: [p for p in ps if id(p) not in frozen] for g, ps in groups.items()}
    for stage in method.stages():
        for group in stage.groups:
            if groups[group] and not learning[group]:
                raise SpecError(
                    f"model.freeze leaves nothing to learn for the group {group!r} in stage "
                    f"{stage.name!r} of {type(method).__name__}; freeze less"
                )
    return learning


def _encoders(method: Method) -> list[Encoder]:
    return [module for module in method.modules() if isinstance(module, Encoder)]


def _frozen(method: Method) -> set[int]:
    """Return the pretrained parameters that no stage moves, by ``id``."""
    return {id(p) for encoder in _encoders(method) for p in encoder.frozen}


def pretrained(method: Method) -> set[int]:
    """Return the parameters that did not start at random, by ``id``."""
    return {id(p) for encoder in _encoders(method) for p in encoder.pretrained}


def set_modes(method: Method, stage: Stage) -> None:
    """Set moving groups to training mode; freeze everything else, in evaluation mode."""
    groups = method.parameter_groups()
    moving = {id(p) for name in stage.groups for p in groups[name]} - _frozen(method)
    for p in method.parameters():
        p.requires_grad_(id(p) in moving)
    method.training = True
    for child in method.children():
        _set(child, moving, True)


def _set(module: nn.Module, moving: set[int], inherited: bool) -> None:
    own = [id(p) in moving for p in module.parameters()]
    # a module without parameters (dropout, batch norm without affine) goes with its parent
    module.training = any(own) if own else inherited
    for child in module.children():
        _set(child, moving, module.training)


# -------------------------------------------------------------------------------------------------
# Optimisers by name, and the learning rate as a function of the step.
# -------------------------------------------------------------------------------------------------


def make_optimizer(
    parameters: list[nn.Parameter], spec: StageSpec, pretrained: Collection[int] = ()
) -> torch.optim.Optimizer:
    """Return SGD (momentum), Adam or AdamW; vectors and scalars have no weight decay.

    ``pretrained`` are the ``id`` of parameters whose rate is ``spec.pretrained_lr`` times the rate.
    """
    slow = pretrained if spec.pretrained_lr != 1 else ()
    parts: dict[tuple[float, float], list[nn.Parameter]] = {}  # (share of the rate, decay)
    for p in sorted(parameters, key=lambda p: p.ndim <= 1):
        share = spec.pretrained_lr if id(p) in slow else 1.0
        parts.setdefault((share, spec.weight_decay if p.ndim > 1 else 0.0), []).append(p)
    groups = [
        {"params": members, "weight_decay": decay, "share": share, "lr": spec.lr * share}
        for (share, decay), members in parts.items()
    ]
    # one pass over memory instead of ten; elsewhere torch's own choice is fast, and the fused step
    # of a GPU unscales by itself, which 16-bit training with clipping does not allow
    fused = True if parameters[0].device.type == "cpu" else None
    if spec.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=spec.lr, momentum=spec.momentum, fused=fused)
    if spec.optimizer == "adam":
        return torch.optim.Adam(groups, lr=spec.lr, fused=fused)
    return torch.optim.AdamW(groups, lr=spec.lr, fused=fused)


def learning_rate(spec: StageSpec, step: int, total: int) -> float:
    """Return linear warm-up, then lr (f + (1 - f) (1 + cos(pi x)) / 2) for x from 0 to 1.

    ``constant`` stays at lr, ``step`` multiplies it after every ``step_every`` of the stage.
    """
    warm = round(spec.warmup * total)
    if step < warm:
        return spec.lr * (step + 1) / warm
    if spec.schedule == "constant":
        return spec.lr
    if spec.schedule == "step":
        return spec.lr * spec.step_factor ** int(step / total / spec.step_every + 1e-9)
    x = (step - warm) / max(1, total - warm)
    return spec.lr * (spec.final + (1 - spec.final) * (1 + math.cos(math.pi * x)) / 2)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the rate of all parameters of an optimiser, times the share of each part."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state as a flat dict; every entry of the optimisers above is a tensor."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{key}": torch.as_tensor(value)
        for index, entry in state.items()
        for key, value in entry.items()
        if value is not None
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Load the inverse of ``optimizer_tensors``; learning rates follow from the step."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    for p, entry in optimizer.state.items():
        for key, value in entry.items():
            if value.shape == p.shape:
                # the memory layout decides which kernel runs, and with it the last bit
                entry[key] = torch.empty_like(p).copy_(value)


# -------------------------------------------------------------------------------------------------
# Batches in which rows without a group stand beside those of another plan.
# -------------------------------------------------------------------------------------------------


Embed = Callable[[Tensor], Tensor]  # rows of the manifest -> their embeddings


class PartlyKnownPlan(BatchPlan):
    """Rows with a group by a plan of their own, and behind them rows without one.

    Rows without a group have their share of every batch, and at most half of it. They are in no
    triplet and in no cell. An epoch goes over the rows with a group; where these are fewer than
    half, it is longer, by what they are short of half, so that few groups do not shorten training.
    """

    def __init__(self, make: Callable[[TrainingRows], BatchPlan], data: TrainingRows) -> None:
        known_n = data.known_n.cpu()
        share = 1 - float(known_n.float().mean())
        beside = min(max(1, round(share * data.batch_size)), data.batch_size // 2)
        rows = data.rows.cpu()
        size, filled = data.batch_size - beside, max(1 - share, 0.5)
        known = replace(data, rows=rows[known_n], batch_size=size, filled=filled)
        self.known = make(known)
        self.longer = filled / (1 - share)  # than an epoch of the rows with a group
        self.steps_per_epoch = round(self.known.steps_per_epoch * self.longer)
        self.batch_size = (self.known.batch_size or known.batch_size) + beside
        self.beside, self.others, self.seed = beside, rows[~known_n], data.seed

    def epoch_of(self, step: int) -> int:
        return super().epoch_of(step) if self.longer > 1 else self.known.epoch_of(step)

    def steps_of(self, epochs: int) -> int:
        return super().steps_of(epochs) if self.longer > 1 else self.known.steps_of(epochs)

    def draw(self, epoch: int, step: int, embed: Embed) -> Draw:
        self.known.total_steps = self.total_steps
        drawn = self.known.draw(self.known.epoch_of(step), step, embed)
        return replace(drawn, rows_B=torch.cat([drawn.rows_B, self._next(step)]))

    def _next(self, step: int) -> Tensor:
        """Return the rows without a group of a step: each comes once before any comes again."""
        places = torch.arange(step * self.beside, (step + 1) * self.beside)
        passes, place = places // len(self.others), places % len(self.others)
        parts = []
        for number in passes.unique().tolist():
            order = keyed(self.seed, 5, number).permutation(len(self.others))
            parts.append(self.others[torch.from_numpy(order)][place[passes == number]])
        return torch.cat(parts)

    def observe(self, rows_B: Tensor, z: Tensor) -> None:
        known = len(rows_B) - self.beside
        views = z.view(-1, len(rows_B), z.shape[1])[:, :known]
        self.known.observe(rows_B[:known], views.reshape(-1, z.shape[1]))

    def says(self, sampling: str) -> str:
        return self.known.says(sampling)

    def counters(self) -> dict[str, float]:
        return self.known.counters()

    def notes(self, step: int, embed: Embed) -> list[dict[str, object]]:
        return self.known.notes(step, embed)

    def state(self) -> dict[str, Tensor]:
        return self.known.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.known.load_state(state)


# -------------------------------------------------------------------------------------------------
# Batches of several attributes in turn.
# -------------------------------------------------------------------------------------------------


class TurnsPlan(BatchPlan):
    """One plan for each of several attributes: step i is drawn by plan i mod K.

    Every plan counts its own steps, so that it goes through its rows as it would alone. An epoch is
    as long as one of the first plan. Nothing is noted for the mining explorer, which knows one set
    of groups.
    """

    def __init__(self, plans: Sequence[BatchPlan]) -> None:
        self.plans = tuple(plans)
        self.batch_size = max(plan.batch_size for plan in plans)
        self.steps_per_epoch = plans[0].steps_per_epoch
        self._drew = self.plans[0]  # the plan of the present step, which sees its embeddings

    def epoch_of(self, step: int) -> int:
        return self.plans[0].epoch_of(step)

    def steps_of(self, epochs: int) -> int:
        return self.plans[0].steps_of(epochs)

    def draw(self, epoch: int, step: int, embed: Embed) -> Draw:
        own, turn = divmod(step, len(self.plans))
        plan = self._drew = self.plans[turn]
        plan.total_steps = -(-self.total_steps // len(self.plans))
        return plan.draw(plan.epoch_of(own), own, embed)

    def observe(self, rows_B: Tensor, z: Tensor) -> None:
        self._drew.observe(rows_B, z)

    def says(self, sampling: str) -> str:
        return self.plans[0].says(sampling)

    def counters(self) -> dict[str, float]:
        found = [plan.counters() for plan in self.plans]
        names = dict.fromkeys(name for counted in found for name in counted)
        return {name: sum(counted.get(name, 0.0) for counted in found) for name in names}

    def state(self) -> dict[str, Tensor]:
        kept = enumerate(plan.state() for plan in self.plans)
        return {f"{k}.{name}": value for k, state in kept for name, value in state.items()}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        for k, plan in enumerate(self.plans):
            own = {n.removeprefix(f"{k}."): v for n, v in state.items() if n.startswith(f"{k}.")}
            plan.load_state(own)


def plan_of(method: Method, stage: Stage, data: TrainingRows) -> BatchPlan:
    """Return the batches of a stage: the method's own, or those of several attributes in turn.

    Where groups are balanced, mined or compared, rows without one stand beside the others.
    """
    if not method.compares_groups(stage):
        return method.batch_plan(stage, data)
    natural = stage.sampling == "natural"
    known_everywhere = all(bool((s_N[data.rows] >= 0).all()) for s_N in data.turns)
    if data.turns and not (natural and known_everywhere):
        each: list[tuple[Windows, ...]] = [(w,) for w in data.all_windows]
        each = each or [()] * len(data.turns)
        own = [
            replace(data, s_N=s_N, turns=(), all_windows=w)
            for s_N, w in zip(data.turns, each, strict=True)
        ]
        return TurnsPlan([plan_of(method, stage, of_attribute) for of_attribute in own])
    known_n = data.known_n
    if bool(known_n.all()):
        return method.batch_plan(stage, data)
    if not bool(known_n.any()):
        raise DataError("no training row has a group; give groups to some, or train ce")

    def make(known: TrainingRows) -> BatchPlan:
        if natural:  # a batch as rows come has each of them once
            known = replace(known, batch_size=min(known.batch_size, len(known.rows)))
        return method.batch_plan(stage, known)

    if not method.uses_unknown(stage):
        return make(replace(data, rows=data.rows[known_n]))
    return PartlyKnownPlan(make, data)


# -------------------------------------------------------------------------------------------------
# A stage under way: its batch plan, optimisers and averaged weights.
# -------------------------------------------------------------------------------------------------


@dataclass
class StageRun:
    """What is made at the start of a stage, or restored from a checkpoint."""

    stage: Stage
    spec: StageSpec
    plan: BatchPlan
    total: int  # steps
    batch_size: int
    optimizers: dict[str, Any]  # by parameter group, as Fabric wraps them
    specs: dict[str, StageSpec]  # by parameter group
    ema: Ema | None
    features: dict[str, Tensor] = field(default_factory=dict)  # of the training rows, by kind
    place_N: Tensor | None = None  # row of the manifest -> row of ``features``
    val_features: dict[str, Tensor] = field(default_factory=dict)
    leakage: float | None = None  # of those features, which stay
    watched: dict[str, Tensor] = field(default_factory=dict)  # of the rows that are looked at
    slower: float = 1.0  # what the learning rate is multiplied by, after a plateau

    def description(self, unit: str, world: int) -> str:
        """Return one line for the start of the stage."""
        split = f" = {world} processes x {self.batch_size // world}" if world > 1 else ""
        return (
            f"stage {self.stage.name}: {self.total} steps of {self.batch_size} {unit}{split} x "
            f"{self.stage.views} views, {self.plan.says(self.stage.sampling)}"
        )

    def keep_features(self, features: dict[str, Tensor], data: TrainingRows) -> None:
        """Keep the features of the training rows, for a stage that reads nothing else."""
        self.features = features
        self.place_N = torch.full((len(data.t_N),), -1)
        self.place_N[data.rows] = torch.arange(len(data.rows))

    def features_of(self, rows: Tensor, device: torch.device) -> dict[str, Tensor]:
        """Return the features of training rows that were computed at the start of the stage."""
        assert self.place_N is not None
        place = self.place_N[rows]
        return {kind: z[place].to(device) for kind, z in self.features.items()}

    def tensors(self) -> dict[str, Tensor]:
        """Return what the stage adds to a checkpoint."""
        tensors = {f"plan.{k}": v for k, v in self.plan.state().items()}
        for group, optimizer in self.optimizers.items():
            for name, value in optimizer_tensors(optimizer).items():
                tensors[f"optimizer.{group}.{name}"] = value
        if self.ema is not None:
            tensors.update({f"ema.{k}": v for k, v in self.ema.average.items()})
        return tensors


def batch_size_of(stage: Stage, spec: StageSpec, key: str, rows: int, world: int) -> int:
    """Return images in a batch: the views of the specification over the views of the stage."""
    size = max(1, spec.batch_views // stage.views)
    if size % world:
        raise SpecError(
            f"a batch of {size} images cannot be cut into {world} equal parts; "
            f"make {key}.batch_views a multiple of {world * stage.views}"
        )
    return min(size, rows) if stage.inputs == "features" else size


def begin(
    method: Method,
    stage: Stage,
    train: TrainSpec,
    data: TrainingRows,
    groups: dict[str, list[nn.Parameter]],
    fabric: Fabric,
    checkpoint: Checkpoint | None,
    ema_count: int,
) -> StageRun:
    """Start a stage, or go on with it where ``checkpoint`` was written in the middle of it."""
    spec = train.stage(stage.name)
    method.begin_stage(stage, data)
    plan = plan_of(method, stage, data)
    total = spec.steps if spec.steps is not None else plan.steps_of(spec.epochs or 1)
    plan.total_steps = total
    set_modes(method, stage)
    overrides = method.optimizer_overrides()
    specs = {g: spec.model_copy(update=overrides.get(g, {})) for g in stage.groups}
    plain: dict[str, torch.optim.Optimizer] = {
        g: make_optimizer(groups[g], specs[g], pretrained(method)) for g in stage.groups
    }
    wrapped = {g: fabric.setup_optimizers(o) for g, o in plain.items()}
    ema = Ema(method, train.ema) if train.ema and stage.inputs == "images" else None
    if checkpoint is not None:
        with must_fit():
            plan.load_state(checkpoint.part("plan"))
            _load_optimizers(plain, checkpoint)
            if ema is not None:
                ema.load(checkpoint.part("ema"), ema_count)
    size = plan.batch_size or data.batch_size
    return StageRun(stage, spec, plan, total, size, wrapped, specs, ema)


def _load_optimizers(plain: dict[str, torch.optim.Optimizer], checkpoint: Checkpoint) -> None:
    """Load what every optimiser has counted; refuse a checkpoint that has it of other groups."""
    parts = {group: checkpoint.part(f"optimizer.{group}") for group in plain}
    if set(checkpoint.part("optimizer")) != {f"{g}.{name}" for g in parts for name in parts[g]}:
        raise ValueError("it holds optimisers of other parameters")
    stateful = any(g.get("momentum", 1) for o in plain.values() for g in o.param_groups)
    if stateful and not any(parts.values()):
        raise ValueError("it was written in the middle of a stage, and holds no optimiser")
    for group, optimizer in plain.items():
        load_optimizer_tensors(optimizer, parts[group])


# -------------------------------------------------------------------------------------------------
# How long a method trains, before it does.
# -------------------------------------------------------------------------------------------------


def views_on_images(method: Method, train: TrainSpec, images: int) -> int:
    """Return the views that all stages on images see, on a number of training images.

    Stage 1 alone for most methods; a teacher or a baseline before it counts too. How long an epoch
    is, the method's own batch plan says: one of mined batches goes over a fifth of the images.
    """
    rows = torch.arange(images)
    # equal cells: they decide which rows are drawn, not how many
    t_N, s_N = rows % method.classes, rows // method.classes % (method.groups or 2)
    windows = () if method.groups else (Windows.along(rows.double(), rows, 1.0),)
    total = 0
    for stage in method.stages():
        if stage.inputs != "images":
            continue
        spec = train.stage(stage.name)
        size = batch_size_of(stage, spec, train.stage_key(stage.name), images, world=1)
        data = TrainingRows(t_N, s_N, rows, size, 0, stage.views, all_windows=windows)
        plan = method.batch_plan(stage, data)
        steps = spec.steps or plan.steps_of(spec.epochs or 1)
        total += steps * (plan.batch_size or size) * stage.views
    return total
