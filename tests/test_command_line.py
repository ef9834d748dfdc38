"""``shasam --help`` says what every command is for, without importing what commands work with."""

from __future__ import annotations

import subprocess
import sys

from shasam.cli import COMMANDS, app

WORKFLOW = ["data", "embed", "methods", "train", "evaluate", "predict", "export", "audit", "report"]


def shown(*words: str) -> str:
    code = (
        "import sys; from shasam.cli import app; app(sys.argv[1:], result_action='return_value');"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"  # no torch
    return done.stdout


def test_help_describes_every_command_in_one_line_in_the_order_of_the_work() -> None:
    box = [line for line in shown("--help").splitlines() if line.startswith("│")]
    lines = [line.strip("│ ").split(maxsplit=1) for line in box]
    described = {words[0]: words[1] for words in lines if len(words) == 2}
    known = {name for name in app.resolved_commands() if not name.startswith("-")}
    names = [name for name in described if name in known]
    assert names[: len(WORKFLOW)] == WORKFLOW
    assert set(names) == known and len(known) == sum(map(len, COMMANDS.values()))
    for name in names:
        assert described[name].endswith("."), (name, described[name])  # it fits into its line
