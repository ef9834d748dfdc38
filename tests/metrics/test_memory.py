"""The memory guard: estimates against measured peaks, and refusals that name the figure."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from shasam.errors import MemoryLimitError
from shasam.metrics import Counts, compare, evaluate, evaluate_counts
from shasam.metrics.intervals import comparison_bytes, evaluation_bytes


def names(n: int) -> tuple[str, ...]:
    return tuple(map(str, range(n)))


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


@pytest.mark.parametrize(("classes", "groups", "draws"), [(2, 40, 400), (30, 2, 400), (6, 12, 400)])
def test_the_estimate_is_near_the_measured_peak(classes: int, groups: int, draws: int) -> None:
    rng = np.random.default_rng(0)
    n = rng.integers(1, 50, (classes, classes, groups))
    counts = Counts(n, names(classes), names(groups))
    measured = peak(lambda: evaluate_counts(counts, draws=draws))
    assert 0.5 < measured / evaluation_bytes(classes, groups, draws) < 1.3


def test_the_estimate_with_scores_is_near_the_measured_peak() -> None:
    rng = np.random.default_rng(0)
    t, p, s = rng.integers(0, 2, 5000), rng.integers(0, 2, 5000), np.arange(5000) % 16
    measured = peak(lambda: evaluate(t, p, s, rng.random(5000), draws=200))
    assert 0.5 < measured / evaluation_bytes(2, 16, 200, scores=True) < 1.3


def test_the_estimate_of_a_comparison_is_near_the_measured_peak() -> None:
    rng = np.random.default_rng(0)
    t, a, b = rng.integers(0, 10, (3, 5000))
    measured = peak(lambda: compare(t, a, b, np.arange(5000) % 3, draws=300))
    assert 0.5 < measured / comparison_bytes(10, 3, 300) < 1.3


def test_what_does_not_fit_is_refused_before_it_is_allocated() -> None:
    """300 classes once took 8.6 GB, and curves of scores of 2,500 groups asked for more."""

    def attempt(work: Callable[[], object]) -> None:
        with pytest.raises(MemoryLimitError, match=r"[GT]iB at 2,000 draws; the limit is"):
            work()

    wide = Counts(np.ones((300, 300, 2), np.int64), names(300), names(2))
    rows = np.arange(5000)
    few = np.arange(600) % 300
    for work in (
        lambda: evaluate(rows % 2, rows % 2, rows % 2500, np.full(5000, 0.5)),
        lambda: evaluate_counts(wide),
        lambda: compare(few, few, few, few % 2, classes=names(300), groups=names(2)),
    ):
        assert peak(lambda work=work: attempt(work)) < 100 * 2**20
