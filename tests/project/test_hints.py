"""A hint says what to write: "correct it" and "check the path" leave that to the reader."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "shardstream"
THING = r"(it|them|both|this|that|(the|its|their) [a-z]+|[a-z]+ and [a-z]+)"
SAYS_NOTHING = re.compile(
    rf"((unset or )?(check|correct|mend|fix|see|use fewer|use another) ?{THING}?|see ss\.\w+|look at {THING}"
    r"|there is nothing to \w+|(the|a) [a-z ]+ (is|are) (damaged|wrong|empty)|\d+ is [a-z ]+)"
)


def hints() -> Iterator[tuple[str, str]]:
    """(place, text) of every literal that is a hint; of an f-string, with its values as ``{}``."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "hint=" in text else ():
            if isinstance(node, ast.keyword) and node.arg == "hint":
                place = f"{path.relative_to(PACKAGE)}:{node.value.lineno}"
                if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                    yield place, node.value.value
                elif isinstance(node.value, ast.JoinedStr):
                    parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.value.values]
                    yield place, "".join(map(str, parts))


def test_every_hint_says_what_to_write() -> None:
    found = dict(hints())
    assert len(found) > 300
    assert not [f"{place}: {text}" for place, text in found.items() if SAYS_NOTHING.fullmatch(text)]


@pytest.mark.parametrize(
    "text", ["correct it", "check the path", "check both", "check path and rights", "the shard is damaged"]
)
def test_what_says_nothing_is_seen(text: str) -> None:
    assert SAYS_NOTHING.fullmatch(text)


@pytest.mark.parametrize("text", ["write seed=0, or any other integer", "check the path, it begins with /data"])
def test_what_says_something_is_left_alone(text: str) -> None:
    assert not SAYS_NOTHING.fullmatch(text)
