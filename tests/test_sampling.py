from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shasam.errors import DataError
from shasam.sampling import BalancedPlan, BatchPlan, NaturalPlan, TrainingRows


def no_embed(rows):
    raise AssertionError("plans that do not mine must not embed")


def test_natural_plan_shows_every_row_at_most_once_a_pass_and_only_training_rows():
    rows, t, s = torch.arange(10, 33), torch.zeros(33), torch.zeros(33)
    plan = NaturalPlan(TrainingRows(t, s, rows, 5, seed=1))
    assert isinstance(plan, BatchPlan) and plan.steps_per_epoch == 4
    first = torch.cat([plan.draw(0, step, no_embed).rows_B for step in range(4)])
    assert len(set(first.tolist())) == 20 and set(first.tolist()) <= set(rows.tolist())
    second = torch.cat([plan.draw(1, step, no_embed).rows_B for step in range(4, 8)])
    assert not torch.equal(first, second)


@pytest.mark.parametrize("step", [0, 3, 7, 1])
def test_plans_are_functions_of_the_key_and_not_of_what_was_drawn_before(step):
    rows, t, s = torch.arange(40), torch.arange(40) % 2, (torch.arange(40) // 3) % 2
    for make in (
        lambda: NaturalPlan(TrainingRows(t, s, rows, 7, seed=3)),
        lambda: BalancedPlan(TrainingRows(t, s, rows, 7, seed=3)),
    ):
        walked, fresh = make(), make()
        for earlier in range(10):
            walked.draw(0, earlier, no_embed)
        expected = walked.draw(0, step, no_embed).rows_B
        assert torch.equal(expected, fresh.draw(0, step, no_embed).rows_B)


@settings(deadline=None, max_examples=40)
@given(
    size=st.integers(4, 13),
    counts=st.lists(st.integers(1, 9), min_size=4, max_size=4),
    steps=st.integers(1, 12),
)
def test_balanced_plan_uses_every_cell_equally_and_every_image_of_a_cell_equally(
    size, counts, steps
):
    t = torch.repeat_interleave(torch.tensor([0, 0, 1, 1]), torch.tensor(counts))
    s = torch.repeat_interleave(torch.tensor([0, 1, 0, 1]), torch.tensor(counts))
    plan = BalancedPlan(TrainingRows(t, s, torch.arange(len(t)), size, seed=0))
    used: Counter[int] = Counter()
    for step in range(steps):
        rows = plan.draw(0, step, no_embed).rows_B
        assert len(rows) == size
        cells = Counter((t[rows] * 2 + s[rows]).tolist())
        assert max(cells.values()) - min(cells.get(c, 0) for c in range(4)) <= 1
        used.update(rows.tolist())
    per_cell = Counter()
    for row, count in used.items():
        per_cell[int(t[row] * 2 + s[row])] += count
    assert max(per_cell.values()) - min(per_cell.values()) <= 1
    for cell in range(4):
        members = [used[r] for r in range(len(t)) if int(t[r] * 2 + s[r]) == cell]
        assert max(members) - min(members) <= 1


def test_a_batch_larger_than_the_data_is_an_error_that_says_what_to_change():
    few = torch.arange(3)
    with pytest.raises(DataError, match=r"train\.learn\.batch_views"):
        NaturalPlan(TrainingRows(few, few, few, 4, seed=0))
