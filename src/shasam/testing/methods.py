"""``check_method``: a method does what it says, on small images, in seconds.

It raises ``ContractError`` for the first promise that is broken. A method marks the weights of
its loss parts in its ``Config``: ``Field(1.0, json_schema_extra={"weight": "ce"})`` says that the
field weighs a part of the loss, and that with all fields so marked at 0 the rest is cross-entropy;
``{"weight": None}`` says only the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from shasam.extras import need

need("torch", __name__)

import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import Tensor, nn

from shasam.errors import ContractError, DataError
from shasam.methods.base import Method, MethodConfig
from shasam.models import Encoder
from shasam.testing.lab import Lab, optimizers, take_steps, yields
from shasam.testing.mined import PickOracle, check_mined
from shasam.training.modes import check_groups, set_modes
from shasam.types import Batch, Losses

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
class Expected:
    """What a yielded loss must be: its value, and gradients by parameter name."""

    value: float
    gradients: Mapping[str, Tensor]


# One entry per yield. A scalar tensor stands for itself and its gradients; a mapping from
# prefixes of parameter names to scalars says what each parameter minimises (the longest prefix
# counts), with the value under "value". Written as naive loops, from the formula.
Oracle = Callable[[Method, Batch, str], Sequence["Tensor | Mapping[str, Tensor] | Expected"]]
LogitsOracle = Callable[[Method, Tensor], Tensor]


@dataclass(frozen=True)
class MethodReport:
    """Which promises were checked, and which were not and why."""

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
    overfit: bool = True,
    overfit_steps: int = 40,
) -> MethodReport:
    """Check a method class; raise ``ContractError`` where it breaks a promise.

    Parameters: ``config`` (default: the method's own defaults), ``encoder`` makes an encoder for
    images of 32 px (default: a small ResNet-18, or ViT for methods that refuse it), ``oracle``
    and ``oracle_logits`` naive versions of its losses and of its scores, ``oracle_mined`` of what
    it mines, ``overfit`` whether to train until all images (about 64, or 320 where a method mines)
    are known by heart, ``overfit_steps`` on each but the last stage.
    """
    chosen = config if config is not None else method.Config()
    try:
        lab = Lab(method, chosen, encoder, classes, groups)
    except _BROKEN as error:
        raise ContractError(f"{method.__name__}: it cannot be built: {error!r}") from error
    checks: dict[str, Callable[[], str | None]] = {
        "description": lambda: _description(lab),
        "parameter groups": lambda: _partition(lab),
        "steps move their own group": lambda: _movement(lab),
        "mined batches": lambda: check_mined(lab, oracle_mined),
        "objective": lambda: _objective(lab, oracle),
        "loss parts are alive": lambda: _parts(lab),
        "weights of 0 give cross-entropy": lambda: _plain(lab),
        "targets matter": lambda: _targets(lab),
        "finite at the edges": lambda: _edges(lab),
        "finite in bfloat16": lambda: _bfloat16(lab),
        "deterministic": lambda: _deterministic(lab),
        "predictions": lambda: _predictions(lab, oracle_logits),
        "saved and loaded": lambda: _saved(lab),
        "overfits": lambda: _overfits(lab, overfit_steps) if overfit else "not asked for",
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
    again = cls.Config.model_validate_json(lab.config.model_dump_json())
    if again != lab.config:
        raise ContractError("its configuration changes when it is written to JSON and read back")
    for name, value in vars(lab.build()).items():
        if isinstance(value, torch.optim.Optimizer):
            raise ContractError(f"it holds an optimiser ({name}); the trainer does the steps")


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
            last, before = None, _copy(names)
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
                before = _copy(names)
                steppers[group].step()
                _only_moved(names, before, member, group, "in its step")
                last, before = group, _copy(names)
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


def _copy(names: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in names.items()}


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


def _weights(lab: Lab) -> dict[str, str | None]:
    """Fields of the configuration that weigh a part, and what is left at 0."""
    found = {}
    for name, info in type(lab.config).model_fields.items():
        extra = info.json_schema_extra
        if isinstance(extra, dict) and "weight" in extra and getattr(lab.config, name) > 0:
            found[name] = extra["weight"]
    return found  # type: ignore[return-value]


def _trained(lab: Lab, changes: Mapping[str, float] | None = None) -> dict[str, Tensor]:
    method = lab.build(changes=changes)
    for stage in method.stages():
        take_steps(method, stage, lab.batches(method, stage, 3), optimizers(method, stage))
    return _copy(dict(method.named_parameters()))


def _parts(lab: Lab) -> str | None:
    weights = _weights(lab)
    if not weights:
        return "its Config marks no weight"
    start = _copy(dict(lab.build().named_parameters()))
    full = _trained(lab)
    for name in weights:
        without = _trained(lab, {name: 0.0})
        # the largest change of a parameter, against how far that parameter has moved
        change = max(
            float((full[k] - without[k]).norm() / (full[k] - start[k]).norm().clamp(min=1e-12))
            for k in full.keys() & without.keys()
        )
        if change < 1e-6:
            raise ContractError(f"{name} = {getattr(lab.config, name)} trains as {name} = 0 does")
    return None


def _plain(lab: Lab) -> str | None:
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


def _targets(lab: Lab) -> None:
    method = lab.build()
    for stage in method.stages():
        batch = next(lab.batches(method, stage, 1))
        if batch.triplets:
            continue  # targets are in the triplets
        state = _copy(method.state_dict())
        first = [float(v.total.detach()) for _, v in yields(method, batch, stage)]
        method.load_state_dict(state)
        other = Batch(**{**vars(batch), "t_B": (batch.t_B + batch.s_B) % lab.classes})
        second = [float(v.total.detach()) for _, v in yields(method, other, stage)]
        if first == second:
            raise ContractError(f"the losses of stage {stage.name!r} do not depend on the target")


def _objective(lab: Lab, oracle: Oracle | None) -> str | None:
    if oracle is None:
        return "no oracle given"
    method = lab.build()
    names = dict(method.named_parameters())
    for stage in method.stages():
        steppers = optimizers(method, stage, "adam", 5e-3)
        for batch in lab.batches(method, stage, 3):
            state = _copy(method.state_dict())
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


def _expected(names: Mapping[str, nn.Parameter], entry: object) -> Expected:
    if isinstance(entry, Expected):
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
    return Expected(float(value.detach()), gradients)


def _compare(method: Method, group: str, losses: Losses, wanted: Expected, where: str) -> None:
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


def _edges(lab: Lab) -> None:
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


def _bfloat16(lab: Lab) -> None:
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


def _deterministic(lab: Lab) -> None:
    first, second = _trained(lab), _trained(lab)
    for name, value in first.items():
        if not torch.equal(value, second[name]):
            raise ContractError(f"{name} differs between two runs with one seed")


def _predictions(lab: Lab, oracle_logits: LogitsOracle | None) -> str | None:
    method = lab.build()
    for stage in method.stages():
        take_steps(method, stage, lab.batches(method, stage, 3), optimizers(method, stage))
    method.eval()
    state = _copy(method.state_dict())
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


def _saved(lab: Lab) -> None:
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


def _overfits(lab: Lab, early_steps: int, rounds: int = 8, steps: int = 40) -> None:
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
    raise ContractError(f"it learns only {share:.0%} of {len(lab.t_N)} images by heart")
