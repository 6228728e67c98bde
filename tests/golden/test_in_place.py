"""Catalogs, fingerprints, orders, states, packed datasets and messages of data in place are what they were recorded as.

`in_place` says what is recorded, and how it is written anew. A failure shows the parts that differ, by name.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.golden.in_place import EXPECTED, KINDS, PLACE, Opened, after, digest, keys, values_of

RECORDED = json.loads(EXPECTED.read_text(encoding="utf-8"))
SLOW = ("hdf5-lzf",)  # compiles what inflates it
ALL = [
    pytest.param(kind, name, id=f"{kind}-{name}", marks=[pytest.mark.full] if name in SLOW else [])
    for kind, (names, _) in KINDS.items()
    if kind != "pickled"
    for name in names
]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))


def differences(found: Any, expected: Any, where: str = "") -> list[str]:
    """What differs, by the names that lead to it."""
    if isinstance(found, dict) and isinstance(expected, dict):
        names = [*expected, *(name for name in found if name not in expected)]
        several = [differences(found.get(name), expected.get(name), f"{where}/{name}") for name in names]
        order = [] if list(found) == list(expected) else [f"{where}: in another order: {list(found)}"]
        return [one for some in several for one in some] or order
    return [] if found == expected else [f"{where}: {found!r}, recorded is {expected!r}"]


@pytest.mark.parametrize(("kind", "name"), ALL)
def test_it_is_what_was_recorded(kind: str, name: str, tmp_path: Path) -> None:
    assert differences(KINDS[kind][1](name, tmp_path / "here"), RECORDED[kind][name]) == []


def test_all_that_was_recorded_is_compared() -> None:
    assert {kind: sorted(one) for kind, one in RECORDED.items()} == {
        kind: sorted(names) for kind, (names, _) in KINDS.items()
    }


@pytest.mark.parametrize("name", RECORDED["pickled"])
def test_recorded_states_and_pickles_go_on(name: str, tmp_path: Path) -> None:
    opened, recorded = Opened(name, tmp_path), RECORDED["in_place"][name]
    assert after([opened.dataset(rank) for rank in range(2)], recorded["state"]) == recorded["after"]
    text = RECORDED["pickled"][name].replace(PLACE, str(tmp_path))
    for data in (text.encode(), pickle.dumps(opened.dataset())):
        again = pickle.loads(data)
        assert again.state_dict() == opened.dataset().state_dict()
        assert digest(keys(again)) == recorded["shuffled"][0]
    everything = list(again.replace(shuffle=False, ranks=(0, 1)))
    assert values_of(everything) == recorded["values"]
