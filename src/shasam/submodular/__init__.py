"""Submodular functions, information measures over them, and greedy maximisation.

Usable alone: torch (any device, with gradients), numpy accepted, numba for the CPU.
"""

from __future__ import annotations

from shasam.extras import need

need("torch", __name__)

from shasam.submodular.bounds import Certificate, SampledValue, certify, estimate, maximize_sampled
from shasam.submodular.concave import FeatureBased, SaturatedCoverage
from shasam.submodular.cover import DisparityMin, DisparitySum, ProbabilisticSetCover, SetCover
from shasam.submodular.facility_location import FL1MI, FLCG, FLCMI, FLQMI, FacilityLocation
from shasam.submodular.graph_cut import GCCG, GCMI, GraphCut
from shasam.submodular.greedy import maximize
from shasam.submodular.information import (
    conditional_gain,
    conditional_mutual_information,
    mutual_information,
)
from shasam.submodular.kept_kernel import KeptKernel
from shasam.submodular.logdet import LogDet, LogDetCG, LogDetCMI, LogDetMI
from shasam.submodular.set_function import Mixture, SetFunction
from shasam.submodular.sieve import Sieve, select_from_stream
from shasam.submodular.sparse import Neighbours, SparseFacilityLocation
from shasam.types import Selection

__all__ = [
    "FL1MI",
    "FLCG",
    "FLCMI",
    "FLQMI",
    "GCCG",
    "GCMI",
    "Certificate",
    "DisparityMin",
    "DisparitySum",
    "FacilityLocation",
    "FeatureBased",
    "GraphCut",
    "KeptKernel",
    "LogDet",
    "LogDetCG",
    "LogDetCMI",
    "LogDetMI",
    "Mixture",
    "Neighbours",
    "ProbabilisticSetCover",
    "SampledValue",
    "SaturatedCoverage",
    "Selection",
    "SetCover",
    "SetFunction",
    "Sieve",
    "SparseFacilityLocation",
    "certify",
    "conditional_gain",
    "conditional_mutual_information",
    "estimate",
    "maximize",
    "maximize_sampled",
    "mutual_information",
    "select_from_stream",
]
