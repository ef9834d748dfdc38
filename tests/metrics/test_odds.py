"""Thresholds per group: rules against naive versions, cross-fitting, and the front of an audit."""

from __future__ import annotations

import json

import numpy as np
import pytest

from shasam.cli import app
from shasam.errors import InputError
from shasam.metrics import odds, values
from shasam.metrics.counts import Counts
from shasam.metrics.odds import GroupRule, cross_fitted, front_of_scores, fronts_of
from shasam.types import Predictions


def scored(n: int, seed: int, *, groups: int = 2, bias: float = 0.7, classes: int = 2):
    """Rows whose scores favour a class in the higher groups by ``bias``."""
    rng = np.random.default_rng(seed)
    t, s = rng.integers(0, classes, n), rng.integers(0, groups, n)
    z = 1.2 * np.eye(classes)[t] + rng.normal(size=(n, classes))
    z[:, -1] += bias * s
    q = np.exp(2 * z)
    q /= q.sum(1, keepdims=True)
    return Predictions(
        ids=np.arange(n).astype(str), target=t, prediction=q.argmax(1), sensitive=s, scores=q,
        classes=tuple(f"class {c}" for c in range(classes)),
        groups=tuple(f"group {g}" for g in range(groups)),
    )  # fmt: skip


def boxes_one_by_one(x, heights, weights, tolerance):
    """Every box and group in a loop of its own."""
    best, out = -np.inf, {}
    for u in np.linspace(0.0, 1.0, odds.BOXES + 1):
        inside = [i for i, v in enumerate(x) if u - 1e-12 <= v <= u + tolerance + 1e-12]
        for v in np.linspace(0.0, 1.0, odds.BOXES + 1):
            total, found = 0.0, {}
            for g, height in heights.items():
                tried = [
                    (weights[g][0] * min(height[i], v + tolerance) + weights[g][1] * (1 - x[i]), -i)
                    for i in inside
                    if height[i] >= v and min(height[i], v + tolerance) >= x[i] - 1e-12
                ]
                if not tried:
                    break
                value, place = max(tried)
                total += value
                found[g] = (-place, float(min(height[-place], v + tolerance)))
            if len(found) == len(heights) and total > best + 1e-9:
                best, out = total, found
    return out


@pytest.mark.parametrize(("groups", "tolerance"), [(2, 0.03), (2, 0.15), (3, 0.08)])
def test_relaxed_rates_are_those_of_all_boxes_tried_one_by_one(groups, tolerance):
    rows = scored(400, 1, groups=groups)
    x = np.linspace(0, 1, 41)
    heights, weights = {}, {}
    for g in range(groups):
        own = rows.sensitive == g
        hull = odds._hull(rows.scores[own, 1], rows.target[own])
        heights[g] = np.interp(x, hull[:, 0], hull[:, 1])
        weights[g] = (int((rows.target[own] == 1).sum()), int((rows.target[own] == 0).sum()))
    made = odds._relaxed(x, heights, weights, tolerance)
    wanted = boxes_one_by_one(x, heights, weights, tolerance)
    right = [
        sum(weights[g][0] * reach + weights[g][1] * (1 - x[i]) for g, (i, reach) in found.items())
        for found in (made, wanted)
    ]
    assert right[0] == pytest.approx(right[1], abs=1e-6)
    for points in (made, wanted):
        for axis in ([x[i] for i, _ in points.values()], [r for _, r in points.values()]):
            assert max(axis) - min(axis) <= tolerance + 1e-9


@pytest.mark.parametrize("classes", [2, 3])
def test_no_row_is_decided_by_a_rule_that_saw_it(classes, monkeypatch):
    rows = scored(300, 2, classes=classes)
    seen: list[set[float]] = []
    fit, decide = GroupRule.fit.__func__, GroupRule.decide

    def spied(cls, scores, *rest):
        seen.append(set(scores[:, 0].tolist()))
        return fit(cls, scores, *rest)

    def checked(self, scores, group, uniform):
        assert seen[-1].isdisjoint(scores[:, 0].tolist())
        assert len(seen[-1]) + len(scores) == 300
        return decide(self, scores, group, uniform)

    monkeypatch.setattr(GroupRule, "fit", classmethod(spied))
    monkeypatch.setattr(GroupRule, "decide", checked)
    decided = cross_fitted(rows, 0.05)
    assert len(seen) == odds.FOLDS and set(np.unique(decided)) <= set(range(classes))


