"""SupCon, FSCL and FSCL+ against loops written from the formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from shasam.losses import fscl, supcon


def rows(n: int, classes: int, groups: int, seed: int = 0, d: int = 5) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(seed)
    z = F.normalize(torch.randn(n, d, generator=g, dtype=torch.float64), dim=1)
    t = torch.randint(classes, (n // 2,), generator=g).repeat(2)
    s = torch.randint(groups, (n // 2,), generator=g).repeat(2)
    return z, t, s


def naive_supcon(z: Tensor, t: Tensor, tau: float) -> float:
    n, total = len(z), 0.0
    for i in range(n):
        positives = [p for p in range(n) if p != i and t[p] == t[i]]
        denominator = sum(math.exp(float(z[i] @ z[a]) / tau) for a in range(n) if a != i)
        terms = [float(z[i] @ z[p]) / tau - math.log(denominator) for p in positives]
        total += sum(terms) / max(len(terms), 1)
    return -(tau / 0.07) * total / n


def naive_fscl(
    z: Tensor, t: Tensor, s: Tensor, tau: float, plus: bool, classes: int, groups: int
) -> float:
    n, total = len(z), 0.0
    cell = [sum(bool(t[x] == t[y] and s[x] == s[y]) for y in range(n)) - 1 for x in range(n)]
    for i in range(n):
        positives = [p for p in range(n) if p != i and t[p] == t[i]]
        negatives = [a for a in range(n) if t[a] != t[i] and s[a] == s[i]]
        largest = max(float(z[i] @ z[a]) / tau for a in range(n))
        log_sum = 0.0
        if negatives:
            log_sum = math.log(sum(math.exp(float(z[i] @ z[a]) / tau - largest) for a in negatives))
        row = 0.0
        for p in positives:
            term = float(z[i] @ z[p]) / tau - largest - log_sum
            row += term / max(cell[p], 1) if plus else term / len(positives)
        if plus:
            row *= n / (classes * groups * groups) / (cell[i] + 1)
        total += row
    return -(tau / 0.07) * total / n


@pytest.mark.parametrize(
    ("n", "classes", "groups"), [(12, 2, 2), (16, 3, 2), (20, 4, 4), (8, 1, 2)]
)
@pytest.mark.parametrize("tau", [0.07, 0.1, 0.7])
def test_supcon_equals_a_loop(n: int, classes: int, groups: int, tau: float) -> None:
    z, t, _ = rows(n, classes, groups)
    assert float(supcon(z, t, temperature=tau)) == pytest.approx(naive_supcon(z, t, tau), rel=1e-12)


@pytest.mark.parametrize(
    ("n", "classes", "groups"), [(12, 2, 2), (16, 3, 2), (24, 2, 4), (20, 4, 3)]
)
@pytest.mark.parametrize("plus", [False, True])
@pytest.mark.parametrize("tau", [0.1, 0.7])
def test_fscl_equals_a_loop(n: int, classes: int, groups: int, plus: bool, tau: float) -> None:
    z, t, s = rows(n, classes, groups)
    ours = fscl(z, t, s, temperature=tau, group_normalised=plus, classes=classes, groups=groups)
    assert float(ours) == pytest.approx(naive_fscl(z, t, s, tau, plus, classes, groups), rel=1e-12)


@pytest.mark.parametrize("plus", [False, True])
def test_fscl_without_negatives_only_attracts(plus: bool) -> None:
    z, t, s = rows(12, 1, 2)  # one class: no row has a negative
    z.requires_grad_()
    loss = fscl(z, t, s, group_normalised=plus)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(naive_fscl(z.detach(), t, s, 0.1, plus, 2, 2))
    assert torch.isfinite(z.grad).all() and z.grad.abs().sum() > 0


@pytest.mark.parametrize("plus", [False, True])
def test_fscl_on_a_batch_of_one_group_is_finite(plus: bool) -> None:
    z, t, _ = rows(12, 2, 2)
    z.requires_grad_()
    loss = fscl(z, t, torch.zeros_like(t), group_normalised=plus)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(z.grad).all()


def test_negatives_of_the_other_group_do_not_enter_fscl() -> None:
    z = F.normalize(torch.randn(4, 3, dtype=torch.float64), dim=1)
    t, s = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1])  # negatives only across groups
    moved = z.clone()
    moved[2:] = F.normalize(torch.randn(2, 3, dtype=torch.float64), dim=1)
    first = [fscl(x.requires_grad_(), t, s) for x in (z, moved)]
    gradients = [torch.autograd.grad(x, w)[0][:2] for x, w in zip(first, (z, moved), strict=True)]
    assert torch.equal(*gradients)


def test_positives_are_not_in_the_denominator_of_fscl() -> None:
    z, t, s = rows(12, 2, 1)  # one group: FSCL differs from SupCon by the denominator alone
    assert float(fscl(z, t, s)) < float(supcon(z, t))


@pytest.mark.parametrize("views", [32, 128])
def test_balanced_cells_make_fscl_plus_a_constant_times_fscl(views: int) -> None:
    # 2B views in 4 cells of m: 2B/8 · 1/m · Σ l/(m-1) against Σ l/(2m-1)
    m = views // 4
    z = F.normalize(torch.randn(views, 8, dtype=torch.float64), dim=1)
    t = torch.arange(views) % 2
    s = torch.arange(views) // 2 % 2
    ratio = float(fscl(z, t, s, group_normalised=True) / fscl(z, t, s))
    assert ratio == pytest.approx(views / 8 / m * (2 * m - 1) / (m - 1), rel=1e-9)
    if views == 128:
        assert ratio == pytest.approx(1.016, abs=1e-3)


def test_group_normalisation_divides_columns_and_not_rows() -> None:
    z, _, _ = rows(20, 2, 2)
    t = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1] * 2)
    s = torch.tensor([0, 0, 0, 0, 0, 1, 0, 1, 1, 1] * 2)  # cells of unequal size within a class
    n, tau = len(z), 0.1
    cell = torch.tensor([float(((t == t[x]) & (s == s[x])).sum() - 1) for x in range(n)])
    row_wise = 0.0
    for i in range(n):
        negatives = [a for a in range(n) if t[a] != t[i] and s[a] == s[i]]
        log_sum = math.log(sum(math.exp(float(z[i] @ z[a]) / tau) for a in negatives))
        pairs = [p for p in range(n) if p != i and t[p] == t[i]]
        total = sum(float(z[i] @ z[p]) / tau - log_sum for p in pairs)
        row_wise += n / 8 * total / cell[i] / (cell[i] + 1)
    row_wise *= -(tau / 0.07) / n
    assert abs(float(fscl(z, t, s, group_normalised=True)) - float(row_wise)) > 1e-3


@pytest.mark.parametrize("name", ["supcon", "fscl", "fscl+"])
def test_contrastive_gradients_are_those_of_finite_differences(name: str) -> None:
    z, t, s = rows(8, 2, 2, d=3)

    def loss(x: Tensor) -> Tensor:
        # normalised inside: the largest of a row is then its own 1/τ, a constant
        x = F.normalize(x, dim=1)
        if name == "supcon":
            return supcon(x, t, temperature=0.5)
        return fscl(x, t, s, temperature=0.5, group_normalised=name == "fscl+")

    assert torch.autograd.gradcheck(loss, (z.requires_grad_(),))


def test_low_temperature_and_bfloat16_stay_finite() -> None:
    z, t, s = rows(16, 2, 2)
    z32 = z.float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total = supcon(z32, t, temperature=0.01) + fscl(z32, t, s, temperature=0.01)
    total.backward()
    assert total.dtype == torch.float32
    assert torch.isfinite(total) and torch.isfinite(z32.grad).all()


def test_lone_rows_add_nothing() -> None:
    z = F.normalize(torch.randn(3, 4), dim=1)
    t, s = torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1])
    assert float(supcon(z, t)) == 0.0
    assert float(fscl(z, t, s)) == 0.0
    assert float(fscl(z, t, s, group_normalised=True, classes=3)) == 0.0
