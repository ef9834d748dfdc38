"""The form of Local Law 144, bias scenarios, plans, and what an audit takes and prints."""

from __future__ import annotations

import csv
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.metrics.test_orderings import COMPAS

import shasam
from shasam.commands.audit import audit
from shasam.errors import InputError, LimitError, ShasamError
from shasam.metrics.rates import rows_needed, smallest_gap
from shasam.report.bias_audit import (
    deviations,
    fields_of,
    fisher,
    header_of,
    impact_ratios,
)
from shasam.report.cards import INTENDED, INTENDED_FILE
from shasam.report.scenarios import read_scenarios

APPLICANTS = (  # sex, race, assessed, selected: a made-up hiring tool, checked by hand below
    ("Female", "Black", 100, 20), ("Female", "White", 200, 60), ("Female", "", 50, 10),
    ("Male", "Black", 100, 30), ("Male", "White", 200, 80), ("Male", "", 40, 20),
    ("Female", "Native Hawaiian", 4, 2), ("Male", "Native Hawaiian", 4, 2),
)  # fmt: skip


@pytest.fixture
def applicants(tmp_path: Path) -> Path:
    path = tmp_path / "applicants.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["sex", "race", "selected", "points"])
        for sex, race, assessed, selected in APPLICANTS:
            for i in range(assessed):
                writer.writerow([sex, race, "yes" if i < selected else "no", assessed - i])
    return path


def form(path: Path, **more: object) -> dict:
    out = path.parent / "form.json"
    audit([path], standard="ll144", sensitive=["sex", "race"], json=out, **more)  # type: ignore[arg-type]
    return json.loads(out.read_text(encoding="utf-8"))


def test_the_table_of_a_made_up_hiring_tool_is_what_a_pencil_gives(applicants: Path) -> None:
    found = form(applicants, prediction="selected", about=["auditor=Acme", "data_kind=test"])
    sex, race, both = found["result"]["tables"]
    assert [t["attribute"] for t in (sex, race, both)] == ["sex", "race", "sex & race"]
    female = sex["categories"][0]
    assert (female["assessed"], female["selected"]) == (354, 92)
    assert female["impact_ratio"] == pytest.approx((92 / 354) / (132 / 344), abs=1e-6)
    assert female["shortfall"] == 44  # 354 * 132 / 344 = 135.8, so 136 less 92
    assert sex["unknown"] == 0 and female["bounds_over_unknown"] == [female["impact_ratio"]] * 2
    black, small, white = race["categories"]
    assert (race["unknown"], race["unknown_selected"]) == (90, 30)
    assert black["impact_ratio"] == pytest.approx((50 / 200) / (140 / 400), abs=1e-6)
    # 60 unknown who were not selected are all Black, 30 who were all White; then the other way
    worst, best = (50 / 260) / (170 / 430), (80 / 230) / (140 / 460)
    assert black["bounds_over_unknown"] == pytest.approx([worst, min(best, 1)], abs=1e-6)
    low, high = black["bounds_and_sampling_error"]
    assert low < worst and high == 1.0
    assert small["under_two_per_cent"] and small["impact_ratio"] is None
    assert white["impact_ratio"] == 1 and race["most_selected"] == "White"
    assert both["unknown"] == 90 and len(both["categories"]) == 6
    assert found["result"]["header"] == {"auditor": "Acme", "data_kind": "test"}


def test_scores_are_rated_above_the_median_of_the_sample(applicants: Path) -> None:
    found = form(applicants, score=["points"])["result"]
    points = [assessed - i for *_, assessed, _ in APPLICANTS for i in range(assessed)]
    assert found["rate"] == "scoring" and found["median_score"] == np.median(points)
    female = found["tables"][0]["categories"][0]
    own = [a - i for sex, _, a, _ in APPLICANTS if sex == "Female" for i in range(a)]
    assert female["selected"] == sum(p > np.median(points) for p in own)


