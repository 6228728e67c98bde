"""The recipes of ``examples/`` on the GPU: each trains, is killed, and goes on with other workers on what is left."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from gpu.pytests import passed
from gpu.setting import Row, Setting
from shardstream.threads import cores

WHERE = ("tests/recipes/test_recipes.py", "tests/recipes/test_in_frameworks.py")


def run(setting: Setting) -> Iterator[Row]:
    """Those whose packages are here; two are enough to see that they run."""
    chosen = ["-k", "captions or tabular"] if setting.quick else []
    at_once = ["-n", str(min(max(cores() // 2, 1), 8))] if find_spec("xdist") else []
    return passed(setting, "--full", *at_once, *chosen, *WHERE, each=True)
