"""Run the notebooks of docs/notebooks and store their outputs: `make notebooks`.

The site shows the stored outputs; `tests/docs/test_notebooks.py` runs the cells again.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def run(path: Path) -> float:
    """Execute one notebook in place; returns its seconds."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.read(path, as_version=4)
    began = time.perf_counter()
    NotebookClient(book, timeout=300, kernel_name="python3").execute()
    spent = time.perf_counter() - began
    for cell in book.cells:
        cell.metadata.pop("execution", None)  # the times of this machine
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    book.metadata["language_info"] = {"name": "python"}
    text = json.dumps(book, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(_ADDRESS.sub("", text) + "\n", encoding="utf-8")
    return spent


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(p.stem for p in FOLDER.glob("*.ipynb")):
        print(f"{name}: {run(FOLDER / f'{name}.ipynb'):.0f} s")
