"""Try methods on a few small images or vectors in memory: batches, and single steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from shasam.extras import need

need("torch", __name__)

import numpy as np
import torch
from torch import Tensor, nn

from shasam.errors import SpecError
from shasam.methods.base import Method, MethodConfig, Stage
from shasam.models import MLP, Encoder, ResNet18, ViT
from shasam.sampling import BatchPlan, TrainingRows
from shasam.spec.fields import StageSpec
from shasam.training.stage import make_optimizer, plan_of, set_modes
from shasam.types import Batch, Losses, Predictions
from shasam.windows import Windows

SIZE = 32  # pixels
NUMBERS = 24  # in a vector
BANDWIDTH = 0.3  # of windows of a number
PROGRESS = 0.37  # so that ramps and late starts are under way


def small_resnet() -> Encoder:
    """Return ResNet-18 of width 8: the shape of the real one, in milliseconds."""
    return ResNet18("imagenet", 8, 16)


def small_vit() -> Encoder:
    """Return a ViT of two blocks."""
    return ViT("tiny", SIZE, 16, depth=2)


def small_mlp() -> Encoder:
    """Return a perceptron of two hidden layers."""
    return MLP(NUMBERS, width=16, depth=2)


@dataclass
class Lab:
    """Builds a method again and again, and feeds it."""

    method: type[Method]
    config: MethodConfig
    encoder: Callable[[], Encoder] | None
    classes: int = 2
    groups: int = 2
    inputs: Literal["images", "vectors"] = "images"
    number: bool = False  # the sensitive attribute is a number, in whose order the groups are
    images: Tensor = field(init=False)
    t_N: Tensor = field(init=False)
    s_N: Tensor = field(init=False)
    windows: Windows | None = field(init=False)

    def __post_init__(self) -> None:
        # about 64 rows, more where class and group go together, mixed; class and group each shift
        # the colours of the picture. Mining uses a fifth of the rows at a time: it gets more.
        mined = any(stage.sampling == "mined" for stage in self.build().stages())
        cells = [(t, s) for t in range(self.classes) for s in range(self.groups)]
        base = max(64 // (2 * len(cells)), 4) * (5 if mined else 1)
        labels = [
            (t, s) for t, s in cells for _ in range(base * (3 if t % self.groups == s else 1))
        ]
        g = torch.Generator().manual_seed(2)
        mixed = torch.tensor(labels)[torch.randperm(len(labels), generator=g)]
        self.t_N, self.s_N = mixed[:, 0].contiguous(), mixed[:, 1].contiguous()
        count = len(labels)
        g = torch.Generator().manual_seed(1)
        images = self.inputs == "images"
        one, flat = ((3, SIZE, SIZE), (3, 1, 1)) if images else ((NUMBERS,), (NUMBERS,))
        shift_t = torch.randn(self.classes, *one, generator=g)
        shift_s = torch.randn(self.groups, *flat, generator=g)
        noise = torch.randn(count, *one, generator=g)
        within = torch.rand(count, generator=torch.Generator().manual_seed(4))
        rows, number_N = torch.arange(count), self.s_N + within
        self.windows = Windows.along(number_N, rows, BANDWIDTH) if self.number else None
        self.images = 0.3 * noise + 0.6 * shift_t[self.t_N] + 0.5 * shift_s[self.s_N]

    def build(self, seed: int = 0, changes: Mapping[str, float] | None = None) -> Method:
        """Return a fresh method with the weights of a seed, and some settings changed."""
        config = self.config.model_copy(update=changes) if changes else self.config
        groups = 0 if self.number else self.groups
        torch.manual_seed(seed)
        if self.encoder is not None:
            return self.method(config, self.encoder(), self.classes, groups)
        if self.inputs == "vectors":
            return self.method(config, small_mlp(), self.classes, groups)
        try:
            return self.method(config, small_resnet(), self.classes, groups)
        except SpecError:  # it says that it needs a ViT
            torch.manual_seed(seed)
            return self.method(config, small_vit(), self.classes, groups)

    def plan(self, method: Method, stage: Stage, size: int) -> BatchPlan:
        rows = torch.arange(len(self.t_N))
        if stage.sampling == "mined":  # two anchors, positives and negatives of every pair
            size = max(size, 6 * self.classes * self.groups)
        read = self.images.__getitem__
        data = TrainingRows(
            self.t_N,
            self.s_N,
            rows,
            size,
            seed=5,
            images=read,
            all_windows=(self.windows,) if self.windows else (),
        )
        method.begin_stage(stage, data)
        return plan_of(method, stage, data)

    def partly_known(self) -> Lab:
        """Return the same, with every other row without a group."""
        other = copy.copy(self)
        other.s_N = torch.where(torch.arange(len(self.s_N)) % 2 == 1, -1, self.s_N)
        return other

    def batches(self, method: Method, stage: Stage, count: int, size: int = 16) -> Iterator[Batch]:
        """Yield batches as the trainer would draw them."""
        plan = self.plan(method, stage, size)
        plan.total_steps = count

        def embed(rows: Tensor) -> Tensor:
            found = _features(method, self.images[rows])
            return found.get("projection", found["encoder"])

        for step in range(count):
            drawn = plan.draw(plan.epoch_of(step), step, embed)
            yield self.batch(method, stage, drawn.rows_B, step, triplets=drawn.triplets)

    def batch(
        self,
        method: Method,
        stage: Stage,
        rows: Tensor,
        step: int = 0,
        *,
        triplets: tuple = (),
        same: bool = False,
    ) -> Batch:
        """Return the batch of some rows; ``same`` gives all of them one picture."""
        images = self.images[rows]
        if same:
            images = images[:1].expand_as(images)
        views = torch.cat([images] * stage.views)
        if not same and stage.views > 1:
            g = torch.Generator().manual_seed(step)
            views = views + 0.1 * torch.randn(views.shape, generator=g)
        features = _features(method, images) if stage.inputs == "features" else {}
        return Batch(
            images=torch.empty(0) if features else views.clone(),
            t_B=self.t_N[rows],
            s_B=self.s_N[rows],
            rows_B=rows,
            views=stage.views,
            step=step,
            progress=PROGRESS,
            triplets=triplets,
            features=features,
            windows=self.windows,
        )

    def validation(self, method: Method) -> Predictions:
        """Return predictions on all images, with scores that are wrong now and then."""
        method.eval()
        with torch.no_grad():
            features = method.features(self.images)
            logits = next(iter(method.classify(features).values())).float()
            inferred = method.infer_groups(features)
        g = torch.Generator().manual_seed(3)
        noisy = torch.randn(logits.shape, generator=g) + 1.5 * nn.functional.one_hot(
            self.t_N, self.classes
        ) * (1 + self.s_N[:, None] % 2)
        scores = torch.softmax(noisy, dim=1).numpy().astype(np.float32)
        return Predictions(
            ids=np.array([f"row-{i}" for i in range(len(self.t_N))]),
            target=self.t_N.numpy(),
            prediction=scores.argmax(1),
            sensitive=self.s_N.numpy(),
            scores=scores,
            inferred=None if inferred is None else inferred.double().numpy(),
        )


def _features(method: Method, images: Tensor) -> dict[str, Tensor]:
    modes = [(m, m.training) for m in method.modules()]
    method.eval()
    with torch.no_grad():
        found = method.stage_features(images)
    for module, mode in modes:
        module.training = mode
    return found


def optimizers(
    method: Method, stage: Stage, name: str = "sgd", lr: float = 0.01
) -> dict[str, torch.optim.Optimizer]:
    """Return one per group of the stage, with the method's own settings where it has some."""
    spec = StageSpec.model_validate(
        {"steps": 1, "optimizer": name, "lr": lr, "momentum": 0.0, "weight_decay": 0.0}
    )
    groups, changes = method.parameter_groups(), method.optimizer_overrides()
    return {
        g: make_optimizer(groups[g], spec.model_copy(update=changes.get(g, {})))
        for g in stage.groups
    }


