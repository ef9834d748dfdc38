"""The page in a real browser: quiet, self-contained, filters work, nothing scrolls sideways."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

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


def test_filters_show_only_what_was_chosen_and_say_so(browser: Any, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    shown = "[...document.querySelectorAll('article.step')].filter(a => !a.hidden).length"
    assert page.evaluate(shown) == 1  # the last step is chosen to begin with
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
