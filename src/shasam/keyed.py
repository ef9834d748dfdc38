"""Random numbers that are a function of a key, not of what was drawn before.

``keyed`` and ``keyed_torch`` give a generator of a key, ``text_key`` makes a key of words, and
``uniform`` gives numbers of many keys at once (a row of a batch each):

``u = mix(key + (j + 1) * golden) / 2**24`` with splitmix64's finaliser (Steele, Lea and Flood,
OOPSLA 2014): the same key gives the same numbers whatever the batch, worker or resume point. The
numpy and the torch functions give the same bits.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_GOLDEN = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST = 31
_STEP = 2.0**-24  # 24 bits fill a float32 mantissa: every value is exact, and below 1


def text_key(*words: str | int) -> int:
    """Return 63 bits of SHA-256: the same for the same words on every machine."""
    text = "/".join(map(str, words))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def keyed(*key: int) -> np.random.Generator:
    """Make a numpy generator that depends on the key alone: for permutations and draws."""
    return np.random.default_rng(np.random.SeedSequence([int(k) for k in key]))


def keyed_torch(*key: int) -> torch.Generator:
    """Return a torch generator (on the CPU) that depends on the key alone."""
    import torch

    return torch.Generator().manual_seed(int(keyed(*key).integers(2**62)))


def seed_torch(key: int, device: torch.device) -> None:
    """Seed torch's own generators, those of the CPU and of the device.

    ``torch.manual_seed`` does that for every kind of device there is, and remembers a traceback at
    each call for those that are not in use: a tenth of a step on vectors.
    """
    import torch

    if device.type == "cpu":
        torch.default_generator.manual_seed(key)
    else:
        torch.manual_seed(key)


def mix(x: np.ndarray) -> np.ndarray:
    """Return splitmix64's finaliser on uint64."""
    x = x.astype(np.uint64, copy=True)
    for shift, factor in _MIX:
        x ^= x >> np.uint64(shift)
        x *= np.uint64(factor)
    return x ^ (x >> np.uint64(_LAST))


def keys(seed: int, *parts: np.ndarray | int) -> np.ndarray:
    """Return uint64 keys from a seed and integers that broadcast against each other."""
    key = mix(np.asarray([seed % 2**64], dtype=np.uint64))
    for part in parts:
        step = np.atleast_1d(part).astype(np.uint64) * np.uint64(_GOLDEN) + np.uint64(_GOLDEN)
        key = mix(key ^ step)
    return key


def uniform(key: np.ndarray, count: int) -> np.ndarray:
    """Return float32 in [0, 1): shape key.shape + (count,)."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    bits = mix(key[..., None] + steps) >> np.uint64(40)
    return bits.astype(np.float32) * np.float32(_STEP)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def mix_torch(x: Tensor) -> Tensor:
    """Return the same on int64, whose products wrap as those of uint64 do."""
    for shift, factor in _MIX:
        x = (x ^ _shift_right(x, shift)) * _signed(factor)
    return x ^ _shift_right(x, _LAST)


def _shift_right(x: Tensor, shift: int) -> Tensor:
    # int64 shifts copy the sign bit; the mask makes the shift a logical one
    return (x >> shift) & ((1 << (64 - shift)) - 1)


def keys_torch(seed: int, *parts: Tensor | int, device: torch.device | None = None) -> Tensor:
    """Return int64 keys with the bits of ``keys``."""
    import torch

    key = mix_torch(torch.tensor([_signed(seed % 2**64)], dtype=torch.int64, device=device))
    for part in parts:
        part_ = torch.as_tensor(part, dtype=torch.int64, device=device)
        key = mix_torch(key ^ (part_ * _signed(_GOLDEN) + _signed(_GOLDEN)))
    return key


def uniform_torch(key: Tensor, count: int) -> Tensor:
    """Return float32 in [0, 1) with the values of ``uniform``."""
    import torch

    steps = torch.arange(1, count + 1, dtype=torch.int64, device=key.device) * _signed(_GOLDEN)
    bits = _shift_right(mix_torch(key[..., None] + steps), 40)
    return bits.to(torch.float32) * _STEP
