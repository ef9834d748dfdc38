"""The exceptions of the package. Every message says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Argument:
    """Name an argument in a message, so that each entrance can call it by its own name.

    A name with dots is a key of a specification. Python says ``score=`` and ``data.split``; the
    command line says ``--score`` and ``--split`` (``shasam.commands.flags.flag``).
    """

    name: str
    value: object = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name if "." in self.name else f"{self.name}="
        shown = str(self.value) if "." in self.name else repr(self.value)
        return f"{self.name}={shown}"


class ShasamError(Exception):
    """Anything that a user can put right; the command line prints it without a traceback.

    The message is given in parts, which are text, an ``Argument``, or an error that is quoted.
    """

    def __init__(self, *parts: object) -> None:
        flat: list[object] = []
        for part in parts:
            flat += part.args if isinstance(part, ShasamError) else [part]
        super().__init__(*flat)

    def __str__(self) -> str:
        return self.message(str)

    def message(self, call: Callable[[Argument], str]) -> str:
        """Return the whole message; ``call`` says what an argument is called."""
        return "".join(call(p) if isinstance(p, Argument) else str(p) for p in self.args)


class ShasamWarning(UserWarning):
    """Something that a user should know and that stops nothing; shown as one sentence."""


class InputError(ShasamError, ValueError):
    """An argument, a tensor or a table that cannot be used as it is."""


class MissingExtraError(ShasamError, ModuleNotFoundError):
    """A package that an optional extra brings is not installed."""

    def __init__(self, *parts: object, name: str | None = None) -> None:
        super().__init__(*parts)
        self.name = name


class MemoryLimitError(ShasamError, MemoryError):
    """Work that would not fit in memory, refused before it starts."""


class SpecError(ShasamError, ValueError):
    """A run specification or a flag that is not understood."""


class LimitError(ShasamError, AssertionError):
    """A metric that is over the limit that it was checked against."""


class DataError(ShasamError):
    """Images, labels or splits that cannot be used as they are."""


class FileError(ShasamError):
    """A file that cannot be read or written; ``reason`` is the message without the path."""

    def __init__(self, path: object, *reason: object) -> None:
        super().__init__(f"{path}: ", *reason)
        self.reason = "".join(map(str, reason))


class CheckpointError(ShasamError):
    """A checkpoint that cannot be written, or cannot be trusted."""


class TrainingError(ShasamError):
    """Training that must not go on: a non-finite loss, a collapse, a run that is locked."""


class BusyError(TrainingError):
    """Another process is working on the same run."""


class ClusterError(ShasamError):
    """A Ray cluster that cannot be reached, or has no place for the work."""


class Stopped(KeyboardInterrupt):
    """A signal asked the program to stop, and what could be saved is saved.

    The command line exits with 128 + ``number``, as a shell reports a death by that signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class ContractError(ShasamError, AssertionError):
    """A class that breaks the contract that ``shasam.testing`` checks."""
