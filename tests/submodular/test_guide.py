"""The example in the guide runs as it is written."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "submodular.md"

pytestmark = pytest.mark.needs_torch


def test_the_example_of_the_guide_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example, *_) = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), flags=re.S)
    assert len(example.strip().splitlines()) == 10
    script = tmp_path / "example.py"
    script.write_text(example, "utf-8")
    names = runpy.run_path(str(script))
    assert len(names["summary"]) == 50 and len(names["hard"]) == 16
    assert names["anchors"].grad is not None
    assert "tensor(" in capsys.readouterr().out


def test_the_guide_names_every_public_function() -> None:
    import shasam.submodular as room

    text = GUIDE.read_text("utf-8")
    assert [name for name in room.__all__ if name not in text and name != "Selection"] == []
