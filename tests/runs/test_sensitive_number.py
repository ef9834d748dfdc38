"""A sensitive number in training: windows in place of groups, from the formulas to the page."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from tests.runs.test_several_attributes import (
    asked_for,
    command,
    people,
    refused,
    run_of,
    seen_batches,
    words,
)

import shasam
from shasam.data import open_data
from shasam.data.rules import number_rule
from shasam.data.splits import Manifest
from shasam.errors import DataError, SpecError, TrainingError
from shasam.losses import conditional_group_mmd, conditional_hsic, flcmi, soft_gap
from shasam.mining import MiningConfig
from shasam.mining.pools import pools_of
from shasam.pipeline.load import load
from shasam.registry import entries, lookup
from shasam.report.answer import RunAnswer
from shasam.sampling import NaturalPlan, TrainingRows, batch_triplets
from shasam.spec import resolve, stored_spec
from shasam.spec.fields import DataSpec
from shasam.testing import check_method
from shasam.testing.bench import Lab, small_mlp, yields
from shasam.training.trainer import Trainer
from shasam.window_batches import SpreadPlan, WindowPlan
from shasam.windows import Windows, spread

ABLE = {
    "ce", "balanced", "balanced-hidden", "reweight", "supcon", "jtt", "gap", "mmd", "hsic", "grl",
    "shasam", "shasam-random",
}  # fmt: skip
AGE = ["--sensitive", "age"]
RACE_AND_AGE = ["--sensitive", "race", *AGE]


def labels(rows: int = 240, values: int = 0, seed: int = 1):
    """Classes, and ages that go with them; of ``values`` different ones, or all different."""
    rng = np.random.default_rng(seed)
    t_N = rng.integers(0, 2, rows)
    age = 20 + 60 * rng.beta(2, 3 - t_N, rows)
    if values:
        age = np.floor((age - 20) / 60 * values)
    return torch.tensor(t_N), torch.tensor(age)


# -- membership -----------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [0, 7])
@pytest.mark.parametrize("bandwidth", [1e-9, 0.07, 0.4, 1.0])
def test_windows_against_brute_force(values, bandwidth):
    t_N, age = labels(90, values)
    age[5] = math.nan
    rows = torch.arange(0, 90, 2)
    rows = torch.cat([rows, torch.tensor([5])])
    known = [a for a in age[rows].tolist() if a == a]

    def u(a: float) -> float:
        return (sum(x < a for x in known) + sum(x == a for x in known) / 2) / len(known)

    def near(i: int, j: int) -> float:
        if math.isnan(age[i]) or math.isnan(age[j]):
            return 0.0
        return max(0.0, 1 - abs(u(float(age[i])) - u(float(age[j]))) / bandwidth)

    windows = Windows.along(age, rows, bandwidth)
    wanted = torch.tensor([[near(int(i), int(j)) for j in rows] for i in rows])
    assert torch.allclose(windows.near(rows, rows).float(), wanted, atol=1e-6)
    assert torch.allclose(windows.counts(rows, rows), windows.near(rows, rows).sum(1))
    same = (t_N[rows][:, None] == t_N[rows][None]) * windows.near(rows, rows)
    assert torch.allclose(windows.cell_counts(t_N[rows], rows), same.sum(1))
    assert windows.quantile(rows[:1]).item() == pytest.approx(u(float(age[rows[0]])))


def test_windows_of_a_number_within_groups_are_those_of_the_number_and_the_group():
    age = labels(80)[1]
    age[3] = math.nan
    group_N = torch.arange(80) % 3
    group_N[7] = -1
    rows = torch.arange(0, 80, 2)
    alone = Windows.along(torch.where(group_N < 0, math.nan, age), rows, 0.4)
    crossed = Windows.along(age, rows, 0.4, group_N)
    same = group_N[:, None] == group_N[None]
    every = torch.arange(80)
    wanted = alone.near(every, every) * same
    assert torch.allclose(crossed.near(every, every), wanted, atol=1e-9)
    assert torch.allclose(crossed.counts(every, rows), wanted[:, rows].sum(1))
    assert (wanted[3] == 0).all() and (wanted[7] == 0).all()
    with pytest.raises(AssertionError, match="no quantile"):
        crossed.quantile(rows)


def test_groups_as_windows_are_the_groups():
    group_N = torch.tensor([0, 2, 2, -1, 0, 1])
    rows = torch.arange(6)
    near = Windows.of_groups(group_N, rows).near(rows, rows)
    same = (group_N[:, None] == group_N[None]) & (group_N[:, None] >= 0)
    assert torch.equal(near, same.double())


@pytest.mark.parametrize("scheme", ["inverse", "independence"])
def test_weights_against_brute_force_and_those_of_cells_in_the_limit(scheme):
    t_N, age = labels(200)
    rows = torch.arange(200)
    windows = Windows.along(age, rows, 0.2)
    near = windows.near(rows, rows)
    n_s, n_ts = near.sum(1), (near * (t_N[:, None] == t_N[None])).sum(1)
    n_t = torch.bincount(t_N)[t_N]
    wanted = 200 / (2 * (1 / n_s).sum() * n_ts) if scheme == "inverse" else n_t * n_s / (200 * n_ts)
    assert torch.allclose(windows.weights(t_N, rows, scheme), wanted.double())
    t_N, age = labels(200, values=3)
    found = Windows.along(age, rows, 1e-3).weights(t_N, rows, scheme)
    kind = lookup("method", "reweight")
    method = kind(kind.Config(scheme=scheme), small_mlp(), 2, 3)
    s_N = age.long()
    cells = method._weights(method._count(t_N, s_N))[t_N, s_N]
    assert torch.allclose(found, cells, rtol=1e-12)


def test_a_place_is_drawn_from_each_part_of_the_weight():
    weight, uniform = torch.tensor([3.0, 1.0, 0.5, 2.5, 1.0]), torch.rand(4)
    found = spread(weight, uniform)
    for k, place in enumerate(found.tolist()):
        point = (k + float(uniform[k])) / 4 * 8
        assert float(weight[:place].sum()) <= point <= float(weight[: place + 1].sum())


# -- batches --------------------------------------------------------------------------------------


def plan_rows(t_N, age, bandwidth, size, s_N=None):
    rows = torch.arange(len(t_N))
    s_N = torch.zeros_like(t_N) if s_N is None else s_N
    windows = (Windows.along(age, rows, bandwidth),)
    return TrainingRows(t_N, s_N, rows, size, 3, all_windows=windows)


def nobody(rows):
    raise AssertionError("no embedding is needed")


def test_a_balanced_batch_of_few_values_holds_every_cell_equally_often():
    t_N, age = labels(300, values=4)
    plan = SpreadPlan(plan_rows(t_N, age, 1e-3, 48))
    rows = set()
    for step in range(40):
        drawn = plan.draw(plan.epoch_of(step), step, nobody).rows_B
        cells = torch.bincount(t_N[drawn] * 4 + age[drawn].long(), minlength=8)
        assert cells.tolist() == [6] * 8
        rows |= set(drawn.tolist())
    assert len(rows) > 290  # all are drawn, not the same ones again


def test_a_balanced_batch_is_spread_evenly_over_age_in_each_class():
    t_N, age = labels(2000)
    rows = torch.arange(2000)
    plan = SpreadPlan(plan_rows(t_N, age, 0.1, 64))
    seen = torch.cat([plan.draw(plan.epoch_of(s), s, nobody).rows_B for s in range(60)])
    u = Windows.along(age, rows, 0.1).quantile(seen)
    before = Windows.along(age, rows, 0.1).quantile(rows)
    gap = abs(float(before[t_N == 0].mean() - before[t_N == 1].mean()))
    after = abs(float(u[t_N[seen] == 0].mean() - u[t_N[seen] == 1].mean()))
    assert gap > 0.1 and after < gap / 4
    again = SpreadPlan(plan_rows(t_N, age, 0.1, 64))
    assert torch.equal(again.draw(1, 59, nobody).rows_B, plan.draw(1, 59, nobody).rows_B)


RANDOM = MiningConfig(anchors="random", positives="random", negatives="random", roles="shared")


def test_windows_of_few_values_are_the_groups():
    """Every group is a window once, and its sets are those of a discrete attribute."""
    t_N, age = labels(300, values=3)
    data = plan_rows(t_N, age, 1e-3, 48, age.long())
    plan = WindowPlan(data, RANDOM.model_copy(update={"windows": 3}))
    z = F.normalize(torch.randn(48, 5), dim=1)
    for step in range(5):
        drawn = plan.draw(plan.epoch_of(step), step, nobody)
        assert sorted(age[plan.middles].tolist()) == [0, 1, 2]
        wanted = batch_triplets(t_N[drawn.rows_B], age.long()[drawn.rows_B])
        assert len(drawn.triplets) == len(wanted) == 6
        wanted = {(w.target, w.sensitive): w for w in wanted}
        for got in drawn.triplets:
            w = wanted[got.target, got.sensitive]
            sets = [(got.anchors, w.anchors), (got.positives, w.positives)]
            for own, other in [*sets, (got.negatives, w.negatives)]:
                assert torch.equal(own, other)
            losses = [
                flcmi(z, x.anchors, x.positives, x.negatives, smooth="exact", weights=x.weights)
                for x in (got, w)
            ]
            assert float(losses[0]) == pytest.approx(float(losses[1]), abs=1e-7)


def test_candidates_of_few_values_are_the_cells():
    t_N, age = labels(300, values=3)
    plan = WindowPlan(plan_rows(t_N, age, 1e-3, 48, age.long()), MiningConfig(windows=3))
    rows = torch.arange(300)
    plan.middles = torch.tensor([int((age == k).nonzero()[0]) for k in range(3)])
    for pair in plan.pairs:
        cells = pools_of(t_N, age.long(), *pair)
        wanted = (cells.anchors, cells.positives, cells.negatives)
        for own, other in zip(plan._pools_in(rows, pair), wanted, strict=True):
            assert torch.equal(own, other)


def test_weighted_sets_against_a_loop_over_rows():
    """The exact objective of a window, from the definition with every row in every set."""
    t_N, age = labels(60)
    plan = WindowPlan(plan_rows(t_N, age, 0.3, 60), RANDOM.model_copy(update={"windows": 2}))
    drawn = plan.draw(0, 0, nobody)
    z, tau = F.normalize(torch.randn(60, 4), dim=1), 0.5
    sim = (z @ z.T / tau).exp()
    for number, triplet in enumerate(drawn.triplets):
        middle = plan.middles[number % 2]  # pairs go class by class, window by window
        total = share = 0.0
        near = [float(plan.windows.near(r[None], middle[None])) for r in drawn.rows_B]
        same = (t_N[drawn.rows_B] == triplet.target).tolist()
        for i in range(60):
            a = sum(near[j] * same[j] * float(sim[i, j]) for j in range(60))
            p = sum((1 - near[j]) * same[j] * float(sim[i, j]) for j in range(60))
            n = sum(near[j] * (not same[j]) * float(sim[i, j]) for j in range(60))
            own = near[i] * same[i]
            total += own * tau * math.log(1 + a * n / (p * (a + n + p)))
            share += own
        sets = (triplet.anchors, triplet.positives, triplet.negatives)
        found = flcmi(z, *sets, smooth="exact", temperature=tau, weights=triplet.weights)
        assert float(found) == pytest.approx(total / share, rel=1e-4)


def test_no_other_class_in_any_window_is_a_sentence():
    t_N = torch.arange(40) // 20
    with pytest.raises(DataError, match="choose another"):
        WindowPlan(plan_rows(t_N, torch.arange(40.0), 1e-3, 12), RANDOM)


# -- methods --------------------------------------------------------------------------------------


def test_hsic_with_a_kernel_on_the_number():
    x, (t_N, age) = torch.randn(30, 4), labels(30)
    rows = torch.arange(30)
    alike = Windows.along(age, rows, 0.3).near(rows, rows)
    scale = sum(float((a - b).square().sum()) for a in x for b in x) / 900
    values = []
    for t in (0, 1):
        own = (t_N == t).nonzero().flatten().tolist()
        n = len(own)
        k = np.array([[math.exp(-float((x[i] - x[j]).square().sum()) / (2 * scale)) for j in own]
                      for i in own])  # fmt: skip
        low = np.array([[float(alike[i, j]) for j in own] for i in own])
        centre = np.eye(n) - 1 / n
        values.append(np.trace(k @ centre @ low @ centre) / (n - 1) ** 2)
    found = conditional_hsic(x, t_N, age, alike_BB=alike)
    assert float(found) == pytest.approx(np.mean(values), rel=1e-4)


@pytest.mark.parametrize("penalty", ["gap", "mmd"])
def test_penalties_over_windows_against_loops_over_rows(penalty):
    """Every pair of rows of a class is a pair of windows, by 1 - near and one over their rows."""
    x, (t_N, age) = torch.randn(24, 3), labels(24)
    q, rows = torch.softmax(x, 1), torch.arange(24)
    near = Windows.along(age, rows, 0.3).near(rows, rows)
    scale = sum(float((a - b).square().sum()) for a in x for b in x) / 24**2
    total = weight = 0.0
    for t in (0, 1):
        own = (t_N == t).nonzero().flatten().tolist()
        count = {i: sum(float(near[i, j]) for j in own) for i in own}

        def kernel(i: int, j: int, own=own, count=count) -> float:
            return sum(
                float(near[i, a]) * float(near[j, b]) / count[i] / count[j]
                * math.exp(-float((x[a] - x[b]).square().sum()) / (2 * scale))
                for a in own for b in own
            )  # fmt: skip

        mean = {i: sum(float(near[i, a] * q[a, t]) for a in own) / count[i] for i in own}
        for i in own:
            for j in own:
                w = (1 - float(near[i, j])) / count[i] / count[j]
                if penalty == "gap":
                    total += w * abs(mean[i] - mean[j])
                elif w:
                    total += w * (kernel(i, i) + kernel(j, j) - 2 * kernel(i, j))
                weight += w
    if penalty == "gap":
        found = soft_gap(q, t_N, age, alike_BB=near)
    else:
        found = conditional_group_mmd(x, t_N, age, alike_BB=near)
    assert float(found) == pytest.approx(total / weight, rel=1e-4)


@pytest.mark.parametrize("function", [soft_gap, conditional_group_mmd])
def test_a_penalty_over_one_window_is_nothing_and_has_a_gradient(function):
    x = torch.softmax(torch.randn(6, 2), 1).requires_grad_()
    found = function(x, torch.zeros(6, dtype=torch.long), torch.ones(6), alike_BB=torch.ones(6, 6))
    found.backward()
    assert float(found.detach()) == 0 and bool(x.grad.isfinite().all())


@pytest.mark.parametrize("name", ["ce", "balanced", "reweight", "gap", "mmd", "hsic"])
def test_a_method_on_few_values_learns_what_it_learns_of_groups(name):
    kind = lookup("method", name)
    by_group = Lab(kind, kind.Config(), None, inputs="vectors")
    by_number = Lab(kind, kind.Config(), None, inputs="vectors", number=True)
    rows = torch.arange(len(by_group.t_N))
    by_number.windows = Windows.along(by_number.s_N.double(), rows, 1e-3)
    totals = []
    for lab in (by_group, by_number):
        method = lab.build()
        stage = method.stages()[0]
        lab.plan(method, stage, 16)  # counts the cells
        batch = lab.batch(method, stage, rows[:24])
        totals += [float(v.total.detach()) for _, v in yields(method, batch, stage)]
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)


def test_the_adversary_of_a_number_is_a_regression():
    kind = lookup("method", "grl")
    lab = Lab(kind, kind.Config(), None, inputs="vectors", number=True)
    method = lab.build().eval()
    stage, rows = method.stages()[0], torch.arange(10)
    batch = lab.batch(method, stage, rows)
    (_, found), *_ = [*method.steps(batch, "learn")]
    h = method.encoder(lab.images[rows])
    ce = F.cross_entropy(method.classifier(h), lab.t_N[rows])
    read = method.adversary(h)[:, 0]
    wanted = [(float(lab.windows.quantile(rows[i : i + 1])) - 0.5) * 12**0.5 for i in range(10)]
    error = sum((float(read[i]) - wanted[i]) ** 2 for i in range(10)) / 10
    assert float(found.total.detach()) == pytest.approx(float(ce.detach()) + error, rel=1e-4)


def test_check_method_looks_at_soft_sets_where_they_are_claimed():
    able = {name for name, kind in entries("method").items() if kind.continuous}
    assert able == ABLE
    kind = lookup("method", "shasam-random")
    report = check_method(kind, inputs="vectors", overfit=False)
    assert "along a number" in report.checked
    report = check_method(lookup("method", "groupdro"), inputs="vectors", overfit=False)
    assert report.skipped["along a number"] == "it takes groups alone"


def test_a_claim_is_not_inherited():
    class Other(lookup("method", "balanced")):
        pass

    assert not Other.continuous


# -- what is asked for ----------------------------------------------------------------------------


def test_specifications_without_a_number_are_stored_as_they_always_were(tmp_path):
    plain = resolve({"data": {"sensitive": "old"}}, profile="smoke")
    assert not {"sensitive_as", "bandwidth"} & set(plain.as_dict()["data"])
    assert "windows" not in resolve({"method": "shasam"}, profile="smoke").options["mining"]
    folder = people(tmp_path)
    spec, _ = asked_for(folder, "balanced", sensitive="age")
    body = spec.as_dict()
    assert body["data"]["sensitive_as"] == "number" and body["data"]["bandwidth"] == 0.1
    assert resolve(body).key == spec.key == stored_spec(body).key
    wider, _ = asked_for(folder, "balanced", sensitive="age", bandwidth=0.2)
    assert wider.key != spec.key
    # what an earlier run has stored has groups, also of many values
    del body["data"]["sensitive_as"], body["data"]["bandwidth"]
    assert stored_spec(body).data.sensitive_as == resolve(body).data.sensitive_as == "auto"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"sensitive": ["age<35", "race"], "sensitive_as": "number"}, "none is a column of many"),
        ({"sensitive": "age", "missing": "infer"}, "missing=infer infers groups, and a number"),
        ({"sensitive": "age", "sensitive_as": "number", "missing": "group"}, "has none"),
        ({"sensitive": "race", "sensitive_as": "number"}, "not numeric"),
        ({"sensitive": "age", "sensitive_as": "groups"}, "62 groups|has 62|at least one image"),
    ],
)
def test_what_cannot_be_a_number_is_a_sentence(tmp_path, data, says):
    with pytest.raises((SpecError, DataError), match=says):
        spec, opened = asked_for(people(tmp_path), "balanced", **data)
        seen_batches(spec, opened)


def test_one_number_is_followed_among_several_attributes():
    table = pa.table({"age": range(40), "income": range(40), "race": [0, 1] * 20})
    assert number_rule(["race", "age"], table) == "age"
    with pytest.raises(DataError, match=r"one can be followed at a time.*'income<35'"):
        number_rule(["age", "race", "income"], table)


def test_methods_that_need_groups_name_those_that_do_not(tmp_path, capsys):
    folder = people(tmp_path)
    told = refused(words(folder, "groupdro", *AGE), capsys)
    assert "groupdro needs groups" in told and "'age<35'" in told
    assert all(name in told for name in ABLE)
    told = refused(words(folder, "shasam", *AGE, "--set", "options.smooth=none"), capsys)
    assert "lse, exact or linear" in told


def test_a_manifest_keeps_the_number_and_its_quarters(tmp_path):
    folder = people(tmp_path)
    spec, data = asked_for(folder, "ce", sensitive="age")
    manifest = data.manifest
    assert manifest.number == "age" and data.groups == 4
    number = manifest.number_N
    for code, name in enumerate(manifest.sensitive_names):
        own = number[manifest.s_N == code]
        assert name == f"age {own.min():g}-{own.max():g}" and 0.2 < len(own) / len(number) < 0.3
    manifest.save(tmp_path / "manifest.parquet")
    again = Manifest.load(tmp_path / "manifest.parquet")
    assert again.sha256 == manifest.sha256 and (again.number_N == number).all()
    groups = open_data(DataSpec(**{**spec.data.model_dump(), "sensitive_as": "auto"}))
    assert groups.groups > 50 and groups.manifest.number_N is None


# -- runs -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mined run by age, from a table."""
    folder = people(tmp_path_factory.mktemp("ages"))
    command(words(folder, "shasam", *AGE))
    return folder


