"""Choose the network for a user's own images where none is named: a pretrained one if installed.

The choice is a layer of the specification below the flags. The specification that is stored names
everything, so a recorded run and ``shasam reproduce`` never come here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shasam.extras import has
from shasam.registry import lookup, names
from shasam.spec.fields import with_source
from shasam.spec.layers import full_keys
from shasam.tables import open_table

ENCODER = "efficientnet-lite0"
SIZE = 96  # pixels; half of the arithmetic of 128, and faces are still told apart
BLOCKS = 8  # of 16 that are trained
STEPS = 300
OWN = ("table", "datasets")  # sources of a user's own images
PROFILES = ("cpu", "quick")  # the others say which network they are for, or that it does not matter
# The frozen blocks cost two passes over every image where they are kept, and one over every view
# of every step where they are not. Above so many images a single run is faster without them
MOST_CACHED = 40_000


@dataclass(frozen=True)
class StartingPoint:
    """What is laid below the flags, and the sentence about it; both empty where nothing is."""

    layer: Mapping[str, Any] = field(default_factory=dict)
    line: str = ""


def starting_point(
    asked: Mapping[str, Any], method: str, profile: str | None, *, runs: int = 1
) -> StartingPoint:
    """The network for ``runs`` runs of a method on the images that the flags name."""
    body = full_keys(asked)
    data = with_source(body.get("data") or {})
    if data.get("name") not in OWN or body.get("model") or profile not in PROFILES:
        return StartingPoint()
    if not takes_any_encoder(method):
        return StartingPoint()
    if not has("pretrained"):
        return StartingPoint(
            line="encoder: a small ResNet-18 from scratch. Starting from ImageNet weights was "
            "worth 7.6 points of accuracy on UTKFace: pip install 'shasam[pretrained]', and the "
            "same command takes them"
        )
    n = images(data.get("csv"))
    cache = n <= MOST_CACHED * runs
    how = (
        "its frozen blocks are computed once"
        if cache
        else f"its frozen blocks are not kept, as {n:,} images would take longer than {STEPS} steps"
    )
    size = data.get("size", SIZE)
    return StartingPoint(
        {
            "model": {"encoder": ENCODER, "freeze": BLOCKS, **({"cache": True} if cache else {})},
            "data": {"size": size},
            "train": {"learn": {"steps": STEPS}},
        },
        f"encoder: {ENCODER} with ImageNet weights at {size} px, as the extra pretrained is "
        f"installed; its last {BLOCKS} blocks are trained and {how}. Another: --encoder resnet18",
    )


def takes_any_encoder(method: str) -> bool:
    """Whether a method works on any image network, and needs no inner layer of it."""
    if method not in names("method"):
        return False
    kind = lookup("method", method)
    inner = "tap" in kind.Config.model_fields
    return not (kind.needs_images or kind.needs_encoder or inner)


def images(csv: Any) -> int:
    """Rows of a table; 0 where it cannot be read, which is said when it is opened."""
    path = Path(str(csv))
    if csv is None or not path.is_file():
        return 0
    table = open_table(path)
    if table.rows is not None:
        return table.rows
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))
