"""The part of ``check_method`` about odd batches, seeds, predictions, files and memory."""

from __future__ import annotations

from collections.abc import Callable

from shasam.extras import need

need("torch", __name__)

import torch
from safetensors.torch import load, save
from torch import Tensor

from shasam.errors import ContractError
from shasam.methods.base import Method
from shasam.testing.lab import Lab, copies, optimizers, take_steps, trained, yields
from shasam.types import Batch

LogitsOracle = Callable[[Method, Tensor], Tensor]


def finite_at_edges(lab: Lab) -> None:
    """Empty cells, one group, one class, two images, one picture many times."""
    t_N, s_N = lab.t_N, lab.s_N
    rows = torch.arange(len(t_N))
    edges = {
        "an empty cell": rows[~((t_N == 0) & (s_N == 0))][:12],
        "one group": rows[s_N == 0][:12],
        "one class": rows[t_N == 0][:12],
        "a batch of 2": rows[:2],
        "a batch of 2 in one cell": rows[(t_N == 0) & (s_N == 0)][:2],
    }
    for stage in lab.build().stages():
        for word, chosen in edges.items():
            if stage.sampling == "mined":
                continue  # such batches are never drawn
            method = lab.build()
            _finite(method, lab.batch(method, stage, chosen), stage, word)
        method = lab.build()
        drawn = next(lab.batches(method, stage, 1))
        same = lab.batch(method, stage, drawn.rows_B, triplets=drawn.triplets, same=True)
        _finite(method, same, stage, "one picture many times")


def finite_in_bfloat16(lab: Lab) -> None:
    """Losses and gradients under autocast."""
    method = lab.build()
    for stage in method.stages():
        for batch in lab.batches(method, stage, 2):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                _finite(method, batch, stage, "bfloat16")


def _finite(method: Method, batch: Batch, stage: object, word: str) -> None:
    steppers = optimizers(method, stage)  # type: ignore[arg-type]
    for group, losses in yields(method, batch, stage):  # type: ignore[arg-type]
        if not bool(torch.isfinite(losses.total)):
            raise ContractError(f"the loss is {float(losses.total.detach())} with {word}")
        for name, p in method.named_parameters():
            if p.grad is not None and not bool(torch.isfinite(p.grad).all()):
                raise ContractError(f"the gradient of {name} is not finite with {word}")
        steppers[group].step()


def deterministic(lab: Lab) -> None:
    """Two runs with one seed end with the same weights."""
    first, second = trained(lab), trained(lab)
    for name, value in first.items():
        if not torch.equal(value, second[name]):
            raise ContractError(f"{name} differs between two runs with one seed")


def predictions(lab: Lab, oracle_logits: LogitsOracle | None) -> str | None:
    """Shapes, independence of neighbours, and that predicting changes nothing."""
    method = lab.build()
    for stage in method.stages():
        take_steps(method, stage, lab.batches(method, stage, 3), optimizers(method, stage))
    method.eval()
    state = copies(method.state_dict())
    with torch.no_grad():
        found = method.logits(lab.images)
        features = method.features(lab.images)
        for kind, scores in found.items():
            if scores.shape != (len(lab.images), lab.classes):
                raise ContractError(f"the scores {kind!r} have the shape {tuple(scores.shape)}")
            alone = method.logits(lab.images[:1])[kind]
            if not torch.allclose(alone, scores[:1], atol=1e-4, rtol=1e-4):
                raise ContractError("the scores of an image depend on the images beside it")
        for kind, value in features.items():
            if value.ndim != 2 or len(value) != len(lab.images):
                raise ContractError(f"the features {kind!r} have the shape {tuple(value.shape)}")
        if oracle_logits is not None:
            own, wanted = next(iter(found.values())), oracle_logits(method, lab.images)
            if not torch.allclose(own, wanted, atol=1e-4, rtol=1e-3):
                raise ContractError("the scores are not those of the formula")
    if any(not torch.equal(v, state[k]) for k, v in method.state_dict().items()):
        raise ContractError("predicting changes the method")
    return None


def saved_and_loaded(lab: Lab) -> None:
    """What is loaded scores, decides and goes on training alike."""
    method = lab.build()
    for stage in method.stages():
        steppers = optimizers(method, stage, "adam", 5e-3)
        take_steps(method, stage, lab.batches(method, stage, 3), steppers)
    method.eval()
    validation = lab.validation(method)
    method.after_training(validation)
    again = lab.build(seed=1)
    again.load_state_dict(load(save({k: v.contiguous() for k, v in method.state_dict().items()})))
    again.eval()
    with torch.no_grad():
        for kind, scores in method.logits(lab.images).items():
            # not to the bit: where a tensor lies in memory can change the last one
            if not torch.allclose(scores, again.logits(lab.images)[kind], rtol=1e-5, atol=1e-6):
                raise ContractError("the scores differ after saving and loading")
    for other in (method, again):
        decided, first = other.decide(validation), method.decide(validation)
        if (decided.prediction != first.prediction).any():
            raise ContractError("the decisions differ after saving and loading, or by the call")
    stage = method.stages()[-1]
    following = []
    for other in (method, again):
        batch = next(lab.batches(other, stage, 1))  # each asks for its plan, as when resuming
        totals = [float(v.total.detach()) for _, v in yields(other, batch, stage)]
        following.append(torch.tensor(totals))
    if not torch.allclose(following[0], following[1], rtol=1e-5, atol=1e-6):
        raise ContractError("the next losses differ after saving and loading")


def overfits(lab: Lab, early_steps: int, rounds: int = 8, steps: int = 40) -> None:
    """It can overfit a few images: 99 % training accuracy."""
    method = lab.build()
    *early, last = method.stages()
    for stage in early:
        take_steps(
            method,
            stage,
            lab.batches(method, stage, early_steps, 32),
            optimizers(method, stage, "adam", 3e-3),
        )
    steppers = optimizers(method, last, "adam", 3e-3)
    share = 0.0
    for _ in range(rounds):
        take_steps(method, last, lab.batches(method, last, steps, 32), steppers)
        method.eval()
        with torch.no_grad():
            scores = next(iter(method.logits(lab.images).values()))
        share = float((scores.argmax(1) == lab.t_N).float().mean())
        if share >= 0.99:
            return
    raise ContractError(f"overfit check failed: {share:.0%} training accuracy, 99 % required")
