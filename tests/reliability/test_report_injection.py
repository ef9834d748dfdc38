"""Report injection: 250 hostile names through page, browser, CSV, Markdown and terminal."""

from __future__ import annotations

import csv
import io
import re
import shutil
from pathlib import Path

import pytest
from tests.payloads import payloads
from tests.report.hostile import (
    NAMES,
    assert_nothing_added,
    file_name,
    hostile_run,
    parsed,
    plain_run,
)

from shasam import cli
from shasam.report import model_card, rows_of, table, write_report
from shasam.report.runs import subject_of
from shasam.runs.directory import RunDirectory

pytestmark = pytest.mark.slow
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
POLICY = "default-src 'none'; img-src data:;"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs in which every payload has been a class, a group, a method and an attribute once."""
    names = payloads()
    assert len(set(names)) == len(names) == 250
    root = tmp_path_factory.mktemp("hostile")
    runs = []
    for shift in (0, 4, 8, 9):  # the place in the ten that a name takes
        turned = names[shift:] + names[:shift]
        runs += [
            hostile_run(root / f"{shift}-{i}", turned[i : i + NAMES])
            for i in range(0, len(turned), NAMES)
        ]
    return runs


def test_no_name_adds_an_element_a_handler_or_an_address(
    hostile: list[Path], tmp_path: Path
) -> None:
    plain = parsed(write_report([plain_run(tmp_path)], tmp_path / "plain.html", draws=100))
    for run in hostile:
        page = write_report([run], tmp_path / "page.html", draws=100)
        assert_nothing_added(parsed(page), plain, run.name)
        text = page.read_text(encoding="utf-8")
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
        assert policy and policy[1].replace("&#39;", "'").startswith(POLICY)
        assert "unsafe" not in policy[1] and not CONTROL.search(text)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium to open the pages in")
def test_pages_of_hostile_runs_open_from_files_and_ask_for_nothing(
    hostile: list[Path], tmp_path: Path
) -> None:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        heard: list[str] = []
        page.on("dialog", lambda d: (heard.append(d.message), d.dismiss()))
        page.on("console", lambda m: heard.append(m.text))
        page.on("pageerror", lambda e: heard.append(str(e)))
        page.on(
            "request",
            lambda r: heard.append(r.url) if not r.url.startswith(("file:", "data:")) else None,
        )
        for i, run in enumerate(hostile[: len(hostile) // 4]):
            file = write_report([run], tmp_path / f"{i}.html", draws=100)
            page.goto(file.as_uri())
            assert page.title()
            assert heard == [], run.name
        browser.close()


def test_no_table_or_card_runs_a_formula_or_holds_html(hostile: list[Path]) -> None:
    for run in hostile:
        rows = rows_of([run], draws=100)
        for line in csv.reader(io.StringIO(table(rows, "csv"), newline="")):
            assert len(line) == 24
            assert not any(re.match(r"[=+@\t\r\n]|-(?![\d.]+\Z)", cell) for cell in line), line
        for text in (
            table(rows, "md"),
            model_card(RunDirectory(run), subject_of(RunDirectory(run), 100)),
        ):
            assert not re.search(r"<[a-zA-Z/!]", text) and not CONTROL.search(text)


def test_files_with_hostile_names_are_audited_and_named_harmlessly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "".join(f"{a},{b},{g}\n" for a in "xy" for b in "xy" for g in "12" for _ in range(3))
    plain = None
    for name in ["friendly", *payloads()]:
        file = tmp_path / f"{file_name(name)}.csv"
        file.write_text(f"label,prediction,group\n{rows}", encoding="utf-8")
        page = tmp_path / "page.html"
        words = ["audit", f"./{file.name}", "--html", str(page), "--draws", "100"]
        monkeypatch.chdir(tmp_path)
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 0
        said = capsys.readouterr()
        assert not CONTROL.search(said.out + said.err), name
        plain = plain or parsed(page)
        assert_nothing_added(parsed(page), plain, name)
