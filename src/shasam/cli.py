"""The command line: one file per command in ``shasam.commands``.

The files of the commands are light: each imports what it works with inside its function, so that
``shasam --help`` can show the first line of every docstring and still imports no torch.
"""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import TextIOWrapper
from itertools import pairwise
from typing import Any

from cyclopts import App, CycloptsError, Group, RepeatArgumentError
from pydantic import ValidationError

import shasam
from shasam.commands.audit import audit
from shasam.commands.compare import compare
from shasam.commands.data import app as data
from shasam.commands.doctor import doctor
from shasam.commands.embed import embed
from shasam.commands.evaluate import evaluate
from shasam.commands.export import export
from shasam.commands.flags import HELP_ALL, BriefHelp, flag, show_all
from shasam.commands.methods import methods
from shasam.commands.mine import mine
from shasam.commands.predict import predict
from shasam.commands.records import app as records
from shasam.commands.report import report
from shasam.commands.reproduce import reproduce
from shasam.commands.select import select
from shasam.commands.sweep import sweep
from shasam.commands.threshold import threshold
from shasam.commands.train import COMMON as TRAIN_FLAGS
from shasam.commands.train import train
from shasam.errors import ShasamError, ShasamWarning

HELP = """Train and audit classifiers for group fairness.

Try `shasam train`, which needs no data: it trains on drawn faces. `shasam audit FILE` needs a table
of predictions and nothing else. `shasam COMMAND --help` explains a command.
"""
# headings of `shasam --help` with their commands, in the order of the work
COMMANDS: dict[str, tuple[Any, ...]] = {
    "Prepare data": (data, embed),
    "Train and use a model": (methods, train, evaluate, threshold, predict, export),
    "Audit and report": (audit, report),
    "Run experiments": (compare, sweep, records, reproduce),
    "Select and mine": (select, mine),
    "Check the installation": (doctor,),
}


# command -> the flags of its --help; --help-all has the rest
BRIEF = {"train": TRAIN_FLAGS}


def _wrong_flags(error: CycloptsError) -> list[str]:
    """A line for each flag that cannot be used: its name, what is wrong, and what was given."""
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


app = App(
    name="shasam",
    version=shasam.__version__,
    help=HELP,
    group_commands=Group("Help", sort_key=len(COMMANDS)),
    suppress_keyboard_interrupt=False,  # main gives SIGTERM its own exit code
)
for _number, (_heading, _commands) in enumerate(COMMANDS.items()):
    _group = Group(_heading, sort_key=_number)
    for _place, _command in enumerate(_commands):
        if isinstance(_command, App):
            _command.sort_key, _command.group = _place, (_group,)
            app.command(_command)
        elif _command.__name__ in BRIEF:
            _brief = BriefHelp(BRIEF[_command.__name__])
            _flags = ("--help", "-h", HELP_ALL)
            app.command(
                _command, sort_key=_place, group=_group, help_formatter=_brief, help_flags=_flags
            )
        else:
            app.command(_command, sort_key=_place, group=_group)


def main(words: Sequence[str] | None = None) -> None:
    """Run a command; an error that a user can put right is one sentence, not a traceback."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        """Ours without file, line and source; those of other libraries as always."""
        if issubclass(category, ShasamWarning):
            _complain(str(message))
        else:
            shown(message, category, *where, **more)

    warnings.showwarning = show
    given = sys.argv[1:] if words is None else words
    show_all.set(HELP_ALL in given)
    for stream in (sys.stdout, sys.stderr):  # an ASCII locale has no ±, and must not end a command
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _messages_aside(given):
            # cyclopts takes a lone dash for a flag; the path ./- is the same as -
            plain = ["./-" if word == "-" else word for word in given]
            app(plain, exit_on_error=False, print_error=False)
    except CycloptsError as error:  # 2, because 1 says that a limit of an audit is broken
        for line in _wrong_flags(error):
            _complain(line)
        sys.exit(2)
    except ShasamError as error:
        _complain(error.message(flag))
        sys.exit(2)
    except KeyboardInterrupt as error:
        _complain("stopped")
        sys.exit(128 + getattr(error, "number", signal.SIGINT))


@contextmanager
def _messages_aside(words: Sequence[str]) -> Iterator[None]:
    """Messages go to standard error where a flag names standard output for a result."""
    from shasam.files import is_standard_output

    pairs = pairwise(words)
    taken = any(a.startswith("-") and len(a) > 1 and is_standard_output(b) for a, b in pairs)
    taken |= any(is_standard_output(word.partition("=")[2]) for word in words if word[:2] == "--")
    if not taken:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


def _complain(text: str) -> None:
    from shasam.output import complain  # rich is loaded only where something is printed

    complain(text)


if __name__ == "__main__":
    main()
