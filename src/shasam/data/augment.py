"""Draw training views: augmented images, and noisy, masked or mixed vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from shasam.extras import need

need("torch", __name__)

import torch
from torch import Tensor

from shasam.errors import InputError
from shasam.keyed import keys_torch, uniform_torch
from shasam.spec.fields import ViewsSpec

if TYPE_CHECKING:
    from collections.abc import Sequence


# -------------------------------------------------------------------------------------------------
# Augmented views, batched on the device of the images.
#
# RandomResizedCrop, horizontal flip, ColorJitter in random order and grayscale as SupCon's code
# calls them, with the settings of `ViewsSpec`; mean = std = 0.5. Every random number is keyed by
# (seed, draw, row, view), so a view does not depend on the batch it stands in. torchvision rounds
# to uint8 after each colour step; here it stays float.
# -------------------------------------------------------------------------------------------------

SUPCON = ViewsSpec()
_ATTEMPTS = 10  # torchvision tries ten boxes before it falls back to the centre
_GRAY = (0.2989, 0.587, 0.114)
_DRAWS = 4 * _ATTEMPTS + 1 + 1 + 4 + 4 + 1  # boxes, flip, jitter?, factors, order, gray?
_CHUNK = 64 * 64 * 64  # pixels worked on at once on a CPU: what fits in its cache


def plain(images_u8: Tensor) -> Tensor:
    """Return images (B, 3, H, W) uint8 as the float tensor that evaluation reads."""
    return (images_u8.to(torch.float32) / 127.5 - 1.0).contiguous()


def augmented_views(
    images_u8: Tensor,
    rows: Tensor,
    *,
    seed: int,
    draw: int,
    views: int = 2,
    size: int | None = None,
    spec: ViewsSpec = SUPCON,
) -> Tensor:
    """Return augmented views (V*B, 3, size, size) float; views of one image stand B rows apart.

    ``draw`` counts how often views are made, such as the step: the same number, the same views.
    """
    if images_u8.ndim != 4 or images_u8.shape[1] != 3 or images_u8.dtype != torch.uint8:
        raise InputError(
            f"augmented_views needs uint8 images (B, 3, H, W), not {images_u8.dtype} "
            f"{tuple(images_u8.shape)}"
        )
    if len(rows) != len(images_u8):
        raise InputError(f"{len(images_u8)} images came with {len(rows)} rows; give one row each")
    device = images_u8.device
    size = size or images_u8.shape[-1]
    view_V1 = torch.arange(views, dtype=torch.int64, device=device)[:, None]
    key_VB = keys_torch(seed, draw, rows.to(device)[None, :], view_V1, device=device).reshape(-1)
    draws = uniform_torch(key_VB, _DRAWS)  # (V*B, draws)
    source = torch.arange(len(rows), device=device).repeat(views)
    chunk = max(4, _CHUNK // size**2) if device.type == "cpu" else max(1, len(source))
    out = torch.empty(len(source), 3, size, size, device=device)
    for start in range(0, len(source), chunk):
        part = slice(start, start + chunk)
        out[part] = _augment(images_u8[source[part]], draws[part], size, spec)
    return out


def boxes(draws: Tensor, height: int, width: int, spec: ViewsSpec = SUPCON) -> Tensor:
    """Crop boxes (B, 4) as top, left, height, width in pixels, drawn as torchvision draws them."""
    area, ratio, top, left = draws.reshape(len(draws), 4, _ATTEMPTS).unbind(1)
    smallest, largest = spec.crop_scale
    area = height * width * (smallest + (largest - smallest) * area)
    narrow, wide = spec.crop_ratio
    low, high = math.log(narrow), math.log(wide)
    ratio = torch.exp(low + (high - low) * ratio)
    w = torch.round(torch.sqrt(area * ratio))
    h = torch.round(torch.sqrt(area / ratio))
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.to(torch.int64).argmax(1, keepdim=True)  # argmax gives the first of equals
    pick = [v.gather(1, first)[:, 0] for v in (top, left, h, w)]
    h, w = pick[2], pick[3]
    top, left = torch.floor(pick[0] * (height - h + 1)), torch.floor(pick[1] * (width - w + 1))
    # no box fitted: the largest centred one with an allowed ratio
    frame = width / height
    if frame < narrow:
        w0, h0 = float(width), float(round(width / narrow))
    elif frame > wide:
        w0, h0 = float(round(height * wide)), float(height)
    else:
        w0, h0 = float(width), float(height)
    centre = torch.tensor([(height - h0) // 2, (width - w0) // 2, h0, w0], device=draws.device)
    found = fits.any(1, keepdim=True)
    return torch.where(found, torch.stack([top, left, h, w], 1), centre)


def resize_weights(start: Tensor, length: Tensor, inputs: int, outputs: int) -> Tensor:
    """Return bilinear, antialiased resampling weights (B, outputs, inputs) for a crop of an axis.

    A triangle of half-width max(1, length/outputs) around each output centre, cut at the crop and
    normalised: what Pillow's bilinear resize of the cropped picture does.
    """
    step = (length / outputs)[:, None, None]
    centre = start[:, None, None] + step * (
        torch.arange(outputs, device=start.device)[None, :, None] + 0.5
    )
    pixel = torch.arange(inputs, device=start.device)[None, None, :]
    reach = step.clamp(min=1.0)
    weight = (1 - (pixel + 0.5 - centre).abs() / reach).clamp(min=0)
    inside = (pixel >= start[:, None, None]) & (pixel < (start + length)[:, None, None])
    weight = weight * inside
    return weight / weight.sum(2, keepdim=True)


def _augment(images_u8: Tensor, draws: Tensor, size: int, spec: ViewsSpec) -> Tensor:
    height, width = images_u8.shape[-2:]
    box = boxes(draws[:, : 4 * _ATTEMPTS], height, width, spec)
    rest = draws[:, 4 * _ATTEMPTS :]
    rows = resize_weights(box[:, 0], box[:, 2], height, size)  # (B, size, H)
    cols = resize_weights(box[:, 1], box[:, 3], width, size)  # (B, size, W)
    flip = rest[:, 0] < spec.flip
    cols = torch.where(flip[:, None, None], cols.flip(1), cols)
    x = images_u8.permute(0, 2, 3, 1).reshape(len(draws), height, width * 3)  # free on the store
    x = torch.bmm(rows, x.to(torch.float32) / 255)  # (B, size, W*3)
    x = x.view(-1, size, width, 3).permute(0, 3, 1, 2).reshape(-1, 3 * size, width)
    x = torch.bmm(x, cols.transpose(1, 2)).view(-1, 3, size, size)
    if spec.p_jitter > 0:
        x = _jitter(x, rest[:, 1], rest[:, 2:6], rest[:, 6:10], spec)
    gray = rest[:, 10] < spec.grayscale
    if bool(gray.any()):
        x = torch.where(gray[:, None, None, None], luma(x), x)
    return x * 2 - 1


def luma(x: Tensor) -> Tensor:
    """Return brightness (B, 1, H, W) by the weights of ITU-R 601."""
    return _GRAY[0] * x[:, 0:1] + _GRAY[1] * x[:, 1:2] + _GRAY[2] * x[:, 2:3]


def _jitter(
    x: Tensor, apply: Tensor, factors: Tensor, order: Tensor, spec: ViewsSpec = SUPCON
) -> Tensor:
    """Change brightness, contrast, saturation and hue in a random order for each image."""
    on = apply < spec.p_jitter
    amount = 2 * factors - 1  # in [-1, 1)
    blend = [torch.where(on, 1 + spec.jitter[k] * amount[:, k], 1.0) for k in range(3)]
    turn = spec.jitter[3] * amount[:, 3]
    sequence = order.argsort(1)  # (B, 4): which of the four comes at each place
    for place in range(4):
        which = sequence[:, place]
        # the first three are all x -> f x + (1 - f) reference: 0, mean brightness, brightness
        f = torch.ones_like(blend[0])
        for k in range(3):
            f = torch.where(which == k, blend[k], f)
        gray = luma(x)
        mean = gray.mean((1, 2, 3), keepdim=True)
        contrast, saturation = ((1 - f) * (which == k) for k in (1, 2))
        x = x * f[:, None, None, None]
        x += saturation[:, None, None, None] * gray + contrast[:, None, None, None] * mean
        x.clamp_(0, 1)
        hue = ((which == 3) & on).nonzero()[:, 0]
        if len(hue):
            x[hue] = turn_hue(x[hue], turn[hue])
    return x


def turn_hue(x: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue by ``turn`` circles; the largest and the smallest channel stay (HSV)."""
    r, g, b = x.unbind(1)
    high, low = x.amax(1), x.amin(1)
    chroma = high - low
    scale = 1 / chroma.clamp(min=1e-8)
    hue = torch.where(
        high == r, (g - b) * scale, torch.where(high == g, 2 + (b - r) * scale, 4 + (r - g) * scale)
    )
    hue = hue + 6 * turn[:, None, None]
    channels: Sequence[Tensor] = []
    for offset in (5.0, 3.0, 1.0):
        k = torch.remainder(hue + offset, 6.0)
        channels = [*channels, high - chroma * torch.minimum(k, 4 - k).clamp(0, 1)]
    return torch.stack(list(channels), 1)


