"""shasam: classifiers that do not read the sensitive attribute.

The public names are loaded when they are first used, so that ``import shasam`` stays cheap and
``shasam.metrics`` works without torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# public name -> module that defines it
_PUBLIC = {
    "FacilityLocation": "shasam.submodular",
    "GraphCut": "shasam.submodular",
    "LogDet": "shasam.submodular",
    "conditional_gain": "shasam.submodular",
    "conditional_mutual_information": "shasam.submodular",
    "load": "shasam.runs.load",
    "maximize": "shasam.submodular",
    "mutual_information": "shasam.submodular",
    "train": "shasam.runs.api",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'shasam' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
