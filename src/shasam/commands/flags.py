"""Flags that several commands share: the specification's fields, ``--set``, how runs are run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Group, Parameter
from pydantic import BaseModel

from shasam.runs.execution import ExecutionOptions
from shasam.spec.fields import DataSpec, ModelSpec, TrainSpec
from shasam.spec.layers import merge, parse_set

_DATA, _MODEL = Group("Data", sort_key=10), Group("Model", sort_key=20)
_TRAIN = Group("Training (defaults come from the profile)", sort_key=30)

DataFlags = Annotated[DataSpec, Parameter(name="*", group=_DATA, show_default=False)]
ModelFlags = Annotated[ModelSpec, Parameter(name="*", group=_MODEL, show_default=False)]
TrainFlags = Annotated[TrainSpec, Parameter(name="*", group=_TRAIN, show_default=False)]
HowFlags = Annotated[
    ExecutionOptions, Parameter(name="*", group=Group("How runs are carried out", sort_key=40))
]
SetFlag = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative=(),
        help="Any key of the specification, such as --set train.ema=0.99 (repeatable).",
    ),
]
NO_DATA, NO_MODEL, NO_TRAIN = DataSpec.model_validate({}), ModelSpec(), TrainSpec()


def given(part: BaseModel) -> dict[str, Any]:
    """The fields of a part that were given as flags."""
    return part.model_dump(mode="json", exclude_unset=True)


def layer(
    data: DataSpec = NO_DATA,
    model: ModelSpec = NO_MODEL,
    train: TrainSpec = NO_TRAIN,
    set_: Sequence[str] | None = None,
    **top: Any,
) -> dict[str, Any]:
    """Flags as a layer of the specification, ``--set`` on top."""
    parts = {"data": given(data), "model": given(model), "train": given(train)}
    body = {key: value for key, value in {**top, **parts}.items() if value not in (None, {})}
    return merge(body, parse_set(set_ or []))
