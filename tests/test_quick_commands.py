"""Commands that only look something up do not import torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("command", [["methods"], ["records", "--help"], ["report", "--help"]])
def test_a_command_answers_without_torch(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CALL, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_is_read_of_methods_is_what_they_say() -> None:
    words = ("summary", "reference")
    read = described("method", words)
    assert list(read) == names("method")
    for name, texts in read.items():
        assert texts == [getattr(lookup("method", name), word) for word in words]
