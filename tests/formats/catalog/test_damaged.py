"""Damaged data sets of every format end in values or errors of ours: what the drill found once, and some anew.

``tools/drills/foreign_fuzz`` is the drill; it keeps what it finds in the corpus that is read here.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.formats.catalog.cases import CATALOGUE, Case, read
from tests.formats.catalog.every import GOLDEN, SETS
from tests.formats.catalog.mutating import mutated, whole

CORPUS = GOLDEN / "corpus"
CASES = 100
SEED = 18
_SECONDS = 30  # of the processor, for one case


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _within_seconds() -> Iterator[None]:
    """A case that hangs is ended by its own processor time."""

    def too_long(number: int, frame: object) -> None:
        raise AssertionError("a damaged data set takes too long")

    before = signal.signal(signal.SIGPROF, too_long)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, before)


def test_what_was_found_once(tmp_path: Path) -> None:
    for path in sorted(CORPUS.glob("*/*.case")):
        case = Case.unpack(path.read_bytes())
        assert case.format == path.parent.name
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        read(case, tmp_path / "data")


@pytest.mark.full  # `tools/drills/foreign_fuzz` draws the same without end
@pytest.mark.parametrize("format", [*SETS, CATALOGUE])
def test_damage_of_every_format(format: str, tmp_path: Path) -> None:
    draw = random.Random(f"{SEED} {format}")
    (tmp_path / "made").mkdir()
    made = whole(format, tmp_path / "made")
    assert all(read(case, tmp_path / "data") > 0 for case in made)
    for number in range(CASES):
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)
        read(mutated(made[number % len(made)], draw), tmp_path / "data", whole=number % 10 == 0)
