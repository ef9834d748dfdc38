"""The tables of docs/tables come out of the records, whatever machine they are made on."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from shasam.cli import app
from shasam.documents import read_json
from shasam.reproduce import cost, filling, render, table1
from shasam.reproduce.artefact import (
    Artefact,
    ArtefactRun,
    DataLocation,
    artefact,
    cells,
    identity,
    place_of,
)
from shasam.reproduce.filling import made_with
from shasam.runs.records import read_records
from shasam.spec import stored_spec

pytestmark = pytest.mark.needs_torch
ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "tables"
RECORDS = {
    "celeba": ROOT / "experiments" / "tables-celeba",
    "utkface": ROOT / "experiments" / "tables-utkface",
}
TABLES = sorted(page.stem for page in PAGES.glob("*.md") if page.stem not in ("cost", "table1"))

done = cache(filling.from_records)


def declared(name: str) -> Artefact:
    return artefact(name, profile="short")


def lies_in(one: Artefact, part: bool, vectors: bool = False) -> DataLocation:
    return place_of(one, celeba=Path("celeba"), utkface=Path("utkface"), part=part)


@cache
def runs_of(name: str) -> tuple[list[ArtefactRun], dict[str, str]]:
    """As ``--from-records`` takes them."""
    one = declared(name)
    assert one.data is not None
    how = made_with(RECORDS[one.data], lambda _: one, lies_in)
    assert (how.profile, how.part) == ("short", one.data == "celeba")
    return cells(one, lies_in(one, how.part), profile="short", seeds=how.seeds)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_the_docs_comes_out_of_the_records(name):
    one = declared(name)
    assert one.data is not None
    runs, refused = runs_of(name)
    found = done(RECORDS[one.data])
    how = {"profile": "short", "data": one.data, "refused": refused}
    full = filling.fill(one, runs, found, **how, key=lambda cell: cell.asked)
    assert full.done > 0
    assert render.as_markdown(full) == (PAGES / f"{name}.md").read_text(encoding="utf-8")
    figure = render.draw(full)
    assert figure is not None
    assert render.standalone(figure) == (PAGES / f"{name}.svg").read_text(encoding="utf-8")


def test_the_costs_of_the_docs_come_out_of_their_record():
    costs = cost.from_json(read_json(RECORDS["celeba"] / "cost.json"))
    assert cost.as_markdown(costs) == (PAGES / "cost.md").read_text(encoding="utf-8")


def test_table_1_of_the_docs_is_what_the_formulas_give():
    assert table1.as_markdown() == (PAGES / "table1.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("data", RECORDS)
def test_every_record_is_a_run_of_a_table(data):
    names = [name for name in TABLES if artefact(name).data == data]
    wanted: dict[str, set[str]] = {}
    for run in (run for name in names for run in runs_of(name)[0]):
        wanted.setdefault(run.identity, set()).add(run.asked)
    for record in read_records(RECORDS[data]):  # what it was asked for with is what it computed
        assert wanted[identity(stored_spec(record.spec))] == set(record.asked), record.label


@pytest.mark.parametrize("name", sorted(page.stem for page in (PAGES / "frozen").glob("*.md")))
def test_a_table_on_frozen_features_is_what_the_command_prints(name, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    records = "experiments/frozen-efficientnet"
    words = f"reproduce {name} --from-records {records} --to {tmp_path}".split()
    app(words, result_action="return_value")
    for kind in ("md", "svg"):
        made = (tmp_path / f"{name}.{kind}").read_text(encoding="utf-8")
        assert made == (PAGES / "frozen" / f"{name}.{kind}").read_text(encoding="utf-8")
