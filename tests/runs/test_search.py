"""A search of options with Optuna: what is tried, what is kept, and that it goes on."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("optuna")

from shasam.cli import main
from shasam.errors import DataError
from shasam.pipeline.search import RATE, _undominated, ranges_of, search
from shasam.spec import resolve


def specify(layer):
    return resolve({"data": {"name": "clusters"}, "seed": 0}, layer, profile="smoke")


class Written:
    """Runs that are trained by writing their metrics; ``law`` gives accuracy and EO of a layer."""

    def __init__(self, folder, law):
        self.folder, self.law, self.rounds = folder, law, []

    def __call__(self, specs):
        self.rounds.append([(s.method, s.as_dict()) for s in specs])
        out = {}
        for spec in specs:
            found = self.law(spec.as_dict())
            if found is None:
                continue
            accuracy, gap, learnt = found
            body = {"accuracy": {"value": accuracy}, "eo_mean": {"value": gap}}
            path = self.folder / spec.name
            path.mkdir(exist_ok=True)
            text = json.dumps({"val": body, "test": {}, "learnt": {"learnt": learnt}})
            (path / "metrics.json").write_text(text, encoding="utf-8")
            out[spec.key] = path
        return out


def by_strength(body):
    """More strength is a smaller gap and less accuracy; the best rate is 0.002."""
    strength, rate = body["options"]["strength"], body["train"]["learn"]["lr"]
    return 0.9 - 0.02 * strength - abs(rate - 0.002), 0.2 / (1 + strength), True


def test_the_dial_and_the_rate_are_searched_within_the_values_that_the_method_names():
    spec = specify({"method": "gap"})
    ranges, rate = ranges_of(spec), spec.train.learn.lr
    assert (ranges["options.strength"].low, ranges["options.strength"].high) == (0.3, 3.0)
    assert ranges[RATE].low == pytest.approx(rate / 3) and ranges[RATE].high == pytest.approx(
        3 * rate
    )
    assert ranges_of(specify({"method": "shasam"}))["options.projection_dim"].whole
    assert list(ranges_of(specify({"method": "ce"}))) == [RATE]


def test_the_first_trials_are_the_dial_and_the_kept_settings_are_not_beaten(tmp_path):
    train = Written(tmp_path, by_strength)
    kept = search([{"method": "gap"}], 12, specify, train)
    tried = [body["options"]["strength"] for ((_, body),) in train.rounds]
    assert tried[:3] == [0.3, 1.0, 3.0] and len(tried) == 12 and len(set(tried)) > 6
    assert all(0.3 <= value <= 3.0 for value in tried)
    results = [by_strength(body) for ((_, body),) in train.rounds]
    assert 2 <= len(kept) <= 4
    for layer in kept:
        accuracy, gap, _ = by_strength(specify(layer).as_dict())
        assert not any(a > accuracy and g < gap for a, g, _ in results)


def test_the_same_search_asks_for_the_same_runs(tmp_path):
    first, second = Written(tmp_path, by_strength), Written(tmp_path, by_strength)
    methods = [{"method": "gap"}, {"method": "mmd"}]
    assert search(methods, 6, specify, first) == search(methods, 6, specify, second)
    assert first.rounds == second.rounds and len(first.rounds[0]) == 2


def test_a_guess_and_a_failure_are_no_results(tmp_path):
    def law(body):
        strength = body["options"]["strength"]
        if strength > 2:
            return 0.55, 0.0, False  # always one class: no gap
        return None if strength < 0.5 else by_strength(body)

    kept = search([{"method": "gap"}], 8, specify, Written(tmp_path, law))
    assert kept and all(0.5 <= layer["options"]["strength"] <= 2 for layer in kept)


def test_a_method_that_never_ended_stays_as_it_was_given(tmp_path):
    train = Written(tmp_path, lambda body: None)
    assert search([{"method": "gap"}], 5, specify, train) == [{"method": "gap"}]
    assert len(train.rounds) == 5


@pytest.mark.parametrize(
    "body", [{"val": 3}, {"val": {"accuracy": {}}}, {"learnt": [1]}, {"val": {"accuracy": [1]}}]
)
def test_metrics_that_no_run_writes_are_a_sentence(tmp_path, body):
    def train(specs):
        (tmp_path / "metrics.json").write_text(json.dumps(body), encoding="utf-8")
        return {spec.key: tmp_path for spec in specs}

    with pytest.raises(DataError, match=r"metrics\.json is not as shasam writes it"):
        search([{"method": "gap"}], 2, specify, train)


@pytest.mark.parametrize("flag, value", [("--seeds", "0"), ("--seeds", "-1"), ("--trials", "-1")])
def test_a_number_of_runs_that_there_cannot_be_is_a_sentence(flag, value, tmp_path, capsys):
    words = ["compare", "--methods", "ce", "--out", str(tmp_path), flag, value]
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert f"{flag} must be" in capsys.readouterr().err


def test_when_the_time_is_over_the_search_keeps_what_it_has(tmp_path):
    train = Written(tmp_path, by_strength)
    cut = lambda specs: train(specs) if len(train.rounds) < 4 else None  # noqa: E731
    kept = search([{"method": "gap"}], 50, specify, cut)
    assert len(train.rounds) == 4 and 1 <= len(kept) <= 4


def test_of_equal_results_the_first_stays():
    found = [
        ({"n": 0}, 0.8, 0.1),
        ({"n": 1}, 0.8, 0.1),
        ({"n": 2}, 0.7, 0.2),
        ({"n": 3}, 0.7, 0.05),
    ]
    assert [layer["n"] for layer, _, _ in _undominated(found)] == [0, 3]


def test_compare_searches_and_then_trains_every_seed_of_what_it_found(tmp_path, capsys):
    rng = np.random.default_rng(0)
    t, s = rng.integers(0, 2, (2, 400))
    t = np.where(rng.random(400) < 0.4, s, t)
    vectors = np.stack([2.0 * t, s], 1) + rng.normal(0, 0.5, (400, 2))
    np.save(tmp_path / "x.npy", vectors.astype(np.float32))
    lines = [f"{a},{b}" for a, b in zip(t, s, strict=True)]
    (tmp_path / "labels.csv").write_text("\n".join(["t,s", *lines]) + "\n", encoding="utf-8")
    words = ["compare", "--methods", "gap", "--features", str(tmp_path / "x.npy")]
    words += ["--csv", str(tmp_path / "labels.csv"), "--target", "t", "--sensitive", "s"]
    words += ["--profile", "cpu", "--set", "train.learn.steps=40", "--trials", "2", "--seeds", "2"]
    words += ["--out", str(tmp_path / "runs"), "--page", str(tmp_path / "page.html")]
    with pytest.raises(SystemExit, match="0"):
        main(words)
    shown = capsys.readouterr().out
    assert "searching, 2 trials each: gap" in shown
    rounds, last = shown.split(" runs in ")[0], shown.split(" runs in ")[1]
    assert rounds.count("done ") == 2 and last.count("skipped") == last.count("done ")
    assert (tmp_path / "page.html").is_file()
    with pytest.raises(SystemExit, match="0"):
        main(words)
    assert "done " not in capsys.readouterr().out  # the same command finds every run again
