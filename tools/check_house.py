#!/usr/bin/env python3
"""Check what no linter checks: short modules, functions and lists, complete maps, one of each thing.

    python tools/check_house.py                 prints what has to change, a line each; exits with 1 when there is any
    python tools/check_house.py --figures       lists all findings, how many they are, and how much there is to read
    python tools/check_house.py --root FOLDER   looks at another checkout

`ALLOWED` is what a check still finds. It only shrinks: more fails, and so does an allowance for what is mended.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("shardstream", "tools", "tests", "examples")
MAX_LINES = 500
ALLOWED = {
    "crowded folders": 1,
    "repeated classes": 0,
    "wide signatures": 5,
    "circles": 2,
    "stores told apart": 0,
}


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


def findings(root: Path) -> dict[str, list[str]]:
    """What every check finds."""
    from house.checks import CHECKS  # beside this file, where Python looks when this file is run
    from house.package import House

    house = House(root)
    found = {"long modules": [*long_modules(root)], "incomplete maps": [*incomplete_maps(root)]}
    return found | {name: [*check(house)] for name, check in CHECKS.items()}


def to_change(findings: Mapping[str, Sequence[str]], allowed: Mapping[str, int]) -> Iterator[str]:
    """The findings of a check that has more than are allowed, and allowances that are larger than what is found."""
    for check, found in findings.items():
        limit = allowed.get(check, 0)
        if len(found) > limit:
            yield from found
            if limit:
                yield f"{check}: {len(found)} findings, {limit} allowed in tools/check_house.py; mend what is new"
        elif len(found) < limit:
            yield f"{check}: {len(found)} findings, {limit} allowed; lower it to {len(found)} in tools/check_house.py"


def figures(root: Path, findings: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Every finding, how many there are, and how much there is to read."""
    from house.package import House

    for check, found in findings.items():
        yield from (f"{check}: {finding}" for finding in found)
    for check, found in findings.items():
        yield f"{len(found):8,}  {check} ({ALLOWED.get(check, 0)} allowed)"
    house = House(root)
    modules = [module for module in house.modules if not module.name.startswith("shardstream.testing")]
    yield f"{len(modules):8,}  modules in shardstream/, testing/ apart"
    yield f"{sum(len(module.code) for module in modules):8,}  lines of code in them"
    yield f"{house.public_words():8,}  words in docstrings of public names"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what has to change; 1 when there is any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--figures", action="store_true", help="list all findings, and how much there is to read")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to look at; default: this one")
    options = parser.parse_args(arguments)
    if not (options.root / "shardstream").is_dir():
        parser.error(f"{options.root} has no folder shardstream")
    found = findings(options.root)
    wrong = [*to_change(found, ALLOWED)]
    for line in figures(options.root, found) if options.figures else wrong:
        print(line)
    return int(bool(wrong) and not options.figures)


if __name__ == "__main__":
    sys.exit(main())
