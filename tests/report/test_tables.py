"""Tables for papers: three formats, escaped for each."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
import yaml
from tests.payloads import payloads
from tests.report.run_files import make_run

from shasam.errors import SpecError
from shasam.report import rows_of, table, write_report
from shasam.report.published import published
from shasam.report.tables import Row


def test_every_format_has_a_row_for_each_method(many_runs: list[Path]) -> None:
    rows = rows_of(many_runs)
    assert [(r.method, r.seeds) for r in rows] == [("ce", 3), ("shasam", 3)]
    assert table(rows, "md").count("| 3 |") == 2
    assert r"\toprule" in table(rows, "latex") and r"$\pm$" in table(rows, "latex")
    lines = list(csv.DictReader(io.StringIO(table(rows, "csv"))))
    assert float(lines[0]["eo_mean"]) > float(lines[1]["eo_mean"])
    with pytest.raises(SpecError, match="did you mean 'latex'"):
        table(rows, "latx")
    with pytest.raises(SpecError, match="did you mean 'eo_mean'"):
        rows_of(many_runs, ["eo_mea"])


def test_no_cell_of_a_table_is_taken_for_a_formula_or_for_html() -> None:
    for name in payloads():
        row = Row(name, name, 1, {"accuracy": (0.5, 0.4, 0.6, 0.1)}, name)
        head, line = csv.reader(io.StringIO(table([row], "csv"), newline=""))
        assert len(head) == len(line)
        assert not any(cell.startswith(("=", "+", "-", "@")) for cell in line), name
        text = table([row], "md")
        assert "<" not in text and len(text.splitlines()) == 5
        assert "\x1b" not in table([row], "latex")


def test_published_numbers_are_found_for_their_setting_only() -> None:
    protocol = {"source": "celeba", "target": "Attractive", "sensitive": "Male"}
    found = {p.method: (p.eo, p.accuracy) for p in published(protocol)}
    assert found["SHaSaM FLCMI"] == (5.5, 81.3) and found["FSCL+"] == (6.5, 79.1)
    utk = {"source": "utkface", "target": "gender", "sensitive": "ethnicity", "alpha": 3.0}
    assert {p.method for p in published(utk)} == {"SupCon", "FSCL", "FSCL+"}
    assert published(utk | {"alpha": 5.0}) == [] == published({"source": "faces"})


def test_runs_of_one_method_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    paths = []
    for encoder in ("resnet18", "vit"):
        for seed in range(2):
            path = make_run(tmp_path, f"{encoder}{seed}", method="ce", seed=seed, n=400)
            spec = yaml.safe_load((path / "spec.yaml").read_text())
            spec["model"] = {"encoder": encoder, "width": len(encoder)}
            spec["seed"] = seed
            (path / "spec.yaml").write_text(yaml.safe_dump(spec))
            paths.append(path)
    rows = rows_of(paths)
    assert [(r.method, r.seeds) for r in rows] == [
        ("ce (encoder resnet18)", 2),
        ("ce (encoder vit)", 2),
    ]
    assert [r.method for r in rows_of(paths[:2])] == ["ce"]  # nothing differs but the seed
    spec["model"]["width"] = 99  # now the encoder alone does not tell them apart
    (paths[-1] / "spec.yaml").write_text(yaml.safe_dump(spec))
    assert "ce (encoder vit, width 99)" in [r.method for r in rows_of(paths)]
    spec["model"]["width"] = 3
    (paths[-1] / "spec.yaml").write_text(yaml.safe_dump(spec))
    other = make_run(tmp_path, "a-balanced", method="balanced", n=400)
    page = write_report([other, *paths], tmp_path / "page.html").read_text()
    assert "Against ce (encoder resnet18)" in page  # a variant of it is still the baseline


def test_a_markdown_row_tells_what_its_runs_took(many_runs: list[Path]) -> None:
    head, _, first, *_ = table(rows_of(many_runs), "md").splitlines()
    assert head.endswith("| minutes | views | parameters |")
    assert head.count("|") == first.count("|")
