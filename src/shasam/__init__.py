"""Train and audit classifiers for group fairness.

The public names are loaded when they are first used, so that ``import shasam`` stays cheap and
``shasam.metrics`` works without torch.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from shasam.amx import avoid_broken_amx

__version__ = "0.1.0"

# Threads of OpenMP (torch, scikit-learn) wait for each other by spinning for milliseconds. Where
# other work holds a core they spin in vain: two threads were five times slower than one. They may
# spin for about 30 microseconds, then they sleep. It must be said before OpenMP is loaded.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
avoid_broken_amx()  # before oneDNN is first used

# public name -> module that defines it
_PUBLIC = {
    # set functions, their measures, and greedy maximisation
    "FLCG": "shasam.submodular",
    "FLQMI": "shasam.submodular",
    "FacilityLocation": "shasam.submodular",
    "GraphCut": "shasam.submodular",
    "LogDet": "shasam.submodular",
    "LogDetCG": "shasam.submodular",
    "LogDetMI": "shasam.submodular",
    "conditional_gain": "shasam.submodular",
    "conditional_mutual_information": "shasam.submodular",
    "maximize": "shasam.submodular",
    "mutual_information": "shasam.submodular",
    # mining and its batches
    "MinedPlan": "shasam.sampling",
    "MiningConfig": "shasam.mining",
    "RandomMiner": "shasam.mining",
    "ShasamMiner": "shasam.mining",
    # objectives
    "flcmi": "shasam.losses",
    "fscl": "shasam.losses",
    "logdetcmi": "shasam.losses",
    "supcon": "shasam.losses",
    # metrics and audits
    "audit": "shasam.report.notebook",
    "compare": "shasam.metrics",
    "compare_seeds": "shasam.metrics",
    "evaluate": "shasam.metrics",
    # data, training, trained models
    "DataSpec": "shasam.spec",
    "Encoder": "shasam.models",
    "Method": "shasam.methods",
    "RunSpec": "shasam.spec",
    "load": "shasam.pipeline.load",
    "open_data": "shasam.data",
    "register": "shasam.registry",
    "resolve": "shasam.spec",
    "train": "shasam.pipeline.execute",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'shasam' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
