"""The README is read in two minutes, every page is found from there, and no link inside the project leads nowhere."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardstream

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
CODE = re.compile(r"^ *```.*?^ *```|<!--.*?-->", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def words(text: str) -> list[str]:
    """Those that somebody reads: neither code blocks, comments and tags nor where links lead."""
    text = re.sub(r"\]\([^)]*\)", "]", CODE.sub("", text))
    return re.findall(r"\w[\w'.-]*", re.sub(r"<[^>]*>", "", text))


def anchors(page: Path) -> set[str]:
    """Names of the headings of a page, as code hosts make them."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-")
        found.add(name if name not in found else f"{name}-1")
    return found


def links() -> Iterator[tuple[Path, str]]:
    for page in PAGES:
        for target in LINK.findall(re.sub(r"`[^`\n]*`", "", CODE.sub("", page.read_text()))):
            if not re.match(r"[a-z]+:", target):
                yield page, target


def test_the_readme_has_fewer_than_600_words() -> None:
    assert 200 < len(words(README)) < 600


def test_words_are_those_that_are_read() -> None:
    assert words("See [the page](docs/page.md).\n<!-- no -->\n```bash\nno\n```\n") == ["See", "the", "page"]


def test_its_first_screen_shows_how_to_see_it_work() -> None:
    first = "\n".join(README.splitlines()[:16])
    assert "tools/demo" in first
    assert "tools/test" in first


def test_every_promise_names_its_tests() -> None:
    promises = re.findall(r"^- .*$", README.partition("## What it promises")[2], re.MULTILINE)
    assert len(promises) > 8
    for promise in promises:
        named = re.findall(r"tests/\S+\.py", promise)
        assert named, promise
        assert all((ROOT / path).is_file() for path in named), promise


def test_the_readme_leads_to_an_index_of_all_pages() -> None:
    assert "](docs/index.md)" in README
    lists = (ROOT / "docs/index.md", ROOT / "docs/benchmarks.md")  # the latter of the pages of tables
    index = {(ROOT / "docs" / target).resolve() for page in lists for target in LINK.findall(page.read_text())}
    pages = {page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "decisions"}
    assert pages - index == {ROOT / "docs/index.md"}


def test_no_link_leads_nowhere() -> None:
    lost = []
    for page, target in links():
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            lost.append(f"{page.relative_to(ROOT)}: {target}")
    assert not lost


@pytest.mark.parametrize(
    "name", tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
def test_every_extra_is_told(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs/install.md").read_text()


def test_who_cites_names_the_version_and_the_license() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = dict(re.findall(r"^(\w+): (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    assert (cited["version"], cited["license"]) == (shardstream.__version__, project["license"])
