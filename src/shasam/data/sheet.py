"""A contact sheet: some pictures of each cell (target x sensitive) of a split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from shasam.data.dataset import Dataset
from shasam.files import atomic_file
from shasam.keyed import keys, uniform

_MARGIN, _TITLE = 8, 22
_INK, _PAPER = (40, 40, 40), (255, 255, 255)


def contact_sheet(
    data: Dataset, path: Path, *, split: str = "train", columns: int = 12, rows: int = 2
) -> Path:
    """Write a PNG with ``rows`` x ``columns`` pictures per cell; the same ones for a seed."""
    size = data.spec.size
    zoom = max(1, round(72 / size))
    tile = size * zoom
    block = _TITLE + rows * (tile + 2) + _MARGIN
    cells = [(t, s) for t in range(data.classes) for s in range(data.groups)]
    width = 2 * _MARGIN + columns * (tile + 2)
    sheet = Image.new("RGB", (width, _TITLE + _MARGIN + block * len(cells)), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=14)
    mark = f"{data.spec.name}, {split}, manifest {data.manifest.sha256[:12]}"
    draw.text((_MARGIN, 4), mark, fill=_INK, font=font)
    among = data.rows(split)
    for number, (t, s) in enumerate(cells):
        here = among[(data.t_N[among] == t) & (data.s_N[among] == s)]
        order = np.argsort(uniform(keys(data.spec.seed, here), 1)[:, 0], kind="stable")
        chosen = here[order[: rows * columns]]
        top = _TITLE + _MARGIN + number * block
        title = f"{data.target_names[t]} / {data.sensitive_names[s]}: {len(here):,}"
        draw.text((_MARGIN, top), title, fill=_INK, font=font)
        pixels = data.store.images(data.store_rows[chosen])
        for k, picture in enumerate(pixels):
            image = Image.fromarray(picture)
            image = image.resize((tile, tile), Image.Resampling.BICUBIC) if zoom > 1 else image
            x = _MARGIN + (k % columns) * (tile + 2)
            sheet.paste(image, (x, top + _TITLE + (k // columns) * (tile + 2)))
    with atomic_file(path) as file:
        sheet.save(file, format="PNG")
    return path
