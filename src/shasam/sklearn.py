"""``FairClassifier``: the methods of this package as a scikit-learn estimator.

It trains on an array with the trainer of ``shasam train``, in memory: nothing is written.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from shasam.extras import need

need("torch", __name__)
need("sklearn", __name__)

import numpy as np
import pyarrow as pa
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from shasam.data.rules import along
from shasam.data.splits import QUARTER_OF, Attribute, Manifest, schema_of
from shasam.errors import ShasamWarning
from shasam.keyed import keyed
from shasam.methods.base import Method
from shasam.methods.posthoc import deciding_by_group
from shasam.metrics import catalogue, evaluate
from shasam.metrics.counts import intersect
from shasam.metrics.learnt import Skill
from shasam.metrics.limits import rule_for
from shasam.pipeline.build import build_method
from shasam.registry import did_you_mean, lookup
from shasam.report.fronts import Choice, front, undominated
from shasam.report.svg import standalone
from shasam.spec import DEFAULT_METHOD, RunSpec, resolve
from shasam.tables import MOST_AS_GROUPS, NO_VALUE
from shasam.training.inference import read_rows
from shasam.training.inferred import DataWithGroups, infer_groups
from shasam.training.runtime import Runtime, one_process
from shasam.training.trainer import Trainer
from shasam.types import Predictions

_PART = 256  # rows that are scored together; a shorter part is filled up, so that the score of a
# row does not depend on how many rows are asked for
_LOOKED_AT = 2000  # training rows, at most, that a fitted model is judged by
_PLAIN = "ce"  # what is trained where there are no groups to be fair to


@dataclass(frozen=True)
class _Groups:
    """The groups of rows by one attribute: their values, and the value of each row.

    Of an attribute that is followed as a number they are its quarters.
    """

    name: str
    values: np.ndarray  # (G,) in order
    codes: np.ndarray  # (n,) int64; -1 where a row has none
    number: np.ndarray | None = None  # (n,) float64; NaN if a row has none

    def with_missing(self) -> _Groups:
        """Return rows without a group as one of their own."""
        if (self.codes >= 0).all():
            return self
        values = np.array([*map(str, self.values.tolist()), NO_VALUE])
        return replace(
            self, values=values, codes=np.where(self.codes < 0, len(values) - 1, self.codes)
        )

    def only(self, rows: np.ndarray) -> _Groups:
        """Return the groups of some rows."""
        number = None if self.number is None else self.number[rows]
        return replace(self, codes=self.codes[rows], number=number)


class Arrays:
    """An array and its labels as the trainer reads a data set."""

    def __init__(
        self,
        x: np.ndarray,
        t: np.ndarray,
        s: np.ndarray,
        held: np.ndarray,
        several: Sequence[_Groups] = (),
        number: _Groups | None = None,
    ) -> None:
        self.x = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
        self.classes, self.groups = int(t.max()) + 1, int(s.max()) + 1
        ids = np.char.zfill(np.arange(len(x)).astype(str), 12)
        split = np.where(held, "val", "train")
        more = [attribute.codes for attribute in several]
        if number is not None and number.number is not None:
            more.append(number.number)
        schema = schema_of(len(several), number is not None)
        table = pa.table([ids, ids, ids, t, s, split, *more], schema=schema)
        classes, groups = (tuple(map(str, range(n))) for n in (self.classes, self.groups))
        attributes = tuple(
            Attribute(
                a.name if a.number is None else QUARTER_OF + a.name,
                tuple(map(str, a.values.tolist())),
            )
            for a in several
        )
        followed = "" if number is None else number.name
        self.manifest = Manifest(table, classes, groups, attributes=attributes, number=followed)

    def rows(self, split: str) -> np.ndarray:
        return self.manifest.rows(split)

    def images(self, rows: Tensor) -> Tensor:
        return self.x[rows]


def _columns_apart(X: Any, names: Sequence[str]) -> tuple[Any, Any]:
    """Return a data frame without some of its columns, and those columns."""
    if not hasattr(X, "columns"):
        raise ValueError(
            f"sensitive={names[0]!r} names a column, and X is no data frame; give the groups "
            "themselves"
        )
    for name in names:
        if name not in list(X.columns):
            raise ValueError(f"X has no column {name!r}{did_you_mean(name, map(str, X.columns))}")
    others = [column for column in X.columns if column not in names]
    return X[others], X[list(names)]


def _named_columns(sensitive: Any, X: Any) -> list[str]:
    """Return the columns of the data frame ``X`` that ``sensitive`` names.

    [] where it holds groups.
    """
    if isinstance(sensitive, str):
        return [sensitive]
    several = isinstance(sensitive, list | tuple) and hasattr(X, "columns")
    if several and len(sensitive) != len(X) and all(isinstance(name, str) for name in sensitive):
        return list(sensitive)
    return []


def _attributes(sensitive: Any) -> list[_Groups]:
    """Return one attribute, or several: the columns of a data frame or of a 2-D array."""
    return [_one_attribute(name, column) for name, column in _named(sensitive)]


def _named(sensitive: Any) -> list[tuple[str, np.ndarray]]:
    """Return the name and values of each attribute."""
    names = list(map(str, getattr(sensitive, "columns", ())))
    array = np.asarray(sensitive)
    if array.ndim < 2 or array.shape[1] == 1:
        return [(names[0] if names else "sensitive", array)]
    if array.ndim > 2 or not array.shape[1]:
        raise ValueError(f"sensitive has the shape {array.shape}; give (n,), or (n, K) for several")
    names = names or [f"attribute {k}" for k in range(array.shape[1])]
    frame = hasattr(sensitive, "iloc")  # its columns keep the types that one array has not
    columns = [sensitive.iloc[:, k] if frame else array[:, k] for k in range(array.shape[1])]
    return list(zip(names, map(np.asarray, columns), strict=True))


def _numbered(name: str, array: np.ndarray) -> _Groups:
    """Return a number of each row, and its quarters as groups; None, NaN and infinity are none."""
    table = pa.table({name: pa.array(column_or_1d(array), from_pandas=True)})
    quarters, number = along(name, table, "sensitive attribute")
    return _Groups(name, np.array(quarters.names), quarters.codes, number)


def _is_number(array: np.ndarray) -> bool:
    """Say whether an array is one of numbers with a fraction, or could be, and of many values."""
    if array.dtype.kind != "f" or not (array.ndim == 1 or array.shape[1] == 1):
        return False
    return len(np.unique(array[np.isfinite(array)])) > MOST_AS_GROUPS


def _floats(array: np.ndarray) -> np.ndarray:
    """Return an array of numbers as floats; one that holds anything else as it is."""
    try:
        return array.astype(np.float64) if array.dtype != bool else array
    except (TypeError, ValueError):
        return array


def _one_attribute(name: str, array: np.ndarray) -> _Groups:
    """Return groups of each row; None, NaN, pandas' NA and infinity are none."""
    given = column_or_1d(array)
    if given.dtype == object:
        missing = np.array([_absent(v) for v in given.tolist()], dtype=bool)
    else:
        missing = ~np.isfinite(given) if given.dtype.kind == "f" else np.zeros(len(given), bool)
    known = given[~missing]
    if known.dtype == object and len({isinstance(v, str) for v in known.tolist()}) > 1:
        known = np.array([str(v) for v in known.tolist()])
    values, places = np.unique(known, return_inverse=True)
    codes = np.full(len(given), -1, dtype=np.int64)
    codes[~missing] = places
    return _Groups(name, values, codes)


