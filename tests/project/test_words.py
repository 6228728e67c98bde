"""Prose of the README and of docs/ is spelt in one way, British, and has one word for one thing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
NO_PROSE = re.compile(r"^ *```.*?^ *```|<!--.*?-->|`[^`\n]*`|\]\([^)\s]*\)|https?://\S+", re.DOTALL | re.MULTILINE)

TERMS = {
    r"(?<!Hugging Face's )datasets?(?! \d)": "data set",  # but for the package of that name
    r"(sub)?director(y|ies)": "folder",
    r"file-?names?": "file name, or path",
    r"back-ends?|back ends?": "backend",
    r"check sums?|check-sums?": "checksum",
    r"meta-data|meta data": "metadata",
    r"pre-fetch\w*|pre-fetched": "prefetch",
    r"time-?stamps?|date-?stamps?": "time, or date",
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
    r"colors?|colored|coloring": "colour",
    r"gray|grayish": "grey",
    r"behaviors?": "behaviour",
    r"catalogs?": "catalogue",
    r"center(ed|s)?": "centre",
    r"fib(er)s?": "fibre",
    r"(normal|optim|initial|recogn|summar|organ|serial|material|minim|maxim|vector|random|synchron)iz"
    r"(e|es|ed|ing|ation|er)": "-ise",
    r"analyz(e|es|ed|ing)": "analyse",
    r"cancel(ed|ing)|label(ed|ing)|travel(ed|ing)|model(ed|ing)": "-lled, -lling",
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
FORMATS = ("format.md", "zip.md")  # what they call a directory is no folder


def findings(text: str, name: str) -> list[str]:
    """A line for each word that is not ours: where it stands, and what to write."""
    prose = NO_PROSE.sub(lambda match: "\n" * match[0].count("\n"), text)
    found = []
    for match in (*FOUND.finditer(prose), *TWICE.finditer(prose)):
        word = match[0]
        if name in FORMATS and word.lower() == "directory":
            continue
        instead = [ours for one, ours in {**TERMS, **SPELLING}.items() if re.fullmatch(one, word, re.IGNORECASE)]
        line = prose.count("\n", 0, match.start()) + 1
        found.append(f"{name}:{line}: {word}: write {instead[0] if instead else 'it once'}")
    return found


def test_pages_have_one_word_for_one_thing_and_one_spelling() -> None:
    assert not [line for page in PAGES for line in findings(page.read_text(), page.name)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("One.\nA dataset of", "x.md:2: dataset: write data set"),
        ("the color", "x.md:1: color: write colour"),
        ("of the the shard", "x.md:1: the the: write it once"),
        ("it is normalized.", "x.md:1: normalized: write -ise"),
    ],
)
def test_a_word_that_is_not_ours_is_found(text: str, said: str) -> None:
    (found,) = findings(text, "x.md")
    assert found.startswith(said)


@pytest.mark.parametrize(
    "text",
    [
        "`dataset`",
        "```python\ncolor = 1\n```\n",
        "[colour](color.md)",
        "datasets 5.2.0",
        "dataset.json",
        "<!-- color -->",
    ],
)
def test_code_links_and_versions_are_no_prose(text: str) -> None:
    assert not findings(text, "x.md")
