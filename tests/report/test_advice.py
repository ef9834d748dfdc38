"""Which model to take: claims that the seeds show, no others, and none that contradict."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tests.report.run_files import CLASSES, GROUPS, make_run

from shasam.commands.compare import _grid, _show
from shasam.errors import SpecError
from shasam.metrics import Comparison, compare_seeds, evaluate_counts
from shasam.metrics.counts import Counts
from shasam.metrics.limits import lowest_shown, rows_to_show
from shasam.output import Screen
from shasam.registry import lookup, names
from shasam.report import write_report
from shasam.report.advice import NEEDS_GROUP, recommendations
from shasam.report.audits import limits_of
from shasam.report.comparison import areas_in_words, fronts_of_runs
from shasam.report.fronts import Choice, undominated
from shasam.report.runs import opened_runs, recorded_subject
from shasam.report.verdict import comparison_line

Rates = list[list[float]]  # accuracy of (class, group)


def answer(path: Path, rates: Rates, rows: int) -> None:
    """Write predictions that are right at those rates, with as many rows in each cell."""
    cells = [(c, g, i < round(rate * rows)) for c, of in enumerate(rates)
             for g, rate in enumerate(of) for i in range(rows)]  # fmt: skip
    t, s, right = (np.array(x) for x in zip(*cells, strict=True))
    p = np.where(right, t, 1 - t)
    old = pq.read_table(path / "predictions.parquet")
    table = pa.table({
        "id": [f"i{k}" for k in range(len(t))], "target": t, "prediction": p, "sensitive": s,
        "score_0": (p == 0) * 0.8 + 0.1, "score_1": (p == 1) * 0.8 + 0.1,
    })  # fmt: skip
    pq.write_table(table.replace_schema_metadata(old.schema.metadata), path / "predictions.parquet")


def runs_of(
    folder: Path, methods: dict[str, dict[int, Rates] | list[Rates]], rows: int = 1000
) -> list[Path]:
    """Runs whose seeds have those rates."""
    paths = []
    for method, of_seeds in methods.items():
        seeds = of_seeds if isinstance(of_seeds, dict) else dict(enumerate(of_seeds))
        for seed, rates in seeds.items():
            path = make_run(folder, f"{method}-{seed}", method=method, seed=seed, n=40)
            answer(path, rates, rows)
            paths.append(path)
    return paths


def advice(paths: list[Path], *args: object) -> str:
    (line,) = recommendations(opened_runs(paths), *args)
    return line


def flat(accuracy: float, *gaps: float) -> list[Rates]:
    """For each seed that accuracy and that gap in both classes."""
    return [[[accuracy + g / 2, accuracy - g / 2]] * 2 for g in gaps]


PLAIN = flat(0.80, 0.20, 0.21, 0.19)
FAIR = flat(0.80, 0.05, 0.06, 0.04)
NOISY = flat(0.80, 0.30, 0.02, 0.10)
COSTLY = flat(0.75, 0.05, 0.06, 0.04)


def test_a_method_that_is_shown_to_be_fairer_is_taken_with_its_price(tmp_path: Path) -> None:
    paths = runs_of(tmp_path, {"ce": PLAIN, "fair": FAIR, "noisy": NOISY})
    said = advice(paths)
    assert said.startswith("Take fair: gap 5.0, smaller by 15.0 points (")
    assert "its accuracy is not shown to differ" in said
    assert "ce: 80.0 % accuracy, gap (EO) 20.0 points, the mean of 3 seeds." in said
    assert "No other gap is shown to differ from that of ce (noisy)" in said
    assert "allow for 2 methods" in said
    with pytest.raises(SpecError, match="baseline='fiar'"):
        advice(paths, "fiar")
    assert advice(paths, "fair@mlp").startswith("No method is shown to be fairer than fair")


def test_nothing_is_recommended_as_fairer_where_nothing_is_shown_to_be(tmp_path: Path) -> None:
    said = advice(runs_of(tmp_path, {"ce": PLAIN, "noisy": NOISY}))
    assert "Take" not in said
    found = re.match(
        r"No method is shown to be fairer than ce; keep ce; the smallest difference this "
        r"comparison can show is ([\d.]+) points\.",
        said,
    )
    assert found
    x, y = ([2 * s[0][0] - 1.6 for s in of] for of in (NOISY, PLAIN))
    c = compare_seeds(x, y)
    assert float(found[1]) == pytest.approx(50 * (c.high - c.low), abs=0.06)
    assert "Nearest is noisy, with a gap of 14.0" in said and "seeds would show it" in said


def test_a_smaller_gap_for_much_accuracy_is_a_choice_and_not_advice(tmp_path: Path) -> None:
    said = advice(runs_of(tmp_path, {"ce": PLAIN, "posthoc": COSTLY}))
    assert said.startswith(
        "No method is shown to be fairer than ce within a point of its accuracy; keep ce unless"
    )
    assert "posthoc: gap 5.0, smaller by 15.0 points" in said
    assert "it costs 5.0 points (" in said and "it needs the group of every row" in said
    assert "The model is ce-0 (ce)" in said


@pytest.mark.needs_torch
def test_methods_that_need_the_group_are_known_without_torch() -> None:
    assert set(NEEDS_GROUP) == {n for n in names("method") if lookup("method", n).decides_by_group}


def test_every_claim_has_an_interval_that_excludes_zero(tmp_path: Path) -> None:
    """Three seeds and several methods: noise must not become a sentence."""
    rng = np.random.default_rng(0)
    methods = {f"m{k}": flat(0.75, *rng.uniform(0.02, 0.2, 3)) for k in range(5)}
    said = advice(runs_of(tmp_path, {"ce": PLAIN, **methods, "fair": FAIR}))
    claims = re.findall(r"(?:smaller|larger)[^.(]*by [\d.]+ points \(([\d.]+) to ([\d.]+)", said)
    assert claims and all(float(low) > 0 for low, _ in claims)


@pytest.mark.needs_torch
@pytest.mark.parametrize(("groups", "shift"), [(2, 0.0), (2, 0.8), (7, 0.0)])
def test_advice_on_vectors_whose_training_split_has_no_bias(
    tmp_path: Path, groups: int, shift: float
) -> None:
    """Every cell is as large as another, so that balancing has nothing to do, and must not seem to.

    A shift of a group's vectors is what thresholds can mend and balancing cannot.
    """
    from shasam.pipeline.execute import execute
    from shasam.spec import resolve
    from shasam.training.runtime import Runtime

    rng = np.random.default_rng(groups)
    n = 4200
    t, s = np.arange(n) % 2, np.arange(n) // 2 % groups
    x = rng.normal(size=(n, 4)).astype(np.float32)
    x[:, 0] += 0.9 * (2 * t - 1) + shift * (s == 0)
    np.save(tmp_path / "x.npy", x)
    lines = "".join(f"{a},g{b}\n" for a, b in zip(t, s, strict=True))
    (tmp_path / "labels.csv").write_text(f"t,s\n{lines}", encoding="utf-8")
    data = {"features": str(tmp_path / "x.npy"), "csv": str(tmp_path / "labels.csv"),
            "target": "t", "sensitive": "s"}  # fmt: skip
    paths = []
    for method in ("ce", "balanced", "posthoc"):
        for seed in range(3):
            spec = resolve(
                {"method": method, "seed": seed, "data": {**data, "seed": seed},
                 "train": {"steps": 60, "natural_head": False, "group_probes": False,
                           "validate_every": 0}},
                profile="smoke",
            )  # fmt: skip
            paths.append(
                execute(spec, tmp_path / "runs", runtime=Runtime(device="cpu", quiet=True)).path
            )
    said = advice(paths)
    assert not re.search(r"(Take balanced|balanced: gap)", said)
    claims = re.findall(r"(?:smaller|larger)[^.(]*by [\d.]+ points \(([\d.]+) to ([\d.]+)", said)
    assert all(float(low) > 0 for low, _ in claims)
    assert "not established" not in said
    assert ("posthoc" in said and "needs the group" in said) or "No method is shown" in said
    if shift:  # the gap is there, and what mends it is named with its price
        assert re.search(r"posthoc: gap [\d.]+, smaller by", said)
    else:
        assert said.startswith("No method is shown to be fairer than ce; keep ce;")
        assert "the smallest difference this comparison can show is" in said


def test_the_interval_of_several_comparisons_excludes_zero_where_p_says_so() -> None:
    rng = np.random.default_rng(1)
    both = set()
    for shift in np.linspace(0, 3, 60):
        c = compare_seeds(list(rng.normal(shift, 1, 4)), [0.0] * 4, comparisons=5)
        assert (c.low > 0 or c.high < 0) == (c.p < 0.05) == c.shown
        both.add(c.shown)
    assert both == {True, False}


def test_a_p_that_the_interval_contradicts_is_no_claim() -> None:
    """-17.5 to 2.9 with p = 0.028: the sentence once said 'a smaller gap by 5.1 points'."""
    odd = Comparison(-0.051, -0.175, 0.029, 0.028, 39)
    same = Comparison(0.0, -0.02, 0.02, 0.9, 39)
    line = comparison_line("posthoc", "ce", {"eo_mean": odd, "accuracy": same})
    assert "smaller" not in line and "0.028" not in line
    assert "not clearly different in the gap between groups (EO) (−17.5 to 2.9)" in line


def test_the_split_that_a_method_was_fitted_on_does_not_rank_it(tmp_path: Path) -> None:
    """Post-processing looks perfect on validation, where its thresholds were fitted."""
    paths = runs_of(tmp_path, {"ce": PLAIN, "posthoc": PLAIN})
    for path in paths:
        body = json.loads((path / "metrics.json").read_text())
        eo = 0.01 if path.name.startswith("posthoc") else 0.3
        body["val"] = {"accuracy": {"value": 0.9}, "eo_mean": {"value": eo}}
        (path / "metrics.json").write_text(json.dumps(body))
    assert advice(paths).startswith("No method is shown to be fairer than ce")


def test_the_model_is_not_the_luckiest_seed(tmp_path: Path) -> None:
    said = advice(runs_of(tmp_path, {"ce": PLAIN, "fair": FAIR}))
    assert "The model is fair-0 (fair): its first seed" in said  # fair-2 has the smallest gap


def test_one_seed_establishes_nothing(tmp_path: Path) -> None:
    said = advice(runs_of(tmp_path, {"ce": PLAIN[:1], "fair": FAIR[:1]}))
    assert "not established: they have 1 seed in common" in said and "keep ce" in said
    assert "Take" not in said


def test_partial_comparisons_are_made_on_common_seeds(tmp_path: Path) -> None:
    good, bad = flat(0.90, 0.1)[0], flat(0.60, 0.1)[0]
    paths = runs_of(tmp_path, {"ce": {0: good, 1: bad}, "other": {0: good}})
    said = advice(paths)
    assert "they are compared on seed 0; 1 run of other seeds is left out" in said
    assert "ce: 90.0 % accuracy" in said
    page = write_report(paths, tmp_path / "c.html").read_text()
    table = page[page.index('aria-label="Methods,') :]
    assert table.index("90.0") < table.index("</table>") and "75.0" not in table[:2000]
    apart = runs_of(tmp_path / "b", {"ce": {0: good}, "other": {1: good}})
    assert "No seed is common to all methods" in advice(apart)


def test_the_encoder_is_named_only_where_it_differs(tmp_path: Path) -> None:
    paths = runs_of(tmp_path, {"ce": PLAIN, "fair": FAIR})
    for k, path in enumerate(paths):
        spec = yaml.safe_load((path / "spec.yaml").read_text())
        (path / "spec.yaml").write_text(yaml.safe_dump({**spec, "model": {"encoder": "mlp"}}))
        if k == 0:
            assert {run.method for run in opened_runs(paths)} == {"ce@mlp", "fair", "ce"}
    assert {run.method for run in opened_runs(paths)} == {"ce", "fair"}


def test_gaps_of_opposite_sign_do_not_cancel_in_the_picture(tmp_path: Path) -> None:
    signs = [[[0.85, 0.75], [0.8 + g / 2, 0.8 - g / 2]] for g in (0.098, -0.134, -0.016)]
    paths = runs_of(tmp_path, {"ce": PLAIN, "shasam": signs}, rows=1000)
    page = write_report(paths, tmp_path / "c.html").read_text()
    page = page[page.index('id="verdict"') : page.index('id="setting-0"')]
    labels = [float(x) for x in re.findall(r">gap ([\d.]+)<", page)]
    assert labels[3] == pytest.approx(8.3, abs=0.11)  # and not 1.7
    subjects = [recorded_subject(r) for r in opened_runs(paths) if r.method == "shasam"]
    eo = np.mean([s.estimates["eo_mean"].value for s in subjects])
    assert np.mean(labels[1::2]) == pytest.approx(100 * eo, abs=0.11)
    ends = re.findall(r'd="M([\d.]+) [\d.]+L([\d.]+) [\d.]+" class="whisker"', page)
    lengths = [100 * (float(b) - float(a)) / 384 for a, b in ends]
    assert lengths == pytest.approx(labels, abs=0.1)


# -- limits ---------------------------------------------------------------------------------------


def test_a_limit_names_the_most_accurate_model_that_is_shown_to_keep_it(tmp_path: Path) -> None:
    cheap = flat(0.77, 0.01, 0.01, 0.01)
    low = flat(0.70, 0.0, 0.0, 0.0)
    paths = runs_of(tmp_path, {"ce": PLAIN, "cheap": cheap, "low": low}, rows=4000)
    said = advice(paths, None, limits_of(["eo_mean=0.05"]))
    assert "2 are shown to keep it; the most accurate is cheap" in said
    assert "It costs 3.0 points (3.0 to 3.0, p < 0.001) of accuracy against ce." in said
    assert "The model is cheap-0" in said


def test_a_limit_that_cannot_be_shown_says_how_many_rows_would(tmp_path: Path) -> None:
    paths = runs_of(tmp_path, {"ce": PLAIN, "fair": flat(0.8, 0.0, 0.0, 0.0)}, rows=40)
    said = advice(paths, None, limits_of(["eo_mean=0.05"]))
    assert "no model is shown to keep it, so what is said above stands. The best effort is" in said
    assert "The best effort is fair (its model, seed 0: EO (mean) 0.0, upper end" in said
    assert "points from the limit" in said
    found = re.search(
        r"cannot show a gap below ([\d.]+) points: half of the models without a gap have a higher "
        r"upper end\. ([\d,]+) images in each class of each group would show 5\.0\.",
        said,
    )
    assert found
    counts = Counts(np.array([[[32, 32], [8, 8]], [[8, 8], [32, 32]]]), CLASSES, GROUPS)
    level = 1 - 0.05 / 2  # of two methods
    shown = lowest_shown(counts, "eo_mean", level=level)
    assert float(found[1]) == pytest.approx(100 * shown, abs=0.06)
    assert int(found[2].replace(",", "")) == rows_to_show(counts, "eo_mean", 0.05, level=level)


def test_where_no_gap_is_shown_nothing_is_said_to_make_it_smaller(tmp_path: Path) -> None:
    """Data without bias: gaps of a point or two by chance, in two groups of 200 rows a cell."""
    none = {"ce": flat(0.8, 0.04, 0.03, 0.05), "thresholds": flat(0.8, 0.03, 0.0, 0.05)}
    said = advice(runs_of(tmp_path, none, rows=200))
    assert "No method is shown to be fairer than ce; keep ce" in said
    assert "That ce has a gap at all is not shown in any of its 3 runs: chance makes gaps" in said
    assert "Nearest is" not in said and "--seeds" not in said
    some = {"ce": flat(0.8, 0.2, 0.19, 0.21), "other": flat(0.8, 0.2, 0.18, 0.211)}
    said = advice(runs_of(tmp_path / "b", some, rows=1000))
    assert "a gap at all" not in said and "Nearest is" not in said  # less than a point apart


def test_the_best_effort_is_not_the_luck_of_the_first_seed(tmp_path: Path) -> None:
    """Seed 0 of posthoc happens to have no gap; over seeds another one is nearer to the limit."""
    lucky = flat(0.8, 0.0, 0.2, 0.2)
    paths = runs_of(tmp_path, {"ce": PLAIN, "posthoc": lucky, "even": flat(0.8, 0.1, 0.1, 0.1)}, 60)
    said = advice(paths, None, limits_of(["eo_mean=0.05"]))
    assert "The best effort is even (its model, seed 0: EO (mean) 10.0" in said


def test_limits_are_them_and_a_rule_by_group_says_what_it_needs(tmp_path: Path) -> None:
    paths = runs_of(tmp_path, {"ce": PLAIN, "posthoc": flat(0.77, 0.01, 0.01, 0.01)}, rows=4000)
    limits = ["eo_mean<=0.05", "tpr_min>=0.7"]
    said = advice(paths, None, limits_of(limits))
    assert "eo_mean=0.05 and tpr_min=0.7: of 2 methods, 1 is shown to keep them" in said
    assert "of accuracy against ce. It needs the group of every row at prediction." in said
    assert "lower end" in said and "The model is posthoc-0" in said
    never = advice(paths, None, limits_of(["eo_mean<=0.001", "tpr_min>=0.9"]))
    assert "no model is shown to keep them" in never


@pytest.mark.parametrize("sizes", [[39] * 7, [40, 60, 90, 110, 270], [150, 150]])
def test_what_a_test_set_cannot_show_is_the_upper_end_of_models_without_a_gap(
    sizes: list[int],
) -> None:
    """And the rows that are asked for show it. An upper end never contradicts the sentence."""
    rate_CP = np.array([[0.85, 0.15], [0.2, 0.8]])
    names = tuple(f"g{k}" for k in range(len(sizes)))
    seen = Counts(np.round(rate_CP[:, :, None] * np.array(sizes)).astype(int), CLASSES, names)
    shown = lowest_shown(seen, "eo_mean")
    rng, ends = np.random.default_rng(0), []
    for _ in range(40):
        drawn = [[rng.multinomial(n, p) for n in sizes] for p in rate_CP]
        fair = Counts(np.array(drawn).transpose(0, 2, 1), CLASSES, names)
        ends.append(evaluate_counts(fair, draws=200, metrics=["eo_mean"])["eo_mean"].high)
    assert np.median(ends) == pytest.approx(shown, rel=0.15)
    rows = rows_to_show(seen, "eo_mean", 0.05)
    many = Counts(np.repeat(rate_CP[:, :, None] * rows, len(sizes), 2), CLASSES, names)
    assert lowest_shown(many, "eo_mean") == pytest.approx(0.05, rel=0.15)


def test_a_gap_that_fair_models_have_has_no_lowest_end() -> None:
    """Parity differs where the groups' shares of the classes do, however right a model is."""
    n = np.array([[[80, 20], [20, 5]], [[5, 20], [20, 80]]])
    assert np.isnan(lowest_shown(Counts(n, CLASSES, GROUPS), "demographic_parity"))


