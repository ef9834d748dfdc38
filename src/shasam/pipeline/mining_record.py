"""``mining.json``: the notes of the log with ids and thumbnails, for the mining explorer."""

from __future__ import annotations

import base64
import io
from typing import Any

import torch
from PIL import Image

from shasam.runs.log import RunLog, read_log
from shasam.training.inference import TrainingData

_SIDE = 48  # pixels of a thumbnail


def mining_record(
    log: RunLog, data: TrainingData, *, thumbnails: bool = True
) -> list[dict[str, Any]]:
    """The iterations that were noted while training, in order; pictures only where wanted."""
    lines = log.lines if log.path is None else read_log(log.path)
    ids = data.manifest.table.column("id")
    thumbs: dict[int, str | None] = {}

    def shown(item: dict[str, Any]) -> dict[str, Any]:
        row = int(item["row"])
        if row not in thumbs and thumbnails:
            image = data.images(torch.tensor([row]))[0]
            thumbs[row] = _thumb(image) if image.ndim == 3 else None
        return {
            "id": str(ids[row]),
            "gain": item.get("gain"),
            "similarity": item["similarity"],
            "thumb": thumbs.get(row),
        }

    return [
        {
            "step": line["step"],
            "target": line["target"],
            "sensitive": line["sensitive"],
            "sets": {name: [shown(item) for item in items] for name, items in line["sets"].items()},
        }
        for line in lines
        if line["event"] == "mining"
    ]


def _thumb(image_u8: torch.Tensor) -> str:
    picture = Image.fromarray(image_u8.permute(1, 2, 0).contiguous().numpy())
    picture.thumbnail((_SIDE, _SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
