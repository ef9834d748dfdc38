"""Selectors with scikit-learn's ``fit`` and ``transform``: they choose rows, not columns.

A selector reads its parameters from the constructor, learns ``indices_``, ``gains_`` and
``ranking_`` in ``fit`` and returns the chosen rows of X from ``transform``, as apricot's selectors
do. It works with ``clone``, ``get_params``, ``set_params`` and grid searches over its parameters.
It cannot stand before an estimator in a ``Pipeline`` that is given y: scikit-learn has no transform
that drops rows, because y would keep them. ``select(X, y)`` returns the chosen rows of both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shasam.errors import MissingExtraError
from shasam.submodular.selection import select_rows

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:  # an old or missing scikit-learn
    raise MissingExtraError(
        "shasam.submodular.selectors needs scikit-learn 1.6 or newer: "
        "pip install 'scikit-learn>=1.6'",
        name="sklearn",
    ) from error


class RowSelector(BaseEstimator):
    """The ``n_samples`` rows that a set function chooses; the base of the named selectors.

    >>> from sklearn.base import clone
    >>> X = np.random.default_rng(0).random((200, 5))
    >>> selector = clone(FacilityLocationSelector(n_samples=4)).fit(X)
    >>> selector.transform(X).shape, selector.ranking_.tolist() == selector.indices_.tolist()
    ((4, 5), True)
    """

    _function = "fl"

    def __init__(
        self,
        n_samples: int = 10,
        *,
        similarity: str | None = None,
        method: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.n_samples = n_samples
        self.similarity = similarity
        self.method = method
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> RowSelector:
        """Choose rows of X (n, D); y is not looked at. Fewer rows than asked for: all of them."""
        z_ND = validate_data(self, X, dtype=(np.float64, np.float32), ensure_min_samples=1)
        told = select_rows(
            z_ND,
            min(self.n_samples, len(z_ND)),
            function=self._function,  # type: ignore[arg-type]
            method=self.method,  # type: ignore[arg-type]
            similarity=self.similarity,  # type: ignore[arg-type]
            seed=self.random_state,
            bound=False,
        )
        self.indices_ = told.selection.indices.cpu().numpy()
        self.ranking_ = self.indices_  # apricot's name
        self.gains_ = told.selection.gains.cpu().numpy()
        self.value_ = told.value
        self.n_samples_seen_ = len(z_ND)
        return self

    def transform(self, X: Any) -> Any:
        """Return the chosen rows of X, which must be the X of ``fit``, in the order of choosing."""
        return self.select(X)

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Call ``fit(X)`` and return the chosen rows."""
        return self.fit(X, y).transform(X)

    def select(self, X: Any, *others: Any) -> Any:
        """Return the chosen rows of X and of whatever has as many rows: labels, weights, names."""
        check_is_fitted(self)
        validate_data(self, X, dtype=None, reset=False, skip_check_array=False)
        chosen = []
        for rows in (X, *others):
            held = len(rows) if hasattr(rows, "__len__") else rows.shape[0]
            if held != self.n_samples_seen_:
                raise ValueError(
                    f"{type(self).__name__} chose rows of an X of {self.n_samples_seen_} rows; "
                    f"this one has {held}"
                )
            if hasattr(rows, "iloc"):
                chosen.append(rows.iloc[self.indices_])
            else:
                chosen.append(np.asarray(rows)[self.indices_])
        return chosen[0] if not others else tuple(chosen)

    def get_support(self, indices: bool = False) -> np.ndarray:
        """Return which rows were chosen: a mask in the order of X, or sorted indices."""
        check_is_fitted(self)
        if indices:
            return np.sort(self.indices_)
        mask = np.zeros(self.n_samples_seen_, bool)
        mask[self.indices_] = True
        return mask


class FacilityLocationSelector(RowSelector):
    """Rows that stand for all rows: facility location.

    >>> FacilityLocationSelector(2).fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0]]).get_support().sum()
    np.int64(2)
    """


class GraphCutSelector(RowSelector):
    """Rows that are like many and unlike each other: graph cut.

    >>> len(GraphCutSelector(2).fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0]]).gains_)
    2
    """

    _function = "gc"


class LogDetSelector(RowSelector):
    """Rows that differ as much as possible: log-determinant.

    >>> LogDetSelector(2).fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0]]).indices_.tolist()
    [0, 2]
    """

    _function = "logdet"


class SaturatedCoverageSelector(RowSelector):
    """Rows that cover every row up to a share: saturated coverage.

    >>> len(SaturatedCoverageSelector(2).fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0]]).gains_)
    2
    """

    _function = "saturated"


class FeatureBasedSelector(RowSelector):
    """Rows that have much of every feature; X must not be negative: feature-based function.

    >>> FeatureBasedSelector(2).fit([[4.0, 0.0], [0.0, 1.0], [5.0, 0.0]]).indices_.tolist()
    [2, 1]
    """

    _function = "features"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags
