"""Each closed form equals the definition, and both equal a naive loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import naive
import numpy as np
import pytest
import torch
from hard_kernels import NAMES, N, features, gram, kernels

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
    mutual_information,
)

Q, P = [0, 7], [4, 11, 12]
SETS = [[], [1], [2, 9], [1, 2, 3, 8], [13, 1, 10, 6, 5]]
EXACT = {"rel": 1e-9, "abs": 1e-9}


def scale_of(kernel: torch.Tensor) -> float:
    """Rounding is relative to the entries: sums over N² of them."""
    return max(float(kernel.abs().max()), 1e-300) * N * N


@pytest.mark.parametrize("kernel", NAMES)
def test_plain_functions_equal_naive_loops(kernel: str) -> None:
    k = kernels()[kernel]
    rows = [2, 3, 10]
    ridge = 0.3 * float(k.diagonal().max())
    for f, loop in (
        (FacilityLocation(k), naive.facility_location(k)),
        (FacilityLocation(k, rows), naive.facility_location(k, rows)),
        (GraphCut(k, 0.4), naive.graph_cut(k, 0.4)),
        (GraphCut(k, 0.4, rows), naive.graph_cut(k, 0.4, rows)),
        (LogDet(k, ridge), naive.logdet(k, ridge)),
        (FLQMI(k, Q, 0.6), naive.flqmi(k, Q, 0.6)),
    ):
        for selected in SETS:
            assert float(f(selected)) == pytest.approx(
                loop(selected), rel=1e-9, abs=1e-13 * scale_of(k)
            )


FL_FORMS: dict[str, tuple[Callable[..., SetFunction], Callable[..., SetFunction]]] = {
    "FL1MI": (
        lambda k: FL1MI(k, Q, eta=1.4),
        lambda k: mutual_information(FacilityLocation(k), Q, eta=1.4, form="definition"),
    ),
    "FLCG": (
        lambda k: FLCG(k, P, nu=0.6),
        lambda k: conditional_gain(FacilityLocation(k), P, nu=0.6, form="definition"),
    ),
    "FLCMI": (
        lambda k: FLCMI(k, Q, P, eta=1.4, nu=0.6),
        lambda k: conditional_mutual_information(
            FacilityLocation(k), Q, P, eta=1.4, nu=0.6, form="definition"
        ),
    ),
    "FLCMI of some rows": (
        lambda k: FLCMI(k, Q, P, represented=[1, 5, 9]),
        lambda k: conditional_mutual_information(
            FacilityLocation(k, [1, 5, 9]), Q, P, form="definition"
        ),
    ),
    "GCMI": (
        lambda k: GCMI(k, Q, lam=0.3, eta=1.4),
        lambda k: mutual_information(GraphCut(k, 0.3), Q, eta=1.4, form="definition"),
    ),
    "GCCG": (
        lambda k: GCCG(k, P, lam=0.3, nu=0.6),
        lambda k: conditional_gain(GraphCut(k, 0.3), P, nu=0.6, form="definition"),
    ),
}


@pytest.mark.parametrize("name", FL_FORMS)
@pytest.mark.parametrize("kernel", NAMES)
def test_closed_form_is_the_definition(name: str, kernel: str) -> None:
    k = kernels()[kernel]
    closed, definition = (make(k) for make in FL_FORMS[name])
    for selected in SETS:
        assert float(closed(selected)) == pytest.approx(
            float(definition(selected)), rel=1e-9, abs=1e-13 * scale_of(k)
        )
    pool = torch.tensor([1, 2, 3, 8])
    start, same = closed.start([9]), definition.start([9])
    np.testing.assert_allclose(
        closed.gains(start, pool), definition.gains(same, pool), rtol=1e-9, atol=1e-13 * scale_of(k)
    )


LOGDET_FORMS: dict[str, Callable[[Any, float, float], tuple[SetFunction, SetFunction]]] = {
    "LogDetMI": lambda f, eta, nu: (
        mutual_information(f, Q, eta=eta),
        mutual_information(f, Q, eta=eta, form="definition"),
    ),
    "LogDetCG": lambda f, eta, nu: (
        conditional_gain(f, P, nu=nu),
        conditional_gain(f, P, nu=nu, form="definition"),
    ),
    "LogDetCMI": lambda f, eta, nu: (
        conditional_mutual_information(f, Q, P, eta=eta, nu=nu),
        conditional_mutual_information(f, Q, P, eta=eta, nu=nu, form="definition"),
    ),
}


@pytest.mark.parametrize(("eta", "nu"), [(1.0, 1.0), (0.8, 0.9)])
@pytest.mark.parametrize("name", LOGDET_FORMS)
@pytest.mark.parametrize("kernel", NAMES)
def test_logdet_closed_form_is_the_definition(
    name: str, kernel: str, eta: float, nu: float
) -> None:
    k = kernels()[kernel]
    # The ridge follows the scale of the kernel, as a user's would.
    closed, definition = LOGDET_FORMS[name](LogDet(k, 0.5 * float(k.diagonal().max())), eta, nu)
    for selected in SETS:
        assert float(closed(selected)) == pytest.approx(float(definition(selected)), **EXACT)
    pool = torch.tensor([1, 2, 3, 8])
    np.testing.assert_allclose(
        closed.gains(closed.start([9]), pool),
        definition.gains(definition.start([9]), pool),
        rtol=1e-9,
        atol=1e-9,
    )


def test_named_classes_are_what_the_measures_return() -> None:
    k = kernels()["rbf"]
    fl, gc, ld = FacilityLocation(k), GraphCut(k), LogDet(k)
    assert type(mutual_information(fl, Q)) is FL1MI
    assert type(conditional_gain(fl, P)) is FLCG
    assert type(conditional_mutual_information(fl, Q, P)) is FLCMI
    assert type(mutual_information(gc, Q)) is GCMI
    assert type(conditional_gain(gc, P)) is GCCG
    assert type(mutual_information(ld, Q)) is LogDetMI
    assert type(conditional_gain(ld, P)) is LogDetCG
    assert type(conditional_mutual_information(ld, Q, P)) is LogDetCMI
    assert float(LogDetMI(k, Q)([1, 2])) == float(mutual_information(ld, Q)([1, 2]))
    assert float(LogDetCG(k, P)([1, 2])) == float(conditional_gain(ld, P)([1, 2]))


@pytest.mark.parametrize("kernel", ["rbf", "signed cosine", "blocks"])
def test_the_measures_equal_their_naive_definitions(kernel: str) -> None:
    k = kernels()[kernel]
    for f, loop in (
        (FacilityLocation(k), naive.facility_location(k)),
        (GraphCut(k, 0.3), naive.graph_cut(k, 0.3)),
        (LogDet(k, 0.5), naive.logdet(k, 0.5)),
    ):
        for selected in SETS:
            for made, slow in (
                (mutual_information(f, Q), naive.mutual_information(loop, Q)),
                (conditional_gain(f, P), naive.conditional_gain(loop, P)),
                (
                    conditional_mutual_information(f, Q, P),
                    naive.conditional_mutual_information(loop, Q, P),
                ),
            ):
                assert float(made(selected)) == pytest.approx(slow(selected), rel=1e-9, abs=1e-10)


def table_ratio(k: np.ndarray, a: list[int], q: list[int], p: list[int]) -> float:
    """log det(I - K_P⁻¹K_PQ K_Q⁻¹K_QP) / det(I - K_AP⁻¹K_AP,Q K_Q⁻¹K_Q,AP), AP = A ∪ P."""

    def reduced(rows: list[int]) -> float:
        cross = k[np.ix_(rows, q)]
        inner = np.linalg.solve(k[np.ix_(rows, rows)], cross)
        inner = inner @ np.linalg.solve(k[np.ix_(q, q)], cross.T)
        return float(np.linalg.slogdet(np.eye(len(rows)) - inner)[1])

    return reduced(p) - reduced([*a, *p])


@pytest.mark.parametrize("seed", range(4))
def test_logdetcmi_is_the_ratio_of_the_papers_table(seed: int) -> None:
    k = gram(features(N, 20, seed)).numpy() + 0.2 * np.eye(N)
    f = LogDetCMI(gram(features(N, 20, seed)), Q, P, ridge=0.2)
    for a in ([1], [1, 2, 3], [13, 1, 10, 6, 5]):
        assert float(f(a)) == pytest.approx(table_ratio(k, a, Q, P), rel=1e-9)


def test_logdetcmi_is_not_the_first_statement_of_the_appendix() -> None:
    k = gram(features(N, 20))
    f, swapped = LogDetCMI(k, Q, P, ridge=0.2), LogDetCMI(k, P, Q, ridge=0.2)
    a = [1, 2, 3]
    # The appendix puts A ∪ N over P, that is I(A; P | N): query and private set exchanged.
    wide = k.numpy() + 0.2 * np.eye(N)
    appendix = table_ratio(wide, a, P, Q)
    assert float(swapped(a)) == pytest.approx(appendix, rel=1e-9)
    assert abs(float(f(a)) - appendix) > 1e-3


def test_full_collapse_costs_logdetcmi_log_four_thirds() -> None:
    # All equal, one element in each set: det of the all-ones kernel with a vanishing ridge.
    f = LogDetCMI(torch.ones(3, 3, dtype=torch.float64), [1], [2], ridge=1e-7)
    assert float(f([0])) == pytest.approx(math.log(4 / 3), abs=1e-4)
    f = FLCMI(torch.ones(3, 3, dtype=torch.float64), [1], [2])
    assert float(f([0])) == 0.0


def test_rows_that_the_private_set_covers_give_flcmi_nothing() -> None:
    k = kernels()["rbf"]
    f = FLCMI(k, Q, P, represented=P)
    assert all(float(f(selected)) == 0.0 for selected in SETS)
