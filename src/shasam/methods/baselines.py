"""Cross-entropy and its variants: plain, cell-balanced, reweighted, and the worst cell first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from shasam.keyed import keyed
from shasam.methods.base import Dial, Method, MethodConfig, Stage
from shasam.models import Classifier, Encoder
from shasam.registry import register
from shasam.sampling import BatchPlan, TrainingRows
from shasam.types import Batch, Losses, Predictions

# -------------------------------------------------------------------------------------------------
# Cross-entropy, end to end, without any fairness term.
# -------------------------------------------------------------------------------------------------


Hidden = Annotated[
    int | None, Field(description="Units of the classifier's hidden layer; null: a linear one.")
]


class CEConfig(MethodConfig):
    """Settings of cross-entropy."""

    classifier_hidden: Hidden = None


@register("ce", kind="method")
class CE(Method):
    """L = -log softmax(logits)[t], mean over the batch."""

    summary = "cross-entropy end to end, no fairness term"
    groups_in_turns = True
    unknown_groups = True
    continuous = True
    reference = "the baseline of every table"
    Config: ClassVar[type[MethodConfig]] = CEConfig
    row_wise = True
    config: CEConfig

    def __init__(self, config: CEConfig, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        inside = encoder.out_dim
        self.classifier = Classifier(inside, config.classifier_hidden, classes)

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        scores = self.classifier(self.encoder(batch.images))
        loss = F.cross_entropy(scores.float(), batch.t_VB)
        yield "main", Losses(loss, {"ce": loss.detach()})

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """Return ``encoder``, and ``hidden`` where the classifier has a hidden layer."""
        features = super().features(images)
        if isinstance(self.classifier.hidden, nn.Linear):
            features["hidden"] = self.classifier.hidden_layer(features["encoder"])
        return features

    def classify(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"encoder": self.classifier(features["encoder"])}


# -------------------------------------------------------------------------------------------------
# Cross-entropy on batches with equal counts of every (target, group) cell.
# -------------------------------------------------------------------------------------------------


@register("balanced", kind="method")
class Balanced(CE):
    """The simplest remedy for a biased training set, and the rival that papers leave out."""

    summary = "cross-entropy on batches balanced over (target, group) cells"
    groups_in_turns = True
    unknown_groups = True
    continuous = True
    reference = "Idrissi et al., Simple data balancing, CLeaR 2022 (there: SUBG / RWG)"

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("learn", ("main",), sampling="balanced"),)


# -------------------------------------------------------------------------------------------------
# Cell-balanced cross-entropy with a hidden layer: what SHaSaM's projection is compared with.
# -------------------------------------------------------------------------------------------------


@register("balanced-hidden", kind="method")
class BalancedHidden(Balanced):
    """The control for SHaSaM's representation: a layer as wide as its projection, no set objective.

    Part of what a projection does for fairness is done by any narrow layer between the encoder and
    the classes; ``hidden`` is that layer.
    """

    summary = "balanced with a hidden layer as wide as SHaSaM's projection; a control"
    groups_in_turns = True
    unknown_groups = True
    continuous = True
    reference = "ours: the control for a projection's features"

    class Config(CEConfig):
        classifier_hidden: Hidden = 128


# -------------------------------------------------------------------------------------------------
# Cross-entropy with inverse-frequency weights.
# -------------------------------------------------------------------------------------------------


@register("reweight", kind="method")
class Reweight(CE):
    """mean_i w(t_i, s_i) CE_i.

    ``inverse``: w(t, s) = n / (C·G·n_ts), each cell weighs the same in the long run;
    ``independence``: w(t, s) = n_t n_s / (n n_ts), as if target and group were independent.
    The counts are those of the training split (of the batch, where no plan has been asked for). Of
    a sensitive number they are the rows in the window of a row (shasam.windows).
    """

    summary = "cross-entropy weighted by the inverse frequency of the (target, group) cell"
    unknown_groups = True
    continuous = True
    reference = "Kamiran and Calders, KAIS 2012 (reweighing); inverse frequency: folklore"

    class Config(CEConfig):
        scheme: Literal["inverse", "independence"] = Field(
            "inverse",
            description="inverse: every cell weighs the same; independence: cells weigh as if "
            "target and group were independent.",
        )

    config: Config
    counts_CG: Tensor

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        self.register_buffer("counts_CG", torch.zeros(classes, groups, dtype=torch.float64))
        self.weight_N: Tensor | None = None  # of every row, where the attribute is a number

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        each_B = F.cross_entropy(
            self.classifier(self.encoder(batch.images)), batch.t_B, reduction="none"
        )
        of = self._of_cells if batch.windows is None else self._of_windows
        weight_B = of(batch).to(each_B)
        total = (weight_B * each_B).mean()
        yield "main", Losses(total, {"target": each_B.detach().mean()})

    def _of_windows(self, batch: Batch) -> Tensor:
        rows = batch.rows_B.cpu()
        if self.weight_N is not None:
            return self.weight_N[rows]
        assert batch.windows is not None
        return batch.windows.weights(batch.t_B.cpu(), rows, self.config.scheme)

    def _of_cells(self, batch: Batch) -> Tensor:
        counts_CG = self.counts_CG if self.counts_CG.any() else self._count(batch.t_B, batch.s_B)
        weight_B = self._weights(counts_CG)[batch.t_B, batch.s_B]
        return torch.where(batch.s_B < 0, 1.0, weight_B)  # a row without a group is in no cell

    def begin_stage(self, stage: Stage, data: TrainingRows) -> None:
        if data.windows is not None:
            rows = data.rows.cpu()
            self.weight_N = torch.ones(len(data.t_N), dtype=torch.float64)
            self.weight_N[rows] = data.windows.weights(
                data.t_N.cpu()[rows], rows, self.config.scheme
            )
            return
        self.counts_CG.copy_(self._count(data.t_N[data.rows], data.s_N[data.rows]))

    def _count(self, t_B: Tensor, s_B: Tensor) -> Tensor:
        cell_B = (t_B * self.groups + s_B)[s_B >= 0]
        counts_K = torch.bincount(cell_B, minlength=self.classes * self.groups)
        return counts_K.reshape(self.classes, self.groups).to(torch.float64)

    def _weights(self, n_CG: Tensor) -> Tensor:
        if self.config.scheme == "inverse":
            return n_CG.sum() / (self.classes * self.groups * n_CG.clamp(min=1))
        return n_CG.sum(1, keepdim=True) * n_CG.sum(0) / (n_CG.sum() * n_CG.clamp(min=1))


# -------------------------------------------------------------------------------------------------
# Group DRO: the worst (target, group) cell weighs most.
# -------------------------------------------------------------------------------------------------


@register("groupdro", kind="method")
class GroupDRO(CE):
    """Σ_c q_c · mean CE of cell c, after q_c ← q_c exp(step · mean CE of c), Σ_c q_c = 1.

    A cell that the batch lacks keeps its unnormalised weight and adds nothing. Rows without a group
    are in no cell: where u of B rows have none, the loss is (1 - u/B) times that sum, plus u/B
    times their own mean CE.
    """

    summary = "minimises the loss of the worst (target, group) cell, online"
    row_wise = False
    unknown_groups = True
    reference = "Sagawa et al., ICLR 2020 (Group DRO)"
    dial = Dial("step", (0.001, 0.01, 0.1))

    class Config(CEConfig):
        step: float = Field(
            0.01, ge=0, description="How fast the weight of a cell with a high loss grows."
        )
        sampling: Literal["natural", "balanced"] = Field(
            "natural",
            description="Batches as rows come, or every cell equally often, as the published "
            "commands do (--reweight_groups).",
        )

    config: Config
    weights_K: Tensor

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        cells = classes * groups
        self.register_buffer("weights_K", torch.full((cells,), 1 / cells, dtype=torch.float64))

    def stages(self) -> tuple[Stage, ...]:
        return (Stage("learn", ("main",), sampling=self.config.sampling),)

    def compares_groups(self, stage: Stage) -> bool:
        return True

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        each_B = F.cross_entropy(
            self.classifier(self.encoder(batch.images)), batch.t_B, reduction="none"
        )
        known_B = batch.s_B >= 0
        cell_B = (batch.t_B * self.groups + batch.s_B)[known_B]
        one_hot_BK = F.one_hot(cell_B, len(self.weights_K)).to(each_B.dtype)
        loss_K = (each_B[known_B] @ one_hot_BK) / one_hot_BK.sum(0).clamp(min=1)
        with torch.no_grad():
            grown_K = self.weights_K * torch.exp(self.config.step * loss_K.double())
            self.weights_K.copy_(grown_K / grown_K.sum())
        total = (self.weights_K.to(loss_K.dtype) * loss_K).sum()
        if not bool(known_B.all()):
            total = total * known_B.float().mean() + each_B[~known_B].sum() / len(each_B)
        parts = {"target": each_B.detach().mean(), "largest_weight": self.weights_K.max()}
        yield "main", Losses(total, parts)


# -------------------------------------------------------------------------------------------------
# Class-specific scaling: one scalar a class on the scores of cross-entropy, chosen on validation.
# -------------------------------------------------------------------------------------------------

_SCALES = np.linspace(-4.0, 4.0, 81)  # logarithms of a class's scalar that are tried


@register("scaling", kind="method")
class Scaling(CE):
    """Cross-entropy; then log q_c + b_c, with b chosen on validation.

    b maximises (1 - worst)·accuracy + worst·(accuracy of the worst cell), coordinate by coordinate
    over a grid until nothing changes. The group is read on validation alone.
    """

    summary = "cross-entropy, then one scalar a class, chosen for the worst cell of validation"
    unknown_groups = True
    reference = "Seo et al., class-specific scaling, WACV 2025"
    dial = Dial("worst", (0.25, 0.5, 1.0))

    class Config(CEConfig):
        worst: float = Field(
            1.0, ge=0, le=1, description="Weight of the worst cell against the mean accuracy."
        )

    config: Config
    log_scale_C: Tensor

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        self.register_buffer("log_scale_C", torch.zeros(classes))

    def after_training(self, validation: Predictions) -> None:
        log_q = np.log(np.clip(validation.scores.astype(np.float64), 1e-12, None))
        log_q -= self.log_scale_C.cpu().numpy()  # of a fit before this one
        cell = validation.target * self.groups + validation.sensitive
        found = fit_scales(log_q, validation.target, cell, self.config.worst)
        self.log_scale_C.copy_(torch.from_numpy(found))

    def classify(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        scores = self.classifier(features["encoder"])
        return {"encoder": scores + self.log_scale_C.to(scores.dtype)}


def fit_scales(
    log_q_NC: np.ndarray, t_N: np.ndarray, cell_N: np.ndarray, worst: float
) -> np.ndarray:
    """Return what is added to each class's log-probability; the first class keeps 0.

    Of equally good values the one nearest to 0 is taken.
    """
    cells = [cell_N == k for k in np.unique(cell_N)]

    def goodness(b_C: np.ndarray) -> float:
        right_N = (log_q_NC + b_C).argmax(1) == t_N
        lowest = min(float(right_N[members].mean()) for members in cells)
        return (1 - worst) * float(right_N.mean()) + worst * lowest

    b_C = np.zeros(log_q_NC.shape[1])
    best, before = goodness(b_C), -1.0
    while best > before:
        before = best
        for c in range(1, len(b_C)):
            for step in sorted(_SCALES, key=abs):
                tried_C = b_C.copy()
                tried_C[c] = step
                if (value := goodness(tried_C)) > best + 1e-12:
                    best, b_C = value, tried_C
    return b_C


# -------------------------------------------------------------------------------------------------
# DFR: the last layer learnt again on balanced rows that the features have not seen.
# -------------------------------------------------------------------------------------------------


@register("dfr", kind="method")
class DFR(CE):
    """Stage learn: CE on most of the training rows. Stage classify: a new linear layer on balanced
    batches of the others, the features frozen.

    The published form takes the held-out rows from validation and averages ten L1-penalised
    layers; here a share of the training rows is held out and one layer is trained. Rows without a
    group are in no cell, and all of them are for the first stage.
    """

    summary = "cross-entropy, then a new last layer on balanced held-out rows"
    unknown_groups = True
    reference = "Kirichenko, Izmailov and Wilson, ICLR 2023 (DFR)"
    dial = Dial("balance", (0.0, 0.5, 1.0))
    row_wise = False

    class Config(CEConfig):
        held_out: float = Field(
            0.2, gt=0, lt=1, description="Share of the training rows for the last layer."
        )
        balance: float = Field(
            1.0, ge=0, le=1,
            description="Share of the last layer's loss in which all cells weigh the same; the "
            "rest weighs rows as they come.",
        )  # fmt: skip

    config: Config
    natural_CG: Tensor

    def __init__(self, config: Config, encoder: Encoder, classes: int, groups: int) -> None:
        super().__init__(config, encoder, classes, groups)
        self.last = Classifier(encoder.out_dim, None, classes, standardise=True)
        # what a row of a balanced batch weighs where rows count as they come
        self.register_buffer("natural_CG", torch.ones(classes, groups), persistent=False)

    def stages(self) -> tuple[Stage, ...]:
        last = Stage("classify", ("classifier",), sampling="balanced", inputs="features")
        return (Stage("learn", ("main",)), last)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        main = [*self.encoder.parameters(), *self.classifier.parameters()]
        return {"main": main, "classifier": list(self.last.parameters())}

    def begin_stage(self, stage: Stage, data: TrainingRows) -> None:
        if stage.name == "classify":
            rows = data.rows[data.known_n]
            cell = (data.t_N[rows] * self.groups + data.s_N[rows]).cpu()
            share_K = torch.bincount(cell, minlength=self.classes * self.groups).float()
            share_K *= share_K.count_nonzero() / share_K.sum()
            self.natural_CG.copy_(share_K.view(self.classes, self.groups))

    def uses_unknown(self, stage: Stage) -> bool:
        return stage.name != "classify"

    def batch_plan(self, stage: Stage, data: TrainingRows) -> BatchPlan:
        held_n = self.held_out(data)
        rows = data.rows[held_n if stage.name == "classify" else ~held_n]
        return super().batch_plan(stage, replace(data, rows=rows))

    def held_out(self, data: TrainingRows) -> Tensor:
        """Return which training rows are kept for the last layer: of every cell the same share."""
        cell_n = (data.t_N[data.rows] * self.groups + data.s_N[data.rows]).cpu()
        known_n = data.known_n.cpu()
        held_n = torch.zeros(len(cell_n), dtype=torch.bool)
        for k in cell_n[known_n].unique().tolist():
            (place,) = torch.where((cell_n == k) & known_n)
            order = keyed(data.seed, k).permutation(len(place))
            number = max(1, round(self.config.held_out * len(place)))
            held_n[place[torch.from_numpy(order[:number])]] = True
        return held_n

    def steps(self, batch: Batch, stage: str) -> Iterator[tuple[str, Losses]]:
        if stage == "learn":
            yield from super().steps(batch, stage)
            return
        features_BD = batch.features.get("encoder")
        if features_BD is None:
            with torch.no_grad():
                features_BD = self.encoder(batch.images)
        loss_B = F.cross_entropy(self.last(features_BD).float(), batch.t_VB, reduction="none")
        natural_B = self.natural_CG[batch.t_VB, batch.s_VB]
        weight_B = self.config.balance + (1 - self.config.balance) * natural_B
        loss = (weight_B * loss_B).mean()
        yield "classifier", Losses(loss, {"ce": loss.detach()})

    def classify(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"encoder": self.last(features["encoder"])}
