#!/usr/bin/env python3
"""Check what no linter checks: modules stay short, and every room's ``__init__`` docstring is a map of its modules.

    python tools/check_house.py

Prints one line a finding and exits with 1 when there is any.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("shardstream", "tools", "tests", "examples")
MAX_LINES = 500


def long_modules(root: Path) -> Iterator[str]:
    """A file that cannot be read in one sitting wants to be two."""
    for path in sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py")):
        lines = len(path.read_text().splitlines())
        if lines > MAX_LINES:
            yield f"{path.relative_to(root)}: {lines} lines, more than {MAX_LINES}; move a part of it out"


def incomplete_maps(root: Path) -> Iterator[str]:
    """Somebody who looks for a thing reads folder names, then one docstring."""
    for room in sorted(path for path in (root / "shardstream").rglob("*") if path.is_dir() and any(path.glob("*.py"))):
        init = room / "__init__.py"
        if not init.exists():
            yield f"{room.relative_to(root)}: has no __init__.py"
            continue
        described = ast.get_docstring(ast.parse(init.read_text())) or ""
        for module in sorted(room.glob("*.py")):
            if module.name not in ("__init__.py", "__main__.py") and module.stem not in described:
                yield f"{init.relative_to(root)}: its docstring, the map of the room, does not name {module.stem}"


def main() -> int:
    """Print the findings; 1 when there are any."""
    findings = [*long_modules(ROOT), *incomplete_maps(ROOT)]
    for finding in findings:
        print(finding)
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
