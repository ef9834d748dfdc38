"""Compute features, scores and predictions of rows, and probe frozen features."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shasam.data.augment import plain
from shasam.data.splits import Manifest
from shasam.methods.base import Method
from shasam.training.runtime import Fabric
from shasam.types import Predictions

# -------------------------------------------------------------------------------------------------
# Device and memory format of a method and its images, decided in one place.
#
# Convolutions of the two memory formats are different kernels, whose sums are rounded differently
# on some processors. So training, `evaluate`, `predict` and `load` all prepare methods and images
# here: the score of an image does not depend on which of them asks for it.
# -------------------------------------------------------------------------------------------------

M = TypeVar("M", bound=nn.Module)


def prepare(method: M, device: torch.device | str, *, training: bool = False) -> M:
    """Return the method on the device in the memory format of all our computing.

    Unless it is to be trained (the trainer sets the modes of each stage), the method is put into
    evaluation mode and its parameters are frozen.
    """
    method.to(device)
    method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if not training:
        method.eval()
        for p in method.parameters():
            p.requires_grad_(False)
    return method


def prepare_images(images_u8: Tensor, device: torch.device | str) -> Tensor:
    """Prepare un-augmented images as the network reads them: (B, 3, H, W), -1 to 1.

    Vectors, and cached maps in half precision, keep their values.
    """
    if images_u8.ndim == 2:
        return images_u8.to(device, torch.float32)
    if images_u8.dtype == torch.float16:
        maps = images_u8.to(device, torch.float32)
        return maps.contiguous(memory_format=torch.channels_last)
    return plain(images_u8.to(device)).contiguous(memory_format=torch.channels_last)


# -------------------------------------------------------------------------------------------------
# Features, scores and predictions of a method on rows of a dataset, in evaluation mode.
# -------------------------------------------------------------------------------------------------

K = TypeVar("K", bound=Hashable)  # name of a tensor
BATCH = 256  # images that are scored together; docs/training.md says what another size changes


class TrainingData(Protocol):
    """What training needs of a dataset; ``shasam.data.open_data`` gives one."""

    @property
    def manifest(self) -> Manifest: ...

    @property
    def classes(self) -> int: ...

    @property
    def groups(self) -> int: ...

    def rows(self, split: str) -> np.ndarray | Tensor: ...

    def images(self, rows: Any) -> Tensor: ...


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switch to evaluation without gradients; afterwards every submodule is as it was."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for m, mode in modes:
            m.training = mode


def on_images(
    apply: Callable[[Tensor], dict[K, Tensor]],
    method: Method,
    batches: Iterable[Tensor],
    fabric: Fabric,
) -> dict[K, Tensor]:
    """Run ``apply`` on batches of uint8 images: named float tensors (n, D) on the CPU."""
    found: dict[K, list[Tensor]] = {}
    with evaluating(method), fabric.autocast():
        for images_u8 in batches:
            for name, value in apply(prepare_images(images_u8, fabric.device)).items():
                found.setdefault(name, []).append(value.float().cpu())
    return {name: torch.cat(parts) for name, parts in found.items()}


def on_rows(
    apply: Callable[[Tensor], dict[K, Tensor]],
    method: Method,
    data: TrainingData,
    rows: Tensor,
    fabric: Fabric,
    batch_size: int = BATCH,
) -> dict[K, Tensor]:
    """Run ``apply`` on the images of ``rows``, in batches: float tensors (n, D) on the CPU."""
    batches = (data.images(part) for part in rows.split(batch_size)) if len(rows) else ()
    return on_images(apply, method, batches, fabric)


def features_of(
    method: Method, data: TrainingData, rows: Tensor, fabric: Fabric, batch_size: int = BATCH
) -> dict[str, Tensor]:
    """Return the method's features of rows."""
    return on_rows(method.features, method, data, rows, fabric, batch_size)


