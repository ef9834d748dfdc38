"""Build a method from a specification: encoder, start weights, method, all from the seed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from shasam.errors import (
    MemoryLimitError,
    SpecError,
)
from shasam.keyed import text_key
from shasam.memory import available_memory, readable
from shasam.methods.base import Method
from shasam.models import Encoder, InitReport, build_encoder, start_weights
from shasam.registry import lookup
from shasam.spec import RunSpec

_COPIES = 4  # of every parameter while training: weight, gradient, two moments of Adam


def build_method(
    spec: RunSpec, classes: int, groups: int, start: bool = True
) -> tuple[Method, InitReport | None]:
    """Return the untrained method; ``start=False`` reads no pretrained weights (others follow)."""
    outlined = outline(spec, classes, groups)
    if outlined is not None:
        check_memory(spec, outlined)
    torch.manual_seed(text_key(spec.seed, "init"))
    try:
        encoder = build_encoder(spec.model, spec.data.input_size)
        report = start_weights(encoder, spec.model) if start else None
        return _method(spec, encoder, classes, groups), report
    except (RuntimeError, OverflowError) as error:  # a negative size, or one beyond 2^63
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SpecError(f"the model of this specification cannot be built: {reason}") from error


def check_start(spec: RunSpec) -> None:
    """Read the start weights before the data is opened: a file that does not fit costs seconds."""
    kind = lookup("encoder", spec.model.encoder)
    comes_with_weights = kind.load_pretrained is not Encoder.load_pretrained
    if comes_with_weights or spec.model.init is not None or spec.model.freeze != "none":
        start_weights(build_encoder(spec.model, spec.data.input_size), spec.model)


def _method(spec: RunSpec, encoder: nn.Module, classes: int, groups: int) -> Method:
    kind = lookup("method", spec.method)
    groups = 0 if spec.data.sensitive_as == "number" else groups
    method: Method = kind(kind.Config.model_validate(spec.options), encoder, classes, groups)
    if spec.train.calibrate:
        method.make_room_for_temperature()
    return method


def outline(spec: RunSpec, classes: int, groups: int) -> Method | None:
    """Return the method with the shapes of all its tensors and no memory for any of them.

    None if it cannot be built so: an outside method may compute with values in its constructor.
    """
    try:
        with torch.device("meta"), _WithoutStartValues():
            encoder = build_encoder(spec.model, spec.data.input_size)
            return _method(spec, encoder, classes, groups)
    except (RuntimeError, TypeError, OverflowError):
        return None


def check_memory(spec: RunSpec, method: Method) -> None:
    """Refuse a model or a batch that cannot fit, with the figure, before it is allocated."""
    parameters = sum(p.numel() for p in method.parameters())
    stages = (spec.train.learn, spec.train.classify, *spec.train.others.values())
    numbers = spec.data.features_dim or 3 * spec.data.size**2
    batch = max(stage.batch_views for stage in stages) * numbers * 4
    needed, free = _COPIES * 4 * parameters + batch, available_memory()
    if free is not None and needed > free:
        raise MemoryLimitError(
            f"{spec.method} with {parameters:,} parameters and batches of {readable(batch)} needs "
            f"at least {readable(needed)} to train, and {readable(free)} are free; make "
            "model.width, model.depth, the options' sizes or train.learn.batch_views smaller"
        )


def check_activations(spec: RunSpec, classes: int, groups: int) -> None:
    """Refuse a batch whose backward pass cannot fit into main memory: the system would end the run
    without a word, perhaps after hours.

    Counts what the encoder's forward pass keeps for the backward pass, on tensors without memory.
    """
    method = outline(spec, classes, groups)
    if method is None or method.encoder.inputs != "images" or spec.model.freeze != "none":
        return
    on_images = [stage.name for stage in method.stages() if stage.inputs == "images"]
    views = max((spec.train.stage(name).batch_views for name in on_images), default=0)
    kept = kept_for_backward(method.encoder, spec.data.size)
    free = available_memory()
    if kept is None or free is None:
        return
    in_full = spec.train.precision == "32-true"
    needed = views * kept * (1.0 if in_full else 0.5)
    if needed > free:
        raise MemoryLimitError(
            f"a step of {spec.method} on {views} views of {spec.data.size} px keeps at least "
            f"{readable(needed)} for its backward pass, and {readable(free)} are free; make "
            "train.learn.batch_views, data.size or the model smaller"
            + (", or halve it with train.precision=bf16-mixed" if in_full else "")
        )


def kept_for_backward(encoder: Encoder, size: int) -> float | None:
    """Return bytes for each view in 32 bits.

    None if the network cannot be run without memory.
    """
    several = 4  # batch normalisation needs more than one
    own = {p.untyped_storage()._cdata for p in encoder.parameters()}  # also of their transposes
    kept: dict[int, torch.UntypedStorage] = {}  # held, so that no two have the same address

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    try:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            encoder.train()(torch.empty(several, 3, size, size, device="meta"))
    except (RuntimeError, TypeError, ValueError):
        return None
    return sum(storage.nbytes() for storage in kept.values()) / several


class _WithoutStartValues(TorchFunctionMode):
    """Skips ``torch.nn.init``: tensors without memory have no values to draw."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)
