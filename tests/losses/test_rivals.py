"""MMD, alignment and the VAE's terms against loops written from the formulas."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from torch import Tensor

from shasam.losses import (
    conditional_group_mmd,
    distillation_mmd,
    mean_alignment,
    mmd,
    permute_blocks,
    standard_normal_kl,
    total_correlation,
)


def distance(a: Tensor, b: Tensor) -> float:
    return sum(float(x - y) ** 2 for x, y in zip(a, b, strict=True))


def naive_mmd(x: Tensor, y: Tensor, scale: float) -> float:
    def k(a: Tensor, b: Tensor) -> float:
        return sum(math.exp(-distance(p, q) / (2 * scale)) for p in a for q in b) / len(a) / len(b)

    return k(x, x) + k(y, y) - 2 * k(x, y)


def labelled(classes: int, groups: int, n: int = 18) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(classes * 10 + groups)
    x, y = torch.randn(2, n, 3, generator=g, dtype=torch.float64)
    t, s = (torch.randint(k, (n,), generator=g) for k in (classes, groups))
    return x, y, t, s


def test_mmd_equals_a_loop_and_is_zero_between_a_set_and_itself() -> None:
    x, y, _, _ = labelled(2, 2, 7)
    assert float(mmd(x, y, 1.7)) == pytest.approx(naive_mmd(x, y, 1.7))
    assert float(mmd(x, x, 1.7)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("classes", "groups"), [(2, 2), (3, 2), (2, 4), (1, 1)])
def test_distillation_mmd_equals_a_loop(classes: int, groups: int) -> None:
    student, teacher, t, s = labelled(classes, groups)
    pairs = [distance(a, b) for a in teacher for b in student]
    scale = 0.5 * sum(pairs) / len(pairs)
    expected = 0.0
    for c in range(classes):
        for g in range(groups):
            cell = (t == c) & (s == g)
            if cell.any():
                expected += naive_mmd(teacher[t == c], student[cell], scale)
    ours = distillation_mmd(student, teacher, t, s, sigma=0.5)
    assert float(ours) == pytest.approx(expected)


def test_no_gradient_reaches_the_teacher() -> None:
    student, teacher, t, s = labelled(2, 2)
    student.requires_grad_(), teacher.requires_grad_()
    distillation_mmd(student, teacher, t, s).backward()
    assert teacher.grad is None and student.grad.abs().sum() > 0


@pytest.mark.parametrize(("classes", "groups"), [(2, 2), (3, 2), (2, 4)])
def test_conditional_group_mmd_equals_a_loop(classes: int, groups: int) -> None:
    x, _, t, s = labelled(classes, groups, 24)
    pairs = [distance(a, b) for a in x for b in x]
    scale = sum(pairs) / len(pairs)
    terms = []
    for c in range(classes):
        for a, b in combinations(range(groups), 2):
            p, q = x[(t == c) & (s == a)], x[(t == c) & (s == b)]
            if len(p) and len(q):
                terms.append(naive_mmd(p, q, scale))
    assert float(conditional_group_mmd(x, t, s)) == pytest.approx(sum(terms) / len(terms))


@pytest.mark.parametrize("groups", [2, 3])
def test_mean_alignment_equals_a_loop(groups: int) -> None:
    x, _, _, s = labelled(2, groups)
    terms = []
    for a, b in combinations(range(groups), 2):
        gap = x[s == a].mean(0) - x[s == b].mean(0)
        terms.append(sum(float(v) ** 2 for v in gap) / len(gap))
    assert float(mean_alignment(x, s)) == pytest.approx(sum(terms) / len(terms))


def test_one_group_gives_zero_with_a_gradient_of_zero() -> None:
    x, _, t, s = labelled(2, 1)
    for loss in (mean_alignment(x.requires_grad_(), s), conditional_group_mmd(x, t, s)):
        assert float(loss.detach()) == 0.0
        assert float(torch.autograd.grad(loss, x)[0].abs().sum()) == 0.0


def test_kl_equals_torch_distributions() -> None:
    mean, log_variance = torch.randn(2, 5, 4, dtype=torch.float64)
    normal = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    standard = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    expected = torch.distributions.kl_divergence(normal, standard).sum(1).mean()
    assert float(standard_normal_kl(mean, log_variance)) == pytest.approx(float(expected))


def test_total_correlation_is_the_mean_gap_of_the_two_logits() -> None:
    logits = torch.tensor([[3.0, 1.0], [0.0, 4.0]])
    assert float(total_correlation(logits)) == pytest.approx((2.0 - 4.0) / 2)


def test_blocks_are_shuffled_whole_and_the_first_is_kept() -> None:
    z = torch.arange(40.0).reshape(8, 5)
    torch.manual_seed(0)
    mixed = permute_blocks(z, (2, 2, 1))
    assert torch.equal(mixed[:, :2], z[:, :2])
    for columns in (slice(2, 4), slice(4, 5)):
        before = {tuple(row) for row in z[:, columns].tolist()}
        after = {tuple(row) for row in mixed[:, columns].tolist()}
        assert before == after and not torch.equal(mixed[:, columns], z[:, columns])
    torch.manual_seed(0)
    assert torch.equal(mixed, permute_blocks(z, (2, 2, 1)))


def test_mmd_gradients_are_those_of_finite_differences() -> None:
    x, y, t, s = labelled(2, 2, 8)
    scale = 2.0
    assert torch.autograd.gradcheck(lambda a: mmd(a, y, scale), (x.requires_grad_(),))
    assert torch.autograd.gradcheck(lambda a: mean_alignment(a, s), (x,))
    assert torch.isfinite(torch.autograd.grad(distillation_mmd(x, y, t, s), x)[0]).all()
