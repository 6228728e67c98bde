"""The README and docs/ use one word for one thing, and their words are spelled right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
NO_PROSE = re.compile(r"^ *```.*?^ *```|<!--.*?-->|`[^`\n]*`|\]\([^)\s]*\)|https?://\S+", re.DOTALL | re.MULTILINE)

TERMS = {
    r"file-?names?": "file name, or path",
    r"back-ends?|back ends?": "backend",
    r"check sums?|check-sums?": "checksum",
    r"meta-data|meta data": "metadata",
    r"pre-fetch\w*|pre-fetched": "prefetch",
    r"mini-?batch(es)?": "batch",
    r"hyper-?parameters?": "setting",
    r"multi-process(ing)?": "several processes",
    r"cmdline|commandline|command-line (tool|program|interface)": "command line",
    r"e-?mails?": "mail",
    r"params?|args|repos?|configs?|docs page": "the whole word",
    r"utili[sz]e\w*": "use",
    r"leverag(e|es|ed|ing)": "use",
    r"(simply|obviously|blazing\w*|seamless\w*|effortless\w*)": "nothing: leave it out",
}
SPELLING = {
    r"judgement": "judgment",
    r"(recie|beleive|acheive)\w*": "ei, ie",
    r"(seperat|definat|independan|dependan|consistan|existan|persistan)\w*": "a, e",
    r"(occur|refer|transfer|prefer)(ed|ing)": "-rred, -rring",
    r"accross|untill|wich|lenght|widht|heigth|teh|adress\w*|succesful\w*|neccessary": "it right",
    r"(paramter|arguement)\w*": "it right",
    r"writen|choosen|overriden|begining|runing|comming|wheter|whith|thier|alot|noone": "it right",
}
TWICE = re.compile(r"\b(the|an?|of|to|and|is|in|on|for|with|that|as|by|it|at|are|was|be) \1\b", re.IGNORECASE)
FOUND = re.compile(
    r"(?<![\w./-])(?:" + "|".join(f"(?:{word})" for word in (*TERMS, *SPELLING)) + r")(?![\w-]|\.\w)", re.IGNORECASE
)


def findings(text: str, name: str) -> list[str]:
    """A line for each word that is not ours: where it stands, and what to write."""
    prose = NO_PROSE.sub(lambda match: "\n" * match[0].count("\n"), text)
    found = []
    for match in (*FOUND.finditer(prose), *TWICE.finditer(prose)):
        word = match[0]
        instead = [ours for one, ours in {**TERMS, **SPELLING}.items() if re.fullmatch(one, word, re.IGNORECASE)]
        line = prose.count("\n", 0, match.start()) + 1
        found.append(f"{name}:{line}: {word}: write {instead[0] if instead else 'it once'}")
    return found


def test_pages_have_one_word_for_one_thing_and_one_spelling() -> None:
    assert not [line for page in PAGES for line in findings(page.read_text(), page.name)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("One.\nA hyperparameter of", "x.md:2: hyperparameter: write setting"),
        ("a seperate file", "x.md:1: seperate: write a, e"),
        ("of the the shard", "x.md:1: the the: write it once"),
    ],
)
def test_a_word_that_is_not_ours_is_found(text: str, said: str) -> None:
    (found,) = findings(text, "x.md")
    assert found.startswith(said)


@pytest.mark.parametrize(
    "text",
    [
        "`args`",
        "```python\nargs = 1\n```\n",
        "[settings](hyperparameter.md)",
        "<!-- args -->",
    ],
)
def test_code_links_and_versions_are_no_prose(text: str) -> None:
    assert not findings(text, "x.md")
