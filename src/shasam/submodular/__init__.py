"""Submodular functions, information measures over them, and greedy maximisation.

Usable alone: torch (any device, with gradients), numpy accepted, numba for the CPU.
"""

from shasam.extras import need

need("torch", __name__)

from shasam.submodular.certificate import Certificate, certify
from shasam.submodular.facility_location import FacilityLocation
from shasam.submodular.facility_location_measures import FL1MI, FLCG, FLCMI, FLQMI
from shasam.submodular.feature_based import FeatureBased
from shasam.submodular.graph_cut import GCCG, GCMI, GraphCut
from shasam.submodular.information import (
    conditional_gain,
    conditional_mutual_information,
    mutual_information,
)
from shasam.submodular.logdet import LogDet
from shasam.submodular.logdet_measures import LogDetCG, LogDetCMI, LogDetMI
from shasam.submodular.maximize import maximize
from shasam.submodular.mixture import Mixture
from shasam.submodular.neighbours import Neighbours
from shasam.submodular.sampled import Estimate, estimate, maximize_sampled
from shasam.submodular.saturated_coverage import SaturatedCoverage
from shasam.submodular.set_function import SetFunction
from shasam.submodular.sieve import Sieve, select_from_stream
from shasam.submodular.sparse import SparseFacilityLocation
from shasam.types import Selection

__all__ = [
    "FL1MI",
    "FLCG",
    "FLCMI",
    "FLQMI",
    "GCCG",
    "GCMI",
    "Certificate",
    "Estimate",
    "FacilityLocation",
    "FeatureBased",
    "GraphCut",
    "LogDet",
    "LogDetCG",
    "LogDetCMI",
    "LogDetMI",
    "Mixture",
    "Neighbours",
    "SaturatedCoverage",
    "Selection",
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
