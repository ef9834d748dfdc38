"""The one base class of all methods.

A method says what is learnt; the trainer does the learning. ``steps(batch, stage)`` yields
``(parameter_group, Losses)``, and after each yield the trainer does backward, clip, finite-guard
and the optimiser step of that group alone. No method holds an optimiser, a device or a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from shasam.errors import Argument, ContractError, SpecError
from shasam.models import Encoder
from shasam.sampling import BatchPlan, NaturalPlan, TrainingRows
from shasam.types import Batch, Losses, Predictions
from shasam.window_batches import balanced_plan


class MethodConfig(BaseModel):
    """Hyper-parameters of a method; every field is a key of the specification and a flag."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Stage:
    """One stretch of training: which parameters move, and what the batches are like."""

    name: str  # "learn", "classify", "teacher", ...
    groups: tuple[str, ...]  # parameter groups that move; all others are frozen, in eval mode
    views: int = 1  # augmented views of each image
    augment: bool = True  # False: one view, the image as it is, for methods that only resize
    sampling: Literal["natural", "balanced", "mined"] = "natural"
    inputs: Literal["images", "features"] = "images"  # "features": those of a frozen encoder

    def __post_init__(self) -> None:
        if self.views > 1 and not self.augment:
            raise ContractError(
                f"stage {self.name!r}: {self.views} views of an image need augment=True"
            )


@dataclass(frozen=True)
class Dial:
    """The option that trades accuracy for fairness, and values of it from mild to strong."""

    option: str
    values: tuple[float, ...]


