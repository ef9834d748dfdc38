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
from shasam.report.run_tables import ResultRow


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
        row = ResultRow(name, name, 1, {"accuracy": (0.5, 0.4, 0.6, 0.1)}, name)
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


def variant(folder: Path, name: str, seed: int = 0, **keys: object) -> Path:
    """A run of ce whose specification has these keys."""
    path = make_run(folder, name, method="ce", seed=seed, n=400)
    spec = yaml.safe_load((path / "spec.yaml").read_text())
    model = {"encoder": keys.pop("encoder", "resnet18"), "options": {"width": keys.pop("width", 8)}}
    spec |= {"model": model, "seed": seed, "options": dict(keys)}
    (path / "spec.yaml").write_text(yaml.safe_dump(spec))
    return path


def names(paths: list[Path]) -> list[tuple[str, int]]:
    return [(row.method, row.seeds) for row in rows_of(paths)]


def test_the_encoder_is_named_where_the_runs_differ_in_it(tmp_path: Path) -> None:
    vit = [variant(tmp_path, f"v{seed}", seed, encoder="vit") for seed in range(2)]
    assert names(vit) == [("ce", 2)]  # all of them have it
    both = [*vit, variant(tmp_path, "r0"), variant(tmp_path, "r1", 1)]
    assert sorted(names(both)) == [("ce", 2), ("ce@vit", 2)]
    other = make_run(tmp_path, "a-balanced", method="balanced", n=400)
    page = write_report([other, *both], tmp_path / "page.html").read_text()
    assert "balanced against ce: " in page and "against ce@vit" not in page


def test_different_specifications_are_never_seeds_of_one_row_and_stand_in_the_order_of_values(
    tmp_path: Path,
) -> None:
    budgets = [variant(tmp_path, f"k{k}{seed}", seed, k=k) for k in (16, 8, 128) for seed in (0, 1)]
    assert names(budgets) == [("ce (k 8)", 2), ("ce (k 16)", 2), ("ce (k 128)", 2)]
    # five keys differ at once: as few of them as tell all rows apart are named
    keys = [{f"key{n}": int(n == i) for n in range(5)} for i in range(5)]
    many = [variant(tmp_path, f"m{i}", **given) for i, given in enumerate(keys)]
    found = names(many)
    assert len(found) == 5 and all(seeds == 1 for _, seeds in found)
    assert len({name for name, _ in found}) == 5


def test_a_markdown_row_tells_what_its_runs_took(many_runs: list[Path]) -> None:
    head, _, first, *_ = table(rows_of(many_runs), "md").splitlines()
    assert head.endswith("| minutes | views | parameters |")
    assert head.count("|") == first.count("|")
