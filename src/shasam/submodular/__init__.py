"""Submodular functions, information measures over them, and greedy maximisation.

Usable alone: torch (any device, with gradients), numpy accepted, numba for the CPU.
"""

from shasam.submodular.closed_forms import (
    FL1MI,
    FLCG,
    FLCMI,
    FLQMI,
    GCCG,
    GCMI,
    LogDetCG,
    LogDetCMI,
    LogDetMI,
)
from shasam.submodular.functions import FacilityLocation, GraphCut, SetFunction
from shasam.submodular.information import (
    conditional_gain,
    conditional_mutual_information,
    mutual_information,
)
from shasam.submodular.logdet import LogDet
from shasam.submodular.maximize import maximize
from shasam.types import Selection

__all__ = [
    "FL1MI",
    "FLCG",
    "FLCMI",
    "FLQMI",
    "GCCG",
    "GCMI",
    "FacilityLocation",
    "GraphCut",
    "LogDet",
    "LogDetCG",
    "LogDetCMI",
    "LogDetMI",
    "Selection",
    "SetFunction",
    "conditional_gain",
    "conditional_mutual_information",
    "maximize",
    "mutual_information",
]