def _absent(value: Any) -> bool:
    """Return whether a cell holds None, NaN, NaT or NA, which is not even different from itself."""
    differs = value != value
    return value is None or type(differs).__name__ == "NAType" or bool(differs)


def _check_known(found: Sequence[_Groups], what_to_do: str) -> None:
    """Refuse rows without a group."""
    for attribute in found:
        missing = int((attribute.codes < 0).sum())
        if missing:
            raise ValueError(
                f"{attribute.name} has no group (None, NaN or infinity) in {missing} of "
                f"{len(attribute.codes)} rows; {what_to_do}"
            )


def _crossed(found: Sequence[_Groups]) -> _Groups:
    """Return the one attribute, or the intersections of several, called 'black & young'."""
    if len(found) == 1:
        return found[0]
    names = [tuple(map(str, attribute.values.tolist())) for attribute in found]
    known = np.all([attribute.codes >= 0 for attribute in found], axis=0)
    codes = np.full(len(known), -1, dtype=np.int64)
    codes[known], values = intersect([attribute.codes[known] for attribute in found], names)
    return _Groups(" & ".join(attribute.name for attribute in found), np.array(values), codes)


def _check_one_target(y: Any) -> None:
    """Refuse several targets at once with a sentence that says what to do."""
    columns = np.asarray(y).shape[1:]
    if len(columns) == 1 and columns[0] > 1:
        raise ValueError(
            f"y has {columns[0]} columns, and FairClassifier predicts one target; fit a model for "
            "each column, as sklearn.multioutput.MultiOutputClassifier does"
        )


