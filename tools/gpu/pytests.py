"""Runs of pytest, as rows of a report."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from gpu.setting import Row, Setting

PLUGINS = ("_hypothesis_pytestplugin", "xdist.plugin")


def passed(setting: Setting, *arguments: str, each: bool = False) -> Iterator[Row]:
    """One row for each test function of one run, or for each of its cases."""
    results = Path(setting.scratch) / "tests.xml"
    pytest = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={results}", "-p", "no:cacheprovider"]
    for plugin in PLUGINS:
        pytest += ["-p", plugin] if find_spec(plugin.partition(".")[0]) else []
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # of what else the machine has
    done = subprocess.run(
        [*pytest, *arguments], cwd=setting.root, env=environment, stdin=subprocess.DEVNULL, check=False
    )
    found: dict[str, list[ElementTree.Element]] = defaultdict(list)
    if results.exists():
        for case in ElementTree.parse(results).getroot().iter("testcase"):  # noqa: S314  # pytest's own file
            name = case.get("name", "")
            found[name if each else name.partition("[")[0]].append(case)
    if not found:
        yield Row("pytest", f"ran nothing, exit status {done.returncode}", failed=True)
    for name, cases in found.items():
        yield _row(name, cases)


def _row(name: str, cases: list[ElementTree.Element]) -> Row:
    broken = [found for case in cases for found in (*case.iter("failure"), *case.iter("error"))]
    skipped = [case for case in cases if case.find("skipped") is not None]
    taken = sum(float(case.get("time", 0)) for case in cases)
    if broken:
        said = broken[0].get("message", "").partition("\n")[0]
        return Row(f"`{name}`", f"failed ({len(broken)} of {len(cases)}): {said}", failed=True)
    if skipped:
        reason = skipped[0].find("skipped")
        return Row(f"`{name}`", f"skipped: {'' if reason is None else reason.get('message')}")
    times = "" if len(cases) == 1 else f" ({len(cases)})"
    return Row(f"`{name}`", f"passed{times}, {taken:.1f} s")
