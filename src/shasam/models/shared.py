"""One batch over several processes: each encodes a part of the rows, and all gather the result.

The trainer puts a ``Share`` in force around the steps of a method whose loss compares the rows of
a batch. Every process then computes that loss on the whole batch, with the gradients of a single
process; only the encoder's work is divided. An encoder that is not decorated does all of the work
in every process, and is right as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Share:
    """Which part of a batch is this process's, and how the parts come together."""

    rank: int
    world: int
    gather: Callable[[Tensor], Tensor]  # (b, ...) to (world, b, ...), gradients going back to all


_current: Share | None = None


@contextmanager
def sharing(share: Share | None) -> Iterator[None]:
    """Put a share in force, or none."""
    global _current
    before, _current = _current, share
    try:
        yield
    finally:
        _current = before


def has_whole_batch() -> bool:
    """True where this process holds all rows of a batch, as it does outside of an encoder."""
    return _current is not None


def in_shares(encode: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate ``encode(self, images, ...)`` whose tensors have one row for each image."""

    @wraps(encode)
    def shared(self: Any, images: Tensor, *more: Any) -> Any:
        share = _current
        if share is None or len(images) % share.world:
            return encode(self, images, *more)
        with sharing(None):  # what is called inside has its part already
            own = encode(self, images.chunk(share.world)[share.rank], *more)
        return _together(own, share)

    return shared


def _together(own: Any, share: Share) -> Any:
    if isinstance(own, dict):
        return {name: _together(value, share) for name, value in own.items()}
    if isinstance(own, tuple):
        return tuple(_together(value, share) for value in own)
    return share.gather(own).flatten(0, 1)
