"""Post-process cross-entropy's scores to equal error rates in every group (Hardt et al., 2016)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pydantic import Field, model_serializer
from torch import Tensor

from shasam.errors import InputError
from shasam.methods.base import Dial, Method
from shasam.methods.baselines import CE, CEConfig
from shasam.metrics.odds import GroupRule, uniform_by_id
from shasam.models import Encoder
from shasam.registry import register
from shasam.types import Predictions

# -------------------------------------------------------------------------------------------------
# Decisions by score and group; cross-entropy whose scores are post-processed to equal odds.
# -------------------------------------------------------------------------------------------------


class ByGroup(Method):
    """Decide by score and group: a rule in buffers, so that weights and exported files hold it."""

    decides_by_group = True
    rule_G6: Tensor
    swap_GCC: Tensor
    fitted_G: Tensor

    def make_rule(self) -> None:
        """Room for a rule; until one is fitted, every group is decided by the arg max."""
        # per group: p_ignore, constant, p0, threshold0, p1, threshold1
        self.register_buffer("rule_G6", torch.zeros(self.groups, 6, dtype=torch.float64))
        eye = torch.eye(self.classes, dtype=torch.float64)
        self.register_buffer("swap_GCC", eye.repeat(self.groups, 1, 1))
        self.register_buffer("fitted_G", torch.zeros(self.groups, dtype=torch.bool))

    def take_rule(self, rule: GroupRule) -> None:
        """Decide by ``rule`` from now on."""
        if self.classes == 2:
            # thresholds of probabilities: -1 and 2 do what -inf and inf do, and weights are finite
            self.rule_G6.copy_(torch.from_numpy(np.clip(rule.table, -1.0, 2.0)))
        else:
            self.swap_GCC.copy_(torch.from_numpy(rule.table))
        self.fitted_G.copy_(torch.from_numpy(rule.fitted_G))

    @property
    def coin_seed(self) -> int:
        """Of the randomised decisions."""
        return 0

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
        u = uniform_by_id(predictions.ids, self.coin_seed)
        given = (predictions.scores, predictions.sensitive.astype(np.int64), u)
        decided = self.decision(*(torch.from_numpy(array).to(device) for array in given))
        kind = predictions.prediction.dtype
        return replace(predictions, prediction=decided.cpu().numpy().astype(kind))


_KINDS: dict[type[Method], type[ByGroup]] = {}


def _with_rule(kind: type[Method]) -> type[ByGroup]:
    """The class of a method with the decisions of ByGroup before its own; made once."""

    def rebuilt(self: ByGroup) -> tuple[Any, ...]:  # the class has no name to be found by
        return _empty, (kind,), self.__dict__

    if kind not in _KINDS:
        own = {"__reduce__": rebuilt, "__doc__": kind.__doc__}
        _KINDS[kind] = type(f"{kind.__name__}ByGroup", (ByGroup, kind), own)
    return _KINDS[kind]


def _empty(kind: type[Method]) -> ByGroup:
    made = _with_rule(kind)
    return made.__new__(made)


def deciding_by_group(method: Method) -> ByGroup:
    """The same trained method with room for a rule per group."""
    if method.has_rule:
        raise InputError("this model has a rule of its own for decisions; train it anew with ce")
    method.__class__ = _with_rule(type(method))
    assert isinstance(method, ByGroup)
    method.make_rule()
    method.to(next(method.parameters()).device)
    return method


@register("posthoc", kind="method")
class PostHoc(ByGroup, CE):
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
    dial = Dial("tolerance", (0.1, 0.05, 0.0))

    class Config(CEConfig):
        grid: int = Field(1000, ge=10, description="False-positive rates that are tried.")
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

        seed: int = Field(0, description="Seed of the randomised decisions.")

    config: Config

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        self.make_rule()

    @property
    def coin_seed(self) -> int:
        return self.config.seed

    def after_training(self, validation: Predictions) -> None:
        """Fit on validation; groups that lack a class there keep the arg max, with a warning."""
        args = (validation.scores, validation.target, validation.sensitive, self.groups)
        config = self.config
        self.take_rule(GroupRule.fit(*args, config.tolerance, grid=config.grid))
