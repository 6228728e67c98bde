"""Keys, and keys as names."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import UsageError
from shardstream.shards.index import check_key, escape_key

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(KEYS)
def test_escaping_is_undone_and_leaves_no_dot(key) -> None:
    name = escape_key(key)
    assert unquote(name) == key
    assert not re.search(r"[.\x00-\x1f\x7f]", name)
    assert not name.startswith("_")
    # As WebDataset splits names, whatever comes before the extension.
    assert re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", f"{name}x.seg.png").groups() == (f"{name}x", "seg.png")


@given(KEYS, KEYS)
def test_different_keys_have_different_names(one, other) -> None:
    assert (escape_key(one) == escape_key(other)) == (one == other)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("n01/ILSVRC.0001", "n01/ILSVRC%2E0001"),
        ("__a__/b", "%5F_a__/b"),
        ("a_b", "a_b"),
        ("50%", "50%25"),
        ("a\nb", "a%0Ab"),
    ],
)
def test_names(key, name) -> None:
    assert escape_key(key) == name


@pytest.mark.parametrize("key", ["", None, 5, b"a", "/a", "a/", "a//b", chr(0xD800)])
def test_what_is_no_key(key) -> None:
    with pytest.raises(UsageError):
        check_key(key)


@pytest.mark.parametrize("key", ["a", "a/b", ".", "a..b", " ", "日本", "%"])
def test_what_is_a_key(key) -> None:
    assert check_key(key) == key
