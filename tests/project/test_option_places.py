"""An option is written down once, and handed on in objects: few files name it."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from shardstream.options import options_of
from shardstream.pack.options import OF_PACK, PackOptions
from shardstream.pack.run import RunOptions
from shardstream.stream.iteration.settings import OrderOptions, ReadOptions

PACKAGE = Path(__file__).resolve().parents[2] / "shardstream"
MOST = 3
ROOMS = ("options.py", "pack/", "stream/", "cli/")
"""Where options are handed on. Other rooms have words of their own: a lane of an order, the checksums of an index."""
WAY = {
    *("pack/options.py", "pack/run.py", "pack/repack.py"),
    *("cli/flags.py", "cli/commands.py", "cli/verbs/pack.py", "cli/verbs/repack.py"),
}
"""By which `pack` and `repack` hand on their arguments: other verbs have some of the same names."""

OTHERS = {
    "cache": "an argument of ShardDataset and Reader, and a command",
    "check": "a file is checked, ShardWriter has it as an argument",
    "dest": "where a verb writes",
    "field": "a field of samples",
    "format": "the format of shards, an argument of pack",
    "length": "of a document, of a range of bytes",
    "min": "the least value of a flag",
    "options": "options as such",
    "rows": "rows of a dataset",
    "source": "what a verb reads",
    "verify": "an argument of whatever reads rows",
}
"""Fields of options whose names other things have, too: of these, the files of `WAY` count."""


def named(tree: ast.Module) -> set[str]:
    """What stands there as a parameter, a field of a dataclass, or a keyword of a call."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found |= {one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        elif isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list):
            found |= {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
        elif isinstance(node, ast.Call):
            found |= {one.arg for one in node.keywords if one.arg}
    return found


@pytest.fixture(scope="module")
def files() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith(ROOMS):
            for name in named(ast.parse(path.read_text(encoding="utf-8"))):
                found[name].add(place)
    return found


FIELDS = {name for table in (*OF_PACK.values(), OrderOptions, ReadOptions) for name in options_of(table)}
ARGUMENTS = {*PackOptions.names(), *RunOptions.__dataclass_fields__}


def test_an_option_is_named_in_few_files(files: dict[str, set[str]]) -> None:
    crowded = {name: sorted(files[name]) for name in FIELDS - OTHERS.keys() if len(files[name]) > MOST}
    assert crowded == {}
    handed = (ARGUMENTS | OTHERS.keys()) - {"source", "dest", "progress"}  # which the commands pass by themselves
    crowded = {name: sorted(files[name] & WAY) for name in handed if len(files[name] & WAY) > MOST}
    assert crowded == {}


def test_names_of_other_things_are_those(files: dict[str, set[str]]) -> None:
    assert [name for name in OTHERS if name not in FIELDS or len(files[name]) <= MOST] == []


def test_flat_names_are_gone_where_they_were_replaced(files: dict[str, set[str]]) -> None:
    renamed = {said.was for table in OF_PACK.values() for name, said in options_of(table).items() if said.was != name}
    left = {name: sorted(files[name] & WAY) for name in renamed - {"bins"}}
    assert {name: where for name, where in left.items() if where} == {}