def test_every_format_holds_the_form_and_verifying_computes_it_again(
    applicants: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {k: applicants.parent / f"form.{k}" for k in ("html", "csv", "markdown")}
    form(applicants, prediction="selected", **places)
    for place in places.values():
        text = place.read_text(encoding="utf-8")
        assert "Native Hawaiian" in text and "354" in text
    document = applicants.parent / "form.json"
    audit([applicants], verify=document)
    assert "hashes agree" in capsys.readouterr().out.replace("\n", " ")
    told = json.loads(document.read_text(encoding="utf-8"))
    told["result"]["tables"][0]["categories"][0]["selected"] += 1
    document.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(SystemExit):
        audit([applicants], verify=document)
    said = capsys.readouterr().err
    assert "changed after its hash" in said and "the numbers differ" in said


def test_a_table_in_memory_gives_the_form_of_the_file(
    applicants: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with applicants.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    people = {key: [row[key] for row in rows] for key in ("sex", "race", "selected")}
    found = shasam.audit(
        people, standard="ll144", prediction="selected", sensitive=["sex", "race"],
        about={"auditor": "Acme", "data_kind": "test"},
    )  # fmt: skip
    told = form(applicants, prediction="selected", about=["auditor=Acme", "data_kind=test"])
    assert found.to_dict()["result"] == told["result"]
    assert "Below four fifths of the rate of Male: Female (0.68)" in str(found)
    assert "<iframe" in found._repr_html_() and "Native Hawaiian" in found.to_csv()
    kept = applicants.parent / "memory.json"
    found.to_json(kept)
    capsys.readouterr()
    audit([applicants], verify=kept)  # the columns of the file are those that were in memory
    assert "hashes agree" in capsys.readouterr().out.replace("\n", " ")
    text = applicants.read_text(encoding="utf-8")
    applicants.write_text(text.replace("Male,Black,no", "Male,White,no", 1), encoding="utf-8")
    with pytest.raises(SystemExit):
        audit([applicants], verify=kept)
    assert "is not the columns that" in capsys.readouterr().err.replace("\n", " ")
    with pytest.raises(InputError, match="standard='ll144'"):
        shasam.audit(people, sensitive="sex", about={"auditor": "Acme"})
    with pytest.raises(InputError, match="did you mean 'auditor'"):
        shasam.audit(people, standard="ll144", sensitive=["sex", "race"], about={"auditer": 1})


def test_a_table_in_memory_is_judged_by_scenarios_as_the_file_is(tmp_path: Path) -> None:
    with compas_rows(tmp_path).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    people = {key: [row[key] for row in rows] for key in ("race", "recid", "high")}
    agreed = [
        {"attribute": "race", "metric": "eo_max", "at_most": 0.1, "review": "2027-01-01"},
        {"attribute": "race", "group": "Caucasian", "metric": "fpr", "at_most": 0.5},
    ]
    asked = {"label": "recid", "prediction": "high", "sensitive": "race", "draws": 200}
    found = shasam.audit(people, scenarios=agreed, **asked)
    assert [j.verdict for j in found.scenarios] == ["exceeded, surely", "met, surely"]
    assert "2027-01-01" in found.scenarios_table(tmp_path / "s.md")
    with pytest.raises(LimitError, match="scenario: race, all groups: eo_max"):
        found.check()
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump(agreed), encoding="utf-8")
    assert shasam.audit(people, scenarios=path, **asked).scenarios == found.scenarios
    with pytest.raises(InputError, match="one threshold"):
        shasam.audit(people, scenarios=[{"metric": "eo_max", "at_most": True}], **asked)


@pytest.mark.parametrize(
    ("text", "said"),
    [("auditor: a\nauditor: b\n", "twice"), ("a: &x [1]\nb: *x\n", "alias"), ("a: [", "YAML"),
     ("- 1\n" * 20_000, "limit")],
)  # fmt: skip
def test_files_that_people_fill_in_are_read_as_guardedly_as_specifications(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ShasamError, match=said):
        header_of([str(path)])
    with pytest.raises(ShasamError, match=said):
        read_scenarios(path)
    path.unlink()
    os.mkfifo(path)
    for read in (lambda: header_of([str(path)]), lambda: read_scenarios(path)):
        with pytest.raises(ShasamError, match="regular file"):
            read()


@pytest.mark.parametrize("damage", [
    {"level": "x"}, {"score": 3}, {"sensitive": [["sex"], "race"]}, {"threshold": "x"},
    {"prediction": ["selected"]}, {"positive": 7},
])  # fmt: skip
def test_a_damaged_form_is_a_sentence(applicants: Path, damage: dict) -> None:
    told = form(applicants, prediction="selected")
    told["result"]["asked"] |= damage
    document = applicants.parent / "form.json"
    document.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises((ShasamError, SystemExit)):
        audit([applicants], verify=document)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a device node")
def test_a_form_is_written_to_a_device_and_does_not_replace_it(applicants: Path) -> None:
    node = applicants.parent / "null"
    os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    audit([applicants], standard="ll144", prediction="selected", sensitive=["sex", "race"],
          json=node, html=node, csv=node, markdown=node)  # fmt: skip
    assert stat.S_ISCHR(node.stat().st_mode)


def test_what_is_wrong_with_a_form_is_said(applicants: Path) -> None:
    with pytest.raises(InputError, match="sex first"):
        audit([applicants], standard="ll144", prediction="selected", sensitive=["sex"])
    with pytest.raises(InputError, match="did you mean 'auditor'"):
        header_of(["auditer=Acme"])
    with pytest.raises(InputError, match="historical or test"):
        header_of(["data_kind=old"])
    with pytest.raises(InputError, match="nobody"):
        impact_ratios("sex", ["f", "m"], [10, 10], [0, 0])


def test_fisher_and_deviations_match_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for k, n, other_k, other_n in ((3, 20, 9, 25), (30, 100, 50, 100), (0, 9, 4, 12)):
        table = [[k, n - k], [other_k, other_n - other_k]]
        assert fisher(k, n, other_k, other_n) == pytest.approx(stats.fisher_exact(table)[1])
    assert deviations(30, 100, 50, 100) ** 2 == pytest.approx(
        stats.chi2_contingency([[30, 70], [50, 50]], correction=False)[0]
    )


def compas_rows(tmp_path: Path) -> Path:
    path = tmp_path / "compas.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["race", "recid", "high", "score_text", "decile", "age"])
        for c, p, g in np.ndindex(COMPAS.n_CPG.shape):
            for i in range(int(COMPAS.n_CPG[c, p, g])):
                decile = 6 + i % 5 if p else 1 + i % 4
                writer.writerow([COMPAS.groups[g], c, p, ("Low", "High")[p], decile, 18 + i % 40])
    return path


def test_compas_is_audited_as_it_is_and_a_gate_that_should_fail_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out, page = compas_rows(tmp_path), tmp_path / "o.json", tmp_path / "p.html"
    with pytest.raises(SystemExit):
        audit([path], label="recid", prediction="high", sensitive=["race"], json=out, html=page,
              fail_over=["eo_max.low=0.05"], draws=300)  # fmt: skip
    said = capsys.readouterr()
    assert "eo_max.low" in said.err
    found = json.loads(out.read_text(encoding="utf-8"))["audits"][0]
    values = [found["metrics"][k]["value"] for k in ("fpr_gap", "tpr_gap")]
    text = page.read_text(encoding="utf-8")
    assert all(
        f"gap {100 * v:.1f} points" in text for v in values
    )  # the bars say what the table says
    assert "class 1 of Other" in text and "class 1 of Other" not in found["not_compared"]
    assert {c["group"] for c in found["small_cells"]} == {"Asian", "Native American"}
    assert "the two largest groups" in " ".join(found["verdict"])
    assert all("Asian and" not in line or "fewer than 30" in line for line in found["verdict"])
    assert len([line for line in said.out.splitlines() if " ↓ " in line or " ↑ " in line]) == 10


def test_deciles_need_a_threshold_only_and_rules_make_attributes(tmp_path: Path) -> None:
    path, out = compas_rows(tmp_path), tmp_path / "o.json"
    audit([path], label="recid", score=["decile"], threshold=5, sensitive=["age<25"], json=out,
          html=tmp_path / "p.html", draws=200,
          slices=["age:[18,25,40]", "race=='Other'"])  # fmt: skip
    found = json.loads(out.read_text(encoding="utf-8"))["audits"][0]
    assert found["groups"] == ["age<25", "age>=25"]
    assert found["counts"] and found["metrics"]["accuracy"]["value"] == pytest.approx(
        np.einsum("ccg->", COMPAS.n_CPG) / COMPAS.total
    )
    assert "auc_age<25" in found["metrics"] and "abcc" not in found["metrics"]


def test_the_page_is_there_even_if_nobody_reads_the_text(tmp_path: Path) -> None:
    path, page = compas_rows(tmp_path), tmp_path / "p.html"
    words = [sys.executable, "-m", "shasam.cli", "audit", str(path), "--label", "recid",
             "--prediction", "high", "--sensitive", "race", "--draws", "100",
             "--html", str(page)]  # fmt: skip
    read, write = os.pipe()
    os.close(read)
    subprocess.run(words, stdout=write, stderr=subprocess.DEVNULL, check=False)
    os.close(write)
    assert page.is_file()


def test_scenarios_are_judged_by_value_and_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, agreed, out = compas_rows(tmp_path), tmp_path / "s.yaml", tmp_path / "s.md"
    agreed.write_text(
        "scenarios:\n"
        "- {attribute: race, metric: eo_max, at_most: 0.1, review: 2027-01-01}\n"
        "- {attribute: race, group: Caucasian, metric: fpr, at_most: 0.5}\n"
        "- {attribute: race, group: Asian, metric: fpr_difference, at_most: 0.1}\n",
        encoding="utf-8",
    )
    with pytest.raises(SystemExit):
        audit([path], label="recid", prediction="high", sensitive=["race"], scenarios=agreed,
              scenarios_out=out, draws=200)  # fmt: skip
    text = out.read_text(encoding="utf-8")
    assert "exceeded, surely" in text and "met, surely" in text and "fewer than 30" in text
    assert "2027-01-01" in text and "Signed off by" in text
    agreed.write_text("- {metric: eo_mox, at_most: 0.1}\n", encoding="utf-8")
    with pytest.raises(Exception, match="eo_max"):
        audit([path], label="recid", prediction="high", sensitive=["race"], scenarios=agreed)


def test_the_rows_of_a_plan_show_the_gap_as_often_as_asked() -> None:
    rows = rows_needed([0.5, 0.5], 0.1)[-1][2]
    rng, shown = np.random.default_rng(0), 0
    for _ in range(2000):
        n = rows // 4  # rows of each group in a class of half of them
        a, b = rng.binomial(n, 0.85) / n, rng.binomial(n, 0.75) / n
        error = np.sqrt((a * (1 - a) + b * (1 - b)) / n)
        shown += abs(a - b) / error > 2.2414  # two classes are looked at
    assert 0.76 < shown / 2000 < 0.84
    with pytest.raises(InputError, match="shares"):
        rows_needed([0.7, 0.7], 0.1)
    found = smallest_gap(COMPAS, 30)
    assert found is not None and 0.04 < found.gap < 0.08


def test_the_card_of_a_foreign_run_reads_no_words_through_a_link(tmp_path: Path) -> None:
    (run := tmp_path / "run").mkdir()
    (tmp_path / "private.yaml").write_text("use: a secret\n", encoding="utf-8")
    (run / INTENDED_FILE).symlink_to(tmp_path / "private.yaml")
    with pytest.raises(ShasamError, match="leads out of"):
        fields_of([str(run / INTENDED_FILE)], INTENDED, within=run)


def test_a_card_takes_its_words_from_fields(tmp_path: Path) -> None:
    path = tmp_path / "intended.yaml"
    path.write_text("use: sorting letters\nreview: 2027\n", encoding="utf-8")
    assert fields_of([str(path), "use=other"], INTENDED) == {"use": "other", "review": "2027"}
    with pytest.raises(InputError, match="no field"):
        fields_of(["purpose=x"], INTENDED)
