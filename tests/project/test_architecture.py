"""The map of the code names places that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", text))
    assert len(named) > 50
    roots = [ROOT, ROOT / "shardstream", *(ROOT / "shardstream" / room for room in ("pack", "storage", "stream"))]
    assert [name for name in sorted(named) if not any((root / name).exists() for root in roots)] == []
