"""Commands that only look something up do not import torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shasam.cli import main
from shasam.registry import described, lookup, names

CALL = """
import sys
from shasam.cli import main
sys.argv = ["shasam", *sys.argv[1:]]
try:
    main()
except SystemExit as left:
    assert not left.code, left.code
assert not {"torch", "numba", "sklearn", "scipy"} & set(sys.modules), sorted(sys.modules)
"""


RECORDS = str(Path(__file__).resolve().parent.parent / "experiments" / "tables-utkface")


def answer(command: list[str], more: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", CALL + more, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "command",
    [["methods"], ["reproduce"], ["records", "list", RECORDS], ["records", "--help"],
     ["report", "--help"]],
    ids=lambda words: " ".join(words[:2]),
)  # fmt: skip
def test_a_command_answers_without_torch(command: list[str]) -> None:
    answer(command)


def test_methods_are_listed_without_the_files_of_other_commands() -> None:
    """Tables of users, specifications and other commands take more time than the answer."""
    heavy = '{"pyarrow", "pydantic", "numpy", "shasam.spec", "shasam.commands.train"}'
    answer(["methods"], f"assert not {heavy} & set(sys.modules), sorted(sys.modules)\n")


def test_a_word_that_is_no_command_is_answered_with_the_nearest_one(capsys) -> None:
    with pytest.raises(SystemExit) as left:
        main(["trian"])
    assert left.value.code == 2 and '"train"' in capsys.readouterr().err


def test_one_command_alone_says_what_it_says_among_all(capsys) -> None:
    from shasam.cli import app

    for words in (["sweep", "--help"], ["data", "--help"], ["records", "list", "--help"]):
        with pytest.raises(SystemExit):
            main(words)
        alone = capsys.readouterr().out
        app(words, result_action="return_value")
        assert alone == capsys.readouterr().out


@pytest.mark.needs_torch
def test_the_list_counts_the_runs_that_an_artefact_makes() -> None:
    """Without torch nothing is resolved, and rows that share runs are known by what they ask."""
    from shasam.reproduce.artefact import DataLocation, artefact, cells

    found, _ = cells(artefact("table3"), DataLocation("celeba"), profile="cpu", seeds=1)
    runs = 3 * len({cell.identity for cell in found})
    (row,) = [line for line in answer(["reproduce"]).splitlines() if line.startswith("  table3")]
    assert row.split()[-1] == str(runs)


def test_what_is_read_of_methods_is_what_they_say() -> None:
    words = ("summary", "reference")
    read = described("method", words)
    assert list(read) == names("method")
    for name, texts in read.items():
        assert texts == [getattr(lookup("method", name), word) for word in words]
