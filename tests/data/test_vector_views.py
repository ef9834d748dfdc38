"""Views of vectors depend on seed, step, row and view alone, and do what their names say."""

from __future__ import annotations

import pytest
import torch

from shasam.data.augment import CellPartners, vector_views
from shasam.spec.fields import ViewsSpec

X = torch.randn(40, 200, generator=torch.Generator().manual_seed(0)) + 2
T, S = torch.arange(40) % 2, (torch.arange(40) // 2) % 2
PARTNERS = CellPartners(T, S, torch.arange(40))


def views(rows: torch.Tensor, draw: int = 3, count: int = 2, **options: float) -> torch.Tensor:
    spec = ViewsSpec.model_validate(options)
    found = vector_views(X.__getitem__, rows, PARTNERS, seed=1, draw=draw, views=count, spec=spec)
    return found.view(count, len(rows), -1)


@pytest.mark.parametrize("option", ["noise", "feature_dropout", "mixing"])
def test_a_view_does_not_depend_on_its_batch(option: str) -> None:
    one = views(torch.tensor([5, 9, 30]), **{option: 0.4})
    other = views(torch.tensor([30, 2, 5, 8]), **{option: 0.4})
    assert torch.equal(one[:, 0], other[:, 2]) and torch.equal(one[:, 2], other[:, 0])
    assert not torch.equal(one[0], one[1])  # the two views differ
    assert not torch.equal(one, views(torch.tensor([5, 9, 30]), draw=4, **{option: 0.4}))


def test_dropout_noise_and_mixing_have_the_size_they_are_given() -> None:
    rows = torch.arange(40)
    dropped = views(rows, feature_dropout=0.3)
    assert abs(float((dropped == 0).float().mean()) - 0.3) < 0.02
    assert torch.allclose(dropped[dropped != 0] * 0.7, X.expand(2, -1, -1)[dropped != 0])
    error = (views(rows, noise=0.5) - X) / X.square().mean(1, keepdim=True).sqrt()
    assert abs(float(error.std()) - 0.5) < 0.01 and abs(float(error.mean())) < 0.02


def test_a_row_is_mixed_with_rows_of_its_own_cell_alone() -> None:
    one_hot = torch.eye(40)
    spec = ViewsSpec(mixing=0.9)
    for draw in range(5):
        mixed = vector_views(
            one_hot.__getitem__, torch.arange(40), PARTNERS, seed=1, draw=draw, views=1, spec=spec
        )
        row, partner = mixed.nonzero().T
        assert bool((T[row] == T[partner]).all() and (S[row] == S[partner]).all())
        assert bool((mixed.diagonal() >= 0.1 - 1e-6).all())
