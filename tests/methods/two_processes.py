"""Train methods in one or two processes: ``python -m ... COUNT FOLDER NAME...``.

``NAME@resnet`` trains on a ResNet, with ``train.sync_batchnorm``, instead of a ViT.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lightning_fabric import Fabric
from safetensors.torch import save_file
from tests.methods.test_training import build
from tests.tiny_data import TinyData

from shasam.spec.fields import StageSpec, TrainSpec
from shasam.training.runtime import Runtime
from shasam.training.trainer import Trainer

# plain SGD: an adaptive rate would make much of the last bits of a sum
STAGE = StageSpec(steps=3, batch_views=24, optimizer="sgd", lr=0.01)
# a narrow ResNet that runs away multiplies the last bits by thousands within three steps
CLIPPED = STAGE.model_copy(update={"clip": 1.0})
DATA = TinyData(train=320, held=16, size=32)


def train_all(fabric: Fabric, folder: Path, names: list[str]) -> None:
    """Weights of each method after its stages; a ViT has no batch normalisation."""
    for name in names:
        kind, _, encoder = name.partition("@")
        resnet = encoder == "resnet"
        stage = CLIPPED if resnet else STAGE
        method = build(kind, vit=not resnet)
        if kind == "shasam":
            # The last bits of an embedding depend on how many rows are embedded together. Between
            # anchors, which are alike at first (LogDet's first gains are all log 2), and at the
            # edge of two codes of a kept kernel they decide, and would make another batch.
            mined = {"refresh": "live", "anchors": "random"}
            mining = method.config.mining.model_copy(update=mined)
            method.config = method.config.model_copy(update={"mining": mining})
        Trainer(
            method,
            DATA,
            TrainSpec(learn=stage, classify=stage, sync_batchnorm=resnet),
            seed=5,
            image_size=32,
            fabric=fabric,
            runtime=Runtime(quiet=True),
        ).fit()
        if fabric.global_rank == 0:
            tensors = {k: v.contiguous() for k, v in method.state_dict().items()}
            save_file(tensors, folder / f"{name}.safetensors")


if __name__ == "__main__":
    count, folder = int(sys.argv[1]), Path(sys.argv[2])
    fabric = Fabric(accelerator="cpu", devices=count, strategy="ddp" if count > 1 else "auto")
    fabric.launch()
    train_all(fabric, folder, sys.argv[3:])