def test_few_rows_a_cell_are_said_without_a_limit_too(tmp_path: Path) -> None:
    """Of 39 rows a cell nothing said that a gap below 5 points cannot be measured."""
    said = advice(runs_of(tmp_path, {"ce": PLAIN, "noisy": NOISY}, rows=39))
    found = re.search(r"has 39 images in its smallest class and group, and cannot show a gap "
                      r"below ([\d.]+) points", said)  # fmt: skip
    assert found and float(found[1]) > 5
    ends = [float(x) for x in re.findall(r"upper end ([\d.]+)", said)]
    assert not ends  # without a limit no end is named that could contradict it


def test_a_lowest_rate_can_be_asked_for(tmp_path: Path) -> None:
    paths = runs_of(tmp_path, {"ce": PLAIN, "fair": FAIR}, rows=2000)
    said = advice(paths, None, limits_of(["worst_group_accuracy=0.74"]))
    assert "1 is shown to keep it; the most accurate is fair" in said and "lower end" in said


def test_the_page_says_it_once_and_can_leave_out_pictures(tmp_path: Path) -> None:
    paths = runs_of(tmp_path, {"ce": PLAIN, "fair": FAIR})
    item = {"id": "x", "gain": 1.0, "similarity": 0.5, "thumb": "data:image/jpeg;base64,/9j/4AAQ"}
    sets = {"anchors": [item], "positives": [item], "negatives": [item]}
    body = {"iterations": [{"step": 1, "target": 0, "sensitive": 0, "sets": sets}]}
    (paths[-1] / "mining.json").write_text(json.dumps(body))
    limits = limits_of(["eo_mean=0.2"])
    page = write_report(paths, tmp_path / "a.html", baseline="fair", limits=limits).read_text()
    assert page.count("ce is shown to have a larger gap than fair") == 1
    assert page.count("ce against fair:") == 1 and "eo_mean=0.2: of 2 methods" in page
    one = write_report(paths[-1:], tmp_path / "b.html").read_text()
    assert "base64,/9j/4AAQ" in one
    one = write_report(paths[-1:], tmp_path / "c.html", thumbnails=False).read_text()
    assert "base64,/9j/4AAQ" not in one and "left out to keep the page small" not in one