class FairClassifier(ClassifierMixin, BaseEstimator):
    """Train a classifier whose errors should not depend on a sensitive attribute.

    Without ``sensitive``, or if all rows are in one group, there is nothing to be fair to:
    cross-entropy is trained whatever the method, with a warning, and ``method_`` says so.

    Parameters
    ----------
    method
        Any method that reads vectors; ``shasam methods`` lists them.
    options
        Options of the method, such as ``{"temperature": 0.5}``.
    profile
        Settings to start from: cpu, short, quick, paper or smoke.
    steps
        Steps of the first stage; None: the profile's.
    lr
        Learning rate of the first stage; None: the profile's.
    batch_size
        Rows in a batch; None: the profile's.
    encoder
        "mlp", or "identity" for a linear model.
    overrides
        Any other keys of a specification, such as ``{"model.width": 512}``.
    validation_fraction
        Share of the rows that decisions are fitted on after training (``posthoc``, ``limit``).
        Else all rows are trained on.
    limit
        What decisions are to keep, such as ``{"eo_mean": 0.05}``: thresholds per group are chosen
        for it on held-out rows, and ``predict`` needs ``sensitive``. ``rule_`` says what was
        chosen, and whether the limit was kept there.
    missing
        Rows without a group (None or NaN): "error", "drop" (left out), "group" (a group of their
        own), "use" (they train the target and are in no cell and no set), or "infer" (a head on
        the rows that have a group says which group the others are of; ``inferred_groups_`` says
        how well).
    groups
        With several attributes: their intersections are the groups ("cross"), or every attribute
        has its own groups and batches, in turns ("each").
    sensitive_as
        How a sensitive array is taken: as "groups", as a "number" without groups, such as age in
        years, or "auto": floats with more than 20 different values are a number. Ages that are
        integers need "number". Of several columns one may be a number.
        ``overrides={"data.bandwidth": ...}`` is how far a window reaches.
    random_state
        Seed of the initial weights and the batches.
    device
        "cpu", "cuda" or "mps".

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(400, random_state=0)
    >>> model = FairClassifier("balanced", steps=50).fit(X, y, sensitive=X[:, 0] > 0)
    >>> model.predict(X[:3]).shape
    (3,)
    """

    # the groups of a scorer's rows are passed on without being asked for; fit has to ask
    __metadata_request__score = {"sensitive": True}  # noqa: RUF012

    def __init__(
        self,
        method: str = DEFAULT_METHOD,
        *,
        options: Mapping[str, Any] | None = None,
        profile: str = "cpu",
        steps: int | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        encoder: str = "mlp",
        overrides: Mapping[str, Any] | None = None,
        validation_fraction: float = 0.2,
        limit: Mapping[str, float] | None = None,
        missing: str = "error",
        groups: str = "cross",
        sensitive_as: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
    ) -> None:
        self.method = method
        self.options = options
        self.profile = profile
        self.steps = steps
        self.lr = lr
        self.batch_size = batch_size
        self.encoder = encoder
        self.overrides = overrides
        self.validation_fraction = validation_fraction
        self.limit = limit
        self.missing = missing
        self.groups = groups
        self.sensitive_as = sensitive_as
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any, sensitive: Any = None, **others: Any) -> FairClassifier:
        """Train on rows, their classes and their groups.

        Parameters
        ----------
        X
            Rows (n, D).
        y
            Classes (n,).
        sensitive
            Groups (n,), or (n, K) of K attributes as a data frame or array, whose intersections
            are the groups. Or numbers (n,) such as ages, see ``sensitive_as``. Or the names of
            columns of the data frame ``X``, which are then read and not learnt from: leave them
            out of ``X`` for ``predict``.
        **others
            Not taken, such as ``sample_weight``: batches are drawn by class and group.

        Returns
        -------
        FairClassifier
            The estimator itself.
        """
        if others:  # not in the signature: scikit-learn would take it for supported
            raise TypeError(
                f"FairClassifier.fit takes no {', '.join(others)}: batches are drawn by class and "
                "group. In place of a sample_weight repeat or leave out rows, or use the methods "
                "balanced and reweight"
            )
        if named := _named_columns(sensitive, X):
            X, sensitive = _columns_apart(X, named)
        _check_one_target(y)
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, t = np.unique(column_or_1d(y), return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"FairClassifier needs at least two classes; y has 1 class, {self.classes_[0]!r}"
            )
        attributes = self._grouped(sensitive, len(X))
        if self.missing == "drop":
            rows = np.all([attribute.codes >= 0 for attribute in attributes], axis=0)
            X, t, attributes = X[rows], t[rows], [a.only(rows) for a in attributes]
            self._check_classes_left(t)
        whole = _crossed(attributes)
        self.groups_, s = whole.values, whole.codes
        self.method_ = self.method if len(self.groups_) > 1 else _PLAIN
        if self.method_ != self.method:
            why = "no groups were given" if sensitive is None else "all rows are in one group"
            warnings.warn(
                f"{why}, so {_PLAIN} is trained instead of {self.method}; give fit(X, y, "
                "sensitive=...), and where another estimator calls fit, request it with "
                "set_fit_request(sensitive=True)",
                ShasamWarning,
                stacklevel=2,
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        held = self._held_out(t, s, seed)
        several = attributes if len(attributes) > 1 else []
        followed = [a for a in attributes if a.number is not None]
        number = followed[0] if followed and self.method_ == self.method else None
        data = Arrays(X, t.astype(np.int64), s.astype(np.int64), held, several, number)
        asked: dict[str, Any] = {}
        if (s < 0).any():
            infers = self.missing == "infer" and len(self.groups_) > 1
            asked = {"missing": "infer" if infers else "use"}
        if number is not None:
            asked |= {"sensitive": whole.name, "sensitive_as": "number"}
        if several:
            asked |= {"sensitive": [a.name for a in several], "groups": self.groups}
        self.spec_ = self._spec(X.shape[1], int((~held).sum()), seed, asked)
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay their own
            self.model_ = self._train(data)
            self._check_learnt(data)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Compute class probabilities, in the order of ``classes_``.

        Parameters
        ----------
        X
            Rows (n, D).

        Returns
        -------
        ndarray
            Probabilities (n, C).
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float32, reset=False)
        device = torch.device(self.device)
        parts = []
        with torch.no_grad():
            for start in range(0, len(X), _PART):
                part = torch.from_numpy(np.ascontiguousarray(X[start : start + _PART]))
                full = torch.zeros(_PART, X.shape[1])
                full[: len(part)] = part
                scores = next(iter(self.model_.logits(full.to(device)).values()))
                parts.append(torch.softmax(scores.double().cpu(), dim=1)[: len(part)])
        return torch.cat(parts).numpy()

    def predict(self, X: Any, sensitive: Any = None) -> np.ndarray:
        """Predict classes; ``posthoc`` decides by group and needs ``sensitive`` here as well.

        Parameters
        ----------
        X
            Rows (n, D).
        sensitive
            Groups (n,).

        Returns
        -------
        ndarray
            Classes (n,).
        """
        scores = self.predict_proba(X)
        prediction = scores.argmax(1)
        if not self.model_.has_rule:
            return self.classes_[prediction]
        if sensitive is None:
            raise ValueError(f"{self.method_} decides by group: give predict(X, sensitive)")
        attributes = _attributes(sensitive)
        _check_known(attributes, "give the group of every row that is to be decided")
        asked_groups = _crossed(attributes)
        given = asked_groups.values[asked_groups.codes].tolist()
        place = {group: number for number, group in enumerate(self.groups_.tolist())}
        strange = sorted({str(g) for g in given if g not in place})
        if strange:
            raise ValueError(f"{', '.join(strange[:3])} was not among the groups of fit")
        if len(given) != len(scores):
            raise ValueError(f"{len(scores)} rows came with {len(given)} groups")
        ids = np.array([f"{row:012d}" for row in range(len(scores))])
        groups = np.array([place[group] for group in given])
        asked = Predictions(ids, np.full(len(scores), -1), prediction, groups, scores)
        return self.classes_[self.model_.decide(asked).prediction]

    def score(self, X: Any, y: Any, sample_weight: Any = None, sensitive: Any = None) -> float:
        """Return accuracy; ``posthoc`` needs ``sensitive`` (in a search: set_score_request)."""
        prediction = self.predict(X, sensitive)
        return float(accuracy_score(y, prediction, sample_weight=sample_weight))

    def _grouped(self, sensitive: Any, rows: int) -> list[_Groups]:
        """Return the groups by each attribute; without any, all rows are in one group."""
        if sensitive is None:
            return [_Groups("sensitive", np.array([0]), np.zeros(rows, dtype=np.int64))]
        ways = ("error", "drop", "group", "use", "infer")
        if self.missing not in ways:
            raise ValueError(f"missing is one of {', '.join(ways)}; got {self.missing!r}")
        found = self._taken(sensitive)
        given = len(found[0].codes)
        if given != rows:
            raise ValueError(f"{rows} rows came with {given} groups; give one for each")
        if self.missing == "error":
            _check_known(
                found,
                "leave those rows out with missing='drop', make them a group with 'group', let "
                "them train the target alone with 'use', or have their groups inferred with "
                "'infer'",
            )
        return [a.with_missing() for a in found] if self.missing == "group" else found

    def _taken(self, sensitive: Any) -> list[_Groups]:
        """Return the attributes as groups, or the one that is a number."""
        ways = ("auto", "groups", "number")
        if self.sensitive_as not in ways:
            raise ValueError(f"sensitive_as is one of {', '.join(ways)}; got {self.sensitive_as!r}")
        array = np.asarray(sensitive)
        auto = self.sensitive_as == "auto" and self.missing != "group" and not self.limit
        if array.ndim == 2 and array.shape[1] > 1:
            return self._several(_named(sensitive), auto)
        if self.sensitive_as != "number" and not (auto and _is_number(array)):
            return _attributes(sensitive)
        if self.limit or self.missing == "group":
            what = "limit" if self.limit else "missing='group'"
            raise ValueError(
                f"{what} needs groups, and sensitive is followed as a number; make groups of it, "
                "such as sensitive < 35"
            )
        try:
            array = array.astype(np.float64).reshape(len(array))
        except (TypeError, ValueError) as error:
            raise ValueError(f"sensitive_as='number', and sensitive holds {error}") from error
        names = [*map(str, getattr(sensitive, "columns", ())), "sensitive"]
        return [_numbered(names[0], array)]

    def _several(self, named: list[tuple[str, np.ndarray]], auto: bool) -> list[_Groups]:
        """Several attributes as groups, but for one that is a number."""
        wanted = self.sensitive_as == "number"
        as_floats = {name: _floats(column) if wanted else column for name, column in named}
        numbers = [name for name in as_floats if auto or wanted if _is_number(as_floats[name])]
        if len(numbers) > 1:
            raise ValueError(
                f"{' and '.join(numbers)} are numbers of many values, and one can be followed at a "
                "time; make groups of the others, such as income < 30000"
            )
        if wanted and (not numbers or self.limit or self.missing == "group"):
            raise ValueError(
                "sensitive_as='number' needs a column of many numbers, no limit and no "
                "missing='group'; leave it out, and every column holds groups"
            )
        return [
            _numbered(name, as_floats[name]) if name in numbers else _one_attribute(name, column)
            for name, column in named
        ]

    def _check_classes_left(self, t: np.ndarray) -> None:
        if len(np.unique(t)) < len(self.classes_):
            raise ValueError(
                "without the rows that have no group a class of y is empty; use missing='group' "
                "or 'use'"
            )

    def _held_out(self, t: np.ndarray, s: np.ndarray, seed: int) -> np.ndarray:
        """Return the rows of every cell that post-processing is fitted on, where it is wanted."""
        held = np.zeros(len(t), dtype=bool)
        fits = lookup("method", self.method_).after_training is not Method.after_training
        if not fits and not self._limited:
            return held
        cell = t * (int(s.max()) + 1) + s
        for number in np.unique(cell[s >= 0]):
            rows = np.flatnonzero((cell == number) & (s >= 0))
            order = keyed(seed, int(number)).permutation(len(rows))
            held[rows[order[: int(self.validation_fraction * len(rows))]]] = True
        return held

    def _spec(self, dim: int, rows: int, seed: int, asked: Mapping[str, Any]) -> RunSpec:
        body: dict[str, Any] = {
            "method": self.method_,
            "options": dict(self.options or {}) if self.method_ == self.method else {},
            "data": {"name": "embeddings", "features_dim": dim, **asked},
            "model": {"encoder": self.encoder},
            "seed": seed,
        }
        given = {"steps": self.steps, "lr": self.lr, "batch_views": self.batch_size}
        train = {key: value for key, value in given.items() if value is not None}
        spec = resolve(body, {"train": train}, self.overrides or {}, profile=self.profile)
        # a batch of more rows than there are cannot be drawn
        stages = {
            name: stage.model_copy(update={"batch_views": min(stage.batch_views, rows)})
            for name, stage in (("learn", spec.train.learn), ("classify", spec.train.classify))
        }
        return spec.model_copy(update={"train": spec.train.model_copy(update=stages)})

    def _check_learnt(self, data: Arrays) -> None:
        """Warn where not even the rows of ``fit`` are told apart; few rows do to see that."""
        picks = np.sort(keyed(self.spec_.seed, 2).permutation(len(data.x))[:_LOOKED_AT])
        fabric = one_process(self.spec_.train, self.device)
        found = read_rows(self.model_, data, torch.from_numpy(picks), fabric)[1]
        own = next(iter(found.values()))
        self.skill_ = Skill.from_codes(own.target, own.prediction, data.classes)
        if not self.skill_.learnt:
            warnings.warn(
                f"{self.skill_.sentence('rows', 'training')} Try another lr or more steps, and "
                "look at the labels",
                ShasamWarning,
                stacklevel=3,
            )

    def _train(self, data: Arrays) -> Method:
        spec = self.spec_
        fabric = one_process(spec.train, self.device)
        method, _ = build_method(spec, data.classes, data.groups)
        taught: Arrays | DataWithGroups = data
        if spec.data.missing == "infer":
            found = infer_groups(data, spec.seed)
            self.inferred_groups_ = dict(found.summary)
            taught = DataWithGroups(data, found.manifest(data.manifest))
        Trainer.of_run(spec, method, taught, fabric=fabric, runtime=Runtime(quiet=True)).fit()
        held = torch.as_tensor(data.rows("val"))
        if len(held):
            read = next(iter(read_rows(method, data, held, fabric)[1].values()))
            method.after_training(read)
            if self._limited:
                return self._with_rule(method, read)
        return method

    @property
    def _limited(self) -> bool:
        """Whether thresholds are to be fitted for a limit; one group has no gap."""
        return bool(self.limit) and len(self.groups_) > 1

    def _with_rule(self, method: Method, held_out: Predictions) -> Method:
        """Return the method with the thresholds that keep the limit on held-out rows."""
        names = [tuple(map(str, found)) for found in (self.classes_, self.groups_)]
        rows = replace(held_out, classes=names[0], groups=names[1])
        self.rule_ = rule_for(rows, dict(self.limit or {}))
        if not self.rule_.kept:
            near = ", ".join(f"{name} {value:.3f}" for name, value in self.rule_.values.items())
            warnings.warn(
                f"no thresholds per group kept the limit on held-out rows; the nearest have {near}",
                ShasamWarning,
                stacklevel=5,
            )
        decided = deciding_by_group(method)
        decided.take_rule(self.rule_.rule)
        return decided


