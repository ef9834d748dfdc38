"""The public contract check accepts every function of the room and refuses the broken ones."""

from __future__ import annotations

import pytest
import torch
from broken import BROKEN, Coverage
from hard_kernels import features, kernels

from shasam.errors import ContractError
from shasam.submodular import (
    FL1MI,
    FLCG,
    FLCMI,
    FLQMI,
    GCCG,
    GCMI,
    FacilityLocation,
    GraphCut,
    LogDet,
    LogDetCG,
    LogDetCMI,
    LogDetMI,
    SetFunction,
    conditional_gain,
    conditional_mutual_information,
    maximize,
    mutual_information,
)
from shasam.submodular.set_function import Among
from shasam.testing import check_set_function

Q, P = [0, 3], [5, 6, 9]
MAKERS = {
    "FacilityLocation": lambda k: FacilityLocation(k),
    "FacilityLocation of some": lambda k: FacilityLocation(k, represented=[1, 4, 6]),
    "GraphCut": lambda k: GraphCut(k, 0.4),
    "GraphCut, not monotone": lambda k: GraphCut(k, 0.9),
    "LogDet": lambda k: LogDet(k),
    "LogDet, small ridge": lambda k: LogDet(k, 0.01),
    "FL1MI": lambda k: FL1MI(k, Q, eta=1.3),
    "FLCG": lambda k: FLCG(k, P, nu=0.7),
    "FLCMI": lambda k: FLCMI(k, Q, P, eta=1.3, nu=0.7),
    "FLQMI": lambda k: FLQMI(k, Q, eta=0.5),
    "GCMI": lambda k: GCMI(k, Q, eta=2.0),
    "GCCG": lambda k: GCCG(k, P, nu=0.7),
    "LogDetMI": lambda k: LogDetMI(k, Q, eta=0.9),
    "LogDetCG": lambda k: LogDetCG(k, P, nu=0.9),
    "LogDetCMI": lambda k: LogDetCMI(k, Q, P, eta=0.9, nu=0.8),
    "CMI of GraphCut": lambda k: conditional_mutual_information(GraphCut(k), Q, P),
    "MI of FL by definition": lambda k: mutual_information(
        FacilityLocation(k), Q, eta=1.2, form="definition"
    ),
    "CG of LogDet by definition": lambda k: conditional_gain(LogDet(k), P, form="definition"),
}


@pytest.mark.parametrize("kernel", ["shifted cosine", "signed duplicates"])
@pytest.mark.parametrize("name", MAKERS)
def test_every_function_of_the_room_keeps_the_contract(name: str, kernel: str) -> None:
    checked = check_set_function(MAKERS[name](kernels()[kernel]), seed=1)
    assert {"empty set", "order", "gains", "add", "isolation"} <= set(checked)


@pytest.mark.parametrize(
    "f",
    [
        FacilityLocation.from_features(features(40).float()),
        GraphCut.from_features(features(40).float(), 0.3),
        LogDet.from_features(features(40).float()),
        FLQMI.from_features(features(40), features(3, seed=2)),
        GCCG.from_features(features(40), features(3, seed=2)),
        LogDetCMI.from_features(features(40), features(3, seed=2), features(2, seed=3)),
    ],
    ids=lambda f: type(f).__name__,
)
def test_functions_over_features_keep_the_contract(f: SetFunction) -> None:
    assert "greedy walk" in check_set_function(f)


def test_measures_over_somebody_elses_function_keep_the_contract() -> None:
    f = Coverage()
    for made in (
        f,
        mutual_information(f, [1, 2]),
        conditional_gain(f, [3]),
        conditional_mutual_information(f, [1, 2], [3]),
    ):
        assert "gains" in check_set_function(made)


@pytest.mark.parametrize(("broken", "sentence"), BROKEN, ids=lambda x: getattr(x, "__name__", ""))
def test_a_broken_class_is_refused_by_the_law_it_breaks(
    broken: type[SetFunction], sentence: str
) -> None:
    with pytest.raises(ContractError, match=sentence):
        check_set_function(broken())


def test_there_are_more_than_ten_broken_classes_and_the_right_one_passes() -> None:
    assert len(BROKEN) >= 10
    assert "greedy walk" in check_set_function(Coverage())


def test_the_check_asks_for_the_gradient_where_there_is_one() -> None:
    kernel = kernels()["shifted cosine"].requires_grad_()
    assert "gradient" in check_set_function(FacilityLocation(kernel))
    assert kernel.grad is None


def test_a_false_claim_of_submodularity_is_found_in_logdet_information() -> None:
    f = LogDetMI(torch.exp(-torch.cdist(features(30, 2), features(30, 2)).square()), Q, ridge=0.1)
    f.submodular = True
    with pytest.raises(ContractError, match="declares submodular, but v = "):
        check_set_function(f)


def test_a_function_over_some_elements_keeps_the_laws_and_the_order_decides_ties():
    z_ND = torch.randn(24, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    rows = torch.randperm(24, generator=torch.Generator().manual_seed(3))[:12]
    f = FacilityLocation.from_features(z_ND)
    check_set_function(Among(f, rows))
    picked = maximize(Among(f, rows), 4)
    assert rows[picked.indices].tolist() == maximize(f, 4, candidates=rows).indices.tolist()
    flat = FacilityLocation(torch.ones(24, 24))  # any one element is as good as another
    assert maximize(Among(flat, rows), 1).indices.tolist() == [0]
    assert maximize(Among(flat, rows), 1, optimizer="naive").indices.tolist() == [0]