@pytest.mark.needs_torch
@pytest.mark.parametrize("classes", [2, 3])
def test_a_rule_decides_as_the_method_posthoc_does(classes):
    torch = pytest.importorskip("torch")
    from shasam.methods.posthoc import PostHoc
    from shasam.models import MLP

    rows = scored(500, 3, classes=classes)
    rule = GroupRule.fit(rows.scores, rows.target, rows.sensitive, 2, 0.05)
    method = PostHoc(PostHoc.Config(tolerance=0.05), MLP(4, width=4, depth=1), classes, 2)
    method.after_training(rows)
    u = np.random.default_rng(0).random(500)
    given = (rows.scores, rows.sensitive, u)
    made = method.decision(*(torch.from_numpy(array) for array in given)).numpy()
    assert (rule.decide(*given) == made).all()


def test_a_front_shows_a_smaller_gap_where_the_scores_of_groups_are_shifted():
    found = front_of_scores(scored(3000, 4, bias=1.2), draws=400)
    strict = found.points[0]
    assert strict.gap.high < found.gap.low  # for sure smaller
    assert strict.relief.high < 0
    # all intervals hold at once: wider than one that is read alone
    assert strict.gap.high - strict.gap.low > 0.8 * (found.gap.high - found.gap.low)


def test_a_rule_is_not_praised_for_the_rows_it_was_fitted_on():
    rows = scored(160, 5, bias=0.8)
    rule = GroupRule.fit(rows.scores, rows.target, rows.sensitive, 2, 0.0)
    chance = rule.probabilities(rows.scores, rows.sensitive)
    rates = [
        chance[(rows.target == t) & (rows.sensitive == g), t].mean() for t in (0, 1) for g in (0, 1)
    ]
    seen = (abs(rates[0] - rates[1]) + abs(rates[2] - rates[3])) / 2
    honest = front_of_scores(rows, tolerances=(0.0,), draws=200, min_group=0).points[0].gap.value
    assert seen < 0.01 < honest


def test_what_cannot_be_tried_is_said():
    rows = scored(200, 6)
    with pytest.raises(InputError, match="no scores"):
        front_of_scores(Predictions(**{**vars(rows), "scores": np.zeros((200, 0))}))
    few = Predictions(**{**vars(rows), "sensitive": np.where(np.arange(200) < 4, 1, 0)})
    with pytest.raises(InputError, match="fewer than two groups have 5 rows of every class"):
        front_of_scores(few)


def reached(rows: Predictions, decided: np.ndarray) -> tuple[float, float]:
    codes = rows.target, decided, rows.sensitive
    found = values(Counts.from_codes(*codes, rows.classes, rows.groups), ["eo_mean", "accuracy"])
    return found["eo_mean"], found["accuracy"]


def test_fronts_of_models_are_means_over_runs_of_decisions_by_rules_of_other_rows():
    runs = [scored(400, seed, bias=1.2) for seed in (1, 2)]
    bare = [Predictions(**{**vars(r), "scores": r.scores[:, :0]}) for r in runs]
    found = fronts_of({"a": runs, "b": bare}, draws=200)
    own = np.mean([reached(r, r.prediction) for r in runs], axis=0)
    assert (found["a"].own.gap, found["a"].own.accuracy) == pytest.approx(own)
    for point, tolerance in zip(found["a"].thresholds, odds.TOLERANCES, strict=True):
        each = np.mean([reached(r, cross_fitted(r, tolerance)) for r in runs], axis=0)
        assert (point.gap, point.accuracy) == pytest.approx(each)
        assert point.gap_ends[0] <= point.gap <= point.gap_ends[1]
        assert point.accuracy_ends[0] <= point.accuracy <= point.accuracy_ends[1]
    most = np.mean([np.bincount(r.target).max() / len(r) for r in runs])
    assert (found["a"].constant.gap, found["a"].constant.accuracy) == (0, pytest.approx(most))
    assert found["b"].thresholds == () and found["b"].reason == "the table has no scores"
    value, low, high = found["a"].area
    assert low <= value <= high and value >= found["b"].area[0]
    alone = Predictions(**{**vars(runs[0]), "sensitive": runs[0].sensitive * runs[0].target})
    assert fronts_of({"a": [alone]}) == {}  # class 0 is in one group only


