"""How training views are drawn: the ``data.views`` part of a specification.

The defaults for images are SupCon's published values (Khosla et al., 2020, and their code). The
last three are for vectors, which are taken as they are by default.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0, le=1)]
Turn = Annotated[float, Field(ge=0, le=0.5)]


class ViewsSpec(BaseModel):
    """Random crops, flips and colours of images; dropout, noise and mixing of vectors.

    ``shasam.data.views`` and ``shasam.data.vector_views`` draw them.
    """

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

    feature_dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="Vectors: share of the numbers that a view sets to 0."
    )
    noise: Annotated[float, Field(ge=0, le=10)] = Field(
        0.0, description="Vectors: deviation of Gaussian noise, times the row's root mean square."
    )
    mixing: Share = Field(
        0.0, description="Vectors: largest share of another training row of the same cell."
    )

    @property
    def of_vectors(self) -> bool:
        """Whether views of vectors differ from the vectors."""
        return bool(self.feature_dropout or self.noise or self.mixing)

    @model_validator(mode="after")
    def _ordered(self) -> ViewsSpec:
        for name in ("crop_scale", "crop_ratio"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name}: give two numbers above 0, the smaller one first")
        return self
