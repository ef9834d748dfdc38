"""Which parameters are trained in a stage, and which modules are in training mode."""

from __future__ import annotations

from torch import nn

from shasam.errors import ContractError, SpecError
from shasam.methods.base import Method, Stage
from shasam.models import Encoder


def check_groups(method: Method) -> dict[str, list[nn.Parameter]]:
    """The method's parameter groups, after checking that they are a partition.

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
    """The pretrained parameters that no stage moves, by ``id``."""
    return {id(p) for encoder in _encoders(method) for p in encoder.frozen}


def pretrained(method: Method) -> set[int]:
    """The parameters that did not start at random, by ``id``."""
    return {id(p) for encoder in _encoders(method) for p in encoder.pretrained}


def set_modes(method: Method, stage: Stage) -> None:
    """Moving groups learn, in training mode; everything else is frozen, in evaluation mode."""
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
