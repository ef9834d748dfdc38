"""Decisions that keep limits: against every threshold tried, on rows they were not fitted on."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from tests.metrics.test_odds import scored

from shasam.errors import InputError, SpecError
from shasam.metrics import limits as module
from shasam.metrics import values
from shasam.metrics.counts import Counts
from shasam.metrics.limits import log_scores, offset_decision, offsets_for, rule_for
from shasam.report.audits import limits_of


def found(rows, decided, *names):
    counts = Counts.from_codes(
        rows.target, decided, rows.sensitive, rows.classes, rows.groups, None
    )
    return values(counts, [*names, "accuracy"])


def known(rows) -> np.ndarray:
    return np.eye(len(rows.groups))[rows.sensitive]


@pytest.mark.parametrize(
    ("limit", "bound"), [("eo_mean", 0.03), ("tpr_min", 0.85), ("demographic_parity", 0.05)]
)
def test_searched_thresholds_are_nearly_the_best_of_all_that_keep_the_limit(limit, bound):
    rows = scored(600, 3, bias=0.9)
    every = np.ones(len(rows), dtype=bool)
    offset = module._path(module._Rows.of(rows, known(rows), every), {limit: bound})[2]
    own = found(rows, offset_decision(log_scores(rows), known(rows), offset), limit)
    better = (lambda v: v >= bound) if limit == "tpr_min" else (lambda v: v <= bound)
    assert better(own[limit])
    best = 0.0
    for a, b in product(np.linspace(0.02, 0.98, 49), repeat=2):
        tried = (rows.scores[:, 1] > np.where(rows.sensitive == 0, a, b)).astype(int)
        value = found(rows, tried, limit)
        best = max(best, value["accuracy"] if better(value[limit]) else 0.0)
    assert own["accuracy"] >= best - 0.01


@pytest.mark.parametrize(("classes", "groups", "near"), [(2, 2, False), (4, 3, True)])
def test_a_step_is_judged_as_if_every_row_were_decided_anew(classes, groups, near):
    rows = scored(300, 5, classes=classes, groups=groups)
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(groups), len(rows))
    offset = rng.normal(size=(groups, classes))
    searched = module._Rows.of(rows, share, np.ones(len(rows), dtype=bool))
    for g, c in product(range(groups), range(1, classes)):
        step, good = searched.along(offset, (g, c), {"eo_mean": 0.1}, 10.0, near)
        moved = offset.copy()
        moved[g, c] += step
        value = found(rows, offset_decision(log_scores(rows), share, moved), "eo_mean")
        lost = 10.0 * max(value["eo_mean"] - 0.1, 0.0)
        assert good == pytest.approx(value["accuracy"] - lost, abs=1e-9)
        stay = found(rows, offset_decision(log_scores(rows), share, offset), "eo_mean")
        assert good >= stay["accuracy"] - 10.0 * max(stay["eo_mean"] - 0.1, 0.0) - 1e-9


@pytest.mark.parametrize(("groups", "classes"), [(2, 2), (3, 3)])
def test_an_inferred_group_keeps_the_limit_on_new_rows_without_the_group(groups, classes):
    bias = 0.9 / (groups - 1)

    def split(seed):
        rows = scored(4000, seed, groups=groups, classes=classes, bias=bias)
        noise = np.random.default_rng(seed).normal(size=(len(rows), groups))
        e = np.exp(2 * (1.5 * known(rows) + noise))
        return rows, e / e.sum(1, keepdims=True)

    (rows, share), (new, new_share) = split(1), split(2)
    chosen = offsets_for(rows, share, {"eo_mean": 0.05})
    assert chosen.kept and chosen.values["eo_mean"] <= 0.05
    decided = offset_decision(log_scores(new), new_share, chosen.offset_GC)
    before, after = found(new, new.prediction, "eo_mean"), found(new, decided, "eo_mean")
    assert before["eo_mean"] > 0.08 and after["eo_mean"] < 0.06
    assert after["accuracy"] > before["accuracy"] - 0.03


def test_a_gap_that_rows_cannot_show_is_not_bought_with_a_constant_answer():
    """28 rows in a cell of seven groups: chance alone makes a mean gap of 7 points."""
    rows = scored(400, 8, groups=7, bias=0.2)
    share = 0.9 * known(rows) + 0.1 / 7
    free, capped = (
        offset_decision(log_scores(rows), share, chosen.offset_GC)
        for chosen in (offsets_for(rows, share, {"eo_mean": 0.02}, price=p) for p in (1.0, 0.05))
    )
    plain = found(rows, rows.prediction)["accuracy"]
    assert found(rows, free)["accuracy"] < plain - 0.1
    assert found(rows, capped)["accuracy"] > plain - 0.06


def test_offsets_that_end_elsewhere_on_all_rows_do_not_cost_more_than_the_price(monkeypatch):
    """On data without a gap a search of all rows once cost 13 points that no fold had paid."""
    rows = scored(600, 3, bias=0.9)
    search = module._path

    def astray(some, limits):
        far = 9.0 if len(some.logits_NC) == len(rows) else 0.0
        return [np.add(offset_GC, [0.0, far]) for offset_GC in search(some, limits)]

    plain = found(rows, rows.prediction)["accuracy"]
    for path, better in ((search, True), (astray, False)):
        monkeypatch.setattr(module, "_path", path)
        chosen = offsets_for(rows, known(rows), {"eo_mean": 0.05}, price=0.05)
        decided = offset_decision(log_scores(rows), known(rows), chosen.offset_GC)
        assert found(rows, decided)["accuracy"] >= plain - 0.05
        assert bool(chosen.offset_GC.any()) == better  # else the decisions as they were


def test_a_model_that_keeps_the_limit_keeps_its_decisions():
    rows = scored(3000, 7, bias=0.0)
    share = np.full((len(rows), 2), 0.5)
    chosen = offsets_for(rows, share, {"eo_mean": 0.5})
    decided = offset_decision(log_scores(rows), share, chosen.offset_GC)
    assert chosen.kept and (decided == rows.prediction).mean() > 0.97


def test_no_group_below_a_recall_is_a_limit_and_several_hold_at_once():
    rows, new = (scored(6000, seed, bias=1.2) for seed in (1, 2))
    uniform = np.random.default_rng(0).random(len(new))
    limits = {"tpr_min": 0.8, "tnr_min": 0.72}
    plain = found(new, new.prediction, *limits)
    assert min(plain["tpr_min"] - 0.8, plain["tnr_min"] - 0.72) < -0.05
    chosen = rule_for(rows, limits)
    assert chosen.kept and chosen.tolerance is None
    after = found(new, chosen.rule.decide(new.scores, new.sensitive, uniform), *limits)
    assert after["tpr_min"] > 0.78 and after["tnr_min"] > 0.70
    assert rule_for(rows, {"eo_mean": 0.05}).tolerance is not None


def test_rows_without_a_group_take_their_inferred_groups_with_them():
    rows = scored(50, 0)
    rows = replace(rows, inferred=known(rows), sensitive=np.where(np.arange(50) < 9, -1, 1))
    kept = rows.with_group
    assert len(kept) == 41 and (kept.inferred == rows.inferred[9:]).all()


def test_a_limit_on_scores_is_refused():
    rows = scored(400, 0)
    for fit in (lambda: rule_for(rows, {"ece_max": 0.1}),
                lambda: offsets_for(rows, known(rows), {"abcc": 0.1})):  # fmt: skip
        with pytest.raises(InputError, match="is a metric of scores"):
            fit()


def test_a_limit_may_say_its_side_and_not_the_wrong_one():
    read = limits_of(["tpr_min>=0.8", "eo_mean <= 0.05", "accuracy=0.7", "eo_mean.high<=0.1"])
    assert [(x.metric, x.end, x.bound) for x in read] == [
        ("tpr_min", "value", 0.8), ("eo_mean", "value", 0.05), ("accuracy", "value", 0.7),
        ("eo_mean", "high", 0.1),
    ]  # fmt: skip
    with pytest.raises(SpecError, match=r"tpr_min is better high; write tpr_min>=0\.8"):
        limits_of(["tpr_min<=0.8"])
    for text in ("eo_mean>0.05", "eo_mean", "eo_mean=", "eo_mean<=x"):
        with pytest.raises(SpecError, match="is not a limit"):
            limits_of([text])


def test_the_lowest_rate_is_that_of_the_worst_group():
    rows = scored(2000, 4, groups=3)
    value = found(rows, rows.prediction, "tpr_min", "ppv_min", "selection_min", "tnr_min")
    by_hand = {"tpr_min": [], "tnr_min": [], "ppv_min": [], "selection_min": []}
    for g in range(3):
        own = rows.sensitive == g
        guess, t = rows.prediction[own] == 1, rows.target[own] == 1
        by_hand["tpr_min"].append(guess[t].mean())
        by_hand["tnr_min"].append((~guess)[~t].mean())
        by_hand["ppv_min"].append(t[guess].mean())
        by_hand["selection_min"].append(guess.mean())
    for name, rates in by_hand.items():
        assert value[name] == pytest.approx(min(rates))
