"""Keyed random numbers: equal in numpy and torch, uniform, and blind to the batch."""

from __future__ import annotations

import numpy as np
import torch

from shasam.keyed import keys, keys_torch, text_key, uniform, uniform_torch


def splitmix(x: int) -> int:
    """The published finaliser, one number at a time."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def test_the_numbers_are_those_of_splitmix64() -> None:
    key = keys(5, np.array([9]))
    start = splitmix(5)
    golden = 0x9E3779B97F4A7C15
    expected = splitmix(start ^ ((9 * golden + golden) % 2**64))
    assert int(key[0]) == expected
    second = splitmix((expected + 2 * golden) % 2**64) >> 40
    assert uniform(key, 2)[0, 1] == np.float32(second * 2.0**-24)


def test_numpy_and_torch_draw_the_same_bits() -> None:
    rows = np.arange(-3, 500)
    ours = uniform(keys(2**31 - 1, 7, rows, 1), 9)
    theirs = uniform_torch(keys_torch(2**31 - 1, 7, torch.from_numpy(rows), 1), 9)
    assert np.array_equal(ours, theirs.numpy())


def test_numbers_are_uniform_and_uncorrelated() -> None:
    u = uniform(keys(0, np.arange(20_000)), 6)
    assert u.min() >= 0 and u.max() < 1
    counts = np.stack([np.histogram(u[:, k], 20, (0, 1))[0] for k in range(6)])
    chi2 = ((counts - 1000) ** 2 / 1000).sum(1)
    assert chi2.max() < 45  # 19 degrees of freedom: 43.8 is passed once in a thousand
    assert np.abs(np.corrcoef(u.T) - np.eye(6)).max() < 0.03
    assert abs(np.corrcoef(u[1:, 0], u[:-1, 0])[0, 1]) < 0.03


def test_every_part_of_the_key_counts() -> None:
    base = uniform(keys(1, 2, 3, 4), 1)[0, 0]
    others = [keys(0, 2, 3, 4), keys(1, 0, 3, 4), keys(1, 2, 0, 4), keys(1, 2, 3, 0)]
    swapped = keys(1, 3, 2, 4)
    assert all(uniform(k, 1)[0, 0] != base for k in [*others, swapped])


def test_text_keys_do_not_change_between_machines() -> None:
    assert text_key("faces") == text_key("faces") != text_key("Faces")
    assert 0 <= text_key("x") < 2**63