def test_a_run_ends_in_a_page_with_curves_and_keeps_the_number(trained, capsys, tmp_path):
    run = run_of(trained, "shasam")
    table = pq.read_table(run.file("predictions.parquet"))
    manifest = Manifest.load(run.file("manifest.parquet"))
    assert table["age"].to_pylist() == manifest.number_N[manifest.rows("test")].tolist()
    found = run.metrics()["along"]["test"]
    assert found["attribute"] == "age" and "curve_gap" in json.dumps(found)
    page = run.file("report.html").read_text()
    assert "Along age" in page and "sensitive age" in page and "quarters of the rows" in page
    command(["audit", str(run.file("predictions.parquet")), *AGE])
    assert "is followed as a number" in " ".join(capsys.readouterr().out.split())


def test_predictions_of_new_rows_are_audited_by_age(trained, tmp_path, capsys):
    out = tmp_path / "new.csv"
    table = ["--csv", str(trained / "people.csv"), "--out", str(out)]
    command(["predict", str(run_of(trained, "shasam").path), str(trained / "x.npy"), *table])
    assert "--sensitive age" in capsys.readouterr().out
    command(["audit", str(out), *AGE])
    assert "curve_mean_gap" in capsys.readouterr().out


def test_a_model_of_a_number_is_loaded(trained):
    model = load(run_of(trained, "shasam").path)
    assert model.method.groups == 0 and len(model.groups) == 4


