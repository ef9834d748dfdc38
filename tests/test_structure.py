"""The structure of the package: imports go one way, nothing unsafe is called, import is light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import shasam
from shasam.cli import COMMANDS

SRC = Path(shasam.__file__).parent
SHARED = {
    "amx",
    "keyed",
    "types",
    "windows",
    "errors",
    "extras",
    "registry",
    "rule_text",
    "cluster",
    "files",
    "documents",
    "memory",
    "tables",
    "output",
    "__init__",
}
# package -> the packages it may import; every package may import those of SHARED
MAY_IMPORT = {
    "spec": set(),
    "submodular": set(),
    "metrics": set(),
    "data": {"spec"},
    "models": {"spec"},
    "losses": {"submodular"},
    "mining": {"submodular", "data"},
    "sampling": {"mining"},
    "window_batches": {"sampling", "mining"},
    "methods": {
        "sampling",
        "window_batches",
        "spec",
        "losses",
        "mining",
        "models",
        "data",
        "metrics",
    },
    "runs": {"spec", "metrics"},
    "report": {"metrics", "runs", "spec", "data"},
    "training": {"sampling", "spec", "methods", "models", "data", "metrics", "runs"},
    "pipeline": {
        "integrations",
        "programs",
        "spec",
        "training",
        "methods",
        "models",
        "data",
        "metrics",
        "runs",
        "report",
    },
    "export": {"pipeline", "runs", "methods", "models", "data", "metrics", "report"},
    "thresholds": {"export", "pipeline", "runs", "methods", "metrics", "report", "training"},
    "integrations": {"sampling", "mining", "losses"},
    "reproduce": {
        "spec",
        "runs",
        "report",
        "metrics",
        "pipeline",
        "training",
        "data",
        "losses",
        "submodular",
    },
    "sklearn": {"spec", "training", "methods", "data", "metrics", "runs", "pipeline", "report"},
    "testing": {
        "sampling",
        "window_batches",
        "spec",
        "submodular",
        "mining",
        "methods",
        "models",
        "data",
        "losses",
        "training",
    },
    "commands": {"*"},
    "programs": {"*"},  # the files that are run; what is imported from it imports nothing
    "cli": {"*"},
}


def imported_packages(path: Path) -> set[str]:
    packages = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "shasam":
                names = [f"shasam.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith("shasam."):
                packages.add(name.split(".")[1])
    return packages


def files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


@pytest.mark.needs_torch
def test_training_does_not_import_torchmetrics_and_leaves_it_whole():
    pytest.importorskip("torchmetrics")
    code = """
import sys, shasam.training.trainer
from lightning_fabric.utilities.imports import _TORCHMETRICS_GREATER_EQUAL_1_0_0
assert "torchmetrics" not in sys.modules and _TORCHMETRICS_GREATER_EQUAL_1_0_0
from torchmetrics import Metric
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SRC)))
def test_imports_go_one_way(path):
    package = path.relative_to(SRC).parts[0].removesuffix(".py")
    if package in SHARED:
        assert imported_packages(path) <= SHARED
        return
    allowed = MAY_IMPORT[package]
    if "*" not in allowed:
        assert imported_packages(path) - SHARED - {package} <= allowed


# The weights of efficientnet-lite0 come as a .pth file. It is opened only when its SHA-256 is the
# one in the source, and with weights_only=True, which admits tensors alone.
ADMITTED = {"models/efficientnet.py": "torch.load(path, map_location='cpu', weights_only=True)"}


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SRC)))
def test_nothing_unsafe_is_called(path):
    admitted = ADMITTED.get(path.relative_to(SRC).as_posix())
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [a.name for a in node.names] + [getattr(node, "module", "") or ""]
            assert not {"pickle", "dill", "cloudpickle", "marshal", "shelve"} & set(names)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if ast.unparse(node) == admitted:
                continue
            assert called not in {"eval", "exec", "torch.load", "yaml.load", "os.system"}
            assert not any(k.arg == "shell" for k in node.keywords)
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle":
                    assert ast.unparse(keyword.value) == "False"


@pytest.mark.parametrize(
    "module", ["shasam", "shasam.metrics", "shasam.report", "shasam.spec", "shasam.cli"]
)
def test_light_modules_do_not_import_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SRC)))
def test_text_leaves_the_package_through_its_writers_only(path):
    """Names from other people's files must not reach a terminal or a spreadsheet as they are."""
    if path.name == "output.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"print", "Console", "csv.writer", "sys.stdout.write"}, called


FILE_LINES, FUNCTION_LINES = 800, 60
# file -> why it is longer; a file ends where its subject ends
LONG_FILES: dict[str, str] = {}
# module with a single importer, in its own package -> why it is no section of that file
ALONE = {
    "submodular/coded_loops.py": "compiled loops over 16-bit codes; what keeps them is another",
    "testing/bench.py": "small data and single steps; tests of methods use it without the checks",
    "pipeline/ray_engine.py": "imports Ray, which few people install",
    "report/model_section.py": "what a page shows of one model; the page puts models together",
    "reproduce/cost.py": "imports torch to measure steps; lists and tables do without it",
    "reproduce/render.py": "text and figures of a table; what fills it is another subject",
    "reproduce/table1.py": "imports torch for the objectives; the other tables do without it",
}


