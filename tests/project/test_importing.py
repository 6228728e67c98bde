"""What `import shardstream` brings along, and what it does without."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shardstream as ss

# By rooms: nothing of what reads or writes data is there before it is used.
LIGHT = {
    "shardstream",
    *(f"shardstream.{name}" for name in ("attributes", "errors", "system_errors", "text", "version")),
}
HEAVY = {
    "torch",
    "numpy",
    "pyarrow",
    "msgpack",
    "xxhash",
    "PIL",
    "simplejpeg",
    "numba",
    "asyncio",
    "concurrent.futures",
}


def python(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_alone_is_light() -> None:
    found = set(python("import shardstream, sys; print(*sys.modules)").split())
    assert {name for name in found if name.split(".")[0] == "shardstream"} == LIGHT
    assert not HEAVY & found


def test_help_imports_no_room() -> None:
    code = (
        "from shardstream.cli import main\nimport sys\nsys.argv[1:] = ['--help']\n"
        "try: main()\nfinally: print(*sys.modules)"
    )
    found = set(python(code).splitlines()[-1].split())
    ours = {name for name in found if name.split(".")[0] == "shardstream"} - LIGHT
    assert {".".join(name.split(".")[:2]) for name in ours} == {
        f"shardstream.{name}" for name in ("cli", "extras", "sizes", "formats")
    }
    assert {name for name in ours if name.startswith("shardstream.formats.")} == {"shardstream.formats.commands"}
    assert not (HEAVY - {"concurrent.futures"}) & found


@pytest.mark.full
@pytest.mark.parametrize(
    "first", ["shardstream.pack.run", "shardstream.progress", "shardstream.pack", "shardstream.load"]
)
def test_a_module_of_the_same_name_leaves_a_verb_what_it_is(first: str) -> None:
    code = f"import {first}, shardstream as ss, types; print(ss.pack.__name__, ss.progress.__name__)"
    assert python(code) == "pack progress\n"


def test_every_name_is_found_at_first_use() -> None:
    code = (
        "from shardstream import *\nimport shardstream as ss\n"
        "print(all(globals()[name] is getattr(ss, name) for name in ss.__all__))"
    )
    assert python(code) == "True\n"
    assert ss.pack.__module__ == "shardstream.pack.run"