# -- the front ------------------------------------------------------------------------------------


def test_the_front_is_what_nothing_dominates() -> None:
    given = {"a": (0.8, 0.2), "b": (0.7, 0.1), "c": (0.69, 0.15), "d": (0.7, 0.05), "e": (0.8, 0.2)}
    choices = [Choice(name, name, *at) for name, at in given.items()]
    assert [c.name for c in undominated(choices)] == ["d", "a"]


def test_values_of_a_dial_are_drawn_as_one_line_and_first(tmp_path: Path) -> None:
    paths = runs_of(tmp_path, {"ce": PLAIN, "grl": FAIR})
    more = runs_of(tmp_path / "b", {"grl": flat(0.75, 0.01, 0.02, 0.01)})
    for k, path in enumerate([*paths[3:], *more]):
        spec = yaml.safe_load((path / "spec.yaml").read_text())
        spec["options"] = {"strength": 0.3 if k < 3 else 3.0}
        (path / "spec.yaml").write_text(yaml.safe_dump(spec))
    page = write_report([*paths, *more], tmp_path / "c.html").read_text()
    verdict = page[page.index('id="verdict"') : page.index('id="setting-0"')]
    label = re.search(r"Accuracy against the gap\. Not dominated: ([^\"<]*)", verdict)
    assert label and "grl (strength 0.3) 80.0 % at 5.0" in label[1]
    assert "ce" not in label[1]  # dominated: as accurate, with a larger gap
    assert verdict.index("What each gap costs") < verdict.index("The number is the average gap")


