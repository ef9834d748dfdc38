from __future__ import annotations

import json
import math
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from tests.tiny_data import TinyData

from shasam.errors import ContractError, DataError, SpecError, TrainingError
from shasam.methods import Method, Stage, TwoStage
from shasam.methods.baselines import CE, Balanced
from shasam.metrics import Counts
from shasam.metrics.learnt import Skill
from shasam.models import Identity, ResNet18
from shasam.registry import lookup
from shasam.runs.directory import RunLog, read_log
from shasam.sampling import TrainingRows
from shasam.sklearn import Arrays
from shasam.spec.fields import StageSpec, TrainSpec
from shasam.training.inference import evaluating
from shasam.training.monitor import check_selection, group_leakage, leaks_less, merit
from shasam.training.runtime import Runtime, one_process
from shasam.training.stage import State, check_groups, set_modes
from shasam.training.trainer import Trainer
from shasam.types import Losses

SHORT = TrainSpec(
    learn=StageSpec(steps=6, batch_views=32, lr=3e-3),
    classify=StageSpec(epochs=2, batch_views=32),
)


class PullApart(TwoStage):
    """A two-stage method for tests: push the classes' embeddings to two fixed directions."""

    summary, reference = "test", "test"

    def learn(self, z, batch):
        loss = F.cross_entropy(10 * z[:, :2], batch.t_VB)
        return Losses(loss, {"pull": loss.detach()}, active=1.0)


def make(method_class=CE, seed=0, **config):
    torch.manual_seed(seed)
    encoder = ResNet18(width=8, embed_dim=16)  # narrower ones: experiments/speed, Equal bits
    return method_class(method_class.Config(**config), encoder, 2, 2)


def trainer(method, spec=SHORT, directory=None, data=None, **runtime):
    fabric = Fabric(accelerator="cpu", devices=1)
    return Trainer(
        method,
        data or TinyData(),
        spec,
        seed=5,
        image_size=16,
        fabric=fabric,
        runtime=Runtime(quiet=True, **runtime),
        directory=directory,
        log=RunLog(None if directory is None else directory / "log.jsonl"),
    )