class FairnessScorer(BaseEstimator):
    """A scorer for ``cross_validate`` and searches: a metric of the catalogue, larger is better.

    A gap is returned with a minus sign. It asks for ``sensitive`` by itself, which
    scikit-learn hands out where metadata routing is enabled:

    >>> import sklearn
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.model_selection import cross_val_score
    >>> X, y = make_classification(400, random_state=0)
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     model = FairClassifier("ce", steps=50).set_fit_request(sensitive=True)
    ...     model = model.set_score_request(sensitive=True)
    ...     found = cross_val_score(
    ...         model, X, y, scoring=eo_mean_scorer, params={"sensitive": X[:, 0] > 0}, cv=2
    ...     )
    >>> bool((found <= 0).all())
    True
    """

    __metadata_request__score = {"sensitive": True}  # noqa: RUF012 - as scikit-learn reads it

    def __init__(self, metric: str = "eo_mean") -> None:
        self.metric = metric

    def score(self, estimator: Any, X: Any, y: Any, sensitive: Any = None) -> float:
        """Return the metric of the estimator's decisions; NaN if it is undefined."""
        if sensitive is None:
            raise ValueError(
                f"{self.metric} needs sensitive: enable metadata routing "
                "(sklearn.set_config(enable_metadata_routing=True)) and give "
                "params={'sensitive': ...}"
            )
        by_group = "sensitive" in signature(estimator.predict).parameters
        guess = estimator.predict(X, sensitive=sensitive) if by_group else estimator.predict(X)
        made = evaluate(
            *(np.asarray(column_or_1d(v)).astype(str) for v in (y, guess, sensitive)),
            metrics=[self.metric],
            draws=200,
        )
        value = made[self.metric].value
        if math.isnan(value):
            return value
        return value if catalogue.named(self.metric).better == "high" else -value

    __call__ = score


