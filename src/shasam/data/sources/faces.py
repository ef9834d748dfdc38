"""Draw faces with a chosen bias: ``faces``, the default data.

A face is painted from attributes and a key, many at a time, with soft-edged shapes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from shasam.data.source import Label, Listing, Reading, Source
from shasam.data.splits import cell_counts
from shasam.errors import DataError
from shasam.keyed import keys, text_key, uniform
from shasam.registry import did_you_mean, register

# -------------------------------------------------------------------------------------------------
# Soft-edged shapes, painted on many images at once; the face renderer draws with them.
# -------------------------------------------------------------------------------------------------

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
        """Return the part between these picture coordinates (-1..1)."""
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
        """Return 1 inside, 0 outside, a one-pixel ramp at the edge (distance < 0 is inside)."""
        out = distance * -self.soft
        out += np.float32(0.5)
        return np.clip(out, 0, 1, out=out)

    def ellipse(self, x: Plane, y: Plane, a: Plane, b: Plane) -> Plane:
        """Return something like a distance: 0 on the ellipse, in units of the smaller half-axis."""
        r = np.sqrt((x / a) ** 2 + (y / b) ** 2)
        r -= 1
        r *= np.minimum(a, b)
        return r

    def blob(self, x: Plane, y: Plane, a: Plane, b: Plane) -> Plane:
        """Return a soft spot (1 - r^2)^2: 1 in the middle, 0 on the ellipse and beyond."""
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


# -------------------------------------------------------------------------------------------------
# A procedural face: from attributes and a key to a picture, many at a time.
#
# Every attribute is a strength in 0..1 (no smile .. broad smile); all else (shape of the head,
# pose, lighting, clothes, background, noise) is drawn from the face's own key, so a face looks the
# same in every batch. Nothing here is learnt from, or a copy of, pictures of people.
# -------------------------------------------------------------------------------------------------

VERSION = 4  # a change of this number is a change of every picture
ATTRIBUTES = ("smile", "glasses", "beard", "long_hair", "hat", "dark_skin", "old")
_CHUNK = 16  # faces drawn at once: what fits in a CPU cache at 64 px
_DRAWS = 96
_F = np.float32

# Skin from dark to light, a ramp through ten measured-looking tones; hair; clothes and walls.
_SKIN = np.array(
    [
        (58, 36, 27), (81, 50, 36), (105, 66, 46), (130, 84, 58), (156, 105, 74),
        (182, 130, 95), (205, 154, 119), (223, 178, 145), (237, 198, 168), (246, 216, 194),
    ],
    dtype=_F,
) / 255  # fmt: skip
_HAIR = np.array(
    [(22, 18, 18), (44, 30, 24), (72, 46, 30), (106, 70, 42), (150, 104, 60), (190, 150, 92),
     (126, 54, 30)],
    dtype=_F,
) / 255  # fmt: skip
_GREY_HAIR = np.array((186, 184, 180), dtype=_F) / 255


def render(attributes: Mapping[str, np.ndarray], key: np.ndarray, size: int = 64) -> np.ndarray:
    """Return pictures (n, size, size, 3) uint8 from strengths (n,) in 0..1 and keys (n,) uint64."""
    out = np.empty((len(key), size, size, 3), dtype=np.uint8)
    for start in range(0, len(key), _CHUNK):
        part = slice(start, start + _CHUNK)
        strengths = {name: attributes[name][part].astype(_F) for name in ATTRIBUTES}
        out[part] = _Sitter(strengths, key[part], size).draw()
    return out


class _Sitter:
    """One chunk of faces while they are being drawn, back to front."""

    def __init__(self, attributes: Mapping[str, np.ndarray], key: np.ndarray, size: int) -> None:
        self.size, self.key = size, key
        self._u = uniform(key, _DRAWS)
        self._next = 0
        self.a = {name: value[:, None, None] for name, value in attributes.items()}
        turn = self.draw_between(-0.16, 0.16)
        scale = self.draw_between(1.02, 1.26)
        self.canvas = Canvas(
            size, turn, scale, self.draw_between(-0.09, 0.09), self.draw_between(-0.06, 0.07)
        )
        self.yaw, self.pitch = self.draw_between(-0.1, 0.1), self.draw_between(-0.05, 0.05)
        self.head_a, self.head_b = self.draw_between(0.44, 0.53), self.draw_between(0.62, 0.7)
        self.jaw = self.draw_between(0.05, 0.24)
        self.skin = self._skin()
        self.hair = self._hair()
        self._hair_phase = self.draw_between(0, 6)
        self.light = self.draw_between(-1, 1), self.draw_between(0.15, 0.6)

    def draw_between(self, low: float, high: float) -> Plane:
        """Return the next uniform number of each face, (n, 1, 1)."""
        u = self._u[:, self._next, None, None]
        self._next += 1
        return (low + (high - low) * u).astype(_F)

    def colour_between(self, low: float, high: float) -> Colour:
        return [self.draw_between(low, high) for _ in range(3)]

    def _skin(self) -> Colour:
        # the strength 0..1 walks the ramp from light to dark; some spread within every strength
        tone = (1 - self.a["dark_skin"]) * 7.4 + self.draw_between(0.0, 1.6)
        low = np.clip(np.floor(tone).astype(np.int64), 0, 8)
        part = (tone - low).astype(_F)
        warm = self.draw_between(-0.025, 0.025)
        shift = (warm, 0.0 * warm, -warm)
        return [_SKIN[low, c] * (1 - part) + _SKIN[low + 1, c] * part + shift[c] for c in range(3)]

    def _hair(self) -> Colour:
        # the darker the skin, the rarer fair hair
        reach = len(_HAIR) * (1 - 0.6 * self.a["dark_skin"])
        pick = (self.draw_between(0, 1) * reach).astype(np.int64)
        grey = np.clip(self.a["old"] * 1.3 - self.draw_between(0.1, 0.7), 0, 0.95)
        jitter = self.draw_between(0.85, 1.2)
        return [(_HAIR[pick, c] * (1 - grey) + _GREY_HAIR[c] * grey) * jitter for c in range(3)]

    def draw(self) -> np.ndarray:
        self.background()
        self.hair_behind()
        self.body()
        self.head()
        self.nose()
        self.eyes()
        self.mouth()
        self.age()
        self.beard()
        self.hair_in_front()
        self.glasses()
        self.hat()
        return self.develop()

    # ---------------------------------------------------------------- behind the face

    def background(self) -> None:
        c = self.canvas
        top, bottom = self._wall(0.2, 0.9), self._wall(0.1, 0.75)
        x0, y0, r = self.draw_between(-1, 1), self.draw_between(-1, 0.6), self.draw_between(0.4, 1)
        mix = (c.py + 1) / 2
        spot = np.clip(1 - ((c.px - x0) ** 2 + (c.py - y0) ** 2) / r**2, 0, 1) * 0.35
        stripe = np.abs(c.px - self.draw_between(-1.5, 1.5)) - self.draw_between(0.02, 0.4)
        stripe = np.clip(0.5 - stripe * 10, 0, 1) * self.draw_between(-0.18, 0.18)
        for k in range(3):
            c.rgb[k] = top[k] * (1 - mix) + bottom[k] * mix + spot + stripe
        np.clip(c.rgb, 0, 1, out=c.rgb)

    def _wall(self, low: float, high: float) -> Colour:
        """Return a muted colour: rooms are greyer than crayons."""
        raw = self.colour_between(low, high)
        grey = (raw[0] + raw[1] + raw[2]) / 3
        return [grey + 0.45 * (k - grey) for k in raw]

    def hair_behind(self) -> None:
        w = self.canvas.window(-1, 1, -1, 1)
        long = self.a["long_hair"]
        wide = self.head_a * (1.12 + 0.16 * long)
        # long hair is a cape whose lower edge sinks with the strength
        drop = -0.25 + 1.15 * long + self.draw_between(-0.08, 0.08)
        dome = w.ellipse(w.x, w.y + 0.1, wide, self.head_b * 1.08)
        wave = 0.025 * np.sin(w.y * self.draw_between(7, 13) + self.draw_between(0, 6))
        cape = np.maximum(np.abs(w.x) - wide * (1.0 + 0.12 * (w.y + 0.1)) - wave, w.y - drop)
        cape = np.maximum(cape, -0.1 - w.y)
        alpha = np.maximum(w.cover(dome), w.cover(cape))
        light = 0.76 + self._strands(w) * 0.9
        w.paint(alpha, [k * light for k in self.hair])

    def body(self) -> None:
        w = self.canvas.window(0.2, 1, -1, 1)
        neck = np.abs(w.x) - self.head_a * self.draw_between(0.5, 0.66)
        neck = np.maximum(neck, 0.3 - w.y)
        shadow = 0.62 + 0.3 * np.clip((w.y - 0.62) * 3, 0, 1)
        w.paint(w.cover(neck), [k * shadow for k in self.skin])
        cloth = self._wall(0.02, 0.95)
        collar = self.draw_between(0.0, 0.22)
        shoulder = self.draw_between(0.66, 0.78) + 0.3 * w.x**2
        top = shoulder + collar * np.clip(1 - np.abs(w.x) / 0.3, 0, 1)
        alpha = w.cover(top - w.y)
        fold = 0.9 + 0.1 * np.sin(w.x * 9 + w.y * 4)
        w.paint(alpha, [k * fold for k in cloth])

    # ---------------------------------------------------------------- the face

    def head_distance(self, w: Window) -> Plane:
        # the jaw narrows the ellipse below the cheeks
        narrow = 1 - self.jaw * np.clip(w.y, 0, 1) ** 1
        return w.ellipse(w.x / narrow, w.y, self.head_a, self.head_b)

    def head(self) -> None:
        w = self.canvas.window(-0.95, 1, -0.85, 0.85)
        for hand in (-1, 1):
            ear = w.ellipse(w.x - hand * self.head_a * 1.0, w.y - 0.03, _F(0.085), _F(0.14))
            inner = w.blob(w.x - hand * self.head_a * 1.03, w.y - 0.03, _F(0.06), _F(0.1))
            tone = 0.86 - 0.25 * inner
            # long hair covers the ears
            w.paint(w.cover(ear) * (1 - np.clip(self.a["long_hair"] * 2 - 0.6, 0, 1)),
                    [k * tone for k in self.skin])  # fmt: skip
        alpha = w.cover(self.head_distance(w))
        nx, ny = w.x / self.head_a, w.y / self.head_b
        depth = np.sqrt(np.clip(1.08 - nx**2 - ny**2, 0, 1))
        side, strength = self.light
        lit = 1 - strength * 0.5 + strength * (0.55 * depth + 0.32 * side * nx - 0.22 * ny)
        rosy = (
            0.07
            * (w.blob(np.abs(w.x - self.yaw) - 0.26, w.y - 0.2, _F(0.17), _F(0.15)))
            * (0.6 + self.a["smile"])
        )
        w.paint(alpha, [
            self.skin[0] * lit * (1 + rosy), self.skin[1] * lit * (1 - rosy),
            self.skin[2] * lit * (1 - rosy),
        ])  # fmt: skip
        # lower edge of the face over the neck
        chin = w.blob(nx, ny - 1.0, _F(0.7), _F(0.12))
        w.shade(1 - 0.15 * chin * alpha)

    def dark(self, factor: float) -> Colour:
        return [k * factor for k in self.skin]

    def nose(self) -> None:
        w = self.canvas.window(-0.25, 0.5, -0.4, 0.4)
        x, y = w.x - self.yaw * 1.25, w.y - self.pitch
        wide, long = self.draw_between(0.075, 0.12), self.draw_between(0.16, 0.22)
        side = np.where(self.light[0] > 0, -1, 1).astype(_F)
        # shadow beside the bridge, light on the tip, nostrils
        w.shade(1 - 0.2 * w.blob(x - side * wide * 0.75, y - 0.06, wide * 0.8, long * 1.25))
        w.shade(1 - 0.28 * w.blob(x, y - long - 0.02, wide * 1.35, _F(0.05)))
        w.shade(1 + 0.14 * w.blob(x + side * 0.01, y - long + 0.06, wide * 0.6, _F(0.07)))
        w.shade(1 + 0.08 * w.blob(x + side * 0.015, y - 0.0, _F(0.035), _F(0.2)))
        hole = w.ellipse(np.abs(x) - wide * 0.55, y - long - 0.005, _F(0.027), _F(0.018))
        w.paint(w.cover(hole) * 0.75, self.dark(0.38))

    def eyes(self) -> None:
        w = self.canvas.window(-0.5, 0.25, -0.66, 0.66)
        x, y = w.x - self.yaw * 0.9, w.y - self.pitch + 0.07
        apart = self.draw_between(0.185, 0.235)
        ax, by = self.draw_between(0.085, 0.108), self.draw_between(0.036, 0.062)
        by = by * (1 - 0.22 * self.a["smile"])
        across = np.abs(x) - apart
        # sockets
        w.shade(1 - 0.2 * w.blob(across, y + 0.035, _F(0.19), _F(0.12)))
        almond = w.ellipse(across, y + 0.18 * across * 0.6, ax, by)
        white = w.cover(almond)
        w.paint(white, [_F(0.93) * k for k in (0.98, 0.96, 0.94)])
        gaze = self.draw_between(-0.025, 0.025)
        # both eyes look the same way, so the iris is not mirrored
        left = np.where(x < 0, x + apart, x - apart) - gaze
        iris_colour = self._iris()
        iris = w.cover(w.ellipse(left, y, _F(0.045), _F(0.047))) * white
        w.paint(iris, iris_colour)
        pupil = w.cover(w.ellipse(left, y, _F(0.02), _F(0.021))) * white
        w.paint(pupil, (_F(0.04), _F(0.04), _F(0.05)))
        w.paint(w.blob(left - 0.016, y + 0.018, _F(0.02), _F(0.02)) * white, (_F(1),) * 3)
        # upper lid and lashes: the upper rim of the almond
        rim = np.abs(almond) - self.draw_between(0.008, 0.02)
        w.paint(w.cover(np.maximum(rim, y + 0.012)) * 0.9, self.dark(0.22))
        crease = np.abs(w.ellipse(across, y + 0.012, ax * 1.1, by * 1.75)) - 0.006
        w.paint(w.cover(np.maximum(crease, y + 0.03)) * 0.45, self.dark(0.55))
        self._brows(w, x, y, across)

    def _iris(self) -> Colour:
        pick = self.draw_between(0, 1)
        dark = np.clip(self.a["dark_skin"] * 1.5, 0, 1)
        light = np.where(pick > 0.5, 1.0, 0.0).astype(_F) * (1 - dark)
        brown, blue = (0.25, 0.15, 0.09), (0.33, 0.47, 0.55)
        return [brown[k] * (1 - light) + blue[k] * light for k in range(3)]

    def _brows(self, w: Window, x: Plane, y: Plane, across: Plane) -> None:
        lift, tilt = self.draw_between(0.125, 0.165), self.draw_between(-0.15, 0.35)
        thick = self.draw_between(0.014, 0.03)
        arc = y + lift + tilt * across * 0.4 - 1.7 * across**2 * self.draw_between(0.2, 1.0)
        taper = thick * (1.1 - np.clip(across, -0.12, 0.14) * 3)
        line = np.maximum(np.abs(arc) - taper, np.abs(across) - 0.13)
        w.paint(w.cover(line) * 0.85, [k * 0.75 for k in self.hair])

    def mouth(self) -> None:
        w = self.canvas.window(0.05, 0.78, -0.55, 0.55)
        smile = self.a["smile"]
        x, y = w.x - self.yaw * 1.0, w.y - self.pitch - 0.385
        half = self.draw_between(0.135, 0.17) + 0.085 * smile
        # corners go up with the smile: y = -curve ((x/half)^2 - 1/2)
        curve = -0.022 + 0.122 * smile + self.draw_between(-0.012, 0.012)
        bend = y + curve * ((x / half) ** 2 - 0.5)
        inside = 1 - (x / half) ** 2
        belly = np.sqrt(np.clip(inside, 0, 1))
        opening = np.clip(smile - 0.35, 0, 1) * self.draw_between(0.06, 0.115)
        gap = opening * belly
        lip = self.draw_between(0.032, 0.052) * belly * (1 - 0.25 * smile)
        colour = self._lips()
        upper = np.maximum(-bend - lip * 0.85 - gap * 0.25, bend - 0.0)
        lower = np.maximum(bend - gap - lip * 1.1, -bend)
        edge = -inside * half
        w.paint(w.cover(np.maximum(upper, edge)) * 0.85, [k * 0.88 for k in colour])
        w.paint(w.cover(np.maximum(lower, edge)) * 0.85, colour)
        open_mouth = w.cover(np.maximum(np.abs(bend - gap * 0.4) - gap * 0.6, edge))
        open_mouth = open_mouth * np.clip(opening * 60, 0, 1)
        w.paint(open_mouth, (_F(0.22), _F(0.07), _F(0.07)))
        teeth = np.maximum(bend - gap * 0.62, -bend - gap * 0.16)
        ivory = 0.96 - 0.16 * self.a["dark_skin"]
        shown = w.cover(np.maximum(teeth, edge + 0.015)) * open_mouth
        w.paint(shown, (ivory, ivory * 0.99, ivory * 0.95))
        line = np.maximum(np.abs(bend) - 0.011, edge)
        w.paint(w.cover(line) * np.clip(1 - opening * 25, 0, 1), self.dark(0.36))
        # corners, dimples, and the shadow under the lower lip
        corner = w.blob(np.abs(x) - half - 0.012, y - -curve * 0.5, _F(0.04), _F(0.04))
        w.shade(1 - 0.3 * corner)
        fold = np.abs(np.abs(x) - half - 0.05 + 0.35 * y) - 0.01
        fold = np.maximum(fold, np.abs(y + 0.06) - 0.11)
        w.paint(w.cover(fold) * 0.45 * np.clip(smile * 1.4 - 0.3, 0, 1), self.dark(0.6))
        w.shade(1 - 0.16 * w.blob(x, y - gap - 0.1, _F(0.13), _F(0.05)))

    def _lips(self) -> Colour:
        # a mouth must stand out as well on light skin as on dark, or the groups would differ in
        # how hard they are and not only in how often they smile
        red, light = self.draw_between(0.0, 0.22), 1 - self.a["dark_skin"]
        return [
            np.clip(self.skin[0] * (0.84 - 0.06 * light) + 0.10 * (0.5 + red), 0, 1),
            self.skin[1] * (0.66 - 0.16 * light - 0.5 * red) + 0.02,
            self.skin[2] * (0.72 - 0.16 * light - 0.5 * red) + 0.03,
        ]

    # ---------------------------------------------------------------- what is added to it

    def age(self) -> None:
        old = self.a["old"]
        w = self.canvas.window(-0.75, 0.65, -0.66, 0.66)
        x, y = w.x - self.yaw, w.y - self.pitch
        ink = 0.75 * np.clip(old * 1.25 - 0.15, 0, 1)
        for height in (0.33, 0.405, 0.48):
            wave = y + height + 0.1 * x**2 + 0.008 * np.sin(x * 16 + height * 40)
            line = np.maximum(np.abs(wave) - 0.007, np.abs(x) - 0.25)
            w.paint(w.cover(line) * ink * 0.75, self.dark(0.58))
        fold = np.abs(np.abs(x) - 0.13 - 0.42 * (y - 0.17)) - 0.009
        fold = np.maximum(fold, np.abs(y - 0.27) - 0.1)
        w.paint(w.cover(fold) * ink * 0.8, self.dark(0.55))
        bag = np.abs(w.ellipse(np.abs(x) - 0.21, y + 0.045, _F(0.105), _F(0.095))) - 0.008
        w.paint(w.cover(np.maximum(bag, -0.005 - y)) * ink * 0.7, self.dark(0.6))
        crow = np.abs(np.abs(y + 0.07) - (np.abs(x) - 0.31) * 0.5) - 0.006
        crow = np.maximum(crow, np.abs(np.abs(x) - 0.365) - 0.035)
        w.paint(w.cover(crow) * ink * 0.7, self.dark(0.6))

    def beard(self) -> None:
        strength = self.a["beard"]
        w = self.canvas.window(-0.15, 1, -0.75, 0.75)
        x, y = w.x - self.yaw * 0.6, w.y - self.pitch
        face = w.cover(self.head_distance(w) - 0.02 - 0.03 * strength)
        cheek = 0.2 - 1.1 * np.clip(np.abs(x) - 0.26, 0, 1) + 0.1 * np.cos(x * 6)
        low = np.clip((y - cheek) * 9, 0, 1)
        mouth = w.ellipse(w.x - self.yaw, y - 0.4, 0.2 + 0.06 * self.a["smile"], _F(0.085))
        hole = np.clip(mouth * 22, 0, 1)
        tash = np.maximum(np.abs(y - 0.305 - 0.25 * np.abs(x)) - 0.03, np.abs(w.x - self.yaw) - 0.2)
        region = np.maximum(low * hole, w.cover(tash)) * face
        strands = 0.9 + 0.16 * np.sin(w.x * 83 + 7 * np.sin(w.y * 9)) * np.sin(w.y * 71)
        alpha = region * np.clip(strength * 1.15 - 0.1, 0, 0.94)
        w.paint(alpha, [k * 0.85 * strands for k in self.hair])

    def hair_in_front(self) -> None:
        w = self.canvas.window(-1, 0.35, -0.85, 0.85)
        receding = np.clip(self.a["old"] - self.draw_between(0.2, 1.1), 0, 1)
        line = -0.40 - 0.2 * receding + self.draw_between(-0.05, 0.04)
        parting, sweep = self.draw_between(-0.35, 0.35), self.draw_between(0.1, 0.9)
        fringe = line + sweep * 0.5 * np.clip(np.abs(w.x - parting) - 0.05, 0, 0.3)
        fringe = fringe + 0.012 * np.sin(w.x * self.draw_between(20, 40))
        dome = w.ellipse(w.x, w.y + 0.1, self.head_a * 1.09, self.head_b * 1.02)
        # sides: a strip along the temples, down to the ears
        temple = np.maximum(self.head_a * 0.83 - np.abs(w.x), w.y - 0.0)
        front = np.minimum(np.maximum(w.y - fringe, dome), np.maximum(temple, dome))
        strand = 0.92 + self._strands(w)
        shine = 1 + 0.5 * w.blob(w.x - 0.25 * self.light[0], w.y + 0.58, _F(0.35), _F(0.12))
        w.paint(w.cover(front), [np.clip(k * strand * shine, 0, 1) for k in self.hair])

    def _strands(self, w: Window) -> Plane:
        """Return waves of several widths along the fall of the hair, about ±0.1."""
        bend = w.x + 0.12 * w.y * w.x + self._hair_phase * 0.3
        wide = np.sin(bend * 23 + 2 * np.sin(w.y * 3 + self._hair_phase))
        fine = np.sin(bend * 67 + 3 * w.y)
        return 0.05 * wide + 0.04 * fine

    def glasses(self) -> None:
        strength = self.a["glasses"]
        w = self.canvas.window(-0.5, 0.3, -0.8, 0.8)
        x, y = w.x - self.yaw * 0.95, w.y - self.pitch + 0.055
        ax, by = self.draw_between(0.145, 0.17), self.draw_between(0.105, 0.145)
        power = np.where(self.draw_between(0, 1) > 0.5, 4.0, 2.0).astype(_F)
        across = np.abs(x) - 0.21
        u, v = np.abs(across / ax), np.abs(y / by)
        u, v = u * u, v * v
        square = np.where(power > 3, np.sqrt(u * u + v * v), u + v)
        rim = (np.sqrt(square) - 1) * np.minimum(ax, by)
        frame = np.abs(rim) - self.draw_between(0.012, 0.024)
        bridge = np.maximum(np.abs(y + 0.03) - 0.012, np.abs(x) - 0.07)
        arms = np.maximum(np.abs(y + 0.045) - 0.014, 0.21 + ax - np.abs(x))
        arms = np.maximum(arms, np.abs(w.x) - self.head_a * 1.05)
        line = np.minimum(np.minimum(frame, bridge), arms)
        show = np.clip(strength * 1.3 - 0.15, 0, 1)
        tint = w.cover(rim) * self.draw_between(0.0, 0.25) * show
        w.paint(tint, (_F(0.25), _F(0.27), _F(0.3)))
        glare = np.maximum(np.abs(across + y - 0.02) - 0.015, rim + 0.02)
        w.paint(w.cover(glare) * 0.3 * show, (_F(1),) * 3)
        shade = self.draw_between(0.03, 0.3)
        w.paint(w.cover(line) * show, (shade, shade * self.draw_between(0.6, 1.0), shade * 0.7))

    def hat(self) -> None:
        strength = self.a["hat"]
        w = self.canvas.window(-1, 0.0, -1, 1)
        show = np.clip(strength * 1.6 - 0.3, 0, 1)
        colour = self._wall(0.02, 0.9)
        low = -0.38 - 0.12 * (1 - strength)
        crown = np.maximum(
            w.ellipse(w.x, w.y + 0.3, self.head_a * 1.17, self.head_b * 0.86), w.y - low
        )
        brim_wide = self.head_a * (1.1 + 0.5 * self.draw_between(0, 1))
        brim = w.ellipse(w.x, w.y - low + 0.1 * w.x**2, brim_wide, _F(0.055))
        lit = 0.85 + 0.2 * (w.x * self.light[0]) + 0.1 * np.sin(w.x * 4)
        w.paint(w.cover(crown) * show, [k * lit for k in colour])
        band = np.maximum(crown, low - 0.1 - w.y)
        w.paint(w.cover(band) * show * 0.7, [k * 0.45 for k in colour])
        w.paint(w.cover(brim) * show, [k * 0.75 * lit for k in colour])
        w.shade(1 - 0.25 * show * w.blob(w.x, w.y - low - 0.07, _F(0.5), _F(0.1)))

    # ---------------------------------------------------------------- the camera

    def develop(self) -> np.ndarray:
        """Apply exposure, colour cast, and noise that grows with the light as a sensor's does."""
        rgb = self.canvas.rgb
        exposure = self.draw_between(0.78, 1.18)
        contrast = self.draw_between(0.85, 1.12)
        cast = self.colour_between(0.95, 1.05)
        level = self.draw_between(0.01, 0.06)
        pixel = np.arange(self.size * self.size, dtype=np.uint64)
        bits = keys(7, self.key[:, None], pixel[None, :])
        shape = (len(self.key), self.size, self.size)
        for c in range(3):
            # the sum of two uniform numbers: cheap, and near enough to a bell
            first = ((bits >> np.uint64(16 * c)) & np.uint64(0xFF)).astype(_F)
            second = ((bits >> np.uint64(16 * c + 8)) & np.uint64(0xFF)).astype(_F)
            noise = ((first + second) / _F(255) - 1).reshape(shape) * level * _F(2.4)
            plane = (rgb[c] - 0.5) * contrast + 0.5
            plane *= exposure * cast[c]
            plane += noise * (0.35 + 0.65 * plane)
            rgb[c] = plane
        np.clip(rgb, 0, 1, out=rgb)
        return (rgb.transpose(1, 2, 3, 0) * 255 + 0.5).astype(np.uint8)