@pytest.mark.parametrize("method", sorted(ABLE - {"ce", "shasam", "balanced-hidden"}))
def test_every_method_that_claims_it_trains_by_age(tmp_path, method):
    command(words(people(tmp_path), method, *AGE, "--no-report"))
    assert run_of(tmp_path, method).done


@pytest.mark.parametrize("method", ["balanced", "shasam-random", "shasam", "reweight", "hsic"])
def test_rows_without_a_number_train_the_target_alone(tmp_path, method):
    folder = people(tmp_path)
    lines = (folder / "people.csv").read_text().splitlines()
    made = [line.rpartition(",")[0] + "," if k % 5 == 4 else line for k, line in enumerate(lines)]
    (folder / "people.csv").write_text("\n".join(made) + "\n")
    command(words(folder, method, *AGE, "--missing", "use", "--no-report"))
    run = run_of(folder, method)
    assert run.metrics()["without_group"]["test"] > 0
    if method == "balanced":
        assert "have no age and are not in these numbers" in " ".join(RunAnswer.of(run).lines())


@pytest.mark.parametrize("method", ["shasam", "shasam-random", "reweight"])
def test_a_run_that_was_cut_ends_with_the_same_bits(tmp_path, monkeypatch, method):
    files = {"features": tmp_path / "x.npy", "csv": tmp_path / "people.csv"}
    people(tmp_path)

    def train(out: str, resume: bool = False) -> bytes:
        run = shasam.train(
            method, data={**files, "target": "smiling", "sensitive": "age"}, profile="smoke",
            overrides={"train.steps": 30, "train.batch_views": 48}, out=tmp_path / out,
            report=False, quiet=True, device="cpu", resume=resume,
        )  # fmt: skip
        return run.file("model.safetensors").read_bytes()

    whole, again = train("whole"), train("again")
    assert whole == again
    original = Trainer._step

    def stop(self, run):
        if self.state.step == 17:
            self._save(run)
            raise TrainingError("stop here")
        return original(self, run)

    with monkeypatch.context() as patch, pytest.raises(TrainingError, match="stop here"):
        patch.setattr(Trainer, "_step", stop)
        train("cut")
    assert train("cut", resume=True) == whole


