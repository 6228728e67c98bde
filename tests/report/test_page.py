"""The page: whole by itself, and nothing of the data in it is more than text."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shardstream.cli.app import app
from shardstream.diagnose.overview import overview
from shardstream.report.page import page
from shardstream.testing import make_dataset

from .making import ATTACKS, Tags, hostile

OURS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "nav", "article", "script"),
    *(
        "a",
        "span",
        "p",
        "h1",
        "h2",
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "kbd",
        "input",
        "button",
    ),
    *("img", "svg", "rect", "circle"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(overview(hostile(tmp_path_factory.mktemp("hostile"))))


def test_nothing_of_the_data_is_markup(made: str) -> None:
    found = Tags(made)
    assert {tag for tag, _ in found.tags} <= OURS
    assert [tag for tag, _ in found.tags].count("script") == 1
    attributes = [(tag, name, value or "") for tag, own in found.tags for name, value in own.items()]
    assert not [name for _, name, _ in attributes if name.startswith("on") or name in ("style", "srcdoc", "autofocus")]
    assert all(value.startswith("#") for _, name, value in attributes if name == "href")
    assert all(value.startswith("data:image/jpeg;base64,") for _, name, value in attributes if name == "src")
    assert all(attack in found.words for attack in ATTACKS), "they are there, as text"


def test_the_page_needs_nothing_else_and_its_policy_allows_nothing_else(made: str) -> None:
    found = Tags(made)
    (policy,) = [own["content"] for tag, own in found.tags if own.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.keys() == {f"{name}-src" for name in ("default", "img", "media", "style", "script")} | {
        "base-uri",
        "form-action",
    }
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for tag in ("style", "script"):
        digest = hashlib.sha256(found.inside[tag].encode()).digest()
        assert rules[f"{tag}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"
    assert not re.findall(r"url\(|@import|https?://", found.inside["style"] + found.inside["script"])


def test_a_sample_says_where_it_is_and_how_to_fetch_it(made: str, tmp_path: Path) -> None:
    words = Tags(made).words
    assert "sample 3, shard-000000.tar, row 3" in words
    assert re.search(r"ss\.Reader\('.*'\)\[3\]", words)
    ids = [own["id"] for tag, own in Tags(made).tags if tag == "article"]
    assert ids == [f"s{i}" for i in range(len(ATTACKS))]
    assert [own["href"] for tag, own in Tags(made).tags if own.get("class") == "tile"] == [f"#{one}" for one in ids]


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    url, file = hostile(tmp_path / "set"), tmp_path / "page.html"
    found = CliRunner().invoke(app, ["view", str(url), "--html", str(file), "--samples", "3", "--seed", "5"])
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[0].startswith(f"{file}: 3 samples of 6, ")
    assert f"next: open {file} in a browser" in found.stdout
    assert file.read_text() == page(overview(url, samples=3, seed=5))
    wrong = CliRunner().invoke(app, ["view", str(url), "--html", str(file), "--json"])
    assert wrong.exit_code == 2
    assert "do not go with a page" in wrong.stderr


def test_the_command_shows_draws_and_batches(tmp_path: Path) -> None:
    url, file = make_dataset(tmp_path / "set", samples=24), tmp_path / "page.html"
    options = ["view", str(url), "--html", str(file), "--crop", "16", "--batch-size", "4"]
    found = CliRunner().invoke(app, [*options, "--draws", "2", "--samples", "3"])
    assert found.exit_code == 0, found.output
    assert "3 samples of 24, 2 draws each" in found.stdout
    assert len(re.findall(r"epoch [01], step \d", Tags(file.read_text()).words)) == 6
    batch = CliRunner().invoke(app, [*options, "--step", "1", "--epoch", "2", "--rank", "1/2"])
    assert "4 samples of 24, those of step 1 of epoch 2, rank 1/2" in batch.stdout, batch.output
    for wrong, why in ((["--step", "9"], "no step 9"), (["--draws", "1", "--rank", "3"], "must be R/W")):
        refused = CliRunner().invoke(app, [*options, *wrong])
        assert refused.exit_code == 2
        assert why in refused.stderr
