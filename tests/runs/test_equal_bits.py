"""Who asks for a score, and in which batch: the table "Equal bits" in docs/training.md."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny_data import TinyData

from shasam.pipeline.build import build_method
from shasam.pipeline.execute import execute
from shasam.pipeline.load import load
from shasam.runs.directory import read_predictions
from shasam.spec import resolve
from shasam.training.inference import prepare
from shasam.training.runtime import Runtime

QUIET = Runtime(device="cpu", quiet=True)
BATCH_TOLERANCE = 1e-5  # of a probability, in 32 bits; docs/training.md promises it


def trained(out, method, **more):
    body = {"method": method, "data": {"size": 16}, **more}
    body["train"] = {"steps": 3, **more.get("train", {})}
    spec = resolve(body, profile="smoke")
    return execute(spec, out, runtime=QUIET, data=TinyData(size=spec.data.size))


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("ce", {}),
        ("supcon", {}),
        ("fdvae", {}),
        ("tadet", {"model": {"encoder": "vit", "depth": 1, "patch": 8}}),
        # 32 px: on maps of 1x1, oneDNN 3.12 reads unset memory in bfloat16 (experiments/speed)
        ("ce", {"train": {"precision": "bf16-mixed"}, "data": {"size": 32}}),
    ],
    ids=["ce", "supcon", "fdvae", "tadet on a ViT", "ce in bfloat16"],
)
def test_a_loaded_model_gives_the_bits_that_training_wrote(tmp_path, method, more):
    run = trained(tmp_path, method, **more)
    data = TinyData(size=run.spec().data.size)
    images = data.images(data.rows("test")).numpy()
    stored = read_predictions(run.file("predictions.parquet"))
    assert load(run).predict(images).scores.tobytes() == stored.scores.tobytes()


@pytest.mark.parametrize("model", [{"width": 16}, {"encoder": "vit", "depth": 2, "patch": 8}])
def test_the_batch_of_an_image_changes_its_score_by_less_than_is_promised(tmp_path, model):
    run = trained(tmp_path, "ce", model=model)
    trained_model, images = load(run), TinyData().pixels[:60].numpy()
    whole = trained_model.predict(images).scores
    assert np.ptp(whole[:, 0]) > 100 * BATCH_TOLERANCE  # the images do not all score alike
    for size in (1, 2, 7, 16):
        parts = [trained_model.predict(images[i : i + size]).scores for i in range(0, 60, size)]
        assert np.abs(np.concatenate(parts) - whole).max() < BATCH_TOLERANCE


def test_a_prepared_method_is_in_one_memory_format_and_frozen():
    method, _ = build_method(resolve({"method": "supcon"}, profile="smoke"), 2, 2)
    prepare(method.train(), "cpu")
    filters = [p for p in method.parameters() if p.ndim == 4]
    assert filters and all(p.is_contiguous(memory_format=torch.channels_last) for p in filters)
    assert not any(m.training for m in method.modules())
    assert not any(p.requires_grad for p in method.parameters())
    assert all(m.training for m in prepare(method.train(), "cpu", training=True).modules())


def test_every_promise_of_equal_bits_names_a_test_that_exists():
    root = Path(__file__).parents[2]
    text = (root / "docs" / "training.md").read_text().split("## Equal bits")[1].split("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    named = [re.findall(r"`(tests/\S+\.py)::(\w+)`", row) for row in rows]
    assert len(rows) > 10 and all(len(found) == 1 for found in named[:-1])
    for ((file, test),) in named[:-1]:  # the last row promises nothing
        assert f"def {test}(" in (root / file).read_text(), f"{file}::{test}"
