"""A plain install has no torch: audits, reports, metrics and the description of data work there."""

from __future__ import annotations

import ast
import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.report.run_files import make_run

import shasam
from shasam.extras import MODULES

SRC = Path(shasam.__file__).parent
HEAVY = {*MODULES["torch"], "lightning", "matplotlib", "simplejpeg"}
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({sorted(HEAVY)}))\n"


def python(code: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A new interpreter in which every module of HEAVY fails to import, as if not installed."""
    return subprocess.run(
        [sys.executable, "-c", BLOCK + code, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Predictions, a run, and a table of images."""
    root = tmp_path_factory.mktemp("core")
    rng = np.random.default_rng(0)
    truth, group = rng.integers(0, 2, 200), rng.integers(0, 2, 200)
    score = np.clip(0.3 + 0.3 * truth + 0.2 * group + rng.normal(0, 0.15, 200), 0, 1)
    rows = zip(truth, (score > 0.5).astype(int), score, group, strict=True)
    with open(root / "predictions.csv", "w", newline="") as file:
        csv.writer(file).writerows([("label", "prediction", "score", "group"), *rows])
    make_run(root)
    (root / "photos").mkdir()
    with open(root / "people.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "smiling", "age"))
        for row in range(80):
            Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)).save(
                root / "photos" / f"{row}.jpg"
            )
            writer.writerow((f"{row}.jpg", row % 2, 20 + row // 2 % 2 * 40))
    return root


AUDIT = ("audit", "predictions.csv", "--sensitive", "group", "--draws", "100", "--html", "a.html")
TABLE = ("--csv", "people.csv", "--root", "photos", "--target", "smiling", "--sensitive", "age<35")
COMMANDS = {
    "audit": AUDIT,
    "report": ("report", "3f2a9c"),
    "describe": ("data", "describe", *TABLE, "--store", "store"),
    "describe drawn faces": ("data", "describe", "--n", "80", "--store", "store"),
    "check": ("data", "check", *TABLE, "--store", "store"),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_the_command_works_without_torch(words, folder):
    done = python("from shasam.cli import main; main()", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


# several command lines in one interpreter, one after another; prints each exit code
IN_TURN = """
from shasam.cli import main
for line in sys.argv[1:]:
    sys.argv[1:] = line.split()
    try:
        main()
    except SystemExit as stop:
        print("exit", stop.code or 0)
    else:
        print("exit 0")
"""


def test_every_command_shows_its_help_without_torch(folder):
    names = ["audit", "data", "report", "methods", "train", "compare", "mine", "predict"]
    done = python(IN_TURN, "--help", *(f"{name} --help" for name in names), cwd=folder)
    assert done.stdout.count("exit 0") == len(names) + 1, done.stdout + done.stderr


NEED_TORCH = [
    "train --profile smoke",
    "compare --methods ce",
    "sweep grid.yaml",
    "evaluate 3f2a9c",
    "predict 3f2a9c photos",
    "methods ce",
    "mine --scene all",
]


def test_a_command_that_needs_torch_names_the_extra_in_one_line(folder):
    (folder / "grid.yaml").write_text("base: {method: ce}\n")
    done = python(IN_TURN, *NEED_TORCH, cwd=folder)
    assert done.stdout.split("\n")[:-1] == ["exit 2"] * len(NEED_TORCH), done.stdout
    sentences = done.stderr.split("\n")[:-1]
    assert len(sentences) == len(NEED_TORCH), done.stderr
    for sentence in sentences:
        assert sentence.startswith("shasam: ") and sentence.endswith("pip install 'shasam[torch]'")


def names_in(node: ast.AST) -> list[str]:
    """Modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def torch_lines(path: Path) -> list[int]:
    """Lines that import a module of the extra as soon as the file is imported."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    heavy = set(MODULES["torch"])
    return [n.lineno for n in body if heavy & {name.split(".")[0] for name in names_in(n)}]


def asks_first(path: Path) -> bool:
    """Whether the file calls need("torch", ...) before it imports a module of the extra."""
    calls = [
        node.lineno
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Expr) and ast.unparse(node).startswith("need('torch'")
    ]
    return bool(calls) and calls[0] < min(torch_lines(path), default=calls[0] + 1)


def test_every_module_that_imports_torch_asks_for_the_extra_before():
    silent = [
        str(path.relative_to(SRC))
        for path in sorted(SRC.rglob("*.py"))
        if torch_lines(path)
        and not asks_first(path)
        and not asks_first(path.parent / "__init__.py")
    ]
    assert silent == []


NEED_TORCH_IMPORTS = [
    "from shasam import maximize",
    "import shasam.submodular",
    "from shasam.testing import check_method",
    "from shasam.testing.methods import check_method",
    "import shasam.data.augment",
    "import shasam; shasam.train",
]


def test_an_import_that_needs_torch_raises_our_error(tmp_path):
    code = """
from shasam.errors import ShasamError
for statement in sys.argv[1:]:
    try:
        exec(statement)
    except ShasamError as error:
        assert isinstance(error, ImportError)
        print(error)
"""
    done = python(code, *NEED_TORCH_IMPORTS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pip install 'shasam[torch]'") == len(NEED_TORCH_IMPORTS)
