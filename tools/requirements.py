#!/usr/bin/env python3
"""Print the requirements of dependency groups of pyproject.toml, one a line, for installers that do not know groups.

    python tools/requirements.py test lint > requirements.txt

Uses the standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def expand(groups: dict[str, Any], name: str) -> list[str]:
    """The requirements of group ``name``, with the groups it includes (PEP 735)."""
    if name not in groups:
        raise SystemExit(f"no dependency group is called {name!r}; there are: {', '.join(groups)}")
    lines: list[str] = []
    for entry in groups[name]:
        lines += [entry] if isinstance(entry, str) else expand(groups, entry["include-group"])
    return lines


def main() -> None:
    """Read the names of the groups from the command line and print their requirements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    groups = tomllib.loads(PYPROJECT.read_text())["dependency-groups"]
    for name in parser.parse_args().groups:
        print("\n".join(expand(groups, name)))


if __name__ == "__main__":
    main()
