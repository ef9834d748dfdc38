"""Post-process scores: thresholds per group with equal odds, or by the group that is inferred."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, field_validator, model_serializer
from torch import Tensor

from shasam.errors import InputError, ShasamWarning
from shasam.methods.base import Dial, Method
from shasam.methods.baselines import CE, CEConfig
from shasam.metrics.limits import ChosenOffsets, check_limits, log_scores, offsets_for
from shasam.metrics.odds import GroupRule, front_reason, uniform_by_id
from shasam.models import Classifier, Encoder
from shasam.registry import register
from shasam.types import Batch, Losses, Predictions

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
        """Make room for a rule; until one is fitted, every group is decided by the arg max."""
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
        """Return the randomised rule of each image's group, in float64.

        ``uniform_B`` is its coin.
        """
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


_KINDS: dict[tuple[type[Method], type[Method]], type[Method]] = {}


def _joined(way: type[Method], kind: type[Method]) -> type[Method]:
    """Return the class of a method with another way to decide before its own; made once."""

    def rebuilt(self: Method) -> tuple[Any, ...]:  # the class has no name to be found by
        return _empty, (way, kind), self.__dict__

    if (way, kind) not in _KINDS:
        own = {"__reduce__": rebuilt, "__doc__": kind.__doc__}
        _KINDS[way, kind] = type(f"{kind.__name__}{way.__name__}", (way, kind), own)
    return _KINDS[way, kind]


def _empty(way: type[Method], kind: type[Method]) -> Method:
    made = _joined(way, kind)
    return made.__new__(made)


def _refuse_second_rule(method: Method) -> None:
    if method.has_rule or isinstance(method, ByInferredGroup):
        raise InputError("this model has a rule of its own for decisions; train it anew with ce")


def deciding_by_group(method: Method) -> ByGroup:
    """Return the same trained method with room for a rule per group."""
    _refuse_second_rule(method)
    method.__class__ = _joined(ByGroup, type(method))
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
            """Leave out a tolerance of 0: runs from before there was one keep their names."""
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


# -------------------------------------------------------------------------------------------------
# Offsets of the scores by the group that a second head infers: no group is needed to decide.
# -------------------------------------------------------------------------------------------------


class ByInferredGroup(Method):
    """Add Σ_g P(g | x)·a_gc to the score of class c; P is a head's on the encoder's features.

    The merged scores are the method's own: exported files have the inputs that they had before.
    """

    group_head: Classifier
    offset_GC: Tensor

    def make_offsets(self, width: int) -> None:
        """Make a head on features of that width, and offsets of 0."""
        self.group_head = Classifier(width, None, self.groups)
        zeros = torch.zeros(self.groups, self.classes, dtype=torch.float64)
        self.register_buffer("offset_GC", zeros)

    def infer_groups(self, features: Mapping[str, Tensor]) -> Tensor:
        return torch.softmax(self.group_head(features["encoder"]).float(), dim=1)

    def classify(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        scores = super().classify(features)
        own = next(iter(scores))
        merged = scores[own].double() + self.infer_groups(features).double() @ self.offset_GC
        return {**scores, own: merged.to(scores[own].dtype)}

    def fit_offsets(
        self, validation: Predictions, limits: Mapping[str, float], price: float = 1.0
    ) -> ChosenOffsets:
        """Choose offsets for limits on validation, from the scores as they are without any."""
        assert validation.inferred is not None
        plain = log_scores(validation) - validation.inferred @ self.offset_GC.cpu().numpy()
        e = np.exp(plain - plain.max(1, keepdims=True))
        rows = replace(
            validation,
            scores=e / e.sum(1, keepdims=True),
            classes=validation.classes or tuple(map(str, range(self.classes))),
            groups=validation.groups or tuple(map(str, range(self.groups))),
        )
        chosen = offsets_for(rows, validation.inferred, limits, price=price)
        self.offset_GC.copy_(torch.from_numpy(chosen.offset_GC))
        return chosen


def inferring_group(method: Method, width: int) -> ByInferredGroup:
    """Return the same trained method with a head for the group and room for offsets."""
    _refuse_second_rule(method)
    method.__class__ = _joined(ByInferredGroup, type(method))
    assert isinstance(method, ByInferredGroup)
    with next(method.parameters()).device:
        method.make_offsets(width)
    return method


def with_rule(method: Method, rule: Mapping[str, Any]) -> Method:
    """Return the method with room for the rule that ``shasam threshold`` gave it."""
    width = rule.get("width")
    if width is None:
        return deciding_by_group(method)
    if not isinstance(width, int) or not 1 <= width <= 1_000_000:
        raise InputError(f"the width of its features, {width!r:.40}, is not a number of columns")
    return inferring_group(method, width)


@register("thresholds", kind="method")
class Thresholds(ByInferredGroup, CE):
    """Cross-entropy, and a second head that learns the group; then offsets for a limit.

    CE(t) + CE(s), the second on features that it does not change. On validation offsets a_gc are
    chosen so that arg max_c of log q_c + Σ_g P(g | x)·a_gc is the most accurate decision whose
    ``metric`` keeps the ``limit``, each row decided by offsets of other rows; where none does for
    the ``price``, the nearest. The group is read in training and validation alone.
    """

    summary = "cross-entropy, then thresholds for a limit by the group that a second head infers"
    reference = "Delaney et al., NeurIPS 2024 (OxonFair)"
    dial = Dial("limit", (0.1, 0.05, 0.02))

    class Config(CEConfig):
        metric: str = Field("eo_mean", description="Metric of the limit.")
        limit: float = Field(0.05, ge=0, le=1, description="What the metric is to keep.")
        price: float = Field(
            0.05, ge=0, le=1, description="Accuracy on validation that may be paid for it, at most."
        )

        @field_validator("metric")
        @classmethod
        def _known(cls, name: str) -> str:
            check_limits({name: 0.0})
            return name

    config: Config

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        self.make_offsets(encoder.out_dim)

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        features = self.encoder(batch.images)
        target = F.cross_entropy(self.classifier(features).float(), batch.t_VB)
        group = F.cross_entropy(self.group_head(features.detach()).float(), batch.s_VB)
        yield "main", Losses(target + group, {"ce": target.detach(), "group": group.detach()})

    def after_training(self, validation: Predictions) -> None:
        """Choose offsets on validation; where groups lack a class there, none, with a warning."""
        names = tuple(map(str, range(self.classes))), tuple(map(str, range(self.groups)))
        rows = replace(validation, classes=names[0], groups=names[1])
        if why := front_reason(rows):
            warnings.warn(
                f"no thresholds were fitted on validation: {why}", ShasamWarning, stacklevel=2
            )
            self.offset_GC.zero_()
            return
        config = self.config
        chosen = self.fit_offsets(rows, {config.metric: config.limit}, config.price)
        if not chosen.kept:
            warnings.warn(
                f"no thresholds kept {config.metric}={config.limit:g} on validation for a price of "
                f"{config.price:g}; the nearest have {chosen.values[config.metric]:.3f}",
                ShasamWarning,
                stacklevel=2,
            )
