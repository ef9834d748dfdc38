"""Accuracy and EO on the validation split while a stage is under way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from shasam.methods.base import Method
from shasam.metrics import Counts, values
from shasam.training.ema import Ema
from shasam.training.fabric import Fabric
from shasam.training.inference import TrainingData, evaluating, features_of, on_rows
from shasam.training.stage import StageRun


def validate(
    method: Method, run: StageRun, data: TrainingData, rows: Tensor, fabric: Fabric
) -> dict[str, float]:
    """Accuracy and EO of the method's own predictions of ``rows``."""
    if run.stage.inputs == "features":
        if not run.val_features:
            run.val_features = features_of(method, data, rows, fabric)
        with evaluating(method):
            features = {k: v.to(fabric.device) for k, v in run.val_features.items()}
            scores = next(iter(method.classify(features).values())).cpu()
    else:
        scores = next(iter(on_rows(method.logits, method, data, rows, fabric).values()))
    t, s = data.manifest.t_N[rows.numpy()], data.manifest.s_N[rows.numpy()]
    classes, groups = (tuple(map(str, range(n))) for n in (data.classes, data.groups))
    counts = Counts.from_codes(t, scores.argmax(1).numpy(), s, classes, groups)
    return values(counts, ("accuracy", "eo_mean"))


@contextmanager
def averaged(method: Method, ema: Ema | None) -> Iterator[None]:
    """The averaged weights in place of the weights, where there are averaged ones."""
    if ema is None:
        yield
        return
    kept = {k: v.detach().clone() for k, v in method.state_dict().items()}
    method.load_state_dict(ema.average)
    try:
        yield
    finally:
        method.load_state_dict(kept)