@pytest.mark.parametrize(("runs", "spread"), [(1, 0.0), (3, 0.0), (3, 0.04), (6, 0.04)])
def test_the_band_of_fronts_holds_for_two_models_at_once(runs: int, spread: float):
    """Over rows and over runs whose rates differ by chance, in 95 % or more of simulations."""
    rng = np.random.default_rng(runs)
    t, s = (a.ravel() for a in np.indices((2, 2, 150))[:2])
    rates = {"a": np.array([[0.9, 0.7], [0.8, 0.7]]), "b": np.array([[0.8, 0.75], [0.6, 0.75]])}
    held = 0
    for k in range(100):
        models = {}
        for name, rate_CG in rates.items():
            models[name] = []
            for _ in range(runs):
                # a shift of the second group alone: the gaps of a run stay of one sign
                moved_CG = rate_CG + rng.normal(0, spread, (2, 1)) * [0, 1]
                p = np.where(rng.random(len(t)) < moved_CG[t, s], t, 1 - t)
                none = np.zeros((len(t), 0))
                models[name].append(
                    Predictions(np.array([]), t, p, s, none, ("x", "y"), ("g", "h"))
                )
        found = fronts_of(models, draws=400, seed=k)
        held += all(
            low <= truth <= high
            for name, rate_CG in rates.items()
            for truth, (low, high) in (
                (abs(rate_CG[:, 0] - rate_CG[:, 1]).mean(), found[name].own.gap_ends),
                (rate_CG.mean(), found[name].own.accuracy_ends),
            )
        )
    assert held >= 0.95 * 100 - 6  # less 3 standard deviations of the count


def table(path, rows: Predictions) -> None:
    lines = ["id,target,prediction,score,group"]
    for i in range(len(rows)):
        shown = f"{rows.scores[i, 1]:.6f},{rows.groups[rows.sensitive[i]]}"
        lines.append(f"{i},{rows.target[i]},{rows.prediction[i]},{shown}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_an_audit_shows_the_front_on_screen_page_and_in_json(tmp_path, capsys):
    table(tmp_path / "p.csv", scored(1500, 7, bias=1.2))
    files = ["--html", str(tmp_path / "p.html"), "--json", str(tmp_path / "p.json")]
    figures = ["--figures", str(tmp_path / "figures")]
    command = ["audit", str(tmp_path / "p.csv"), "--score", "score", "--sensitive", "group"]
    app([*command, "--front", "--draws", "300", *files, *figures], result_action="return_value")
    said = " ".join(capsys.readouterr().out.split())
    assert "Thresholds per group could bring the gap to" in said
    assert "need the group of all rows at prediction" in said
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "What thresholds per group could do" in page and "--front" in page
    (audit,) = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))["audits"]
    assert [p["tolerance"] for p in audit["front"]["points"]] == list(odds.TOLERANCES)
    best = min(audit["front"]["points"], key=lambda p: p["gap"]["value"])
    assert f"could bring the gap to {100 * best['gap']['value']:.1f} points" in said
    assert (tmp_path / "figures" / "front-0.svg").is_file()


def test_where_groups_are_alike_no_threshold_is_praised(tmp_path, capsys):
    table(tmp_path / "p.csv", scored(1200, 8, bias=0.0))
    command = ["audit", str(tmp_path / "p.csv"), "--score", "score", "--sensitive", "group"]
    app([*command, "--front", "--draws", "300"], result_action="return_value")
    said = " ".join(capsys.readouterr().out.split())
    assert "No thresholds per group are shown to make the gap smaller here." in said
