"""docs/notebooks: stored outputs are whole and small, and every cell runs."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import ROOT

pytestmark = pytest.mark.needs_torch

BOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LARGEST = 400_000  # bytes, with pictures
# what a notebook may import besides shasam, torch and the packages of the tests
OTHERS = ("matplotlib", "onnxruntime", "onnxscript")


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    book = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in book["cells"] if cell["cell_type"] == kind]


def code(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in cells(path, "code")]


def test_the_notebooks_of_the_readme_are_there() -> None:
    named = re.findall(r"docs/notebooks/(\w+\.ipynb)", (ROOT / "README.md").read_text())
    assert {"faces.ipynb", "embeddings.ipynb", "audit.ipynb", "mining.ipynb"} <= set(named)
    assert set(named) <= {path.name for path in BOOKS}


@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_outputs_are_stored_whole_and_small(path: Path) -> None:
    assert path.stat().st_size < LARGEST
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|work|Users)/", text), "paths of the machine that ran it"
    found = cells(path, "code")
    assert [cell["execution_count"] for cell in found] == list(range(1, len(found) + 1))
    outputs = [output for cell in found for output in cell["outputs"]]
    assert outputs and all(output["output_type"] != "error" for output in outputs)
    assert all(output.get("name") != "stderr" for output in outputs)


@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_cells_compile_and_find_what_they_import(path: Path) -> None:
    for node in ast.walk(ast.parse("\n".join(code(path)))):
        if isinstance(node, ast.ImportFrom) and node.module:
            if find_spec(node.module.split(".")[0]) is None:
                continue
            module = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(module, alias.name), f"no {alias.name} in {node.module}"


@pytest.mark.slow
@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path) -> None:
    """As a script, with Python's own interpreter: a kernel is not needed for that."""
    text = "\n\n".join(code(path))
    for name in OTHERS:
        if re.search(rf"\b{name}\b", text):
            pytest.importorskip(name)
    script = tmp_path / "book.py"
    script.write_text(text, encoding="utf-8")
    settings = {**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=tmp_path,
        env=settings,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
