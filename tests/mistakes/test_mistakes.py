"""What is said to somebody who errs names the thing, the place and the fix; the page of mistakes shows just that."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cases import MISTAKES, Mistake
from .page import PAGE, TOP, message, prepare, section


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mistakes")
    prepare(made)
    return made


@pytest.mark.parametrize("mistake", MISTAKES, ids=[one.title for one in MISTAKES])
def test_the_message_names_thing_place_and_fix(mistake: Mistake, folder: Path) -> None:
    said = message(mistake, folder)
    assert all(part in said for part in (mistake.thing, mistake.place, mistake.fix)), said
    assert section(mistake, said) in PAGE.read_text(), "docs/mistakes.md differs: run python tests/mistakes/page.py"


def test_the_page_has_forty_and_no_others() -> None:
    text = PAGE.read_text()
    assert text.startswith(TOP)
    assert text.count("\n## ") == len(MISTAKES) >= 40
