"""Public contract checks: run them on your own classes."""

from __future__ import annotations

import importlib
from typing import Any

# public name -> module that defines it; loaded when it is first used
_PUBLIC = {
    "ExpectedLoss": "shasam.testing.methods",
    "MethodReport": "shasam.testing.methods",
    "check_method": "shasam.testing.methods",
    "check_miner": "shasam.testing.miners",
    "check_set_function": "shasam.testing.set_functions",
    "check_source": "shasam.testing.sources",
}

__all__ = [
    "ExpectedLoss",
    "MethodReport",
    "check_method",
    "check_miner",
    "check_set_function",
    "check_source",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'shasam.testing' has no attribute {name!r}")
