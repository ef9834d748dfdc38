"""One or several gloo processes train a method: ``python -m ... COUNT FOLDER NAME...``.

Written are the loss and the gradients of the first step, and the predictions after all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from lightning_fabric import Fabric
from safetensors.torch import save_file
from tests.methods.test_training import build
from tests.tiny_data import TinyData

from shasam.spec.fields import StageSpec, TrainSpec
from shasam.training.inference import read_rows
from shasam.training.runtime import Runtime
from shasam.training.trainer import Trainer

STAGE = StageSpec(steps=4, batch_views=48, optimizer="sgd", lr=0.01)
DATA = TinyData(train=320, held=40, size=32)


def train(fabric: Fabric, name: str) -> dict[str, torch.Tensor]:
    method = build(name, vit=True)  # a ViT has no batch normalisation, which sees its part alone
    names = {id(p): n for n, p in method.named_parameters()}
    seen: dict[str, torch.Tensor] = {}
    original = torch.optim.SGD.step

    def step(self: torch.optim.SGD, closure: object = None) -> object:
        for group in self.param_groups if not seen else ():
            for p in group["params"]:
                if p.grad is not None:
                    seen[f"gradient.{names[id(p)]}"] = p.grad.detach().clone()
        return original(self, closure)  # type: ignore[arg-type]

    torch.optim.SGD.step = step  # type: ignore[assignment,method-assign]
    losses: list[float] = []
    trainer = Trainer(
        method,
        DATA,
        TrainSpec(learn=STAGE, classify=STAGE),
        seed=5,
        image_size=32,
        fabric=fabric,
        runtime=Runtime(quiet=True),
    )
    one_step = trainer._step

    def noted(run: object) -> float:
        losses.append(one_step(run))  # type: ignore[arg-type]
        return losses[-1]

    trainer._step = noted  # type: ignore[method-assign]
    try:
        trainer.fit()
    finally:
        torch.optim.SGD.step = original  # type: ignore[method-assign]
    _, found = read_rows(method, DATA, torch.as_tensor(DATA.rows("test")), fabric)
    seen["losses"] = torch.tensor(losses, dtype=torch.float64)
    seen["predictions"] = torch.from_numpy(next(iter(found.values())).prediction)
    return seen


if __name__ == "__main__":
    torch.set_num_threads(1)
    count, folder = int(sys.argv[1]), Path(sys.argv[2])
    fabric = Fabric(accelerator="cpu", devices=count, strategy="ddp" if count > 1 else "auto")
    fabric.launch()
    for name in sys.argv[3:]:
        seen = train(fabric, name)
        if fabric.global_rank == 0:
            save_file({k: v.contiguous() for k, v in seen.items()}, folder / f"{name}.safetensors")