# -------------------------------------------------------------------------------------------------
# `faces`: drawn faces with a chosen bias; the default data.
# -------------------------------------------------------------------------------------------------

# how often an attribute is there when it is neither target nor sensitive
_RATES = {
    "smile": 0.5, "glasses": 0.25, "beard": 0.22, "long_hair": 0.45, "hat": 0.12,
    "dark_skin": 0.5, "old": 0.3,
}  # fmt: skip
_CLEAR = 2.2  # distance of the two means from the middle, in standard deviations
_SLOPE = 0.18  # strength = 1/2 + slope * latent, cut to 0..1


@register("faces", kind="source")
class Faces(Source):
    """Drawn faces: exact cells, ambiguous target, clear sensitive attribute.

    The strength of an attribute is 1/2 + 0.18 (±d + noise) with noise of unit variance; d = 2.2 for
    all but the target, whose d falls with ``difficulty`` from 2.2 to 0.4. So the target is drawn
    and confused as in life, and a classifier gains by leaning on the sensitive attribute.
    """

    summary = "drawn faces, made on the spot; the default"
    labels: ClassVar[Mapping[str, Label]] = {
        "smile": Label("smile", ("serious", "smiling")),
        "glasses": Label("glasses", ("no glasses", "glasses")),
        "beard": Label("beard", ("no beard", "beard")),
        "long_hair": Label("long_hair", ("short hair", "long hair")),
        "hat": Label("hat", ("no hat", "hat")),
        "dark_skin": Label("dark_skin", ("light skin", "dark skin")),
        "old": Label("old", ("young", "old")),
    }
    target, sensitive, split, alpha = "smile", "dark_skin", "official", 4.0

    def list_images(self) -> Listing:
        spec = self.spec
        target = _parts(spec.target or self.target, "target")
        asked = "&".join(spec.sensitive or (self.sensitive,))
        sensitive = _parts(asked, "sensitive attribute")
        if set(target) & set(sensitive):
            raise DataError("the target and the sensitive attribute of faces must differ")
        t, s, split = self._design(2 ** len(target), 2 ** len(sensitive))
        n = len(t)
        key = keys(text_key("faces"), spec.seed, np.arange(n))
        chance = uniform(keys(text_key("faces/attributes"), spec.seed, np.arange(n)), 16)
        columns: dict[str, np.ndarray] = {}
        for k, name in enumerate(ATTRIBUTES):
            columns[name] = (chance[:, k] < _RATES[name]).astype(np.int64)
        # few beards go with long hair, as in life, unless either is what is studied
        rare = (columns["long_hair"] == 1) & (chance[:, 15] < 0.85)
        columns["beard"] = np.where(rare, 0, columns["beard"])
        for names, codes in ((target, t), (sensitive, s)):
            for bit, name in enumerate(names):
                columns[name] = (codes >> bit) & 1
        for name in ATTRIBUTES:
            d = _CLEAR - 1.8 * spec.difficulty if name in target else _CLEAR
            # twelve uniform numbers: a bell made by additions alone, equal on every machine
            parts = uniform(keys(text_key(f"faces/{name}"), spec.seed, np.arange(n)), 12)
            latent = parts.astype(np.float64).sum(1) - 6 + d * (2 * columns[name] - 1)
            columns[f"{name}_strength"] = np.clip(0.5 + _SLOPE * latent, 0, 1)
        ids = [f"face-{spec.seed}-{i:07d}" for i in range(n)]
        table = {"id": ids, "path": [""] * n, "key": key, **columns, "split": split}
        return Listing(pa.table(table))

    def _design(self, classes: int, groups: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
        spec = self.spec
        hold = spec.holdout_per_cell or self.holdout_per_cell
        per_group = spec.n_per_group or spec.n // groups
        alpha = spec.alpha if spec.alpha is not None else self.alpha
        t, s, split = [], [], []
        for name in ("train", "val", "test"):
            for group in range(groups):
                counts = [hold] * classes
                if name == "train":
                    counts = cell_counts(per_group, alpha, classes, group, spec.flip_direction)
                for label, count in enumerate(counts):
                    t += [label] * count
                    s += [group] * count
                    split += [name] * count
        return np.array(t), np.array(s), split

    def read(self, table: pa.Table, size: int) -> Reading:
        key = table.column("key").to_numpy()
        strengths = {n: table.column(f"{n}_strength").to_numpy() for n in ATTRIBUTES}
        recipe = np.stack([strengths[name] for name in ATTRIBUTES], 1).astype("<f8")
        hashes = [
            hashlib.sha256(f"faces/{VERSION}/{int(k)}/".encode() + row.tobytes()).hexdigest()
            for k, row in zip(key, recipe, strict=True)
        ]
        return Reading(render(strengths, key, size), hashes, [""] * len(key))

    def pixels_key(self) -> str:
        spec = self.spec
        wanted = spec.model_dump(
            mode="json",
            include={"target", "sensitive", "alpha", "flip_direction", "n", "n_per_group",
                     "holdout_per_cell", "difficulty", "seed"},
        )  # fmt: skip
        return f"faces/{VERSION}/{sorted(wanted.items())}"


def _parts(rule: str, what: str) -> list[str]:
    names = [part.strip() for part in rule.split("&")]
    for name in names:
        if name not in ATTRIBUTES:
            raise DataError(
                f"faces have no {name!r} for the {what}{did_you_mean(name, ATTRIBUTES)}"
            )
    return names