def to_predictions(
    scores_nC: Tensor, data: TrainingData, rows: Tensor, method: Method | None = None
) -> Predictions:
    """Turn scores before the softmax into predictions, with the labels of the rows.

    With ``method`` they are its own scores, which have its temperature where it was calibrated.
    """
    scores_nC = scores_nC.float()
    if method is None:
        probabilities = torch.softmax(scores_nC, dim=1)
    else:
        probabilities = method.probabilities(scores_nC)
    return Predictions(
        ids=data.manifest.table.column("id").take(rows.numpy()).to_numpy(zero_copy_only=False),
        target=data.manifest.t_N[rows.numpy()].astype(np.int64),
        prediction=probabilities.argmax(1).numpy().astype(np.int64),
        sensitive=data.manifest.s_N[rows.numpy()].astype(np.int64),
        scores=probabilities.numpy().astype(np.float32),
    )


def read_rows(
    method: Method, data: TrainingData, rows: Tensor, fabric: Fabric
) -> tuple[dict[str, Tensor], dict[str, Predictions]]:
    """Return features and predictions of rows, by kind, before ``method.decide``.

    The first is its own.
    """

    def both(images: Tensor) -> dict[tuple[str, str], Tensor]:
        features = method.features(images)
        named = {("features", kind): value for kind, value in features.items()}
        named.update({("scores", k): v for k, v in method.classify(features).items()})
        groups = method.infer_groups(features)
        return named if groups is None else {**named, ("inferred", ""): groups}

    found = on_rows(both, method, data, rows, fabric)
    features = {kind: value for (what, kind), value in found.items() if what == "features"}
    scores = {kind: value for (what, kind), value in found.items() if what == "scores"}
    inferred = found.get(("inferred", ""))
    out: dict[str, Predictions] = {}
    for kind, v in scores.items():
        own = not out  # the first
        out[kind] = to_predictions(v, data, rows, method if own else None)
        if own and inferred is not None:
            out[kind] = replace(out[kind], inferred=inferred.double().numpy())
    return features, out


# -------------------------------------------------------------------------------------------------
# What can be read off frozen features: classifiers that are fitted in a second.
#
# A probe is fitted on one set of rows and read on another. It weighs the values of its label
# alike, so that guessing the most frequent one gains nothing.
# -------------------------------------------------------------------------------------------------

Probe = Callable[[Tensor, Tensor, Tensor, int], Tensor]  # fit x, fit y, read x, labels -> guess
MLP_HIDDEN, MLP_STEPS = 64, 150
L2 = 1e-3  # strength of a linear probe's penalty


def linear_guess(fit_x: Tensor, fit_y: Tensor, read_x: Tensor, labels: int) -> Tensor:
    """Return what a logistic regression (L2 1e-3, L-BFGS) says of ``read_x``."""
    x, read = _standardised(fit_x, read_x)
    w, b = _logistic(x, fit_y, labels, _alike(fit_y, labels))
    return (read @ w + b).argmax(1)


def linear_head(x: Tensor, y: Tensor, labels: int, strength: float = L2) -> tuple[Tensor, Tensor]:
    """Return weights (labels, D) and bias of such a regression on features as they are.

    Rows count as they come, so that its softmax estimates the probabilities of the label.
    """
    mean, std = x.double().mean(0), x.double().std(0).clamp(min=1e-6)
    w, b = _logistic((x.double() - mean) / std, y, labels, None, strength)
    return (w / std[:, None]).T, b - (mean / std) @ w


