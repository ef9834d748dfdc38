"""One file per method; every file of this package is imported, and registers what it holds."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from shasam.extras import need

need("torch", __name__)

from shasam.methods.base import Method, MethodConfig, Stage
from shasam.methods.two_stage import TwoStage, TwoStageConfig

__all__ = ["Method", "MethodConfig", "Stage", "TwoStage", "TwoStageConfig"]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
