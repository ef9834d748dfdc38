"""Every method goes through the real trainer: resumed to the same bits, and in bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from tests.methods.cases import CASES
from tests.tiny_data import TinyData

from shasam.methods.base import Method
from shasam.models import ResNet18, ViT
from shasam.registry import lookup
from shasam.runs.directory import RunLog
from shasam.spec.fields import StageSpec, TrainSpec
from shasam.training.runtime import Runtime
from shasam.training.trainer import Trainer

DATA = TinyData(train=64, held=16, size=32)
MINED = TinyData(train=320, held=16, size=32)  # a fifth of it is mined at a time
VIT = ("tadet", "tadet-mmd", "fairvit")
SLOW = ("shasam-ld", "shasam-literal")
RUNS = [
    pytest.param(n, n in VIT, marks=pytest.mark.slow) if n in SLOW else pytest.param(n, n in VIT)
    for n in sorted(CASES)
]
RUNS += [pytest.param(n, True) for n in ("ce", "grl", "supcon", "fscl")]
RESUMED = [pytest.param(*run.values, "32-true", marks=run.marks) for run in RUNS]
RESUMED += [pytest.param("ce", False, "bf16-mixed"), pytest.param("shasam", True, "bf16-mixed")]


class Cut(RuntimeError):
    """The process dies here."""


def build(name: str, vit: bool) -> Method:
    torch.manual_seed(0)
    kind = lookup("method", name)
    config = CASES.get(name, {}).get("config") or kind.Config()
    encoder = ViT("tiny", 32, 16, depth=1) if vit else ResNet18("imagenet", 8, 8)
    return kind(config, encoder, 2, 2)


def trainer(method: Method, directory: Path | None = None, precision: str = "32-true") -> Trainer:
    mines = any(stage.sampling == "mined" for stage in method.stages())
    spec = TrainSpec(
        learn=StageSpec(steps=3, batch_views=24 if mines else 16),
        classify=StageSpec(steps=3, batch_views=16),
        precision=precision,
    )
    return Trainer(
        method,
        MINED if mines else DATA,
        spec,
        seed=5,
        image_size=32,
        fabric=Fabric(accelerator="cpu", devices=1, precision=precision),
        runtime=Runtime(quiet=True, checkpoint_seconds=0.0),
        directory=directory,
        log=RunLog(None if directory is None else directory / "log.jsonl"),
    )


def cut_at(method: Method, step: int) -> None:
    """Die in the middle of a step: after its first yield."""
    own, count = method.steps, [0]

    def steps(batch: object, stage: str) -> Iterator:
        count[0] += 1
        for entry in own(batch, stage):
            yield entry
            if count[0] > step:
                raise Cut

    method.steps = steps  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize(("name", "vit", "precision"), RESUMED)
def test_a_cut_run_resumes_to_the_same_bits(
    name: str, vit: bool, precision: str, tmp_path: Path
) -> None:
    whole = build(name, vit)
    trainer(whole, precision=precision).fit()
    stages = len(whole.stages())
    for cut in {1, 3 * stages - 2}:  # within the first stage, and within the last
        folder = tmp_path / str(cut)
        folder.mkdir()
        first = build(name, vit)
        cut_at(first, cut)
        with pytest.raises(Cut):
            trainer(first, folder, precision).fit()
        second = build(name, vit)
        trainer(second, folder, precision).fit(resume=True)
        wanted = whole.state_dict()
        assert second.state_dict().keys() == wanted.keys()
        for key, value in second.state_dict().items():
            assert torch.equal(value, wanted[key]), key


@pytest.mark.parametrize(("name", "vit"), RUNS)
def test_bfloat16_trains_and_predicts_finite_scores(name: str, vit: bool) -> None:
    method = build(name, vit)
    start = {k: v.clone() for k, v in method.named_parameters()}
    t = trainer(method, precision="bf16-mixed")
    t.fit()
    assert all(bool(torch.isfinite(v).all()) for v in method.state_dict().values())
    assert any(not torch.equal(v, start[k]) for k, v in method.named_parameters())
    with torch.no_grad(), t.fabric.autocast():
        scores = method.logits(torch.randn(4, 3, 32, 32))
    assert all(bool(torch.isfinite(v).all()) for v in scores.values())