def _logistic(
    x: Tensor, y: Tensor, labels: int, weight: Tensor | None, strength: float = L2
) -> tuple[Tensor, Tensor]:
    w = torch.zeros(x.shape[1], labels, dtype=torch.float64, requires_grad=True)
    b = torch.zeros(labels, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([w, b], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(x @ w + b, y, weight=weight) + strength * w.pow(2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return w.detach(), b.detach()


def mlp_guess(fit_x: Tensor, fit_y: Tensor, read_x: Tensor, labels: int) -> Tensor:
    """Return what one hidden layer of 64 (full batches, AdamW 1e-2, weight decay 1e-2) says."""
    x, read = _standardised(fit_x, read_x)
    weight = _alike(fit_y, labels)
    generator = torch.Generator().manual_seed(0)
    widths = ((x.shape[1], MLP_HIDDEN), (MLP_HIDDEN, labels))
    starts = [torch.randn(w, generator=generator) * (2 / w[0]) ** 0.5 for w in widths]
    # as (out, in): products with float64 matrices of this layout take a quarter less time
    into, out = (start.double().T.contiguous().requires_grad_() for start in starts)
    shifts = [torch.zeros(w[1], dtype=torch.float64, requires_grad=True) for w in widths]

    def scores(rows: Tensor) -> Tensor:
        return F.linear(F.relu(F.linear(rows, into, shifts[0])), out, shifts[1])

    optimizer = torch.optim.AdamW([into, out, *shifts], lr=1e-2, weight_decay=1e-2, fused=True)
    for _ in range(MLP_STEPS):
        optimizer.zero_grad()
        F.cross_entropy(scores(x), fit_y, weight=weight).backward()
        optimizer.step()
    with torch.no_grad():
        return scores(read).argmax(1)


def linear_probe(
    fit_x: Tensor, fit_y: np.ndarray, test_x: Tensor, test_y: np.ndarray, labels: int
) -> float:
    """Return accuracy of a linear probe.

    For groups it is fitted on validation features, where groups and targets are as in the test
    split: a probe fitted on biased training data would guess the group from the target.
    """
    guess = linear_guess(fit_x, torch.from_numpy(fit_y), test_x, labels)
    return float((guess.numpy() == test_y).mean())


def within_class(
    probe: Probe,
    fit: tuple[Tensor, np.ndarray, np.ndarray],
    read: tuple[Tensor, np.ndarray, np.ndarray],
    groups: int,
) -> float | None:
    """Measure how well the group is read within a class: recall, averaged over groups, classes.

    ``fit`` and ``read`` are features, targets and groups. Within a class the target says nothing
    about the group, so that what is read is leakage. 1/groups is chance. None if no class has
    two groups in both.
    """
    recalls = []
    for c in np.unique(fit[1]):
        (x, s), (test_x, test_s) = (
            (f[torch.from_numpy(t == c)], torch.from_numpy(g[t == c])) for f, t, g in (fit, read)
        )
        known = np.intersect1d(s.numpy(), test_s.numpy())
        if len(known) < 2:
            continue
        guess = probe(x, s, test_x, groups)
        found = [float((guess[test_s == int(g)] == int(g)).float().mean()) for g in known]
        recalls.append(sum(found) / len(found))
    return sum(recalls) / len(recalls) if recalls else None


def _standardised(fit_x: Tensor, read_x: Tensor) -> tuple[Tensor, Tensor]:
    mean, std = fit_x.double().mean(0), fit_x.double().std(0).clamp(min=1e-6)
    return (fit_x.double() - mean) / std, (read_x.double() - mean) / std


def _alike(y: Tensor, labels: int) -> Tensor:
    """Return weights with which every value of the label counts the same."""
    return torch.bincount(y, minlength=labels).clamp(min=1).double().reciprocal()


# -------------------------------------------------------------------------------------------------
# How the embeddings are spread: the numbers that tell learning from collapse.
# -------------------------------------------------------------------------------------------------


def mean_cosine(z: Tensor) -> float:
    """Return mean cosine over pairs of different rows: (|sum of unit rows|^2 - n) / (n (n - 1))."""
    z = F.normalize(z.double(), dim=1)
    n = len(z)
    total = z.sum(0)
    return float((total @ total - (z * z).sum()) / (n * (n - 1))) if n > 1 else float("nan")


def effective_rank(z: Tensor) -> float:
    """Return exp(entropy) of the normalised singular values of the unit rows (Roy and Vetterli,
    2007).
    """
    singular = torch.linalg.svdvals(F.normalize(z.double(), dim=1))
    share = singular / singular.sum().clamp(min=1e-12)
    return float(torch.exp(-(share * torch.log(share.clamp(min=1e-12))).sum()))