eo_mean_scorer = FairnessScorer("eo_mean")


# -------------------------------------------------------------------------------------------------
# The front of cross-validated models: what accuracy each gap costs.
# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoldMeans:
    """Hold one model's means over folds, and the standard deviations of the folds.

    Parameters
    ----------
    name
        The model.
    accuracy
        Mean accuracy.
    gap
        Mean gap; a smaller one is better.
    accuracy_sd
        Standard deviation of the accuracy over folds.
    gap_sd
        Standard deviation of the gap over folds.
    folds
        Number of folds in which both have a value.
    """

    name: str
    accuracy: float
    gap: float
    accuracy_sd: float
    gap_sd: float
    folds: int


@dataclass(frozen=True)
class CrossValidatedFront:
    """Hold the models that were cross-validated; a notebook shows their picture.

    Parameters
    ----------
    points
        All models, in the order they were given.
    metric
        The gap.
    """

    points: tuple[FoldMeans, ...]
    metric: str = "eo_mean"

    @property
    def best(self) -> list[str]:
        """Names of the models that no other beats in accuracy and gap, the smallest gap first."""
        return [c.name for c in undominated(self._choices)]

    def svg(self) -> str:
        """Draw accuracy against the gap; empty for fewer than two models."""
        label = catalogue.named(self.metric).label
        figure = front(self._choices, f"{label}, points")
        return standalone(figure) if figure else ""

    def _repr_svg_(self) -> str | None:
        return self.svg() or None

    @property
    def _choices(self) -> list[Choice]:
        return [
            Choice(p.name, p.name, p.accuracy, p.gap, kind=i)
            for i, p in enumerate(self.points)
            if p.folds
        ]


