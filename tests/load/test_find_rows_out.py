"""``find_rows(out=)``: a file that grows shard by shard, and knows what it was made of."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardstream as ss

from ..stream.making import numbered, photograph, write_dataset
from .finding import COUNT, even, keep, text, write


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set."""
    return write(tmp_path_factory.mktemp("found") / "data")


class _Stop(Exception):
    pass


@pytest.mark.parametrize("workers", [0, 1])
def test_out_goes_on_where_it_ended(folder: Path, tmp_path: Path, workers: int) -> None:
    out = tmp_path / "rows"
    view = ss.ShardDataset(folder).filter({"id": (">", 4)})

    def stop(event: Any) -> None:
        if event.done > 60:
            raise _Stop

    with pytest.raises(_Stop):
        ss.find_rows(view, keep, out=out, workers=workers, progress=stop)
    with pytest.raises(ss.errors.DataError, match="not finished"):
        ss.Rows.load(out)
    part = out.read_bytes()
    for cut in (0, 3):  # in the midst of a record
        out.write_bytes(part[: len(part) - cut])
        events: list[Any] = []
        rows = ss.find_rows(view, keep, out=out, workers=workers, progress=events.append)
        assert events[0].done == events[0].kept == (25 if cut else 26)
        assert rows.digest == ss.find_rows(view, keep, workers=0).digest
        assert ss.Rows.load(out).digest == rows.digest
    asked: list[Any] = []
    again = ss.find_rows(view, keep, out=out, workers=workers, progress=asked.append)
    assert again.digest == rows.digest
    assert (~again).digest == (~rows).digest
    assert asked[0].kept == asked[0].total


def _more_than(limit: int) -> Callable[[Any], bool]:
    return lambda sample: bool(sample["id"] > limit)


class _Callable:
    def __init__(self, limit: Any) -> None:
        self.limit = limit

    def __call__(self, sample: Any) -> bool:
        return bool(sample["id"] in self.limit)


class _WithHelper:
    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern

    def __call__(self, sample: Any) -> bool:
        return self._helper(sample)

    def _helper(self, sample: Any) -> bool:
        return bool(self.pattern.search(sample["__key__"]))


LIMIT = 3


def _by_global(sample: Any) -> bool:
    return bool(sample["id"] > LIMIT)


def test_out_knows_the_predicate_by_all_that_it_refers_to(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "rows"
    same: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (lambda: _more_than(3), lambda: _more_than(4)),
        (lambda: _Callable({1, 2, "a"}), lambda: _Callable({1, 2, "b"})),
        (lambda: _Callable(np.arange(4)), lambda: _Callable(np.arange(5))),
        (lambda: _WithHelper(re.compile("a")), lambda: _WithHelper(re.compile("b"))),
        (lambda: _by_global, lambda: monkeypatch.setattr(sys.modules[__name__], "LIMIT", 4) or _by_global),
    ]
    for first, second in same:
        out.unlink(missing_ok=True)
        ss.find_rows(folder, first(), fields=["id"], out=out, workers=0)
        ss.find_rows(folder, first(), fields=["id"], out=out, workers=0)
        with pytest.raises(ss.errors.UsageError, match="predicate") as caught:
            ss.find_rows(folder, second(), fields=["id"], out=out, workers=0)
        assert str(out) in str(caught.value.hint)
    with pytest.raises(ss.errors.UsageError, match="cannot be compared") as caught:
        ss.find_rows(folder, _Callable(threading.Lock()), out=tmp_path / "other", workers=0)
    assert "rows.save" in str(caught.value)


def test_out_refuses_other_fields_data_and_files(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows"
    ss.find_rows(folder, even, out=out, workers=0)
    before = out.read_bytes()
    write_dataset(tmp_path / "more", numbered([5], txt=text, jpg=photograph))
    others: list[tuple[Any, dict[str, Any]]] = [
        (folder, {"fields": ["id"]}),
        (ss.ShardDataset(folder, seed=1), {}),
        (ss.ShardDataset(folder).take(5), {}),
        (tmp_path / "more", {}),
        (folder, {"on_error": "skip"}),
    ]
    for data, options in others:
        with pytest.raises(ss.errors.UsageError, match="another") as caught:
            ss.find_rows(data, even, out=out, workers=0, **options)
        assert f"delete {out}" in str(caught.value)
    assert out.read_bytes() == before
    (tmp_path / "text").write_text("precious")
    with pytest.raises(ss.errors.DataError, match="not a file of rows"):
        ss.find_rows(folder, even, out=tmp_path / "text", workers=0)
    assert (tmp_path / "text").read_text() == "precious"
    ss.find_rows(folder, keep, workers=0).save(tmp_path / "saved")
    with pytest.raises(ss.errors.UsageError, match="were saved"):
        ss.find_rows(folder, keep, out=tmp_path / "saved", workers=0)
    with pytest.raises(ss.errors.StorageError):
        ss.find_rows(folder, even, out=tmp_path / "no" / "rows", workers=0)


@pytest.mark.full
def test_a_killed_run_goes_on_in_another_process(folder: Path, tmp_path: Path) -> None:
    """The digest of a predicate is that of any process, sets of names among what it refers to."""
    script = tmp_path / "find.py"
    script.write_text(
        textwrap.dedent("""
            import os, signal, sys
            import shardstream as ss

            WORDS = {"text 1", "text 2", "text 3", "text 4"}

            def keep(sample):
                return sample["txt"] in WORDS

            def die(event):
                if len(sys.argv) > 3 and event.done > 60:
                    os.kill(os.getpid(), signal.SIGKILL)

            rows = ss.find_rows(sys.argv[1], keep, out=sys.argv[2], workers=0, progress=die)
            print(len(rows))
        """)
    )
    command = [sys.executable, str(script), str(folder), str(tmp_path / "rows")]
    assert subprocess.run([*command, "die"], check=False).returncode == -signal.SIGKILL
    size = (tmp_path / "rows").stat().st_size
    done = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert int(done) == sum(text(n) in {"text 1", "text 2", "text 3", "text 4"} for n in range(COUNT))
    assert (tmp_path / "rows").stat().st_size > size > 0
