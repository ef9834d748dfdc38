"""Optimisers by name, and the learning rate as a function of the step."""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import Tensor, nn

from shasam.spec.train import StageSpec


def make_optimizer(
    parameters: list[nn.Parameter], spec: StageSpec, pretrained: Collection[int] = ()
) -> torch.optim.Optimizer:
    """SGD (momentum), Adam or AdamW; vectors and scalars have no weight decay.

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
    """Linear warm-up, then lr (f + (1 - f) (1 + cos(pi x)) / 2) for x from 0 to 1.

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
    """The rate of all parameters of an optimiser, times the share of each part."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state as a flat dict; every entry of the optimisers above is a tensor."""
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{key}": torch.as_tensor(value)
        for index, entry in state.items()
        for key, value in entry.items()
        if value is not None
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse; learning rates are not state, they follow from the step."""
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
