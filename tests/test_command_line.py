"""``shasam --help`` says what every command is for, without importing what commands work with."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys

import pytest
from cyclopts import App

from shasam.cli import COMMANDS, app, main
from shasam.commands.train import COMMON
from shasam.spec import PROFILES

WORKFLOW = ["data", "embed", "methods", "train", "evaluate", "threshold", "predict", "export"]
WORKFLOW += ["audit", "report"]


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


def commands() -> dict[str, App]:
    """Every command by its words, subcommands too."""
    found: dict[str, App] = {}
    todo = [("", app)]
    while todo:
        name, group = todo.pop()
        for word in group:
            if not word.startswith("-"):
                entry = group[word]
                if entry.default_command is None:
                    todo.append((f"{name} {word}", entry))
                else:
                    found[f"{name} {word}".strip()] = entry
    return found


COMMAND_APPS = commands()


@pytest.mark.parametrize("name", COMMAND_APPS)
def test_every_flag_has_a_help_text(name: str) -> None:
    arguments = COMMAND_APPS[name].assemble_argument_collection(parse_docstring=True)
    shown = [a for a in arguments if a.parameter.parse is not False and a.show]
    assert [a.name for a in shown if not (a.parameter.help or "").strip()] == []


@pytest.mark.parametrize("name", COMMAND_APPS)
def test_no_list_has_a_flag_that_empties_it(name: str) -> None:
    arguments = COMMAND_APPS[name].assemble_argument_collection(parse_docstring=True)
    assert [
        n
        for a in arguments
        if a.parameter.parse is not False
        for n in a.names
        if n.startswith("--empty-")
    ] == []


@pytest.mark.parametrize("name", COMMAND_APPS)
def test_no_help_text_loses_words_to_markup(name: str) -> None:
    """``<label>`` is taken for a tag and not printed."""
    arguments = COMMAND_APPS[name].assemble_argument_collection(parse_docstring=True)
    texts = [a.parameter.help or "" for a in arguments]
    assert [text for text in texts if re.search(r"<\w+>", text)] == []


def printed(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        main([*words])
    assert end.value.code == 0
    return capsys.readouterr().out


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][\w.-]*", text))


def test_train_shows_the_common_flags_and_with_help_all_every_flag(capsys) -> None:
    brief = printed("train", "--help", capsys=capsys)
    full = printed("train", "--help-all", capsys=capsys)
    known = {
        n
        for a in COMMAND_APPS["train"].assemble_argument_collection(parse_docstring=True)
        for n in a.names
    }
    assert known >= COMMON and flags_in(brief) >= COMMON
    assert "--views.jitter" not in brief and "--views.jitter" in full
    assert len(brief.splitlines()) < 60 < len(full.splitlines())


def test_train_names_every_profile(capsys) -> None:
    assert all(name in printed("train", "--help", capsys=capsys) for name in PROFILES)


@pytest.mark.parametrize("command", ["check", "describe", "prepare", "sheet"])
def test_commands_about_data_have_no_flags_of_training_views(command: str) -> None:
    arguments = COMMAND_APPS[f"data {command}"].assemble_argument_collection(parse_docstring=True)
    names = {n for a in arguments if a.parameter.parse is not False for n in a.names}
    assert "--size" in names and not {n for n in names if n.startswith("--views")}
    assert [a.name for a in arguments if a.index is not None] == []  # nor words without a flag


@pytest.mark.parametrize("group", ["data", "records"])
def test_subcommands_stand_under_their_own_heading(group: str, capsys) -> None:
    text = printed(group, "--help", capsys=capsys)
    assert "─ Commands ─" in text and "─ Help ─" not in text


@pytest.mark.parametrize("given, budget", [([], 10), (["-k", "16"], 16), (["-k", "10"], 10)])
def test_a_scene_has_the_budget_that_was_asked_for(given, budget, monkeypatch, capsys) -> None:
    seen = []
    monkeypatch.setattr("shasam.commands.mine.draw_scenes", lambda *_, k, seed: seen.append(k))
    printed("mine", "--scene", "all", *given, capsys=capsys)
    assert seen == [budget]


@pytest.mark.needs_torch
def test_training_from_python_has_the_defaults_of_the_command() -> None:
    from shasam import train as function
    from shasam.commands.train import train as command

    ours, theirs = (inspect.signature(f).parameters for f in (function, command))
    for name in ("resume", "report", "quiet", "device"):
        assert ours[name].default == theirs[name].default


def test_the_list_of_methods_fits_a_narrow_terminal(monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = printed("methods", capsys=capsys)
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    assert len(text.splitlines()) < 80


def test_a_dash_is_standard_input_and_standard_output(tmp_path) -> None:
    rows = "".join(f"{i % 2},{i // 3 % 2},{'ab'[i % 5 > 2]}\n" for i in range(120))
    words = ["audit", "-", "--min-group", "0", "--draws", "100", "--json", "-"]
    code = "import sys; from shasam.cli import main; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        input=f"label,prediction,sensitive\n{rows}",
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["intervals"]["draws"] == 100
    assert "standard input" in done.stderr and not list(tmp_path.iterdir())
