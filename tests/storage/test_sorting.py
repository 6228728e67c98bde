"""Names in order, in memory and beyond it."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardstream.errors import StorageError
from shardstream.storage.base import sorting
from shardstream.storage.base.sorting import SortedNames

NAMES = st.lists(
    st.tuples(st.binary(min_size=1, max_size=9).map(lambda name: name.replace(b"\0", b"\n")), st.integers(0, 10**18))
)


@given(names=NAMES, run=st.integers(1, 20), page=st.integers(1, 30), read=st.integers(1, 40))
def test_they_come_in_order_however_many_fit_into_memory(names, run, page, read) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "_READ", read)
        with SortedNames(run) as found:
            found.add([(b"forgotten", 1)])
            found.clear()
            for start in range(0, len(names), page):
                found.add(iter(names[start : start + page]))
            assert list(found) == sorted(names)
            assert list(found) == sorted(names)  # again
            found.add([(b"\xff" * 10, 5)])
            assert list(found) == [*sorted(names), (b"\xff" * 10, 5)]


def test_pages_in_order_are_one_run() -> None:
    """Then they are read back from one place, however many there are."""
    with SortedNames(10) as found:
        for start in range(0, 1000, 25):
            found.add([(b"%06d" % number, number) for number in range(start, start + 25)])
        assert len(found._runs) == 1
        assert [number for _, number in found] == list(range(1000))


def test_a_full_disk_is_told(monkeypatch) -> None:
    class Full:
        def tell(self) -> int:
            return 0

        def writelines(self, _lines) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(sorting.tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(StorageError, match="No space left on device") as caught:
        SortedNames(1).add([(b"x", 1)])
    assert "TMPDIR" in str(caught.value)
