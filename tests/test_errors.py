"""Errors name arguments as data: Python and the command line each call them by their own name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.test_command_line import COMMAND_APPS

import shasam
from shasam.commands.flags import flag
from shasam.errors import Argument, DataError, FileError, InputError, MissingExtraError

SRC = Path(shasam.__file__).parent
LIBRARY = [p for p in sorted(SRC.rglob("*.py")) if "commands" not in p.parts and p.name != "cli.py"]


def test_python_and_the_command_line_call_an_argument_by_its_own_name() -> None:
    error = InputError("name it with ", Argument("min_group", 30), " or ", Argument("score"))
    assert str(error) == "name it with min_group=30 or score="
    assert error.message(flag) == "name it with --min-group 30 or --score"


@pytest.mark.parametrize(
    ("argument", "python", "command"),
    [
        (Argument("missing", "drop"), "missing='drop'", "--missing drop"),
        (Argument("allow_chance", True), "allow_chance=True", "--allow-chance"),
        (Argument("data.name", "faces"), "data.name=faces", "--data faces"),
        (Argument("data.seed"), "data.seed", "--split-seed"),
        (Argument("train.learn.lr"), "train.learn.lr", "--lr"),
        (Argument("train.classify.lr", 0.1), "train.classify.lr=0.1", "--classify.lr 0.1"),
        (Argument("model.output", "NAME"), "model.output=NAME", "--set model.output=NAME"),
    ],
)
def test_a_key_of_the_specification_has_its_flag(
    argument: Argument, python: str, command: str
) -> None:
    assert (str(argument), flag(argument)) == (python, command)


def test_an_error_that_quotes_another_keeps_its_arguments() -> None:
    inner = DataError("give ", Argument("data.root"))
    outer = DataError("row 1: ", inner)
    assert outer.message(flag) == "row 1: give --root" and str(outer) == "row 1: give data.root"
    damaged = FileError("a.csv", "choose another ", Argument("out"))
    assert str(damaged) == "a.csv: choose another out=" and damaged.reason == "choose another out="
    assert MissingExtraError("install it", name="torch").name == "torch"


def known_flags() -> set[str]:
    found: set[str] = set()
    for command in COMMAND_APPS.values():
        for argument in command.assemble_argument_collection(parse_docstring=True):
            found |= set(argument.names)
    return found


def test_every_argument_that_the_library_names_is_a_flag() -> None:
    flags, unknown = known_flags(), []
    for path in LIBRARY:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Argument":
                name = node.args[0]
                if isinstance(name, ast.Constant):
                    called = flag(Argument(str(name.value)))
                    if not called.startswith("--set ") and called not in flags:
                        unknown.append((path.name, called))
    assert unknown == []


@pytest.mark.parametrize("path", LIBRARY, ids=lambda p: str(p.relative_to(SRC)))
def test_no_error_of_the_library_names_a_flag(path: Path) -> None:
    """A whole command in backquotes, or of pip, may stand in a message."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Raise):
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                text = re.sub(r"`[^`]*`|pip install .*", "", part.value)
                assert not re.search(r"(^|[ (])--[a-z]", text), (path.name, node.lineno, text)
