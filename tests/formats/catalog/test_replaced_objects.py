"""An object that is written again is noticed, wherever its bytes come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shardstream as ss
from shardstream.errors import ChangedError
from shardstream.testing import MemoryStore

from .making import tar

KEYS = [f"s{row}" for row in range(8)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def text_tar(folder: Path, word: str) -> bytes:
    """A tar of which others differ in bytes, not in sizes."""
    tar(folder / f"{word}.tar", KEYS, txt=lambda row: f"{word}{row}")
    return (folder / f"{word}.tar").read_bytes()


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore({"a.tar": text_tar(tmp_path, "old"), "b.tar": text_tar(tmp_path, "one")})


def anew(store: MemoryStore) -> MemoryStore:
    """The same objects, for a process that has never read them."""
    other = MemoryStore()
    other._open(store._shelf, store.policy)
    return other


def texts(url: Any, **options: Any) -> list[str]:
    ds = ss.ShardDataset(url, fields=["txt"], batch_size=8, **options)
    return [text for batch in ss.Loader(ds, num_workers=0) for text in batch["txt"]]


def test_a_cache_does_not_give_bytes_of_the_object_that_was_there_before(store: MemoryStore, tmp_path: Path) -> None:
    assert texts(store, cache=tmp_path / "blocks")[0] == "old0"
    store.plant("a.tar", text_tar(tmp_path, "new"))
    assert texts(anew(store), cache=tmp_path / "blocks")[0] == "new0"


def test_a_cache_does_not_take_data_of_another_place_for_the_same(store: MemoryStore, tmp_path: Path) -> None:
    other = MemoryStore({"b.tar": text_tar(tmp_path, "one"), "a.tar": b"", "c": b""})
    other.plant("a.tar", text_tar(tmp_path, "new"))
    other._shelf.objects.pop("c")
    assert texts(store, cache=tmp_path / "blocks")[0] == "old0"
    assert texts(other, cache=tmp_path / "blocks")[0] == "new0"


@pytest.mark.parametrize("cached", [False, True])
def test_an_object_that_is_replaced_before_its_first_read_is_refused(
    store: MemoryStore, tmp_path: Path, cached: bool
) -> None:
    cache = {"cache": tmp_path / "blocks"} if cached else {}
    ss.index(store, workers=1, **cache)
    ds = ss.ShardDataset(anew(store), fields=["txt"], batch_size=8, **cache)  # finds the catalogue, reads nothing
    store.plant("b.tar", text_tar(tmp_path, "two"))
    with pytest.raises(ChangedError, match=r"b\.tar"):
        list(ss.Loader(ds, num_workers=0))


def test_what_was_replaced_can_be_opened_again_by_the_process_that_noticed(store: MemoryStore, tmp_path: Path) -> None:
    ds = ss.ShardDataset(store, fields=["txt"], batch_size=8)
    list(ss.Loader(ds, num_workers=0))
    store.plant("a.tar", text_tar(tmp_path, "new"))
    with pytest.raises(ChangedError, match=r"a\.tar"):
        list(ss.Loader(ds, num_workers=0))
    assert texts(store)[0] == "new0"
    with pytest.raises(ChangedError, match=r"a\.tar"):  # not even then
        list(ss.Loader(ds, num_workers=0))
