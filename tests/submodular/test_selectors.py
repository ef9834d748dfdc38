"""Selectors that scikit-learn understands: the part of its checks that fits selectors of rows."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6", reason="selectors need scikit-learn 1.6 or newer")

from sklearn.base import clone
from sklearn.utils import estimator_checks

from shasam.submodular import FacilityLocation, maximize
from shasam.submodular.selectors import (
    FacilityLocationSelector,
    FeatureBasedSelector,
    GraphCutSelector,
    LogDetSelector,
    SaturatedCoverageSelector,
)

X = np.random.default_rng(0).random((60, 4))
SELECTORS = [
    FacilityLocationSelector,
    FeatureBasedSelector,
    GraphCutSelector,
    LogDetSelector,
    SaturatedCoverageSelector,
]
# of check_estimator: those that do not ask a transformer for as many rows as it was given
CHECKS = [
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_estimators_nan_inf",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_fit2d_1feature",
    "check_dict_unchanged",
    "check_n_features_in",
    "check_estimators_dtypes",
    "check_estimators_overwrite_params",
]


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda s: s.__name__)
def test_a_selector_passes_the_checks_that_fit_selectors_of_rows(selector: type) -> None:
    for name in CHECKS:
        check = getattr(estimator_checks, name)
        # this one does not heed that a selector asks for numbers that are not negative
        if selector is not FeatureBasedSelector or name != "check_estimators_dtypes":
            check(selector.__name__, selector(2))


def test_the_rows_are_those_of_maximize() -> None:
    selector = FacilityLocationSelector(5)
    rows = selector.fit_transform(X)
    plain = maximize(FacilityLocation.from_features(X), 5)
    assert selector.indices_.tolist() == plain.indices.tolist() == selector.ranking_.tolist()
    np.testing.assert_array_equal(rows, X[plain.indices.numpy()])
    np.testing.assert_allclose(selector.gains_, plain.gains, rtol=1e-9)
    assert selector.value_ == pytest.approx(float(plain.gains.sum()))
    assert selector.get_support().sum() == 5
    assert selector.get_support(indices=True).tolist() == sorted(plain.indices.tolist())


def test_labels_are_chosen_with_their_rows_and_clones_choose_alike() -> None:
    y = np.arange(60)
    selector = clone(LogDetSelector(4, method="exact", random_state=3)).set_params(n_samples=6)
    rows, labels = selector.fit(X).select(X, y)
    np.testing.assert_array_equal(X[labels], rows)
    assert clone(selector).fit(X).indices_.tolist() == selector.indices_.tolist()
    assert len(FacilityLocationSelector(99).fit(X).indices_) == 60
    with pytest.raises(ValueError, match="chose rows of an X of 60 rows; this one has 59"):
        selector.transform(X[:59])
