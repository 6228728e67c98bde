from __future__ import annotations

import json
import pickle
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import ShardStreamError
from shardstream.text import in_one_line, json_text, printable, valid_unicode

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def obeyed(text: str) -> list[str]:
    """What a terminal would do more with than show it, or could not be sent."""
    return [
        one
        for one in text
        if one not in "\n\t" and (unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") or one in BIDI)
    ]


@given(text=st.text(st.characters(exclude_categories=[]), max_size=500))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    found = printable(text)
    assert not obeyed(found)
    assert printable(found) == found
    assert max(map(len, found.split()), default=0) <= 400
    found.encode()
    line = in_one_line(text)
    assert not obeyed(line)
    assert "\n" not in line
    assert "\t" not in line
    assert len(line) <= 400


def test_every_control_character_is_escaped() -> None:
    every = [*map(chr, range(0x110000))]
    wrong = [one for one in every if obeyed(one)]
    assert len(wrong) > 2100
    for one in wrong:
        assert printable(f"a{one}b").isprintable(), hex(ord(one))
        assert printable(f"a{one}b")[:1] + printable(f"a{one}b")[-1:] == "ab"


@pytest.mark.parametrize(
    "text", ["", "plain", "dög 日本/écran.jpg", "two\nlines\tand a tab", "👩‍👩‍👧", "नमस्ते", "a" * 400]
)
def test_what_is_harmless_stays(text: str) -> None:
    assert printable(text) == text


def test_names_that_are_too_long_are_shortened_in_the_middle() -> None:
    name = "/beginning" + "/x" * 5000 + "/end.jpg"
    for shorten in (printable, in_one_line):
        found = shorten(name)
        assert len(found) == 400
        assert found.startswith("/beginning/x")
        assert found.endswith("/end.jpg")
    assert len(printable(f"{name} and {name}")) == 805
    assert len(in_one_line("a b " * 500)) == 400


def test_bytes_of_file_names_are_what_they_were() -> None:
    name = b"caf\xe9\x1b.jpg".decode("utf-8", "surrogateescape")
    assert valid_unicode(name) == "caf%E9\x1b.jpg"
    assert printable(name) == "caf%E9\\x1b.jpg"


@given(
    value=st.recursive(
        st.text(st.characters(exclude_categories=[])) | st.integers(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    )
)
def test_json_keeps_the_value_and_escapes_it(value: Any) -> None:
    text = json_text(value)
    assert not obeyed(text)
    assert "\n" not in text
    assert json.loads(text) == value
    assert json.loads(json_text(value, indent=2)) == value


def test_an_error_is_printable_and_keeps_its_place() -> None:
    key = "k\x1b]52;c;cm0=\x07\n\u202e\x9b" + "x" * 1000
    error = ShardStreamError(f"no {key} here", hint=f"try {key}", key=key, url="\x1b[2J", offset=3)
    for one in (error, pickle.loads(pickle.dumps(error)), error.at(shard="\x9b"), ShardStreamError(str(error))):
        assert not obeyed(str(one)), one
        assert not obeyed(one.what)
        assert not obeyed(str(one.hint))
        assert not obeyed(repr(one))
        assert len(str(one)) < 2000
    assert error.place["key"] == key
    assert str(error).count("\n") == 3  # two of the texts, and the line of the hint: names end no line
