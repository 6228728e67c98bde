"""Golden files are what they were committed as, and nobody builds them again."""

from __future__ import annotations

import hashlib
import runpy
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
BUILT = {
    "bins": "bins",
    "catalogue": "foreign/catalogue",
    "grown": "grown",
    "in_place": "foreign/in_place/inputs.tar.xz",
    "v1": "v1",
    "values": "values",
}


def test_they_are_what_was_committed() -> None:
    """Lines are only ever added to the list; ``sha256sum -c SHA256SUMS`` compares them, too."""
    lines = (GOLDEN / "SHA256SUMS").read_text().splitlines()
    listed = {name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}
    found = {path.relative_to(GOLDEN).as_posix(): path for path in GOLDEN.rglob("*") if path.is_file()}
    data = {name: path for name, path in found.items() if path.suffix not in (".py", ".pyc") and name != "SHA256SUMS"}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in data.items()} == listed


@pytest.mark.parametrize("name", BUILT)
def test_no_builder_builds_twice(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = GOLDEN / BUILT[name]
    monkeypatch.setattr(sys, "argv", [f"build_{name}.py", str(folder)])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(GOLDEN / f"build_{name}.py"), run_name="__main__")
    assert "never built again" in capsys.readouterr().err