def test_batches_have_windows_and_natural_ones_do_not_need_them(tmp_path):
    spec, data = asked_for(people(tmp_path), "shasam", sensitive="age")
    plan, rows, batches = seen_batches(spec, data)
    assert isinstance(plan, WindowPlan) and plan.says("mined") == "mined batches in 2 windows"
    t_N = torch.tensor(data.t_N)
    for drawn, _ in batches:
        assert len(drawn.rows_B) == rows.batch_size and len(drawn.triplets) == 4
        for triplet in drawn.triplets:
            assert all(bool((w > 0).all()) for w in triplet.weights)
            assert bool((t_N[drawn.rows_B[triplet.anchors]] == triplet.target).all())
    spec, data = asked_for(tmp_path, "ce", sensitive="age")
    assert isinstance(seen_batches(spec, data)[0], NaturalPlan)


# -- a number beside groups -----------------------------------------------------------------------


@pytest.fixture(scope="module", params=["cross", "each"])
def race_and_age(request, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with race and age in years together."""
    folder = people(tmp_path_factory.mktemp(request.param))
    command(words(folder, "shasam-random", *RACE_AND_AGE, "--groups", request.param))
    return folder


def test_race_and_age_in_years_end_in_a_page_with_both(race_and_age, capsys):
    folder = race_and_age
    run = run_of(folder, "shasam-random")
    manifest = Manifest.load(run.file("manifest.parquet"))
    assert [a.name for a in manifest.attributes] == ["race", "quarter of age"]
    assert manifest.number == "age" and len(manifest.sensitive_names) == 12
    table = pq.read_table(run.file("predictions.parquet"))
    assert table["age"].to_pylist() == manifest.number_N[manifest.rows("test")].tolist()
    assert set(table["race"].to_pylist()) == {"asian", "black", "white"}
    found = run.metrics()
    assert found["along"]["test"]["attribute"] == "age"
    assert list(found["attributes"]["test"]) == ["race", "quarter of age", "race & age"]
    page = run.file("report.html").read_text()
    assert "Along age" in page and "quarter of age" in page
    assert "groupdro,posthoc" not in page  # which take no number
    path = str(run.file("predictions.parquet"))
    command(["audit", path])
    assert "quarter of age" in " ".join(capsys.readouterr().out.split())
    command(["audit", path, *RACE_AND_AGE])
    assert "is followed as a number" in " ".join(capsys.readouterr().out.split())
    out = folder / "new.csv"
    line = ["predict", str(run.path), str(folder / "x.npy"), "--csv", str(folder / "people.csv")]
    command([*line, "--out", str(out)])
    command(["audit", str(out), *RACE_AND_AGE])


def test_windows_of_age_lie_within_races_or_take_turns_with_them(tmp_path):
    folder = people(tmp_path)
    spec, data = asked_for(folder, "shasam-random", sensitive=["race", "age"])
    _, taken, batches = seen_batches(spec, data)
    race_N, age_N = data.manifest.attribute_codes[0], data.manifest.number_N
    assert taken.windows.crossed
    for drawn, _ in batches:
        assert drawn.triplets
        for triplet in drawn.triplets:
            rows = drawn.rows_B[torch.cat([triplet.anchors, triplet.negatives])].numpy()
            assert len(set(race_N[rows].tolist())) == 1  # near in age, and of one race
            positives = drawn.rows_B[triplet.positives].numpy()
            away = race_N[positives] != race_N[rows[0]]  # elsewhere: of another race or age
            assert bool((triplet.weights[1].numpy()[away] == 1).all()) and away.any()
    spec, data = asked_for(folder, "balanced", sensitive=["race", "age"], groups="each")
    _, taken, batches = seen_batches(spec, data)
    for step, (drawn, _) in enumerate(batches):
        rows = drawn.rows_B.numpy()
        windows = taken.all_windows[step % 2]
        near = windows.near(drawn.rows_B, drawn.rows_B).numpy()
        if step % 2 == 0:  # the turn of race: its groups, equally often
            assert np.array_equal(near > 0, race_N[rows][:, None] == race_N[rows])
            counts = np.bincount(data.t_N[rows] * 3 + race_N[rows])
            assert counts.max() - counts.min() <= 1
        else:
            assert ((near > 0) == (near > 0).T).all() and (near < 1).any()
            far = np.abs(age_N[rows][:, None] - age_N[rows]) > 30
            assert (near[far] == 0).all()


@pytest.mark.parametrize("method", sorted(ABLE - {"grl", "shasam-random", "balanced-hidden"}))
def test_every_method_of_windows_trains_by_race_and_age(tmp_path, method):
    command(words(people(tmp_path, unknown=0.1), method, *RACE_AND_AGE, "--missing", "use",
                  "--no-report"))  # fmt: skip
    found = run_of(tmp_path, method).metrics()
    assert found["without_group"]["test"] > 0 and "along" in found


def test_a_method_that_reads_the_number_itself_takes_it_alone(tmp_path, capsys):
    told = refused(words(people(tmp_path), "grl", *RACE_AND_AGE), capsys)
    assert "grl takes a number as the only attribute" in told and "hsic" in told


def test_missing_ages_are_not_to_be_made_a_group(tmp_path, capsys):
    folder = people(tmp_path)
    lines = (folder / "people.csv").read_text().splitlines()
    made = [line.rpartition(",")[0] + "," if k % 2 else line for k, line in enumerate(lines) if k]
    (folder / "people.csv").write_text("\n".join([lines[0], *made]) + "\n")
    told = refused(words(folder, "balanced", *AGE), capsys)
    assert "--missing drop" in told and "--missing use" in told and "--missing group" not in told
