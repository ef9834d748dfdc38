"""Advice that can be followed: every flag and key that a message names is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

import shasam
from shasam.cli import HELP_ALL, app
from shasam.registry import lookup, names
from shasam.spec import DataSpec, ModelSpec, StageSpec, TrainSpec

SRC = Path(shasam.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*(?:\.[a-z-]+)*")
KEY = re.compile(r"(?<![\w./-])(train|data|model|options)\.([a-z_]+(?:\.[a-z_]+)*)(?![\w/(])")
# of other programs, by the program
FOREIGN = {
    "git": {"--porcelain"},
    "the authors' group DRO": {"--reweight"},
    "ray": {"--head"},
    "pip": {"--force-reinstall", "--no-deps"},
}
FILES = {"safetensors", "parquet", "csv", "onnx", "json", "npy", "yaml", "pt", "bin"}


def texts(path: Path) -> Iterator[str]:
    """The string literals of a file that are no docstrings, f-strings with holes for values."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    skipped = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
            skipped |= {id(p) for p in node.values}
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in skipped:
            yield str(node.value)


def flags(of: App) -> set[str]:
    """All flags of an app and of its commands."""
    found = {"--help", "--version"}
    if of.default_command is not None:
        for argument in of.assemble_argument_collection():
            found |= {name for name in (*argument.names, *argument.negatives) if name[:2] == "--"}
    for name in of:
        if not name.startswith("-"):
            found |= flags(of[name])
    return found


def keys() -> dict[str, set[str]]:
    """The keys of a specification, by their first part."""
    stage = set(StageSpec.model_fields)
    train = {*TrainSpec.model_fields, *stage}
    train |= {f"{part}.{key}" for part in ("learn", "classify") for key in stage}
    encoders = {k for n in names("encoder") for k in lookup("encoder", n).Config.model_fields}
    options: set[str] = set()
    for name in names("method"):
        for key, field in lookup("method", name).Config.model_fields.items():
            inner = getattr(field.annotation, "model_fields", {})
            options |= {key, *(f"{key}.{below}" for below in inner)}
    data = set(DataSpec.model_fields)
    for key, field in DataSpec.model_fields.items():
        data |= {f"{key}.{below}" for below in getattr(field.annotation, "model_fields", {})}
    model = {*ModelSpec.model_fields, *encoders, *(f"options.{key}" for key in encoders)}
    return {"train": train, "data": data, "model": model, "options": options}


@pytest.fixture(scope="module")
def known() -> tuple[set[str], dict[str, set[str]]]:
    foreign = {flag for of_program in FOREIGN.values() for flag in of_program}
    return flags(app) | foreign | {HELP_ALL}, keys()


PATHS = sorted(p for p in SRC.rglob("*.py") if "testing" not in p.parts)


def test_every_flag_and_key_that_a_message_names_is_there(known) -> None:
    all_flags, all_keys = known
    assert {"--threads", "--no-thumbnails", "--missing", "--set"} <= all_flags
    wrong = []
    for path in PATHS:
        for text in texts(path):
            place = f"{path.relative_to(SRC)}: {text[:80]!r}"
            wrong += [f"{place}: {f}" for f in FLAG.findall(text) if f not in all_flags]
            for part, key in KEY.findall(text):
                if key.split(".")[0] not in FILES and key not in all_keys[part]:
                    wrong.append(f"{place}: {part}.{key}")
    assert wrong == []


def test_advice_that_cannot_be_followed_would_be_found() -> None:
    assert FLAG.findall("give --csv x, or --learn.batch-views 4, not a--b") == [
        "--csv",
        "--learn.batch-views",
    ]
    assert KEY.findall("raise train.batch_views, not model.safetensors/x or mytrain.x") == [
        ("train", "batch_views")
    ]