class Method(nn.Module):
    """Define what is learnt; a subclass writes ``steps`` and ``classify``.

    A method has no optimiser, device or loop: the trainer has them. docs/extending.md has a
    complete example, and ``shasam.testing.check_method`` checks one.

    Parameters
    ----------
    config
        Options of the method.
    encoder
        The network that makes features.
    classes
        Number of classes.
    groups
        Number of sensitive groups; 0 if the attribute is a number.

    Examples
    --------
    >>> from shasam.registry import lookup
    >>> issubclass(lookup("method", "ce"), Method)
    True
    """

    summary: ClassVar[str]  # one line for `shasam methods`
    reference: ClassVar[str]  # authors, venue, year
    Config: ClassVar[type[MethodConfig]] = MethodConfig
    # the option that is the method's strength; None if it has no such option
    dial: ClassVar[Dial | None] = None
    # True where the loss is a mean over rows, so that a batch may be cut over processes
    row_wise: ClassVar[bool] = False
    # True where a method is tied to an image network and cannot learn from vectors
    needs_images: ClassVar[bool] = False
    # the encoder a method cannot do without, or None if any will do
    needs_encoder: ClassVar[str | None] = None
    # True where ``decision`` reads the group of an image
    decides_by_group: ClassVar[bool] = False
    # True where nothing is kept for a group from step to step, so that the groups of a batch may be
    # those of several attributes in turn; said by each class for itself (see __init_subclass__)
    groups_in_turns: ClassVar[bool] = False
    # True where the sensitive attribute may be a number: ``groups`` is 0 then, batches have
    # ``windows``, and balanced and mined ones are drawn over these
    continuous: ClassVar[bool] = False
    # True where the number itself is read, beside or instead of windows, so that it must be the
    # only attribute: one that stands among others has windows within their groups
    number_alone: ClassVar[bool] = False
    # True where rows without a group (-1) may be in its batches: they train the target alone
    unknown_groups: ClassVar[bool] = False

    temperature_fitted: Tensor | None

    def __init_subclass__(cls, **more: Any) -> None:
        """Inherit no claim about groups: a subclass may read them in another way."""
        super().__init_subclass__(**more)
        for claim in ("groups_in_turns", "unknown_groups", "continuous"):
            if claim not in vars(cls):
                setattr(cls, claim, False)

    def __init__(self, config: MethodConfig, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__()
        self.config, self.encoder, self.classes, self.groups = config, encoder, classes, groups
        self.register_buffer("temperature_fitted", None)  # not in the weights where there is none

    def stages(self) -> tuple[Stage, ...]:
        """List the stages of training, in order."""
        return (Stage("learn", ("main",)),)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Put every parameter into exactly one group; each group has its own optimiser."""
        return {"main": list(self.parameters())}

    def optimizer_overrides(self) -> dict[str, dict[str, float | str | None]]:
        """Map a parameter group to settings unlike the specification's (``{"lr": 1.0}``)."""
        return {}

    def begin_stage(self, stage: Stage, data: TrainingRows) -> None:
        """Prepare a stage: compute what depends on the training labels."""

    def uses_unknown(self, stage: Stage) -> bool:
        """Say whether rows without a group teach a stage anything, if the method takes them."""
        return True

    def compares_groups(self, stage: Stage) -> bool:
        """Say whether a batch of a stage needs rows with a group, however few there are of them."""
        return stage.sampling != "natural"

    def batch_plan(self, stage: Stage, data: TrainingRows) -> BatchPlan:
        """Choose the rows of each batch of a stage."""
        if stage.sampling == "natural":
            return NaturalPlan(data)
        if stage.sampling == "balanced":
            return balanced_plan(data)
        raise SpecError(
            f"{type(self).__name__} asks for {stage.sampling} batches but makes no plan for them"
        )

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        """Yield (parameter group, losses); the group is stepped before the generator goes on."""
        raise NotImplementedError

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """Compute named features of images (B, 3, H, W), each (B, D), without augmentation."""
        return {"encoder": self.encoder(images)}

    def stage_features(self, images: Tensor) -> dict[str, Tensor]:
        """Return what a stage of ``inputs="features"`` keeps of each image: its ``features``, or
        more.
        """
        return self.features(images)

    def classify(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Compute class scores (B, C) by the features they read; the first is the method's own."""
        raise NotImplementedError

    def infer_groups(self, features: Mapping[str, Tensor]) -> Tensor | None:
        """Compute probabilities of the groups (B, G) by features; most methods infer none."""
        return None

    def logits(self, images: Tensor) -> dict[str, Tensor]:
        """Compute class scores of images: ``classify`` of their ``features``."""
        return self.classify(self.features(images))

    def embed(self, images: Tensor) -> Tensor:
        """Compute the embeddings (B, D) that mining compares.

        Projections if the method has them, else the encoder's output.
        """
        features = self.features(images)
        return features.get("projection", features["encoder"])

    def make_room_for_temperature(self) -> None:
        """Hold a temperature of 1, to be fitted on validation and kept with the weights."""
        if self.has_rule:
            raise SpecError(
                f"{type(self).__name__} decides by thresholds on its own scores, which a "
                "temperature would move; leave out ",
                Argument("train.calibrate"),
            )
        self.temperature_fitted = torch.ones(())

    def probabilities(self, scores_BC: Tensor) -> Tensor:
        """Turn the method's own class scores into probabilities: softmax(scores / temperature)."""
        if self.temperature_fitted is not None:
            scores_BC = scores_BC / self.temperature_fitted.to(scores_BC)
        return torch.softmax(scores_BC, dim=1)

    def after_training(self, validation: Predictions) -> None:
        """Fit what is fitted on validation predictions (post-processing); most fit nothing."""

    def decision(self, scores_BC: Tensor, group_B: Tensor, uniform_B: Tensor) -> Tensor:
        """Decide (B,) from probabilities, groups and numbers in [0, 1): tensors in, tensor out.

        ``decide`` and exported files share this rule; the arg max reads the probabilities alone.
        """
        return scores_BC.argmax(dim=1)

    @property
    def has_rule(self) -> bool:
        """Whether decisions are made by another rule than the arg max."""
        return type(self).decide is not Method.decide

    def decide(self, predictions: Predictions) -> Predictions:
        """Turn scores into decisions; the arg max unless the method says otherwise."""
        return predictions
