"""A trained model as one function of plain tensors, pre-processing and decision included."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from shasam.data.views import plain
from shasam.errors import InputError
from shasam.methods.base import Method
from shasam.pipeline.load import Model


class Graph(nn.Module):
    """Inputs (B, ...) to class probabilities (B, C) and decisions (B,).

    Images are uint8 (B, size, size, 3), as Pillow gives them; vectors are float32 (B, D). Where a
    method decides by group, the numbers of the groups (B,) int64 and numbers in [0, 1) (B,) float64
    for its randomised decisions are inputs too.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        kind = type(model.method)
        if model.method.has_rule and kind.decision is Method.decision:
            raise InputError(
                f"{model.spec.method} cannot be exported: it has a rule of its own in decide(), "
                "which a file cannot hold; write that rule as decision(), of tensors"
            )
        self.method = copy.deepcopy(model.method).float().cpu().eval()
        self.vectors = self.method.encoder.inputs == "vectors"
        self.by_group = kind.decides_by_group
        # buffers in float64 (rules of decisions) keep their precision
        for name, buffer in model.method.named_buffers():
            if buffer.dtype == torch.float64:
                self.method.get_buffer(name).data = buffer.detach().cpu().clone()

    def forward(
        self, inputs: Tensor, group: Tensor | None = None, uniform: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        x = inputs if self.vectors else plain(inputs.permute(0, 3, 1, 2))
        scores_BC = next(iter(self.method.logits(x).values()))
        scores_BC = torch.softmax(scores_BC.float(), dim=1)
        if group is None or uniform is None:
            return scores_BC, scores_BC.argmax(dim=1)
        return scores_BC, self.method.decision(scores_BC, group, uniform)

    def names(self) -> list[str]:
        """The inputs in their order."""
        first = "vectors" if self.vectors else "pixels"
        return [first, "group", "uniform"] if self.by_group else [first]


def examples(shape: tuple[int, ...], graph: Graph, groups: int, n: int = 2) -> tuple[Tensor, ...]:
    """Random inputs of ``n`` rows, alike at every call: to trace a graph and to check a file."""
    generator = torch.Generator().manual_seed(0)
    if graph.vectors:
        first = torch.randn(n, *shape, generator=generator)
    else:
        first = torch.randint(0, 256, (n, *shape), generator=generator, dtype=torch.uint8)
    if not graph.by_group:
        return (first,)
    group = torch.randint(0, groups, (n,), generator=generator)
    return first, group, torch.rand(n, generator=generator, dtype=torch.float64)
