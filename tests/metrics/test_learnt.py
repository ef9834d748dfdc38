"""The verdict: whether a model has learnt its target."""

from __future__ import annotations

import numpy as np
import pytest

from shasam.metrics import Counts
from shasam.metrics.learnt import LEAST, Learnt, Skill, correlation_of, log_losses


def guesses(rng: np.random.Generator, rows: int, share: np.ndarray, known: float) -> Skill:
    """Labels of these shares, of which a part is known and the rest is guessed at these shares."""
    t, g = (rng.choice(len(share), rows, p=share) for _ in range(2))
    return Skill.from_codes(t, np.where(rng.random(rows) < known, t, g), len(share))


@pytest.mark.parametrize("share", [[0.5, 0.5], [0.9, 0.1], [0.6, 0.1, 0.1, 0.1, 0.1]])
@pytest.mark.parametrize("rows", [60, 2000])
def test_a_model_at_the_margin_is_called_learnt_in_one_of_twenty_cases(share, rows) -> None:
    rng = np.random.default_rng(0)
    found = [guesses(rng, rows, np.array(share), LEAST).learnt for _ in range(600)]
    assert np.mean(found) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 600)
    assert not any(guesses(rng, 2000, np.array(share), 0.0).learnt for _ in range(200))
    assert all(guesses(rng, 2000, np.array(share), 0.3).learnt for _ in range(50))


def test_the_correlation_and_its_error_are_matthews_and_those_of_resampling() -> None:
    from sklearn.metrics import matthews_corrcoef

    rng = np.random.default_rng(1)
    n_CP = np.array([[120.0, 30.0, 5.0], [20.0, 60.0, 9.0], [4.0, 8.0, 44.0]])
    codes = np.repeat(np.arange(9), n_CP.ravel().astype(int))
    value, error = correlation_of(n_CP)
    assert value == pytest.approx(matthews_corrcoef(codes // 3, codes % 3))
    drawn = rng.multinomial(len(codes), n_CP.ravel() / len(codes), 4000).reshape(-1, 3, 3)
    assert error == pytest.approx(np.std([correlation_of(d)[0] for d in drawn]), rel=0.08)


def test_less_accurate_than_the_most_common_class_can_still_have_learnt() -> None:
    counts = Counts(np.array([[[70], [20]], [[2], [8]]]), ("no", "yes"), ("all",))
    skill = Skill.of(counts)
    assert skill.accuracy < skill.majority and skill.learnt


def test_one_class_a_coin_and_too_few_rows_have_not_learnt() -> None:
    t = np.arange(400) % 2
    constant = Skill.from_codes(t, np.ones_like(t), 2)
    assert not constant.learnt and constant.only_class == "1"
    assert "it calls each of 400 test rows 1" in constant.sentence()
    assert not Skill.from_codes(t, (np.arange(400) // 2) % 2, 2).learnt
    assert not Skill.from_codes(t[:8], t[:8], 2).learnt and Skill.from_codes(t, t, 2).learnt


def test_a_verdict_comes_back_from_json_and_anything_else_is_none() -> None:
    t = np.arange(100) % 2
    own, constant = Skill.from_codes(t, 1 - t, 2), Skill.from_codes(t, 0 * t, 2)
    verdict = Learnt(own, {"projection": constant}, own, 0.9, 0.7)
    assert Learnt.from_dict(verdict.as_dict()) == verdict
    lines = verdict.sentences("images")
    assert "has not learnt" in lines[0] and "lower rate (--lr)" in lines[0]
    assert lines[1:] == [
        "The classifier on projection names one class only.",
        "Its probabilities are worse than the shares of the classes: log loss 0.900, chance 0.700.",
    ]
    for wrong in (None, {}, [], {"heads": 3}, {**verdict.as_dict(), "low": "?"}):
        assert Learnt.from_dict(wrong) is None


def test_features_that_hold_the_target_point_to_the_second_stage() -> None:
    t = np.arange(100) % 2
    verdict = Learnt(Skill.from_codes(t, 0 * t, 2), features=Skill.from_codes(t, t, 2))
    assert "it is the classifier that has not learnt" in verdict.sentences()[0]
    assert "--classify.lr" in verdict.sentences()[0]


def test_the_log_loss_of_the_shares_is_chance() -> None:
    t = np.array([0, 0, 0, 1])
    own, chance = log_losses(t, np.tile([0.75, 0.25], (4, 1)))
    assert own == pytest.approx(chance)
