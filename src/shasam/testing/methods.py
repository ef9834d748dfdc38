"""``check_method``: a method does what it says, on small images or vectors, in seconds.

It raises ``ContractError`` for the first promise that is broken. A method marks the weights of
its loss parts in its ``Config``: ``Field(1.0, json_schema_extra={"weight": "ce"})`` says that the
field weighs a part of the loss, and that with all fields so marked at 0 the rest is cross-entropy;
``{"weight": None}`` says only the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from shasam.extras import need

need("torch", __name__)

import torch
from torch import Tensor

from shasam.errors import ContractError, DataError
from shasam.methods.base import Method, MethodConfig
from shasam.models import Encoder
from shasam.testing import behaviour, objectives
from shasam.testing.behaviour import LogitsOracle
from shasam.testing.lab import Lab, copies, optimizers, yields
from shasam.testing.mined import PickOracle, check_mined
from shasam.testing.objectives import Expected, Oracle
from shasam.training.modes import check_groups

__all__ = ["Expected", "MethodReport", "check_method"]

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
    inputs: Literal["images", "vectors"] = "images",
    overfit: bool = True,
    overfit_steps: int = 40,
) -> MethodReport:
    """Check a method class; raise ``ContractError`` where it breaks a promise.

    Parameters: ``config`` (default: the method's own defaults), ``encoder`` makes an encoder for
    images of 32 px (default: a small ResNet-18, or ViT for methods that refuse it) or, with
    ``inputs="vectors"``, for vectors of 24 numbers (default: a small MLP), ``oracle``
    and ``oracle_logits`` naive versions of its losses and of its scores, ``oracle_mined`` of what
    it mines, ``overfit`` whether to train until all images (about 64, or 320 where a method mines)
    are known by heart, ``overfit_steps`` on each but the last stage.
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
        "objective": lambda: objectives.objective(lab, oracle),
        "loss parts are alive": lambda: objectives.parts_are_alive(lab),
        "weights of 0 give cross-entropy": lambda: objectives.plain_at_zero(lab),
        "targets matter": lambda: objectives.targets_matter(lab),
        "finite at the edges": lambda: behaviour.finite_at_edges(lab),
        "finite in bfloat16": lambda: behaviour.finite_in_bfloat16(lab),
        "deterministic": lambda: behaviour.deterministic(lab),
        "predictions": lambda: behaviour.predictions(lab, oracle_logits),
        "saved and loaded": lambda: behaviour.saved_and_loaded(lab),
        "overfits": lambda: behaviour.overfits(lab, overfit_steps) if overfit else "not asked for",
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
