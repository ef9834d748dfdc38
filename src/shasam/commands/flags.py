"""Flags that several commands share: the specification's fields, ``--set``, how runs are run."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.help import DefaultFormatter, HelpPanel
from pydantic import BaseModel, Field
from rich.console import Console, ConsoleOptions

from shasam.errors import Argument, SpecError
from shasam.runs.machine import ExecutionOptions
from shasam.spec.fields import DataSpec, ModelSpec, TrainSpec, ViewsSpec
from shasam.spec.layers import merge, parse_set

_DATA, _MODEL = Group("Data", sort_key=10), Group("Model", sort_key=20)
_TRAIN = Group("Training (defaults come from the profile)", sort_key=30)

DataFlags = Annotated[DataSpec, Parameter(name="*", group=_DATA, show_default=False)]
ModelFlags = Annotated[ModelSpec, Parameter(name="*", group=_MODEL, show_default=False)]
TrainFlags = Annotated[TrainSpec, Parameter(name="*", group=_TRAIN, show_default=False)]


class SourceSpec(DataSpec):
    """Describe data for commands that draw no training views, and so have no flags for them."""

    views: Annotated[ViewsSpec, Parameter(parse=False)] = Field(default_factory=ViewsSpec)


SourceFlags = Annotated[SourceSpec, Parameter(name="*", group=_DATA, show_default=False)]
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
NO_SOURCE = SourceSpec.model_validate({})


@dataclass(frozen=True)
class BriefHelp:
    """Show only the flags that most people use."""

    common: frozenset[str]

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print a panel of flags; one that has none of the common flags is left out."""
        if panel.format == "parameter":
            kept = [entry for entry in panel.entries if self.common & set(_names(entry))]
            if not kept:
                return
            panel = copy(panel)
            panel.entries = kept
        DefaultFormatter()(console, options, panel)

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print the line of usage as every other command does."""
        DefaultFormatter().render_usage(console, options, usage)


def _names(entry: Any) -> tuple[str, ...]:
    """Return the flags of an entry; releases of cyclopts call them differently."""
    return tuple(getattr(entry, "positive_names", ()) or getattr(entry, "names", ()))


_PARTS: dict[str, type[BaseModel]] = {"data": DataSpec, "model": ModelSpec, "train": TrainSpec}


def flag(argument: Argument) -> str:
    """Write an argument of the library as the command line calls it, with its value.

    A key of the specification that has no flag of its own is given with ``--set``.
    """
    part, _, key = argument.name.partition(".")
    field = _PARTS[part].model_fields.get(key.partition(".")[0]) if key else None
    value = argument.value
    if key and field is None:
        return f"--set {argument.name}" + ("" if value is None else f"={value}")
    own = field.metadata if field is not None and "." not in key else ()
    # a field may name its flag itself
    name = next((n for m in own if isinstance(m, Parameter) for n in m.name or ()), None)
    if name is None:
        plain = (key or part).removeprefix("learn.")  # its flags are the plain ones
        name = f"--{plain}".replace("_", "-")
    return name if value is None or value is True else f"{name} {value}"


def check_seed(seed: int) -> None:
    """Refuse a seed that torch or numpy would not take."""
    if not 0 <= seed < 2**63:
        raise SpecError(Argument("seed"), f" must be 0 or more, and below 2^63; got {seed}")


def given(part: BaseModel) -> dict[str, Any]:
    """Return the fields of a part that were given as flags."""
    return part.model_dump(mode="json", exclude_unset=True)


def layer(
    data: DataSpec = NO_DATA,
    model: ModelSpec = NO_MODEL,
    train: TrainSpec = NO_TRAIN,
    set_: Sequence[str] | None = None,
    **top: Any,
) -> dict[str, Any]:
    """Return flags as a layer of the specification, ``--set`` on top."""
    parts = {"data": given(data), "model": given(model), "train": given(train)}
    body = {key: value for key, value in {**top, **parts}.items() if value not in (None, {})}
    return merge(body, parse_set(set_ or []))
