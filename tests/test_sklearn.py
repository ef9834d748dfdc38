"""FairClassifier is a scikit-learn estimator, and trains with the trainer of the command line."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import sklearn
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from shasam.errors import ShasamWarning
from shasam.metrics import evaluate
from shasam.sklearn import FairClassifier


def biased(rows: int, bias: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A class that is hard to see, and a group that is easy to see and goes along with it."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    s = np.where(rng.random(rows) < bias, y, 1 - y)
    x = rng.normal(size=(rows, 16))
    x[:, 0] += 1.5 * y
    x[:, 1] += 3.0 * s
    return x, np.array(["no", "yes"])[y], np.array(["a", "b"])[s]


X, Y, S = biased(1000, 0.9)
X_TEST, Y_TEST, S_TEST = biased(2000, 0.5, seed=1)


def gap(prediction: np.ndarray) -> float:
    return evaluate(Y_TEST, prediction, S_TEST)["eo_mean"].value


def test_it_passes_the_checks_of_scikit_learn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShasamWarning)  # the checks give no groups
        found = check_estimator(FairClassifier(steps=60, profile="smoke"), on_fail=None)
    failed = {entry["check_name"] for entry in found if entry["status"] == "failed"}
    assert not failed and len(found) > 40


def test_it_is_fairer_than_logistic_regression_and_stands_beside_fairlearn() -> None:
    from fairlearn.reductions import EqualizedOdds, ExponentiatedGradient

    plain = LogisticRegression().fit(X, Y).predict(X_TEST)
    ours = FairClassifier(steps=150).fit(X, Y, sensitive=S)
    theirs = ExponentiatedGradient(LogisticRegression(), EqualizedOdds(), max_iter=10)
    theirs.fit(X, (Y == "yes").astype(int), sensitive_features=S)
    reduced = np.array(["no", "yes"])[theirs.predict(X_TEST, random_state=0)]
    assert gap(ours.predict(X_TEST)) < gap(plain) / 2
    assert ours.score(X_TEST, Y_TEST) > (reduced == Y_TEST).mean() - 0.05
    assert list(ours.classes_) == ["no", "yes"]
    assert np.allclose(ours.predict_proba(X_TEST).sum(1), 1)


def test_groups_reach_it_through_pipelines_and_searches() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = FairClassifier("balanced", steps=30).set_fit_request(sensitive=True)
        whole = make_pipeline(StandardScaler(), model)
        scores = cross_validate(whole, X, Y, cv=2, params={"sensitive": S})["test_score"]
        assert len(scores) == 2 and min(scores) > 0.6
        grid = {"fairclassifier__method": ["ce", "balanced"]}
        search = GridSearchCV(whole, grid, cv=2).fit(X, Y, sensitive=S)
    assert set(search.best_estimator_[-1].groups_) == {"a", "b"}


def test_without_groups_it_trains_cross_entropy_and_says_so() -> None:
    with pytest.warns(ShasamWarning, match="no groups were given, so ce is trained"):
        model = FairClassifier("fscl+", steps=20).fit(X, Y)
    assert model.method_ == "ce"
    with pytest.warns(ShasamWarning, match="all rows are in one group"):
        FairClassifier("shasam", steps=20).fit(X, Y, sensitive=np.zeros(len(X)))


def test_posthoc_decides_by_group_on_rows_it_did_not_train_on() -> None:
    model = FairClassifier("posthoc", steps=60).fit(X, Y, sensitive=S)
    assert gap(model.predict(X_TEST, sensitive=S_TEST)) < gap(
        LogisticRegression().fit(X, Y).predict(X_TEST)
    )
    with pytest.raises(ValueError, match="decides by group"):
        model.predict(X_TEST)
    with pytest.raises(ValueError, match="was not among the groups"):
        model.predict(X_TEST[:1], sensitive=["c"])


def test_a_seed_gives_one_model_and_the_callers_random_numbers_stay() -> None:
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    first, second = (FairClassifier(steps=20).fit(X, Y, sensitive=S) for _ in range(2))
    assert torch.equal(torch.rand(3), wanted)
    assert np.array_equal(first.predict_proba(X_TEST), second.predict_proba(X_TEST))


def test_bad_groups_are_a_sentence() -> None:
    with pytest.raises(ValueError, match="1000 rows came with 3 groups"):
        FairClassifier(steps=5).fit(X, Y, sensitive=S[:3])
    with pytest.raises(ValueError, match="NaN"):
        FairClassifier(steps=5).fit(X, Y, sensitive=np.full(len(X), np.nan))
    with pytest.raises(ValueError, match="there is no method 'shasan'; did you mean"):
        FairClassifier("shasan", steps=5).fit(X, Y, sensitive=S)


def test_several_attributes_are_columns_of_a_frame_or_an_array() -> None:
    pd = pytest.importorskip("pandas")
    old = np.where(np.arange(len(X)) % 3 == 0, "old", "young")
    frame = pd.DataFrame({"group": S, "age": old})
    made = FairClassifier("balanced", steps=10).fit(X, Y, sensitive=frame)
    names = sorted({f"{s} & {a}" for s, a in zip(S, old, strict=True)})
    assert made.groups_.tolist() == names
    array = np.column_stack([S, old])
    same = FairClassifier("balanced", steps=10).fit(X, Y, sensitive=array)
    joined = FairClassifier("balanced", steps=10).fit(
        X, Y, sensitive=[f"{s} & {a}" for s, a in zip(S, old, strict=True)]
    )
    for other in (same, joined):
        assert np.array_equal(made.predict_proba(X_TEST), other.predict_proba(X_TEST))
    columns = pd.DataFrame(X).rename(columns=str).assign(group=S, age=old)
    named = FairClassifier("balanced", steps=10).fit(columns, Y, sensitive=["group", "age"])
    assert named.n_features_in_ == X.shape[1] and named.groups_.tolist() == names
    by_group = FairClassifier("posthoc", steps=10).fit(X, Y, sensitive=frame)
    assert by_group.predict(X[:5], sensitive=frame[:5]).shape == (5,)


@pytest.mark.parametrize("absent", [None, float("nan"), "NA"])
def test_rows_without_a_group_are_used_dropped_or_a_group(absent: object) -> None:
    pd = pytest.importorskip("pandas")
    given = S.astype(object)
    given[::2] = pd.NA if absent == "NA" else absent
    with pytest.raises(ValueError, match=r"in 500 of 1000 rows; leave those rows out.*'use'"):
        FairClassifier("balanced", steps=5).fit(X, Y, sensitive=given)
    used = FairClassifier("balanced", steps=20, missing="use").fit(X, Y, sensitive=given)
    assert used.groups_.tolist() == ["a", "b"] and used.spec_.data.missing == "use"
    grouped = FairClassifier("balanced", steps=5, missing="group").fit(X, Y, sensitive=given)
    assert grouped.groups_.tolist() == ["a", "b", "(missing)"]
    left = FairClassifier("balanced", steps=5, missing="drop").fit(X, Y, sensitive=given)
    kept = FairClassifier("balanced", steps=5).fit(X[1::2], Y[1::2], sensitive=S[1::2])
    assert np.array_equal(left.predict_proba(X_TEST), kept.predict_proba(X_TEST))
    with pytest.raises(ValueError, match="posthoc needs the group of every row"):
        FairClassifier("posthoc", steps=5, missing="use").fit(X, Y, sensitive=given)


def test_groups_are_inferred_from_the_rows_that_have_one() -> None:
    given = S.astype(object)
    given[::3] = None
    x = X.copy()
    x[:, 0] += 3 * (S == "b")  # what the group is read off
    made = FairClassifier("groupdro", steps=20, missing="infer").fit(x, Y, sensitive=given)
    found = made.inferred_groups_
    assert made.spec_.data.missing == "infer" and made.groups_.tolist() == ["a", "b"]
    assert found["known"] + found["inferred"] + found["unknown"] == len(X)
    assert found["validation"] is None and found["cross_fitted"]["accuracy"] > 0.85
    known = FairClassifier("groupdro", steps=20, missing="infer").fit(x, Y, sensitive=S)
    assert not hasattr(known, "inferred_groups_")
    with pytest.raises(ValueError, match="infers one sensitive attribute"):
        FairClassifier(steps=5, missing="infer").fit(x, Y, sensitive=np.stack([given, given], 1))


def test_several_targets_are_refused_with_what_to_do() -> None:
    from sklearn.multioutput import MultiOutputClassifier

    both = np.column_stack([Y, Y[::-1]])
    with pytest.raises(ValueError, match=r"y has 2 columns.*fit a model for each"):
        FairClassifier(steps=5).fit(X, both, sensitive=S)
    with sklearn.config_context(enable_metadata_routing=True):
        one = FairClassifier("ce", steps=5).set_fit_request(sensitive=True)
        assert MultiOutputClassifier(one).fit(X, both, sensitive=S).predict(X[:3]).shape == (3, 2)


def test_a_search_can_score_posthoc_and_the_gap() -> None:
    import sklearn
    from sklearn.model_selection import GridSearchCV

    from shasam.metrics import evaluate
    from shasam.sklearn import eo_mean_scorer

    rng = np.random.default_rng(0)
    s = rng.integers(0, 2, 400)
    y = rng.integers(0, 2, 400)
    X = rng.normal(size=(400, 4)) + np.where(s == 0, 1.5, 0.3)[:, None] * (2 * y - 1)[:, None]
    model = FairClassifier(steps=20, encoder="identity")
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(sensitive=True).set_score_request(sensitive=True)
        plain = GridSearchCV(model, {"method": ["ce", "posthoc"]}, cv=2, error_score="raise")
        plain.fit(X, y, sensitive=s)
        assert np.isfinite(plain.cv_results_["mean_test_score"]).all()
        fair = GridSearchCV(
            model, {"method": ["ce", "posthoc"]}, cv=2, scoring=eo_mean_scorer, error_score="raise"
        )
        fair.fit(X, y, sensitive=s)
    assert (fair.cv_results_["mean_test_score"] <= 0).all()
    own = fair.best_estimator_
    guess = own.predict(X, sensitive=s)
    expected = evaluate(y, guess, s, metrics=["eo_mean"])["eo_mean"].value
    assert eo_mean_scorer(own, X, y, sensitive=s) == pytest.approx(-expected)
    assert own.score(X, y, sensitive=s) == pytest.approx(np.mean(guess == y))
    with pytest.raises(ValueError, match="needs sensitive"):
        eo_mean_scorer(own, X, y)


def test_a_front_is_read_off_cross_validated_scores() -> None:
    from xml.etree import ElementTree

    from shasam.sklearn import front_of

    def folds(accuracy: list[float], gap: list[float]) -> dict[str, np.ndarray]:
        return {"test_accuracy": np.array(accuracy), "test_eo_mean": -np.array(gap)}

    found = {
        "ce": folds([0.8, 0.82], [0.2, 0.1]),
        "worse": folds([0.7, 0.7], [0.3, 0.2]),
        "fair": folds([0.75, 0.73, 0.9], [0.02, 0.04, np.nan]),
        "never": folds([0.9], [np.nan]),
    }
    made = front_of(found)
    assert made.best == ["fair", "ce"]
    fair = made.points[2]
    assert (fair.folds, fair.accuracy, fair.gap) == (2, pytest.approx(0.74), pytest.approx(0.03))
    assert fair.gap_sd == pytest.approx(np.std([0.02, 0.04], ddof=1))
    assert made.points[3].folds == 0 and np.isnan(made.points[3].gap)
    said = ElementTree.fromstring(made._repr_svg_())
    assert said is not None and "EO (mean), points" in made.svg()
    assert front_of({"ce": found["ce"]})._repr_svg_() is None
    with pytest.raises(ValueError, match="there is no test_demographic_parity"):
        front_of(found, gap="demographic_parity")
    with pytest.raises(ValueError, match="minus the gap"):
        front_of({"ce": {**found["ce"], "test_eo_mean": [0.1, 0.2]}})
    with pytest.raises(ValueError, match="to be a front"):
        front_of(found, accuracy="eo_mean", gap="accuracy")


AGE = np.where(S == "a", 30.0, 55.0) + np.random.default_rng(5).normal(0, 8, len(S))


@pytest.mark.parametrize("method", ["ce", "balanced", "shasam-random", "hsic"])
def test_floats_of_many_values_are_followed_as_a_number(method: str) -> None:
    model = FairClassifier(method, steps=20, profile="smoke").fit(X, Y, sensitive=AGE)
    assert model.spec_.data.sensitive_as == "number" and model.method_ == method
    assert model.model_.groups == 0 and len(model.groups_) == 4
    assert model.predict(X_TEST).shape == (len(X_TEST),)


def test_how_numbers_are_taken_can_be_forced() -> None:
    short = {"steps": 5, "profile": "smoke"}
    rounded = np.round(AGE / 5) * 5
    assert len(np.unique(rounded)) <= 20
    model = FairClassifier("balanced", **short).fit(X, Y, sensitive=rounded)
    assert len(model.groups_) == len(np.unique(rounded))
    model = FairClassifier("balanced", sensitive_as="number", **short).fit(
        X, Y, sensitive=AGE.astype(int)
    )
    assert model.spec_.data.sensitive_as == "number"
    with pytest.raises(Exception, match="at least one image of each"):
        FairClassifier("balanced", sensitive_as="groups", **short).fit(X, Y, sensitive=AGE)
    absent = np.where(np.arange(len(AGE)) % 5 == 0, np.nan, AGE)
    model = FairClassifier("shasam-random", missing="use", **short).fit(X, Y, sensitive=absent)
    assert model.spec_.data.missing == "use"


@pytest.mark.parametrize(
    ("settings", "sensitive", "says"),
    [
        ({"sensitive_as": "numbers"}, AGE, "auto, groups, number"),
        ({"method": "groupdro"}, AGE, "groupdro needs groups"),
        ({"sensitive_as": "number"}, S, "could not convert"),
        ({"sensitive_as": "number", "limit": {"eo_mean": 0.1}}, AGE, "limit needs groups"),
        ({"sensitive_as": "number", "missing": "group"}, AGE, "needs groups"),
        ({"sensitive_as": "number"}, np.c_[AGE, AGE], "one can be followed at a time"),
        ({"sensitive_as": "number"}, np.c_[S, S], "needs a column of many numbers"),
        ({}, np.where(AGE > 30, AGE, np.nan), "no group"),
    ],
)
def test_what_cannot_be_followed_as_a_number_is_a_sentence(settings, sensitive, says) -> None:
    model = FairClassifier(**{"method": "balanced", "steps": 5, "profile": "smoke", **settings})
    with pytest.raises(Exception, match=says):
        model.fit(X, Y, sensitive=sensitive)


@pytest.mark.parametrize("groups", ["cross", "each"])
def test_a_number_is_followed_beside_groups(groups: str) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"group": S, "age": np.where(np.arange(len(S)) % 9 == 0, np.nan, AGE)})
    model = FairClassifier("shasam-random", steps=5, profile="smoke", groups=groups, missing="use")
    model.fit(X, Y, sensitive=frame)
    assert model.spec_.data.sensitive_as == "number" and len(model.groups_) == 6  # that have rows
    assert model.spec_.data.sensitive == ("group", "age") and model.predict(X).shape == Y.shape
    array = np.array([S.astype(str), AGE.astype(int)], dtype=object).T
    made = FairClassifier("balanced", steps=10, sensitive_as="number").fit(X, Y, sensitive=array)
    assert made.spec_.data.sensitive_as == "number"
    assert set(name.partition(" & ")[0] for name in made.groups_) == set(S.astype(str))