# -------------------------------------------------------------------------------------------------
# Training views of vectors: feature dropout, Gaussian noise, mixing within a cell.
#
# Every random number is keyed by (seed, draw, row, view), as those of image views are: a view does
# not depend on the batch it stands in.
# -------------------------------------------------------------------------------------------------

_MIX = 2  # numbers that mixing draws for a view: the partner and its share


class CellPartners:
    """For every training row the rows of its (target, group) cell, one of which it may meet."""

    def __init__(self, t_N: Tensor, s_N: Tensor, rows: Tensor) -> None:
        cell_N = t_N * (int(s_N.max()) + 2) + s_N + 1  # rows without a group have -1
        order = rows[cell_N[rows].argsort(stable=True)]
        self.rows = order  # of the training split, cell by cell
        cells, counts = cell_N[order].unique_consecutive(return_counts=True)
        size = int(cell_N.max()) + 1
        self.count_K = torch.zeros(size, dtype=torch.int64).scatter_(0, cells, counts)
        self.start_K = torch.zeros(size, dtype=torch.int64).scatter_(
            0, cells, counts.cumsum(0) - counts
        )
        self.cell_N = cell_N

    def pick(self, rows: Tensor, u: Tensor) -> Tensor:
        """Return a row of the cell of each of ``rows``, by numbers in [0, 1)."""
        cell = self.cell_N[rows]
        place = (u * self.count_K[cell]).long().clamp(max=self.count_K[cell] - 1)
        return self.rows[self.start_K[cell] + place]


