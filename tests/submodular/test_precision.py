"""Gradients, float types, features against kernels, and log-determinants against 50 digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from hard_kernels import features, gram
from torch import Tensor
from torch.autograd import gradcheck

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
    conditional_mutual_information,
    maximize,
)
from shasam.submodular.kernels import kernel_matrix, similarity_matrix, unit_rows

Q, P, A = [0, 3], [5, 7], [1, 2, 4]

OVER_KERNEL = {
    "FacilityLocation": lambda k: FacilityLocation(k)(A),
    "FacilityLocation of some": lambda k: FacilityLocation(k, [0, 6])(A),
    "GraphCut": lambda k: GraphCut(k, 0.4)(A),
    "LogDet": lambda k: LogDet(k, 0.5)(A),
    "FL1MI": lambda k: FL1MI(k, Q, 1.2)(A),
    "FLCG": lambda k: FLCG(k, P, 0.8)(A),
    "FLCMI": lambda k: FLCMI(k, Q, P, 1.2, 0.5)(A),
    "FLQMI": lambda k: FLQMI(k, Q, 0.7)(A),
    "GCMI": lambda k: GCMI(k, Q, 0.4)(A),
    "GCCG": lambda k: GCCG(k, P, 0.4)(A),
    "LogDetMI": lambda k: LogDetMI(k, Q, 0.5, 0.9)(A),
    "LogDetCG": lambda k: LogDetCG(k, P, 0.5, 0.9)(A),
    "LogDetCMI": lambda k: LogDetCMI(k, Q, P, 0.5, 0.9, 0.8)(A),
    "CMI of GraphCut": lambda k: conditional_mutual_information(GraphCut(k, 0.4), Q, P)(A),
}

OVER_FEATURES = {
    "FacilityLocation": lambda z, q, p: FacilityLocation.from_features(z)(A),
    "FacilityLocation rbf": lambda z, q, p: FacilityLocation.from_features(z, similarity="rbf")(A),
    "FacilityLocation of others": lambda z, q, p: FacilityLocation.from_features(z, q)(A),
    "GraphCut": lambda z, q, p: GraphCut.from_features(z)(A),
    "LogDet": lambda z, q, p: LogDet.from_features(z)(A),
    "LogDet rbf": lambda z, q, p: LogDet.from_features(z, similarity="rbf")(A),
    "FL1MI": lambda z, q, p: FL1MI.from_features(z, q)(A),
    "FLCG": lambda z, q, p: FLCG.from_features(z, p)(A),
    "FLCMI": lambda z, q, p: FLCMI.from_features(z, q, p)(A),
    "FLQMI": lambda z, q, p: FLQMI.from_features(z, q)(A),
    "GCMI": lambda z, q, p: GCMI.from_features(z, q)(A),
    "GCCG": lambda z, q, p: GCCG.from_features(z, p)(A),
    "LogDetMI": lambda z, q, p: LogDetMI.from_features(z, q)(A),
    "LogDetCG": lambda z, q, p: LogDetCG.from_features(z, p)(A),
    "LogDetCMI": lambda z, q, p: LogDetCMI.from_features(z, q, p)(A),
}


@pytest.mark.parametrize("name", OVER_KERNEL)
def test_gradient_through_the_kernel_is_the_numerical_one(name: str) -> None:
    half = ((1 + gram(features(8, 5))) / 2).requires_grad_()
    # The free variable is one half of the kernel: a lone entry would break the symmetry.
    assert gradcheck(lambda x: OVER_KERNEL[name]((x + x.T) / 2), (half,), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("name", OVER_FEATURES)
def test_gradient_through_the_features_is_the_numerical_one(name: str) -> None:
    z, q, p = (features(n, 4, seed).requires_grad_() for n, seed in ((6, 1), (2, 2), (2, 3)))
    assert gradcheck(OVER_FEATURES[name], (z, q, p), eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("name", OVER_FEATURES)
def test_zero_and_equal_vectors_have_finite_gradients(name: str) -> None:
    z, q, p = (features(n, 4, seed) for n, seed in ((6, 1), (2, 2), (2, 3)))
    z[1], z[4], q[0] = 0.0, z[2], z[2]
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(OVER_FEATURES[name](z, q, p), z)
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("name", OVER_FEATURES)
@pytest.mark.parametrize(
    ("given", "computed", "close"),
    [
        (torch.float16, torch.float32, 1e-2),
        (torch.bfloat16, torch.float32, 5e-2),
        (torch.float32, torch.float32, 1e-5),
        (torch.float64, torch.float64, 1e-12),
    ],
)
def test_every_float_type_is_taken_and_half_is_computed_in_float32(
    name: str, given: torch.dtype, computed: torch.dtype, close: float
) -> None:
    z, q, p = (features(n, 4, seed).to(given) for n, seed in ((6, 1), (2, 2), (2, 3)))
    value = OVER_FEATURES[name](z, q, p)
    exact = OVER_FEATURES[name](*(features(n, 4, s) for n, s in ((6, 1), (2, 2), (2, 3))))
    assert value.dtype == computed
    assert float(value) == pytest.approx(float(exact), rel=close, abs=close)
    if given in (torch.float16, torch.bfloat16):  # the same as rounding the input, and no worse
        wide = OVER_FEATURES[name](z.float(), q.float(), p.float())
        assert float(value) == float(wide)


def test_numpy_arrays_and_lists_are_taken() -> None:
    z = features(6, 4)
    tensor = FacilityLocation.from_features(z)(A)
    assert float(FacilityLocation.from_features(z.numpy())(np.array(A))) == float(tensor)
    assert float(FacilityLocation.from_features(z.tolist())(A)) == pytest.approx(
        float(tensor), 1e-6
    )


@pytest.mark.parametrize("similarity", ["cosine", "shifted_cosine", "rbf"])
def test_features_and_kernel_give_the_same_function(similarity: str) -> None:
    z = features(10, 4)
    k = kernel_matrix(z, similarity)  # type: ignore[arg-type]
    for over_features, over_kernel in (
        (FacilityLocation.from_features(z, similarity=similarity), FacilityLocation(k)),
        (
            FacilityLocation.from_features(z, [1, 5], similarity=similarity),
            FacilityLocation(k, [1, 5]),
        ),
        (GraphCut.from_features(z, 0.3, similarity=similarity), GraphCut(k, 0.3)),
        (GraphCut.from_features(z, 0.3, [1, 5], similarity=similarity), GraphCut(k, 0.3, [1, 5])),
        (LogDet.from_features(z, 0.3, similarity=similarity), LogDet(k, 0.3)),
    ):
        for selected in ([], [3], [1, 7, 2]):
            assert float(over_features(selected)) == pytest.approx(
                float(over_kernel(selected)), rel=1e-10, abs=1e-12
            )
            pool = torch.tensor([0, 4, 8])
            np.testing.assert_allclose(
                over_features.gains(over_features.start(selected), pool),
                over_kernel.gains(over_kernel.start(selected), pool),
                rtol=1e-9,
                atol=1e-10,
            )


@pytest.mark.parametrize("name", ["FL1MI", "FLCG", "FLCMI", "FLQMI", "GCMI", "GCCG"])
def test_query_features_and_query_indices_give_the_same_measure(name: str) -> None:
    z, q, p = features(10, 4), features(2, 4, 2), features(3, 4, 3)
    rows, query, private = list(range(10)), [10, 11], [12, 13, 14]
    k = kernel_matrix(torch.cat([z, q, p]), "shifted_cosine")
    over_kernel = {
        "FL1MI": lambda: FL1MI(k, query, 1.2, rows),
        "FLCG": lambda: FLCG(k, private, 0.8, rows),
        "FLCMI": lambda: FLCMI(k, query, private, 1.2, 0.8, rows),
        "FLQMI": lambda: FLQMI(k, query, 0.7),
        "GCMI": lambda: GCMI(k, query, 0.4, 1.2),
        "GCCG": lambda: GCCG(k, private, 0.4, 0.8, rows),
    }[name]()
    over_features = {
        "FL1MI": lambda: FL1MI.from_features(z, q, 1.2),
        "FLCG": lambda: FLCG.from_features(z, p, 0.8),
        "FLCMI": lambda: FLCMI.from_features(z, q, p, 1.2, 0.8),
        "FLQMI": lambda: FLQMI.from_features(z, q, 0.7),
        "GCMI": lambda: GCMI.from_features(z, q, 0.4, 1.2),
        "GCCG": lambda: GCCG.from_features(z, p, 0.4, 0.8),
    }[name]()
    for selected in ([], [3], [1, 7, 2]):
        assert float(over_features(selected)) == pytest.approx(float(over_kernel(selected)), 1e-10)
    one = maximize(over_features, 4)
    other = maximize(over_kernel, 4, candidates=rows)
    assert one.indices.tolist() == other.indices.tolist()


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e20, 1e30])
def test_cosine_does_not_depend_on_the_length_of_the_vectors(scale: float) -> None:
    z = features(6, 4).float()
    torch.testing.assert_close(unit_rows(z * scale), unit_rows(z), rtol=1e-5, atol=1e-6)
    mixed = z.clone()
    mixed[2] *= scale
    torch.testing.assert_close(unit_rows(mixed), unit_rows(z), rtol=1e-5, atol=1e-6)


def test_a_zero_vector_is_similar_to_nothing() -> None:
    z = features(5, 3)
    z[2] = 0
    k = similarity_matrix(z, z, "cosine")
    assert k[2].tolist() == [0.0] * 5
    assert bool(torch.isfinite(k).all())


def test_a_large_kernel_is_mirrored_exactly_and_equals_the_plain_product() -> None:
    z = features(2100, 5).float()
    k = kernel_matrix(z, "shifted_cosine")
    assert torch.equal(k, k.T)
    torch.testing.assert_close(k, similarity_matrix(z, z, "shifted_cosine"), rtol=1e-5, atol=1e-6)


def exact_logdet(k: Tensor, ridge: float, selected: list[int]) -> float:
    """log det(K_A + λI) with 50 digits; the entries are taken as they are."""
    with mpmath.workdps(50):
        size = len(selected)
        matrix = mpmath.matrix(size, size)
        for i, a in enumerate(selected):
            for j, b in enumerate(selected):
                matrix[i, j] = mpmath.mpf(float(k[a, b])) + (mpmath.mpf(ridge) if i == j else 0)
        factor = mpmath.cholesky(matrix)
        return float(2 * sum(mpmath.log(factor[i, i]) for i in range(size)))


@pytest.mark.parametrize("size", [1, 8, 64])
@pytest.mark.parametrize("condition", [1e2, 1e6, 1e10])
def test_logdet_has_the_digits_that_the_condition_leaves(size: int, condition: float) -> None:
    # Rank 3, so the smallest eigenvalue is the ridge and the largest about size.
    k = gram(features(size, 3))
    ridge = size / condition
    selected = list(range(size))
    exact = exact_logdet(k, ridge, selected)
    allowed = 1e-15 * condition * size + 1e-12 * abs(exact)
    f = LogDet(k, ridge)
    assert abs(float(f(selected)) - exact) <= allowed
    walked = maximize(f, size, optimizer="lazy")
    assert abs(float(walked.gains.sum()) - exact) <= allowed * 10
    by_features = maximize(LogDet.from_features(features(size, 3), ridge), size)
    assert abs(float(by_features.gains.sum()) - exact) <= allowed * 10
