"""Soft-edged shapes, painted on many images at once; the face renderer draws with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Plane = np.ndarray  # (n, H, W) float32, or what broadcasts to it
Colour = Sequence[np.ndarray]  # three of (n, 1, 1), or of (n, H, W)


class Canvas:
    """n pictures in a common frame: x to the right, y down, both about -1..1, turned and scaled.

    ``rgb`` is (3, n, H, W) in 0..1. A window bounds the pixels a shape may touch, which is where
    the speed comes from.
    """

    def __init__(self, size: int, turn: Plane, scale: Plane, dx: Plane, dy: Plane) -> None:
        n = len(turn)
        self.size = size
        axis = (np.arange(size, dtype=np.float32) + 0.5) * np.float32(2 / size) - 1
        self.px, self.py = axis[None, None, :], axis[None, :, None]
        c, s = np.cos(turn) / scale, np.sin(turn) / scale
        u, v = self.px - dx, self.py - dy
        self.x = c * u + s * v
        self.y = c * v - s * u
        self.soft = (np.float32(0.5 * size) * scale).astype(np.float32)  # edge slope per unit
        self.rgb = np.empty((3, n, size, size), dtype=np.float32)

    def window(self, top: float, bottom: float, left: float, right: float) -> Window:
        """The part between these picture coordinates (-1..1)."""
        edges = [int(np.clip(np.floor((v + 1) / 2 * self.size), 0, self.size)) for v in (top, left)]
        ends = [
            int(np.clip(np.ceil((v + 1) / 2 * self.size), 0, self.size)) for v in (bottom, right)
        ]
        return Window(self, slice(edges[0], ends[0]), slice(edges[1], ends[1]))


class Window:
    """A rectangle of a canvas: coordinates to compute shapes from, and the brush."""

    def __init__(self, canvas: Canvas, rows: slice, cols: slice) -> None:
        self.x = canvas.x[:, rows, cols]
        self.y = canvas.y[:, rows, cols]
        self.rgb = canvas.rgb[:, :, rows, cols]
        self.soft = canvas.soft

    def cover(self, distance: Plane) -> Plane:
        """1 inside, 0 outside, a one-pixel ramp at the edge (distance < 0 is inside)."""
        out = distance * -self.soft
        out += np.float32(0.5)
        return np.clip(out, 0, 1, out=out)

    def ellipse(self, x: Plane, y: Plane, a: Plane, b: Plane) -> Plane:
        """Distance-like: 0 on the ellipse, in units of the smaller half-axis."""
        r = np.sqrt((x / a) ** 2 + (y / b) ** 2)
        r -= 1
        r *= np.minimum(a, b)
        return r

    def blob(self, x: Plane, y: Plane, a: Plane, b: Plane) -> Plane:
        """A soft spot (1 - r^2)^2: 1 in the middle, 0 on the ellipse and beyond."""
        r = (x / a) ** 2 + (y / b) ** 2
        np.subtract(1, r, out=r)
        np.clip(r, 0, 1, out=r)
        r *= r
        return r

    def paint(self, alpha: Plane, colour: Colour) -> None:
        """Lay a colour over what is there."""
        for plane, value in zip(self.rgb, colour, strict=True):
            plane += alpha * (value - plane)

    def shade(self, factor: Plane) -> None:
        """Multiply the light."""
        self.rgb *= factor[None]
