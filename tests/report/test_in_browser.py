"""The page in a real Chromium without a network: by keyboard alone, and whatever the data hold."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardstream.diagnose.overview import overview
from shardstream.report.page import page

from .browser import Browser
from .making import ATTACKS, hostile

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not CHROMIUM, reason="needs the program chromium, as Debian's package of that name has it"),
]
OPEN = "document.querySelector('.sample.open')?.id"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    file = tmp_path / "page.html"
    file.write_text(page(overview(hostile(tmp_path / "set"))))
    with Browser(CHROMIUM, tmp_path / "profile") as browser:
        browser.load(file.as_uri())
        yield browser
        assert browser.errors == []
        assert browser.run("window.length") == 0


def test_by_keyboard(browser: Browser) -> None:
    browser.key("ArrowRight")
    browser.key("ArrowRight")
    browser.key("Enter", "\r")
    assert browser.run(OPEN) == "s1"
    browser.key("ArrowRight")
    assert browser.run(OPEN) == "s2"
    assert browser.run("getComputedStyle(document.querySelector('#s2 .more')).display") == "block"
    browser.key("Escape")
    assert browser.run(OPEN) is None
    browser.key("/", "/")
    for letter in "autofocus":
        browser.key(letter, letter)
    assert browser.run("document.getElementById('search').value") == "autofocus"
    assert browser.run("[...document.querySelectorAll('.sample')].filter((one) => !one.hidden).length") == 1
    assert browser.run("document.getElementById('found').textContent") == f"1 of {len(ATTACKS)}"
    browser.key("Escape")
    browser.key("?", "?")
    assert browser.run("document.getElementById('help').hidden") is False


def test_both_themes_and_a_narrow_window(browser: Browser) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    browser.show(1280, dark=False)
    light = browser.run(colour)
    browser.show(1280, dark=True)
    dark = browser.run(colour)
    assert light != dark
    browser.key("t", "t")
    assert browser.run(colour) == light
    browser.show(400, dark=False)
    assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
