"""The page about insides of other packages names every use, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardstream.extras import NEWEST_TESTED

from .insides import insides

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/dev/insides.md"


def listed() -> set[tuple[str, str]]:
    """Pairs of a module and a name: from each row, the first two cells."""
    rows = re.findall(r"^\| (`\S+\.py`.*?) \| (`.*?`) \|", PAGE.read_text(), re.MULTILINE)
    return {
        (f"shardstream/{module}", name)
        for modules, names in rows
        for module in re.findall(r"`(\S+?)`", modules)
        for name in re.findall(r"`(\S+?)`", names)
    }


def test_the_page_lists_what_the_package_uses_of_the_insides_of_others() -> None:
    found = insides(ROOT / "shardstream")
    assert found - listed() == set(), f"add rows to {PAGE.relative_to(ROOT)}: see its first lines for what has to hold"
    assert listed() - found == set(), "remove these from their rows"


def test_pages_state_the_newest_versions_known_to_work() -> None:
    newest = f"Python {NEWEST_TESTED['Python']} and torch {NEWEST_TESTED['torch']}"
    assert newest in PAGE.read_text()
    assert newest in (ROOT / "docs/install.md").read_text()


def test_every_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(tests/\S+?)`", PAGE.read_text()))
    assert len(named) > 15
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from torch._C import _remove\nfrom torch import nn, _x as y", {"_C", "_remove", "_x"}),
        ("import ctypes, gc, os", {"ctypes", "gc"}),
        ("import sys\nsys.modules['a']; sys._getframe(1)", {"sys.modules", "_getframe"}),
        ("thread._started = 1", {"_started"}),
        ("getattr(x, '_a', None); hasattr(x, '_b'); private(x, '_c', 'torch'); getattr(x, name)", {"_a", "_b", "_c"}),
        ("from torch import D\nclass A(D[int]):\n    def f(self):\n        return self._workers", {"_workers"}),
        ("from torch import D\nclass A(D):\n    def _f(self):\n        super()._f()", {"_f"}),
        ("from torch import D\nclass A(D):\n    def f(self):\n        self._own = 1\n        return self._own", set()),
        ("class A:\n    def f(self):\n        return other._mine\n    def _mine(self): ...", set()),
        ("from pack.b import B\nB()._ours; row._replace(a=1); x.__class__; os._exit(1)", set()),
    ],
)
def test_uses_are_found(text: str, names: set[str], tmp_path: Path) -> None:
    root = tmp_path / "pack"
    (root / "deep").mkdir(parents=True)
    (root / "b.py").write_text("class B:\n    def _ours(self): ...\n")
    (root / "deep/a.py").write_text(text)
    assert insides(root) == {("pack/deep/a.py", name) for name in names}
