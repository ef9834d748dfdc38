"""Fairness of the representation: heads and probes on frozen features, without mitigation.

The **natural head** is the classifier of the contrastive methods' second stage (one hidden layer of
256, ten epochs, AdamW 1e-3), trained on the features of the biased training split as it is, without
the sensitive attribute. It leans on the group wherever the features show it. Beside it stands
leakage: how well the group is read from the features, over all images and within each class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from shasam.keyed import text_key
from shasam.methods.base import Method
from shasam.models import Classifier
from shasam.training.fabric import Fabric
from shasam.training.inference import TrainingData, features_of, to_predictions
from shasam.training.probes import linear_guess, linear_probe, mlp_guess, within_class
from shasam.types import Predictions

Featured = tuple[Tensor, Mapping[str, Tensor]]  # rows, and their features by kind
HIDDEN, EPOCHS, BATCH, RATE = 256, 10, 256, 1e-3


def leakage(
    data: TrainingData,
    val: tuple[Tensor, Mapping[str, Tensor]],
    test: tuple[Tensor, Mapping[str, Tensor]],
) -> dict[str, Any]:
    """How well the group is read from each kind of feature: fitted on validation, read on test."""
    if len(val[0]) < 2:
        return {}
    t_N, s_N = data.manifest.t_N, data.manifest.s_N
    (fit_t, fit_s), (t, s) = ((t_N[r.numpy()], s_N[r.numpy()]) for r in (val[0], test[0]))
    out = {}
    for kind, x in test[1].items():
        fit, read = (val[1][kind], fit_t, fit_s), (x, t, s)
        out[kind] = {
            "accuracy": linear_probe(fit[0], fit_s, x, s, data.groups),
            "linear_within_class": within_class(linear_guess, fit, read, data.groups),
            "mlp_within_class": within_class(mlp_guess, fit, read, data.groups),
            "chance": 1.0 / data.groups,
        }
    return out


def natural_heads(
    method: Method,
    data: TrainingData,
    fabric: Fabric,
    seed: int,
    read: Mapping[str, Featured],
) -> dict[str, dict[str, Predictions]]:
    """Predictions of a natural head for each kind of feature, by the names of ``read``."""
    rows = torch.as_tensor(data.rows("train")).clone()
    if not len(rows):
        return {}
    t_n = torch.from_numpy(data.manifest.t_N[rows.numpy()].astype("int64"))
    out: dict[str, dict[str, Predictions]] = {}
    for kind, x_nD in features_of(method, data, rows, fabric).items():
        head = fit_head(x_nD, t_n, data.classes, text_key(f"{seed}/natural_head/{kind}"))
        with torch.no_grad():
            out[kind] = {
                name: to_predictions(head(features[kind]), data, at)
                for name, (at, features) in read.items()
            }
    return out


def fit_head(x_nD: Tensor, t_n: Tensor, classes: int, key: int) -> Classifier:
    """A classifier on features, all rows weighed alike."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key)
        head = Classifier(x_nD.shape[1], HIDDEN, classes, standardise=True).train()
        optimizer = torch.optim.AdamW(head.parameters(), lr=RATE)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(x_nD)).split(BATCH):
                if len(rows) < 2:  # a batch norm needs two
                    continue
                loss = F.cross_entropy(head(x_nD[rows]), t_n[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return head.eval()
