"""How training views of an image are drawn: the ``data.views`` part of a specification.

The defaults are SupCon's published values (Khosla et al., 2020, and their code).
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0, le=1)]
Turn = Annotated[float, Field(ge=0, le=0.5)]


class ViewsSpec(BaseModel):
    """Random crops, flips and colours; ``shasam.data.views`` draws them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    crop_scale: Annotated[tuple[Share, Share], Parameter(negative=())] = Field(
        (0.2, 1.0), description="Smallest and largest share of the image's area that a crop keeps."
    )
    crop_ratio: Annotated[tuple[float, float], Parameter(negative=())] = Field(
        (3 / 4, 4 / 3), description="Smallest and largest width over height of a crop."
    )
    flip: Share = Field(0.5, description="Probability of a horizontal flip.")
    jitter: Annotated[tuple[Share, Share, Share, Turn], Parameter(negative=())] = Field(
        (0.4, 0.4, 0.4, 0.1),
        description="Largest change of brightness, contrast, saturation and hue.",
    )
    p_jitter: Share = Field(0.8, description="Probability that the colours of a view change.")
    grayscale: Share = Field(0.2, description="Probability that a view is grey.")

    @model_validator(mode="after")
    def _ordered(self) -> ViewsSpec:
        for name in ("crop_scale", "crop_ratio"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name}: give two numbers above 0, the smaller one first")
        return self
