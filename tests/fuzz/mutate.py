"""Mutations of bytes, the same for a seed on every machine."""

from __future__ import annotations

import random
from collections.abc import Sequence

TOKENS = (
    b"", b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"nan", b".nan", b".inf", b"-1", b"0",
    b"9999999999999999999999", b"2147483648", b"4294967295", b"-9223372036854775809", b"1e999",
    b"null", b"~", b"true", b"[]", b"{}", b"[[", b"{{", b"*a", b"&a ", b"<<: ", b"!!binary ",
    b"!!set ", b"? ", b": ", b"- ", b"\n", b"\r", b"\t", b'"', b"'", b"\\", b"\\ud800", b"\\u0000",
    b",,", b";;", b"../", b"/etc", b"2001-99-99", b"2001-01-01", b"1:1:1", b"0x", b"method: ",
    b"width: ", b"5000", b"depth: ", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
)  # fmt: skip


def mutated(rng: random.Random, seeds: Sequence[bytes], most: int = 200_000) -> bytes:
    """One of the seeds after one to eight changes."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5, 8))):
        _change(rng, data, seeds)
    return bytes(data[:most])


def _change(rng: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    place = rng.randrange(len(data) + 1)
    length = min(len(data) - place, 1 << rng.randrange(0, 9))
    match rng.randrange(9):
        case 0 if place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        case 1 if place < len(data):
            data[place] = rng.randrange(256)
        case 2:
            del data[place : place + length]
        case 3:
            data[place:place] = data[place : place + length] * rng.choice((1, 2, 50))
        case 4:
            del data[place:]
        case 5:
            data[place:place] = rng.choice(TOKENS)
        case 6:
            data[place : place + length] = rng.choice(TOKENS)
        case 7:
            other = rng.choice(seeds)
            start = rng.randrange(len(other) + 1)
            data[place:] = other[start:]
        case _:
            data[place : place + length] = rng.randbytes(length)
