"""Writing a file in a thread: the bytes, what fails, and what waits."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import StorageError
from shardstream.storage.local.store import LocalStore
from shardstream.storage.local.write_behind import WriteBehind

SIZES = st.sampled_from([0, 1, 511, 70_000, 1 << 20, (3 << 20) + 1])


def names() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name in ("shardstream-write", "shardstream-flush")]


@given(sizes=st.lists(SIZES, max_size=8), small=st.integers(0, 2500), kind=st.sampled_from([bytes, bytearray]))
def test_all_is_written_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], small: int, kind: type
) -> None:
    path = tmp_path_factory.mktemp("behind") / "x"
    parts = [kind([i % 251]) * size for i, size in enumerate([*sizes, *[3] * small])]
    expected = b"".join(parts)
    with open(path, "xb", buffering=0) as file:
        behind = WriteBehind(file)
        for part in parts:
            assert behind.write(part) == len(part)
            if isinstance(part, bytearray):
                part[:] = bytes(len(part))  # it is the caller's again
        assert behind.wait() is None
    assert path.read_bytes() == expected
    assert not names()


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """A disk that is nearly full: calls write what fits, then fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_fits_is_written_and_the_error_comes_soon(tmp_path: Path) -> None:
    limit = (5 << 20) + 100
    with open(tmp_path / "x", "xb", buffering=0) as file, files_of_at_most(limit):
        behind = WriteBehind(file)
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):  # noqa: PT012 - whichever of them it is
            for _ in range(50):
                behind.write(bytes(1 << 20))
            pytest.fail("nobody noticed")
        assert isinstance(behind.wait(), OSError)
    assert (tmp_path / "x").stat().st_size == limit
    assert not names()


class Failing(SimpleQueue):
    """Whoever takes from it has no memory even for that."""

    def get(self, *_: object, **__: object) -> None:
        raise RuntimeError("can't allocate lock")


def test_a_thread_that_dies_is_no_end_of_the_file_and_nobody_waits_for_it(tmp_path: Path) -> None:
    with open(tmp_path / "x", "xb", buffering=0) as file:
        behind = WriteBehind(file)
        behind._blocks = Failing()
        with pytest.raises(RuntimeError, match="allocate"):  # noqa: PT012 - whichever of them it is
            for _ in range(50):
                behind.write(bytes(1 << 20))
            pytest.fail("nobody noticed")
        assert isinstance(behind.wait(), RuntimeError)
    with open(tmp_path / "y", "xb", buffering=0) as file:
        behind = WriteBehind(file)
        behind._blocks = Failing()
        behind.write(b"a small one")
        assert isinstance(behind.wait(), RuntimeError)
    assert not names()


def test_a_store_tells_and_leaves_nothing(tmp_path: Path) -> None:
    writer = LocalStore(tmp_path).create("x")
    with files_of_at_most(1 << 20), pytest.raises(StorageError) as caught:  # noqa: PT012 - whichever of them it is
        for _ in range(50):
            writer.write(bytes(1 << 20))
        writer.commit()
    writer.discard()
    assert caught.value.place["url"] == str(tmp_path / "x")
    assert os.listdir(tmp_path) == []
