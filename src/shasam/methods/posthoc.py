"""Post-process cross-entropy's scores to equal error rates in every group (Hardt et al., 2016)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pydantic import Field, model_serializer
from torch import Tensor

from shasam.methods.base import Dial
from shasam.methods.baselines import CE, CEConfig
from shasam.metrics.odds import fit_binary, fit_classes, uniform_by_id
from shasam.models import Encoder
from shasam.registry import register
from shasam.types import Predictions

# -------------------------------------------------------------------------------------------------
# Equalised-odds post-processing of cross-entropy's scores.
# -------------------------------------------------------------------------------------------------


@register("posthoc", kind="method")
class PostHoc(CE):
    """Cross-entropy, then per-group randomised decisions with equal error rates on validation.

    Two classes: the point of the groups' common ROC hull with the fewest errors, reached in each
    group by mixing two thresholds and a coin (Hardt et al., sec. 3.2, as in fairlearn); with
    ``tolerance`` the rates of two groups may differ by so much, for fewer errors. More
    classes: a prediction of a group is replaced by a random one, P(new | old, group), so that
    P(new | target, group) is the same in every group, or differs by the tolerance. The
    randomness of an image is a function of its id and ``seed``. It needs the group of every image
    at test.
    """

    summary = "cross-entropy, then group thresholds for equal odds, fitted on validation"
    reference = "Hardt, Price and Srebro, NeurIPS 2016"
    decides_by_group = True
    dial = Dial("tolerance", (0.1, 0.05, 0.0))

    class Config(CEConfig):
        grid: int = Field(1000, ge=10)  # false-positive rates that are tried
        tolerance: float = Field(
            0.0, ge=0, lt=1, description="Difference of rates between groups that is allowed."
        )

        @model_serializer(mode="wrap")
        def _dump(self, dump: Any) -> dict[str, Any]:
            """Without a tolerance of 0: runs from before there was one keep their names."""
            body: dict[str, Any] = dump(self)
            if self.tolerance == 0:
                body.pop("tolerance", None)
            return body

        seed: int = 0  # of the randomised decisions

    config: Config
    rule_G6: Tensor
    swap_GCC: Tensor
    fitted_G: Tensor

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        # per group: p_ignore, constant, p0, threshold0, p1, threshold1
        self.register_buffer("rule_G6", torch.zeros(groups, 6, dtype=torch.float64))
        eye = torch.eye(classes, dtype=torch.float64)
        self.register_buffer("swap_GCC", eye.repeat(groups, 1, 1))
        self.register_buffer("fitted_G", torch.zeros(groups, dtype=torch.bool))

    def after_training(self, validation: Predictions) -> None:
        """Fit on validation; groups that lack a class there keep the arg max, with a warning."""
        args = (validation.scores, validation.target, validation.sensitive, self.groups)
        if self.classes == 2:
            rule, fitted = fit_binary(*args, grid=self.config.grid, tolerance=self.config.tolerance)
            # thresholds of probabilities: -1 and 2 do what -inf and inf do, and weights are finite
            self.rule_G6.copy_(torch.from_numpy(np.clip(rule, -1.0, 2.0)))
        else:
            swap, fitted = fit_classes(*args, tolerance=self.config.tolerance)
            self.swap_GCC.copy_(torch.from_numpy(swap))
        self.fitted_G.copy_(torch.from_numpy(fitted))

    def decision(self, scores_BC: Tensor, group_B: Tensor, uniform_B: Tensor) -> Tensor:
        """The randomised rule of each image's group, in float64; ``uniform_B`` is its coin."""
        scores_BC, uniform_B = scores_BC.double(), uniform_B.double()
        if self.classes == 2:
            rule = self.rule_G6[group_B].unbind(1)
            p_ignore, constant, p0, threshold0, p1, threshold1 = rule
            score = scores_BC[:, 1]
            share = p0 * (score > threshold0) + p1 * (score > threshold1)
            positive = p_ignore * constant + (1 - p_ignore) * share
            decided = (uniform_B < positive).long()
        else:
            upto = self.swap_GCC[group_B, scores_BC.argmax(dim=1)].cumsum(dim=1)
            decided = (uniform_B[:, None] >= upto[:, :-1]).sum(dim=1)
        return torch.where(self.fitted_G[group_B], decided, scores_BC.argmax(dim=1))

    def decide(self, predictions: Predictions) -> Predictions:
        device = self.rule_G6.device
        u = uniform_by_id(predictions.ids, self.config.seed)
        given = (predictions.scores, predictions.sensitive.astype(np.int64), u)
        decided = self.decision(*(torch.from_numpy(array).to(device) for array in given))
        kind = predictions.prediction.dtype
        return replace(predictions, prediction=decided.cpu().numpy().astype(kind))
