"""The page in a real browser: quiet, self-contained, filters work, nothing scrolls sideways."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shasam
from shasam.report import write_report

SKIPPED = (
    "the page was not opened in a browser, so nobody saw whether it is quiet, fits and filters. "
    "Install one with `python -m playwright install chromium`, or put chromium on the PATH"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason=SKIPPED)
    with api.sync_playwright() as p:
        # Playwright's own browser where the system has none; without either there is nothing to run
        own = p.chromium.executable_path if Path(p.chromium.executable_path).exists() else None
        found = shutil.which("chromium") or shutil.which("chromium-browser") or own
        if found is None:
            pytest.skip(SKIPPED)
        opened = p.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def page_file(one_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([one_run], tmp_path_factory.mktemp("page") / "report.html")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "light"), (1280, "dark")])
def test_the_page_opens_quietly_and_fits(
    browser: Any, page_file: Path, width: int, scheme: str
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda m: said.append(m.text))
    page.on("pageerror", lambda e: said.append(str(e)))
    page.on("request", lambda r: asked.append(r.url))
    page.goto(page_file.as_uri())
    assert said == []
    assert [u for u in asked if not u.startswith(("file:", "data:"))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    back = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(15, 19, 24)") is (scheme == "dark")
    context.close()


def audited(folder: Path) -> Path:
    """An audit through four attributes, one of them with many groups."""
    rng = np.random.default_rng(0)
    n = 3000
    y = rng.integers(0, 2, n)
    rows = {
        "label": y,
        "score": np.clip(0.3 + 0.4 * y + rng.normal(0, 0.2, n), 0, 1),
        "sex": rng.choice(["f", "m"], n),
        "race": rng.choice(["a", "b", "c", "d"], n),
        "age": rng.choice(["young", "old"], n),
        "state": rng.choice([f"state {k}" for k in range(33)], n),
    }
    page = folder / "audit.html"
    found = shasam.audit(rows, sensitive=["sex", "race", "age", "state"], draws=200)
    page.write_text(found.to_html(), encoding="utf-8")
    return page


@pytest.fixture(scope="module")
def pages(
    one_run: Path, many_runs: list[Path], page_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        "run": page_file,
        "comparison": write_report(many_runs, folder / "many.html", draws=200),
        "audit": audited(folder),
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["run", "comparison", "audit"])
def test_axe_finds_nothing_serious(
    browser: Any, pages: dict[str, Path], name: str, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=SKIPPED)
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(pages[name].as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    found = axe.Axe().run(page).response["violations"]
    context.close()
    told = [
        (
            v["id"],
            v["impact"],
            [n["html"][:120] for n in v["nodes"]][:3],
            v["nodes"][0].get("failureSummary"),
        )
        for v in found
        if v["impact"] in ("serious", "critical", "moderate") or v["id"] == "empty-table-header"
    ]
    assert told == []


def unfold(page: Any) -> None:
    """Open every folded section, as a reader does: by its summary, outer ones first."""
    while page.locator("details:not([open]) > summary:visible").count():
        page.locator("details:not([open]) > summary:visible").first.click()


def test_filters_show_only_what_was_chosen_and_say_so(browser: Any, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    shown = "[...document.querySelectorAll('article.step')].filter(a => !a.hidden).length"
    assert page.evaluate(shown) == 1  # the last step is chosen to begin with
    unfold(page)
    page.select_option("select[name=step]", "")
    assert page.evaluate(shown) == 6
    page.select_option("select[name=target]", "0")
    assert page.evaluate(shown) == 3
    page.select_option("select[name=group]", "1")
    left = page.evaluate(shown)
    assert page.inner_text("[data-filters=d0] [aria-live]") == f"{left} of 6 shown"
    page.close()


def test_the_page_can_be_read_without_script_colour_or_mouse(browser: Any, page_file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    unfold(page)
    assert page.locator("article.step:visible").count() == 6
    assert page.locator("[data-filters]:visible").count() == 0
    context.close()
    page = browser.new_page()
    page.goto(page_file.as_uri())
    unnamed = "[...document.querySelectorAll('svg[role=img]')].filter(s => !s.ariaLabel).length"
    assert page.evaluate(unnamed) == 0
    assert page.evaluate("[...document.images].filter(i => !i.alt).length") == 0
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))
    page.close()
