"""What holds for every file of the tree: nothing of one machine in it, everything in its place."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import shardstream

ROOT = Path(__file__).resolve().parents[2]
TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".sh", ".cfg", ".json", ""}
# Home folders and the like, and where packages are fetched from: right on one machine only.
OF_ONE_MACHINE = re.compile(r"(?<![\w.])/(?:root|home|Users|work|opt|mnt)/\w|(?:index-url|find-links)[ =]+\S*://")


def text_files() -> Iterator[Path]:
    for folder in (".ci", "docs", "examples", "shardstream", "tests", "tools"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in TEXT and "__pycache__" not in path.parts:
                yield path
    # In a linked work tree of git, .git is a file that names a folder of this machine.
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXT and path.name != ".git")


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"shardstream_tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_no_file_names_a_place_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in text_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if OF_ONE_MACHINE.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["cd /ro" + "ot/x", 'Path("/ho' + 'me/me")', "pip install --index-" + "url https://x"])
def test_a_place_of_one_machine_is_recognised(line: str) -> None:
    assert OF_ONE_MACHINE.search(line)


@pytest.mark.parametrize(
    "path", ["tools/test", "tools/demo", "tools/make_photos.py", "tools/pythons", "tools/release", ".ci/run"]
)
def test_programs_can_be_started(path: str) -> None:
    assert (ROOT / path).stat().st_mode & 0o111 == 0o111


def test_the_installed_version_is_that_of_the_project() -> None:
    assert shardstream.__version__ == version("shardstream")


def test_long_modules_and_incomplete_maps_are_found(tmp_path: Path) -> None:
    house = tool("check_house")
    room = tmp_path / "shardstream" / "room"
    room.mkdir(parents=True)
    (room / "__init__.py").write_text('"""The room: `short` is named here."""\n')
    (room / "short.py").write_text("x = 1\n" * 500)
    assert [*house.long_modules(tmp_path), *house.incomplete_maps(tmp_path)] == []

    (room / "long.py").write_text("x = 1\n" * 501)
    (finding,) = house.long_modules(tmp_path)
    assert "long.py: 501 lines" in finding
    (finding,) = house.incomplete_maps(tmp_path)
    assert "does not name long" in finding

    (room / "__init__.py").unlink()
    (finding,) = house.incomplete_maps(tmp_path)
    assert "no __init__.py" in finding


def test_groups_include_groups() -> None:
    expand = tool("requirements").expand
    groups = {"a": ["x>=1"], "b": ["y", {"include-group": "a"}]}
    assert expand(groups, "b") == ["y", "x>=1"]
    with pytest.raises(SystemExit, match="no dependency group is called 'c'"):
        expand(groups, "c")
