"""Where the real data sets are, or a reason to skip."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def utkface_root() -> Path:
    return _root("SHASAM_UTKFACE", "utkface")


def celeba_root() -> Path:
    return _root("SHASAM_CELEBA", "celeba")


def _root(variable: str, name: str) -> Path:
    root = Path(os.environ.get(variable) or _BESIDE / name)
    if not root.is_dir():
        pytest.skip(
            f"experiments/manifests was not checked: set {variable} to the folder of {name}"
        )
    return root