def vector_views(
    read: Callable[[Tensor], Tensor],
    rows: Tensor,
    partners: CellPartners | None,
    *,
    seed: int,
    draw: int,
    views: int,
    spec: ViewsSpec,
) -> Tensor:
    """Return views (V*B, D) of the vectors of ``rows``; views of one row stand B rows apart.

    Mixing comes first, then noise, then dropout. ``read`` gives the vectors of any rows.
    """
    x = read(rows).to(torch.float32)
    out = x.repeat(views, 1)
    view_V1 = torch.arange(views, dtype=torch.int64)[:, None]
    key = keys_torch(seed, draw, rows[None, :], view_V1).reshape(-1)  # (V*B,)
    width = x.shape[1]
    if spec.mixing and partners is not None:
        u = uniform_torch(key, _MIX)
        other = read(partners.pick(rows.repeat(views), u[:, 0])).to(torch.float32)
        out = torch.lerp(out, other, (spec.mixing * u[:, 1:2]))
    if spec.noise:
        u, v = uniform_torch(keys_torch(seed, draw, rows[None, :], view_V1, 1).reshape(-1),
                             2 * width).split(width, dim=1)  # fmt: skip
        # Box and Muller; 1 - u is never 0
        normal = torch.sqrt(-2 * torch.log1p(-u)) * torch.cos(2 * math.pi * v)
        scale = out.square().mean(1, keepdim=True).sqrt()
        out = out + spec.noise * scale * normal
    if spec.feature_dropout:
        u = uniform_torch(keys_torch(seed, draw, rows[None, :], view_V1, 2).reshape(-1), width)
        kept = u >= spec.feature_dropout
        out = out * kept / (1 - spec.feature_dropout)
    return out
