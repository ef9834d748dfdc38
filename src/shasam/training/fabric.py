"""``Fabric`` of lightning-fabric, imported without torchmetrics.

lightning-fabric asks for the version of torchmetrics by importing it, wherever it is installed.
That takes two seconds of every command, because it brings scipy and transformers, and nothing here
uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType


@contextmanager
def _only_version(name: str) -> Iterator[None]:
    """Imports of a package find a module with its version and nothing else."""
    try:
        stand_in = ModuleType(name)
        stand_in.__dict__["__version__"] = version(name)
    except PackageNotFoundError:
        yield
        return
    if name in sys.modules:
        yield
        return
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]


with _only_version("torchmetrics"):
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.environments import (
        ClusterEnvironment,
        LightningEnvironment,
        TorchElasticEnvironment,
    )
    from lightning_fabric.strategies import DDPStrategy

__all__ = [
    "ClusterEnvironment",
    "DDPStrategy",
    "Fabric",
    "LightningEnvironment",
    "TorchElasticEnvironment",
]
