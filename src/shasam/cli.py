"""The command line: one file per command in ``shasam.commands``.

A command's file is imported when the command is called, and all of them for ``shasam --help``,
which shows the first line of every docstring. Each imports what it works with inside its function,
so that none of this imports torch.
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cache
from importlib import import_module
from io import TextIOWrapper
from itertools import pairwise
from typing import Any

from cyclopts import App, CycloptsError, Group, RepeatArgumentError

import shasam
from shasam.errors import Argument, ShasamError, ShasamWarning

HELP = """Train and audit classifiers for group fairness.

Try `shasam train`, which needs no data: it trains on drawn faces. `shasam audit FILE` needs a table
of predictions and nothing else. `shasam COMMAND --help` explains a command.
"""
# headings of `shasam --help` with their commands, in the order of the work
COMMANDS: dict[str, tuple[str, ...]] = {
    "Prepare data": ("data", "embed"),
    "Train and use a model": ("methods", "train", "evaluate", "threshold", "predict", "export"),
    "Audit and report": ("audit", "report"),
    "Run experiments": ("compare", "sweep", "records", "reproduce"),
    "Select and mine": ("select", "mine"),
    "Check the installation": ("doctor",),
}
_GROUPS = [Group(heading, sort_key=number) for number, heading in enumerate(COMMANDS)]
HELP_ALL = "--help-all"  # of a command whose --help shows the flags that most people use


def application(only: str | None = None, *, brief: bool = True) -> App:
    """Make the command line of all commands, or of one, whose file alone is then imported.

    Without ``brief`` the help of each shows all its flags.
    """
    made = App(
        name="shasam",
        version=shasam.__version__,
        help=HELP,
        group_commands=Group("Help", sort_key=len(COMMANDS)),
        suppress_keyboard_interrupt=False,  # main gives SIGTERM its own exit code
    )
    for group, names in zip(_GROUPS, COMMANDS.values(), strict=True):
        for place, name in enumerate(names):
            if only in (None, name):
                _add_command(made, name, brief, sort_key=place, group=group)
    return made


def _add_command(made: App, name: str, brief: bool, *, sort_key: int, group: Group) -> None:
    module = import_module(f"shasam.commands.{name}")
    if isinstance(command := getattr(module, "app", None), App):  # it has commands of its own
        command.sort_key, command.group = sort_key, (group,)
        made.command(command)
        return
    more: dict[str, Any] = {}
    if common := getattr(module, "COMMON", None):
        from shasam.commands.flags import BriefHelp

        more["help_flags"] = ("--help", "-h", HELP_ALL)
        if brief:
            more["help_formatter"] = BriefHelp(common)
    made.command(getattr(module, name), sort_key=sort_key, group=group, **more)


@cache
def _whole() -> App:
    return application()


def __getattr__(name: str) -> App:
    """``shasam.cli.app`` is made when it is first asked for, because it imports every command."""
    if name == "app":
        return _whole()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _wrong_flags(error: CycloptsError) -> list[str]:
    """Write a line for each wrong flag: its name, what is wrong, and what was given."""
    from pydantic import ValidationError

    cause = error.__cause__ or error.__context__
    if isinstance(error, RepeatArgumentError) and error.token.keyword == "--target":
        return ["--target is given twice, and there is one target; train a model for each"]
    if not isinstance(cause, ValidationError):
        return [str(error)]
    lines = []
    for entry in cause.errors():
        place = [
            str(part) for part in entry["loc"] if part != "learn"
        ]  # its flags are the plain ones
        flag = f"--{'.'.join(place)}".replace("_", "-") if place else "flags"
        message = entry["msg"].removeprefix("Value error, ")
        given = "" if isinstance(entry["input"], dict) else f", not {entry['input']!r:.200}"
        lines.append(f"{flag}: {message[0].lower()}{message[1:]}{given}")
    return lines


def main(words: Sequence[str] | None = None) -> None:
    """Run a command; an error that a user can put right is one sentence, not a traceback."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        """Show ours without file, line and source; those of other libraries as always."""
        if issubclass(category, ShasamWarning):
            _complain(str(message))
        else:
            shown(message, category, *where, **more)

    warnings.showwarning = show
    words = sys.argv[1:] if words is None else words
    for stream in (sys.stdout, sys.stderr):  # an ASCII locale has no ±, and must not end a command
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _messages_aside(words):
            known = {name for names in COMMANDS.values() for name in names}
            one = words and words[0] in known
            called = application(words[0], brief=HELP_ALL not in words) if one else _whole()
            # cyclopts takes a lone dash for a flag; the path ./- is the same as -
            plain = ["./-" if word == "-" else word for word in words]
            called(plain, exit_on_error=False, print_error=False)
    except CycloptsError as error:  # 2, because 1 says that a limit of an audit is broken
        for line in _wrong_flags(error):
            _complain(line)
        sys.exit(2)
    except ShasamError as error:
        _complain(error.message(_flag))
        sys.exit(2)
    except KeyboardInterrupt as error:
        _complain("stopped")
        sys.exit(128 + getattr(error, "number", signal.SIGINT))


@contextmanager
def _messages_aside(words: Sequence[str]) -> Iterator[None]:
    """Send messages to standard error if a flag names standard output for a result."""
    from shasam.files import is_standard_output

    pairs = pairwise(words)
    taken = any(a.startswith("-") and len(a) > 1 and is_standard_output(b) for a, b in pairs)
    taken |= any(is_standard_output(word.partition("=")[2]) for word in words if word[:2] == "--")
    if not taken:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def _flag(argument: Argument) -> str:
    from shasam.commands.flags import flag  # imports the fields of the specification

    return flag(argument)


def _complain(text: str) -> None:
    from shasam.output import complain  # rich is loaded only where something is printed

    complain(text)


if __name__ == "__main__":
    main()