def front_of(
    results: Mapping[str, Mapping[str, Any]], *, accuracy: str = "accuracy", gap: str = "eo_mean"
) -> CrossValidatedFront:
    """Read the front off what ``cross_validate`` returned for several models.

    Means over folds rank models; folds share training rows, so their spread is no interval.

    Parameters
    ----------
    results
        What ``cross_validate`` returned, by the name of the model; its ``scoring`` needs the two
        names below, each a ``FairnessScorer``.
    accuracy
        Name of the score that is to be high.
    gap
        Name of the gap, a metric of the catalogue. Scorers return it with a minus sign.

    Returns
    -------
    CrossValidatedFront
        The points, which of them are not dominated, and the picture.

    Examples
    --------
    >>> import sklearn
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.model_selection import cross_validate
    >>> X, y = make_classification(400, random_state=0)
    >>> scoring = {name: FairnessScorer(name) for name in ("accuracy", "eo_mean")}
    >>> found = {}
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     for method in ("ce", "balanced"):
    ...         model = FairClassifier(method, steps=30).set_fit_request(sensitive=True)
    ...         found[method] = cross_validate(
    ...             model, X, y, scoring=scoring, params={"sensitive": X[:, 0] > 0}, cv=2
    ...         )
    >>> made = front_of(found)
    >>> [p.name for p in made.points], 1 <= len(made.best) <= 2, made.svg()[:4]
    (['ce', 'balanced'], True, '<svg')
    """
    better = {name: catalogue.named(name).better for name in (accuracy, gap)}
    if list(better.values()) != ["high", "low"]:
        raise ValueError(f"{accuracy} must be better high and {gap} better low, to be a front")
    points = []
    for name, found in results.items():
        columns = []
        for key in (accuracy, gap):
            if f"test_{key}" not in found:
                raise ValueError(
                    f"{name}: there is no test_{key}; give cross_validate "
                    f"scoring={{'{key}': FairnessScorer('{key}'), ...}}"
                )
            columns.append(np.asarray(found[f"test_{key}"], dtype=np.float64))
        high, low = columns[0], -columns[1]
        if (low < 0).any():
            raise ValueError(f"{name}: test_{gap} is above 0; a FairnessScorer gives minus the gap")
        told = np.isfinite(high) & np.isfinite(low)
        high, low, folds = high[told], low[told], int(told.sum())
        a, b = (float(v.mean()) if folds else math.nan for v in (high, low))
        sd_a, sd_b = (float(v.std(ddof=1)) if folds > 1 else math.nan for v in (high, low))
        points.append(FoldMeans(name, a, b, sd_a, sd_b, folds))
    return CrossValidatedFront(tuple(points), gap)