TEN = ("ce", "balanced", "groupdro", "jtt", "lisa", "gap", "mmd", "dfr", "fsclplus", "shasam")


def test_the_front_is_the_first_picture_and_names_ten_methods_apart(tmp_path: Path) -> None:
    paths = [
        make_run(tmp_path, f"{m}-{seed}", method=m, seed=seed, gap=0.8, n=200, optional=False)
        for m in TEN
        for seed in range(2)
    ]
    figures = tmp_path / "figures"
    page = write_report(paths, tmp_path / "c.html", figures_dir=figures).read_text()
    first = page[page.index("<figure>") : page.index("</figure>")]
    assert "Accuracy against the gap. Not dominated:" in first
    assert "thresholds per group, which need the group at prediction" in first
    assert "resampled rows and seeds" in first and 'class="area c7"' in first
    heights = {
        name: float(y) for y, name in re.findall(r'<text x="334" y="([\d.]+)"[^>]*>([^<]+)<', first)
    }
    assert set(heights) == set(TEN)
    ordered = sorted(heights.values())
    assert all(b - a >= 14.9 for a, b in pairwise(ordered))
    assert 'class="off"' in first  # what is dominated is grey
    assert 'id="setting-0"' not in page[: page.index("<figure>")]
    assert page.count("<th>Area under its front, %</th>") == 1
    assert (figures / "front-of-methods-0.svg").is_file()
    fronts = fronts_of_runs(opened_runs(paths))
    ((_, found),) = fronts.items()
    value, low, high = (f"{100 * v:.1f}" for v in found["ce"].area)
    assert f"<td>{value}<span" in page and f"{low} – {high}" in page
    assert f"ce {value} [{low}, {high}]" in areas_in_words(fronts)[0]


def test_the_screen_has_the_area_under_every_front(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = runs_of(tmp_path, {"ce": PLAIN[:1], "fair": FAIR[:1]}, rows=100)
    _show(paths, tmp_path / "c.html", None, [], True, Screen())
    out = capsys.readouterr().out
    ((_, found),) = fronts_of_runs(opened_runs(paths)).items()
    for method in ("ce", "fair"):
        (line,) = (x for x in out.splitlines() if x.split()[:1] == [method] and "[" in x)
        assert line.split()[-1] == f"{100 * found[method].area[0]:.1f}"
    assert "area: the best accuracy that a model reaches" in " ".join(out.split())
    assert "Area under the front" in (tmp_path / "c.md").read_text()


@pytest.mark.needs_torch
def test_compare_turns_every_dial() -> None:
    grid = _grid(["ce", "grl", "posthoc"], {}, "quick", 2, front=True)
    assert [run.get("options") for run in grid["runs"]] == [
        None, {"strength": 0.3}, {"strength": 1.0}, {"strength": 3.0},
        {"tolerance": 0.1}, {"tolerance": 0.05}, {"tolerance": 0.0},
    ]  # fmt: skip
    assert len(_grid(["ce", "grl"], {}, "quick", 2)["runs"]) == 2
