"""``shasam methods``: list the methods and their options."""

from __future__ import annotations


def methods(name: str | None = None) -> None:
    """List the methods, or the options of one.

    Parameters
    ----------
    name
        A method, to see its options and their defaults.
    """
    from rich.table import Table

    from shasam.output import Screen
    from shasam.registry import lookup, names

    console = Screen()
    if name is not None:
        kind = lookup("method", name)
        console.print(f"{name}: {kind.summary}\n{kind.reference}", soft_wrap=True)
        table = Table("option", "type", "default")
        for option, field in kind.Config.model_fields.items():
            annotation = str(field.annotation).replace("typing.", "")
            if isinstance(field.annotation, type):
                annotation = field.annotation.__name__
            table.add_row(option, annotation, repr(field.get_default(call_default_factory=True)))
        console.print(table)
        console.print(f"set one with: shasam train {name} --set options.<option>=<value>")
        return
    table = Table("method", "what it does", "from")
    for known in names("method"):
        kind = lookup("method", known)
        table.add_row(known, kind.summary, kind.reference)
    console.print(table)
