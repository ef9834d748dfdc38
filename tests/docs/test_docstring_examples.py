"""The examples in the docstrings of all modules run and are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import shasam

SRC = Path(shasam.__file__).parent
MODULES = [
    ".".join(("shasam", *path.relative_to(SRC).with_suffix("").parts))
    for path in sorted(SRC.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8") and path.parent.name != "submodular"
]  # shasam.submodular has this test for itself

pytestmark = pytest.mark.needs_torch


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHASAM_CACHE", str(tmp_path / "cache"))
    module = importlib.import_module(name.removesuffix(".__init__"))
    failed, tried = doctest.testmod(module)
    assert failed == 0 and tried > 0


def test_no_example_is_skipped() -> None:
    """An example that cannot fail shows nothing: it belongs into a page that is run."""
    skipped = [p for p in SRC.rglob("*.py") if "doctest: +SKIP" in p.read_text(encoding="utf-8")]
    assert skipped == []
