"""Drills that are several things by name: methods of one object, each of which gives what is wrong."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path


def asked(names: Sequence[str]) -> tuple[Path, list[str]]:
    """By the command line: the folder of the drill, made anew, and which of these are tried."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help=f"some of {', '.join(names)}, separated by commas; default: all")
    given = parser.parse_args()
    folder: Path = given.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder, [name for name in names if not given.only or name in given.only.split(",")]


def problems_of(drill: object, names: Sequence[str]) -> int:
    """Try them, and say what is wrong; how much that is."""
    count = 0
    for name in names:
        problems = list(getattr(drill, name)())
        count += len(problems)
        print(f"{name}: {getattr(drill, name).__doc__} {len(problems)} problems", flush=True)
        for one in problems:
            print(f"  {one}", flush=True)
    return count
