"""``shasam methods``: list the methods and their options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel


def methods(name: str | None = None) -> None:
    """List the methods, or the options of one.

    Parameters
    ----------
    name
        A method, to see its options and their defaults.
    """
    from rich import box
    from rich.table import Table

    from shasam.output import Screen
    from shasam.registry import DEFAULT_METHOD, described, lookup

    console = Screen()
    if name is not None:
        kind = lookup("method", name)
        console.print(f"{name}: {kind.summary}\n{kind.reference}", soft_wrap=True)
        if kind.dial is not None:
            values = ", ".join(f"{value:g}" for value in kind.dial.values)
            console.print(
                f"its strength is {kind.dial.option}: from mild to strong {values}", soft_wrap=True
            )
        table = Table("option", "default", "what it does")
        first = kind.dial.option if kind.dial is not None else None
        options = sorted(_options_of(kind.Config), key=lambda row: row[0] != first)
        for option, default, words in options:
            table.add_row(option, default, words)
        console.print(table)
        console.print(f"set one with: shasam train {name} --set options.OPTION=VALUE")
        return
    table = Table("method", "what it does", "strength", box=box.SIMPLE_HEAD)
    for known, about in described("method", ("summary", "dial")).items():
        table.add_row(known, *about)
    console.print(table)
    console.print(
        "strength: the option that trades accuracy for fairness\n"
        f"{DEFAULT_METHOD} is trained if no method is named\n"
        "the options of a method, and the paper it is from: shasam methods NAME",
        soft_wrap=True,
    )


def _options_of(config: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield name, default and sentence of every option; those of a part of options follow it."""
    from pydantic import BaseModel

    for name, field in config.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if not isinstance(default, BaseModel):
            shown = repr(default) if not isinstance(default, str) else default
            yield f"{prefix}{name}", shown, field.description or _choices(field.annotation)
            continue
        yield f"{prefix}{name}", "", field.description or ""
        for inner, _, words in _options_of(type(default), f"{prefix}{name}."):
            own = getattr(default, inner.rpartition(".")[2])
            yield inner, str(own), words


def _choices(annotation: object) -> str:
    """Return what an option without a sentence may be."""
    if isinstance(annotation, type):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
