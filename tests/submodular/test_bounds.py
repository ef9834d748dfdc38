"""Data that is seen once, and samples of the represented rows: what they promise holds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hard_kernels import features

from shasam.errors import InputError
from shasam.submodular import (
    FLCG,
    FLQMI,
    FacilityLocation,
    GraphCut,
    Sieve,
    estimate,
    maximize,
    maximize_sampled,
    select_from_stream,
)
from shasam.submodular.bounds import deviation


@pytest.mark.parametrize("similarity", ["shifted_cosine", "rbf"])
@pytest.mark.parametrize("seed", range(6))
def test_a_sieve_keeps_its_bound_and_tells_its_gains(seed: int, similarity: str) -> None:
    z = features(13, 3, seed)
    f = FacilityLocation.from_features(z, similarity=similarity)
    best = max(float(f(list(a))) for a in itertools.combinations(range(13), 3))
    for size in (1, 4, 13):
        sieve = Sieve(3, z, epsilon=0.1, similarity=similarity)  # type: ignore[arg-type]
        for block in z.split(size):
            sieve.see(block)
        chosen = sieve.selection()
        assert float(chosen.gains.sum()) == pytest.approx(float(f(chosen.indices)), rel=1e-9)
        assert float(chosen.gains.sum()) >= (0.5 - 0.1) * best
        assert sieve.seen == 13 and len(chosen) <= 3


def test_a_stream_in_the_worst_order_keeps_the_bound_of_a_sieve() -> None:
    """Rows of growing worth: what comes first would fill a set that takes everything."""
    angle = torch.linspace(math.pi / 2, 0, 60, dtype=torch.float64)
    stream = torch.stack([angle.cos(), angle.sin()], dim=1)
    goal = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    f = FacilityLocation.from_features(stream, goal)
    chosen, kept = select_from_stream(stream.split(1), 2, goal)
    assert float(f(chosen.indices)) >= 0.4 * float(maximize(f, 2).gains.sum())
    torch.testing.assert_close(kept, stream[chosen.indices])


def test_blocks_of_any_size_give_the_same_picks_and_memory_does_not_grow() -> None:
    z = features(600, 4)
    told, sieves = [], []
    for size in (7, 100, 600):
        sieve = Sieve(8, z[:50])
        for block in z.split(size):
            sieve.see(block)
            sieves.append(sieve.sieves)
        told.append(sieve.selection().indices.tolist())
    assert told[0] == told[1] == told[2]
    assert max(sieves) <= math.log(32 * 8) / math.log(1.1) + 2


def test_a_sieve_reaches_nearly_what_greedy_does() -> None:
    z = features(2000, 8)
    f = FacilityLocation.from_features(z, z[:200])
    sieve = Sieve(20, z[:200])
    sieve.see(z)
    assert float(sieve.selection().gains.sum()) >= 0.95 * float(maximize(f, 20).gains.sum())


@pytest.mark.parametrize("fresh", [True, False])
def test_the_estimate_holds_as_often_as_it_says(fresh: bool) -> None:
    # one row in twenty is far from the others: a sample sees few of them or many
    z = torch.cat([features(380, 3) + 2, features(20, 3, 1) - 2])
    f = FacilityLocation.from_features(z)
    held, naive_held, widths = [], [], []
    for seed in range(100):
        chosen, told = maximize_sampled(
            f,
            3,
            sample=40,
            confidence=0.8,
            fresh=fresh,
            generator=torch.Generator().manual_seed(seed),
        )
        true = float(f(chosen.indices))
        held.append(told.low <= true <= told.high)
        widths.append(told.high - told.low)
        part = f.part(chosen.indices, torch.arange(400))
        spread = float(part.row_values(range(3)).std())
        near = 1.28 * spread / math.sqrt(40) * 400  # the normal interval, without any union
        naive_held.append(abs(told.value - true) <= near)
    assert np.mean(held) >= 0.8
    if not fresh:  # the picks flatter the sample they were chosen on: a plain interval fails
        assert np.mean(naive_held) < 0.8
    assert np.mean(widths) < (0.7 if fresh else 1.6) * 400


def test_the_deviation_holds_for_hard_numbers() -> None:
    """Rare large numbers, without replacement: 2,000 samples, both inequalities."""
    random = np.random.default_rng(0)
    for share in (0.01, 0.5):
        x = (random.random(1000) < share).astype(float)
        for r in (30, 300, 900):
            draws = np.array([random.permutation(x)[:r] for _ in range(2000)])
            off = np.array([deviation(r, 1000, s, math.log(4 / 0.2)) for s in draws.std(axis=1)])
            assert np.mean(np.abs(draws.mean(axis=1) - x.mean()) <= off) >= 0.8


def test_the_empirical_bound_is_narrow_where_the_rows_are_alike() -> None:
    alike, unlike = deviation(10_000, 10**6, 0.01, 5.0), deviation(10_000, 10**6, 0.5, 5.0)
    assert alike < unlike / 3
    assert unlike == pytest.approx(math.sqrt(5.0 / 20_000), rel=0.01)


def test_sampled_picks_are_near_the_best_and_say_their_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    z = features(1500, 6)
    for f in (FacilityLocation.from_features(z), FLCG.from_features(z, features(3, 6, 4))):
        plain = maximize(f, 10)
        monkeypatch.setattr("shasam.submodular.kernels._FEW_ROWS", 0)  # no kernel is made
        monkeypatch.setattr("shasam.submodular.bounds._KERNEL", 0)
        for optimizer in ("lazy", "stochastic"):
            chosen, told = maximize_sampled(
                f, 10, sample=400, exact=True, optimizer=optimizer, epsilon=0.01
            )
            true = float(f(chosen.indices))
            assert float(chosen.gains.sum()) == pytest.approx(true, rel=1e-9)
            assert told.low <= true <= told.high and true >= 0.93 * float(plain.gains.sum())
        monkeypatch.undo()
    f = FacilityLocation.from_features(z)
    again = estimate(f, plain, sample=1500)
    assert again.low == pytest.approx(again.high) == pytest.approx(float(f(plain.indices)))


def test_what_cannot_be_streamed_or_sampled_is_refused() -> None:
    z = features(50, 3)
    f = FacilityLocation.from_features(z)
    for act, sentence in (
        (lambda: Sieve(0, z), "at least 1; got 0"),
        (lambda: Sieve(2, z, epsilon=0.7), "between 0 and 1/2"),
        (lambda: Sieve(2, z, similarity="cosine"), "not negative"),
        (lambda: Sieve(2, z).selection(), "no row yet"),
        (lambda: Sieve(2, z).see(features(4, 5)), "same encoder"),
        (lambda: estimate(GraphCut.from_features(z), [1]), "over features; this GraphCut"),
        (lambda: estimate(FLQMI.from_features(z, z[:2]), [1], sample=2), "this FLQMI is another"),
        (lambda: estimate(FLCG.from_features(z, z[:2], similarity="cosine"), [1], sample=5), "rbf"),
        (lambda: estimate(f, [1], sample=51), "at most 50"),
        (lambda: estimate(f, [1], sample=5, confidence=1.0), "between 0 and 1"),
    ):
        with pytest.raises(InputError, match=sentence):
            act()
