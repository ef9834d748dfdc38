"""The specification of a run: every field is declared once, with its description.

The pydantic models here are the keys of a YAML file, the flags of the commands and the arguments
of ``shasam.train``. Importing them does not import torch; ``resolve`` looks up the method and the
encoder, whose options it checks.
"""

from __future__ import annotations

from shasam.registry import DEFAULT_METHOD
from shasam.spec.fields import DataSpec, ModelSpec, StageSpec, TrainSpec, ViewsSpec
from shasam.spec.layers import PROFILES, merge, nest, parse_set
from shasam.spec.run import RunSpec, resolve, stored_spec

__all__ = [
    "DEFAULT_METHOD",
    "PROFILES",
    "DataSpec",
    "ModelSpec",
    "RunSpec",
    "StageSpec",
    "TrainSpec",
    "ViewsSpec",
    "merge",
    "nest",
    "parse_set",
    "resolve",
    "stored_spec",
]