def weights(method):
    return {k: v.clone() for k, v in method.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.mark.parametrize("method_class", [CE, Balanced])
def test_training_learns_what_is_in_the_picture(method_class):
    spec = TrainSpec(learn=StageSpec(steps=60, batch_views=32, lr=5e-3))
    t = trainer(make(method_class), spec)
    t.fit()
    assert t.log.lines[-1]["val"]["accuracy"] > 0.8
    assert t.state.images_seen == 60 * 32


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not():
    runs = []
    for seed in (1, 1, 2):
        method = make()
        t = trainer(method)
        t.seed = seed
        t.fit()
        runs.append(weights(method))
    assert same(runs[0], runs[1]) and not same(runs[0], runs[2])


def test_two_stages_train_the_encoder_then_only_the_classifiers():
    method = make(PullApart)
    t = trainer(method)
    before = weights(method)
    kept = {}
    original = t._end_stage

    def remember(run, last):
        original(run, last)
        kept[run.stage.name] = weights(method)

    t._end_stage = remember
    t.fit()
    changed = [k for k in before if not torch.equal(before[k], kept["learn"][k])]
    assert any(k.startswith("encoder.") for k in changed)
    assert not any(k.startswith("classifiers.") for k in changed)
    changed = [k for k in before if not torch.equal(kept["learn"][k], kept["classify"][k])]
    assert changed and all(k.startswith("classifiers.") for k in changed)


@pytest.mark.parametrize("primary", ["encoder", "projection"])
def test_both_features_get_predictions_and_the_primary_comes_first(primary):
    method = make(PullApart, primary_features=primary).eval()
    scores = method.logits(torch.randn(3, 3, 16, 16))
    kinds = {"encoder", "projection", "encoder-balanced", "projection-balanced"}
    assert set(scores) == kinds and next(iter(scores)) == primary


@pytest.mark.parametrize("own,other", [("natural", "balanced"), ("balanced", "natural")])
def test_reweighting_turns_one_way_of_drawing_cells_into_the_other(own, other):
    method = make(PullApart, stage2_sampling=own)
    t = torch.tensor([0] * 70 + [1] * 30)
    s = torch.tensor([0] * 60 + [1] * 10 + [0] * 5 + [1] * 25)
    stage = method.stages()[1]
    method.begin_stage(stage, TrainingRows(t, s, torch.arange(100), 20, 0))
    drawn = torch.tensor([[0.60, 0.10], [0.05, 0.25]])  # share of each cell as they come
    shares = {"natural": drawn, "balanced": torch.full((2, 2), 0.25)}
    torch.testing.assert_close(shares[own] * method.reweight_KCG[0], shares[other])


def test_augmented_second_stage_leaves_the_frozen_statistics_alone():
    method = make(PullApart, stage2_augment=True)
    t = trainer(method)
    t.fit()
    stages = method.stages()
    assert stages[1].inputs == "images"
    set_modes(method, stages[1])
    assert not method.encoder.training and not method.projection.bn2.training
    assert method.classifiers["encoder"].norm.training
    assert not any(p.requires_grad for p in method.encoder.parameters())


class NanAtStepTwo(CE):
    def steps(self, batch, stage):
        for group, losses in super().steps(batch, stage):
            bad = losses.total * (math.nan if batch.step == 2 else 1.0)
            yield group, Losses(bad)


def test_a_nan_stops_before_the_weights_move_and_names_the_batch(tmp_path):
    method = make(NanAtStepTwo)
    t = trainer(method, directory=tmp_path)
    seen = {}
    original = t._step

    def spy(run):
        seen["before"] = {k: p.detach().clone() for k, p in method.named_parameters()}
        return original(run)

    t._step = spy
    with pytest.raises(TrainingError, match=r"loss is nan at step 2 .* tiny-0"):
        t.fit()
    after = {k: p.detach() for k, p in method.named_parameters()}
    assert same(seen["before"], after)
    assert "tiny-" in (tmp_path / "bad_batch.json").read_text()


class Constant(PullApart):
    """All embeddings equal: the collapse that must be announced."""

    def features(self, images):
        found = super().features(images)
        z = F.normalize(1 + 1e-4 * found["projection"], dim=1)
        return {"encoder": found["encoder"], "projection": z}

    def learn(self, z, batch):
        return Losses(z.pow(2).sum(), active=0.0)


def test_a_collapse_is_announced_and_stops_the_run_only_if_asked(tmp_path):
    t = trainer(make(Constant), directory=tmp_path)
    t.fit()
    events = [line["event"] for line in read_log(tmp_path / "log.jsonl")]
    assert events.count("collapse") == 1
    with pytest.raises(TrainingError, match="collapsed"):
        trainer(make(Constant), on_collapse="stop").fit()


def test_a_loss_without_active_terms_is_reported_after_fifty_steps():
    spec = SHORT.model_copy(update={"learn": StageSpec(steps=60, batch_views=16)})
    t = trainer(make(Constant), spec)
    t.fit()
    assert [line["step"] for line in t.log.lines if line["event"] == "warning"] == [49]


class TwoGroups(CE):
    """Yields the classifier, then the encoder: each must move alone."""

    def parameter_groups(self):
        return {"body": list(self.encoder.parameters()), "head": list(self.classifier.parameters())}

    def stages(self):
        return (Stage("learn", ("body", "head")),)

    def steps(self, batch, stage):
        for group in ("head", "body"):
            self.before = weights(self)
            loss = F.cross_entropy(self.classifier(self.encoder(batch.images)), batch.t_VB)
            yield group, Losses(loss)
            moved = {
                k.split(".")[0]
                for k, p in self.named_parameters()
                if not torch.equal(p, self.before[k])
            }
            assert moved == {"classifier" if group == "head" else "encoder"}


def test_each_yield_moves_its_own_group_and_no_other():
    method = make(TwoGroups)
    t = trainer(method)
    t.fit()
    assert set(t.log.lines[-1]["parts"]) == {"head", "body"}


def test_groups_that_are_no_partition_are_refused():
    class Leaky(CE):
        def parameter_groups(self):
            return {"main": list(self.encoder.parameters())}

    with pytest.raises(ContractError, match=r"leaves out classifier\.out"):
        check_groups(make(Leaky))


def test_averaged_weights_become_the_weights_at_the_end():
    plain, averaged = make(), make()
    trainer(plain).fit()
    trainer(averaged, SHORT.model_copy(update={"ema": 0.9})).fit()
    a, b = weights(plain), weights(averaged)
    assert not same(a, b)
    assert torch.allclose(a["classifier.out.weight"], b["classifier.out.weight"], atol=0.1)


def test_the_best_epoch_is_kept_when_the_specification_says_so():
    spec = TrainSpec(learn=StageSpec(epochs=4, batch_views=32, lr=0.02), selection="best")
    method = make()
    t = trainer(method, spec)
    t.fit()
    best = max(line["val"]["accuracy"] for line in t.log.lines if line["event"] == "epoch")
    data = t.data
    with evaluating(method):
        scores = method.logits(data.images(data.rows("val")) / 127.5 - 1)["encoder"]
    accuracy = (scores.argmax(1) == data.t_N[data.rows("val")]).double().mean()
    assert float(accuracy) == pytest.approx(best, abs=1e-6)


def naive_merit(rule: str, t: np.ndarray, p: np.ndarray, s: np.ndarray) -> float:
    """The rules in words: rows that are right, picked by class and group."""
    right = t == p
    if rule == "best":
        return float(right.mean())
    if rule == "worst-class":
        return min(right[t == c].mean() for c in set(t))
    if rule == "minimax":
        return min(right[s == g].mean() for g in set(s))
    cells = {(c, g): right[(t == c) & (s == g)].mean() for c, g in set(zip(t, s, strict=True))}
    if rule == "worst-cell":
        return min(cells.values())
    gaps = [abs(cells[c, 0] - cells[c, 1]) for c in set(t)]
    return -float(np.sqrt((1 - right.mean()) ** 2 + np.mean(gaps) ** 2))


RULES = ("best", "worst-class", "worst-cell", "minimax", "optimum")


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_selection_reads_what_it_says(rule):
    rng = np.random.default_rng(3)
    for _ in range(20):
        t, p, s = (rng.integers(0, 2, 60) for _ in range(3))
        counts = Counts.from_codes(t, p, s, ("a", "b"), ("g", "h"))
        assert merit(counts, rule) == pytest.approx(naive_merit(rule, t, p, s))


@pytest.mark.parametrize("rule", RULES)
def test_the_epoch_that_a_rule_prefers_is_kept(rule, monkeypatch):
    """The counts of four epochs are given; the third is worse than the second by every rule."""
    import shasam.training.trainer as module

    right = iter([0.6, 0.9, 0.7, 0.8])
    kept = []

    def counted(method, *_):
        kept.append({k: v.detach().clone() for k, v in method.state_dict().items()})
        n = round(100 * next(right))
        cells = np.array([[[n, n - 5], [100 - n, 105 - n]], [[100 - n, 105 - n], [n, n - 5]]])
        return Counts(cells, ("0", "1"), ("0", "1"))

    monkeypatch.setattr(module, "validate", counted)
    method = make()
    spec = TrainSpec(learn=StageSpec(epochs=4, batch_views=32, lr=0.02), selection=rule)
    trainer(method, spec).fit()
    assert len(kept) == 4 and same(weights(method), kept[1])
    assert not same(kept[1], kept[3])


@pytest.mark.parametrize("rule", ["best", "worst-class"])
def test_selection_without_groups_does_not_depend_on_them(rule):
    rng = np.random.default_rng(5)
    t, p = (rng.integers(0, 3, 90) for _ in range(2))
    names = ("a", "b", "c")
    found = {
        merit(Counts.from_codes(t, p, s, names, tuple(map(str, range(4)))), rule)
        for s in (np.zeros(90, int), rng.integers(0, 4, 90), t)
    }
    assert len(found) == 1


def least_by_hand(epochs):
    """The epoch that is kept after each: least leakage within a point of the best so far."""
    kept = None
    for i, (accuracy, _) in enumerate(epochs):
        top = max(a for a, _ in epochs[: i + 1])
        if kept is None or epochs[kept][0] < top - 0.01 - 1e-12:
            kept = i
        elif accuracy >= top - 0.01 - 1e-12:
            kept = min((kept, i), key=lambda k: (epochs[k][1], -epochs[k][0]))
    return kept


@pytest.mark.parametrize("seed", range(20))
def test_least_leakage_keeps_an_epoch_that_is_accurate_and_tells_least_of_the_group(seed):
    rng = np.random.default_rng(seed)
    epochs = [(round(0.8 + a, 3), round(b, 2)) for a, b in
              zip(rng.uniform(0, 0.03, 12), rng.uniform(0.5, 0.9, 12), strict=True)]  # fmt: skip
    state, kept = State(), None
    for i, (accuracy, leakage) in enumerate(epochs):
        kept = i if leaks_less(state, accuracy, leakage) else kept
        assert kept == least_by_hand(epochs[: i + 1])
    assert epochs[kept][0] >= max(a for a, _ in epochs) - 0.01


def test_the_epoch_that_leaks_least_is_kept_and_the_numbers_survive_a_cut(monkeypatch):
    import shasam.training.trainer as module

    leaks, kept = iter([0.9, 0.6, 0.7, 0.8]), []

    def told(method, *_):
        kept.append({k: v.detach().clone() for k, v in method.state_dict().items()})
        return next(leaks)

    monkeypatch.setattr(module, "group_leakage", told)
    same_counts = Counts(np.full((2, 2, 2), 10), ("0", "1"), ("0", "1"))
    monkeypatch.setattr(module, "validate", lambda *_: same_counts)
    method = make()
    spec = TrainSpec(learn=StageSpec(epochs=4, batch_views=32, lr=0.02), selection="least-leakage")
    trained = trainer(method, spec)
    trained.fit()
    assert len(kept) == 4 and same(weights(method), kept[1])
    assert State(**json.loads(json.dumps(asdict(trained.state)))).best_accuracy == 0.5


@pytest.mark.parametrize("shown", [0.0, 3.0])
def test_leakage_is_chance_where_the_group_cannot_be_read(shown):
    """Features are the images themselves; the group shifts one of their numbers by ``shown``."""
    rng = np.random.default_rng(0)
    n = 2000
    t, s = rng.integers(0, 2, n), rng.integers(0, 2, n)
    x = rng.normal(size=(n, 4))
    x[:, 0] += shown * s
    x[:, 1] += 5 * t
    data = Arrays(x, t, s, np.ones(n, dtype=bool))
    method = CE(CE.Config(), Identity(4), 2, 2)
    run = SimpleNamespace(stage=method.stages()[0], leakage=None)
    fabric = one_process(TrainSpec(), "cpu")
    found = group_leakage(method, run, data, torch.arange(n), fabric, 0)
    assert found == pytest.approx(0.5, abs=0.04) if not shown else found > 0.9
    assert run.leakage is None  # features that move are read again


def test_a_rule_that_compares_groups_is_refused_where_validation_has_one():
    for rule in ("worst-cell", "minimax", "optimum", "least-leakage"):
        with pytest.raises(SpecError, match="best and worst-class need no groups"):
            check_selection(rule, np.zeros(9, dtype=int))
        check_selection(rule, np.arange(4) % 2)
    for rule in ("last", "best", "worst-class"):
        check_selection(rule, np.zeros(9, dtype=int))


def test_evaluating_restores_the_mode_of_every_module():
    method = make(PullApart)
    set_modes(method, method.stages()[1])
    modes = [m.training for m in method.modules()]
    with evaluating(method):
        assert not any(m.training for m in method.modules())
    assert [m.training for m in method.modules()] == modes


def test_ce_and_balanced_are_registered():
    assert lookup("method", "ce") is CE and issubclass(lookup("method", "balanced"), Method)


def test_a_batch_that_a_later_stage_cannot_draw_is_an_error_before_the_first_step():
    spec = SHORT.model_copy(update={"classify": StageSpec(epochs=2, batch_views=3)})
    t = trainer(make(PullApart, stage2_sampling="balanced"), spec)
    with pytest.raises(DataError, match=r"train\.classify\.batch_views=4"):
        t.fit()
    assert t.state.step == 0 and t.state.stage == 0


def test_a_long_epoch_has_lines_of_steps_and_probes_and_the_same_bits():
    learn = StageSpec(steps=110, batch_views=2)
    found = []
    for probe_every in (0, 40):
        method = make()
        t = trainer(method, TrainSpec(learn=learn, probe_every=probe_every))
        t.fit()
        found.append((weights(method), t.log.lines))
    assert same(found[0][0], found[1][0])
    lines = found[1][1]
    assert [line["step"] for line in lines if line["event"] == "curve"] == [40, 80]
    assert all({"accuracy", "eo_mean"} <= set(x) for x in lines if x["event"] == "curve")
    steps = sorted(line["step"] for line in lines if line["event"] in ("step", "epoch"))
    assert steps[-1] == 110 and all(b - a <= 50 for a, b in zip([0, *steps], steps, strict=False))


def at_chance(self, run, last):
    return Skill(rows=100, accuracy=0.5, majority=0.5, correlation=0.0, low=-0.1)


def test_a_run_whose_rate_was_lowered_resumes_to_the_same_bits(tmp_path, monkeypatch):
    spec = TrainSpec(learn=StageSpec(steps=50, batch_views=4), on_plateau="lower-rate")
    monkeypatch.setattr(Trainer, "_skill", at_chance)
    found = {}
    for name in ("whole", "cut", "warned"):
        (tmp_path / name).mkdir()
        method = make()
        own = spec if name != "warned" else spec.model_copy(update={"on_plateau": "warn"})
        if name == "cut":
            original = Trainer._step

            def stop(self, run, original=original):
                if self.state.step == 17:  # lowered at 10, again at 20
                    raise TrainingError("stop here")
                return original(self, run)

            with monkeypatch.context() as patch, pytest.raises(TrainingError, match="stop here"):
                patch.setattr(Trainer, "_step", stop)
                trainer(method, own, tmp_path / name, checkpoint_seconds=0.0).fit()
            method = make(seed=1)
        t = trainer(method, own, tmp_path / name)
        t.fit(resume=name == "cut")
        found[name] = weights(method), t.state.slowed
    assert same(found["whole"][0], found["cut"][0]) and not same(
        found["whole"][0], found["warned"][0]
    )
    assert [slowed for _, slowed in found.values()] == [2, 2, 0]


def test_a_look_at_the_plateau_does_not_change_the_bits(monkeypatch):
    spec = TrainSpec(learn=StageSpec(steps=50, batch_views=4))
    found = []
    for watched in (True, False):
        method = make()
        if not watched:
            monkeypatch.setattr(Trainer, "_skill", at_chance)
        trainer(method, spec).fit()
        found.append(weights(method))
    assert same(*found)