def yields(
    method: Method, batch: Batch, stage: Stage, seed: int = 11
) -> Iterator[tuple[str, Losses]]:
    """Yield the method's steps on a batch; after each, gradients of its own group are in place.

    Like the trainer it computes the gradients of the yielded group alone. The caller steps, or
    leaves the weights where they are.
    """
    set_modes(method, stage)
    groups = method.parameter_groups()
    torch.manual_seed(seed + batch.step)
    for group, losses in method.steps(batch, stage.name):
        method.zero_grad(set_to_none=True)
        if losses.total.requires_grad and group in groups:
            inputs = [p for p in groups[group] if p.requires_grad]
            if inputs:
                losses.total.backward(inputs=inputs)
        yield group, losses


def take_steps(
    method: Method,
    stage: Stage,
    batches: Iterator[Batch],
    optimizers: dict[str, torch.optim.Optimizer],
) -> None:
    """Train plainly on some batches."""
    for batch in batches:
        for group, _ in yields(method, batch, stage):
            optimizers[group].step()


def trained(lab: Lab, changes: Mapping[str, float] | None = None) -> dict[str, Tensor]:
    """Return the parameters after three steps of every stage."""
    method = lab.build(changes=changes)
    for stage in method.stages():
        take_steps(method, stage, lab.batches(method, stage, 3), optimizers(method, stage))
    return copies(dict(method.named_parameters()))


def copies(names: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as they are now, whatever becomes of them."""
    return {name: p.detach().clone() for name, p in names.items()}
