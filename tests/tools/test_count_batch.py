"""What `tools/count_batch.py` counts."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(TOOLS))
    count_batch = importlib.import_module("count_batch")


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """Counts the functions of this source as those of the package; gives them too."""
    path = tmp_path / "made.py"
    path.write_text(
        "def outer():\n    return inner() + sum(three())\n"
        "def inner():\n    return 0\n"
        "def three():\n    yield from (1, 2, 3)\n"
        "def fails():\n    inner()\n    raise KeyError\n"
    )
    monkeypatch.setattr(count_batch, "PACKAGE", f"{tmp_path}/")
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return count_batch.Trace(), names


def test_calls_functions_and_depth_are_counted(trace):
    trace, made = trace
    with trace:
        made["outer"]()
        made["inner"]()
    # outer, inner, three (begun, and resumed three times), inner
    assert trace.count == count_batch.Count(files=1, functions=3, calls=7, depth=2)
    assert list(dict.fromkeys(trace.calls)) == [("made.py", "outer"), ("made.py", "inner"), ("made.py", "three")]
    assert not trace.opens


def test_what_others_call_is_not_counted_and_an_exception_ends_a_call(trace):
    trace, made = trace
    with trace:
        for _ in range(3):
            with pytest.raises(KeyError):
                made["fails"]()
        Path("a") / "b"
    assert (trace.count.calls, trace.count.depth) == (6, 2)


def test_counts_begin_anew_and_files_that_are_opened_are_noticed(trace, tmp_path):
    trace, made = trace
    with trace:
        made["inner"]()
        (tmp_path / "made.py").read_bytes()
    assert trace.opens
    with trace:
        pass
    (tmp_path / "made.py").read_bytes()
    assert trace.count == count_batch.Count(0, 0, 0, 0)
    assert not trace.opens


def test_the_usual_and_the_most_go_by_columns():
    one, two, three = (count_batch.Count(*columns) for columns in ((1, 9, 5, 2), (2, 8, 6, 2), (3, 7, 7, 3)))
    assert count_batch.summary([one, three, two]) == {
        "usual": count_batch.Count(2, 8, 6, 2),
        "most": count_batch.Count(3, 9, 7, 3),
    }


def test_a_bound_that_is_passed_is_named(monkeypatch):
    monkeypatch.setitem(count_batch.BOUNDS, ("bytes", "usual"), count_batch.Count(15, 50, 91))
    assert [*count_batch.passed("bytes", {"usual": count_batch.Count(15, 50, 91, 99)})] == []
    (files, calls) = count_batch.passed("bytes", {"usual": count_batch.Count(16, 50, 92, 99)})
    assert files.startswith("bytes, usual batch: 16 files, at most 15")
    assert calls.startswith("bytes, usual batch: 92 calls, at most 91")