def importers() -> dict[str, set[str]]:
    """Module path -> paths of the modules that import it, lazily or not."""
    known = {p.relative_to(SRC).as_posix(): p for p in files()}
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("shasam"):
                continue
            package = "/".join((node.module or "").split(".")[1:])
            for alias in node.names:
                inner = f"{package}/{alias.name}.py".lstrip("/")
                for wanted in (inner, f"{package}.py"):
                    if wanted in known and wanted != name:
                        found[wanted].add(name)
                        break
    for command in (command for names in COMMANDS.values() for command in names):
        found[f"commands/{command}.py"].add("cli.py")  # by its name, when it is called
    return found


def test_a_module_with_one_importer_in_its_package_has_a_reason():
    lone = {
        name
        for name, by in importers().items()
        if len(by) == 1
        and Path(name).parent == Path(next(iter(by))).parent
        and Path(next(iter(by))).name != "__init__.py"
        and len(Path(name).parts) > 1
    }
    assert lone == set(ALONE), "merge the module into its importer, or say in ALONE why not"


def test_no_base_name_is_used_twice():
    """A command's file is named by the command; its library may have the same name."""
    names: dict[str, list[str]] = {}
    for path in files():
        if path.name != "__init__.py":
            names.setdefault(path.name, []).append(path.relative_to(SRC).as_posix())
    twice = {name for name, paths in names.items() if len(paths) > 1}
    assert twice <= {"export.py", "methods.py", "records.py"}


# tests that import torch or numba and that `make test-cpus` leaves out -> why
NOT_COMPUTING = {
    "cluster": "processes of Ray",
    "data/test_faces_bias.py": "accuracy of trained models, at its own setting",
    "integrations/test_lightning.py": "processes of Lightning",
    "reliability": "run by make test-reliability",
    "runs/test_build.py": "sizes and refusals",
    "runs/test_equal_bits.py": "sets processor and threads itself",
    "runs/test_execute.py": "files and order of a run",
    "runs/test_foreign_runs.py": "hostile files",
    "runs/test_machine.py": "threads themselves",
    "runs/test_search.py": "choices among numbers that are given",
    "test_plugins.py": "entry points",
    "test_structure.py": "names of modules",
}


def test_every_test_that_computes_is_run_as_on_other_processors() -> None:
    """A new file that imports torch or numba is in the list of the Makefile, or has a reason."""
    tests = Path(__file__).parent
    make = (tests.parent / "Makefile").read_text(encoding="utf-8")
    found = re.search(r"^COMPUTING := \$\(addprefix tests/,(.*?)\)", make, re.M | re.S)
    assert found is not None
    computing = found[1].replace("\\\n", " ").split()
    assert all((tests / name).exists() for name in [*computing, *NOT_COMPUTING])
    known = {*computing, *NOT_COMPUTING}
    for path in tests.rglob("test_*.py"):
        own, text = path.relative_to(tests), path.read_text(encoding="utf-8")
        asks = re.search(r'^ *(import|from) (torch|numba)|importorskip\("(torch|numba)', text, re.M)
        named = {own.parts[0], own.as_posix()} & known
        assert named or not asks, f"{own}: add it to COMPUTING in the Makefile, or say why not"


def statements(function: ast.FunctionDef) -> int:
    """Lines of a function without its signature and docstring: flags and their help are neither."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return 0 if not body else (function.end_lineno or 0) - body[0].lineno + 1


def lines_of_docstrings(tree: ast.Module) -> int:
    """Lines of the documentation of a file: to document an argument must not cut a file in two."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    owners = [n for n in ast.walk(tree) if isinstance(n, kinds) and ast.get_docstring(n)]
    return sum((n.body[0].end_lineno or 0) - n.body[0].lineno + 1 for n in owners)


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SRC)))
def test_files_and_functions_stay_short(path):
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(SRC).as_posix()
    tree = ast.parse(text)
    lines = len(text.splitlines()) - lines_of_docstrings(tree)
    assert (lines > FILE_LINES) == (name in LONG_FILES), "see LONG_FILES"
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
    assert [f.name for f in functions if statements(f) > FUNCTION_LINES] == []


def legend() -> dict[str, set[str]]:
    """Package -> letters of the shape suffixes that types.py declares for it."""
    text = ast.get_docstring(ast.parse((SRC / "types.py").read_text(encoding="utf-8"))) or ""
    entries = re.findall(r"^(\w+): (.+(?:\n    .+)*)", text, flags=re.M)
    return {name: set(re.findall(r"(?:^|,\s+)([A-Z])(?= )", body)) for name, body in entries}


def suffixes(path: Path) -> set[str]:
    """The letters of all names such as ``kernel_NR`` in a file."""
    letters: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = getattr(node, "id", None) or getattr(node, "arg", None) or getattr(node, "attr", "")
        found = re.fullmatch(r"[a-z][a-z0-9_]*_([A-Z][A-Z0-9]{0,4})", name or "")
        letters |= set(found.group(1)) if found else set()
    return {letter for letter in letters if letter.isalpha()}


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SRC)))
def test_every_letter_of_a_shape_is_in_the_legend(path):
    declared = legend()
    package = path.relative_to(SRC).parts[0].removesuffix(".py")
    assert suffixes(path) <= declared["everywhere"] | declared.get(package, set())


def test_the_legend_declares_no_letter_that_is_not_used():
    used: dict[str, set[str]] = {}
    for path in files():
        package = path.relative_to(SRC).parts[0].removesuffix(".py")
        used.setdefault(package, set()).update(suffixes(path))
    used["everywhere"] = set().union(*used.values())
    assert {name: letters - used[name] for name, letters in legend().items()} == {
        name: set() for name in legend()
    }
