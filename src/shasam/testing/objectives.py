"""The part of ``check_method`` that is about losses: formulas, weights of parts, targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from shasam.extras import need

need("torch", __name__)

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shasam.errors import ContractError
from shasam.methods.base import Method
from shasam.testing.lab import Lab, copies, optimizers, take_steps, trained, yields
from shasam.training.modes import set_modes
from shasam.types import Batch, Losses


@dataclass(frozen=True)
class Expected:
    """What a yielded loss must be: its value, and gradients by parameter name."""

    value: float
    gradients: Mapping[str, Tensor]


# One entry per yield. A scalar tensor stands for itself and its gradients; a mapping from
# prefixes of parameter names to scalars says what each parameter minimises (the longest prefix
# counts), with the value under "value". Written as naive loops, from the formula.
Oracle = Callable[[Method, Batch, str], Sequence["Tensor | Mapping[str, Tensor] | Expected"]]


def objective(lab: Lab, oracle: Oracle | None) -> str | None:
    """Losses and gradients of every yield are those of the oracle."""
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


def _weights(lab: Lab) -> dict[str, str | None]:
    """Fields of the configuration that weigh a part, and what is left at 0."""
    found = {}
    for name, info in type(lab.config).model_fields.items():
        extra = info.json_schema_extra
        if isinstance(extra, dict) and "weight" in extra and getattr(lab.config, name) > 0:
            found[name] = extra["weight"]
    return found  # type: ignore[return-value]


def parts_are_alive(lab: Lab) -> str | None:
    """Every field that weighs a part of the loss changes what is learnt."""
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
    """With the marked weights at 0 the gradients are those of cross-entropy."""
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
    """Other targets give other losses."""
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
