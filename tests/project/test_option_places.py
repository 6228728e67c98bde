"""An option is written down once, and handed on in objects: few files name it."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from shardstream.options import options_of
from shardstream.pack.options import OF_PACK, PackOptions
from shardstream.pack.run import RunOptions

PACKAGE = Path(__file__).resolve().parents[2] / "shardstream"
MOST = 3

# Whose names other things have, too: of these, only the files count by which `pack` and `repack` hand options on.
WORDS = {
    *(
        "bins",
        "cache",
        "check",
        "checksums",
        "classes",
        "damaged",
        "field",
        "fields",
        "format",
        "group",
        "images",
    ),
    *("jpeg", "key", "key_table", "labels", "length", "meta", "min", "options", "overwrite", "append"),
    *("quality", "replicas", "rows", "seed", "shard_size", "shards", "shuffle", "split_names", "storage"),
    *("tokenizer", "transform", "workers", "zstd", "messages", "reading"),
}
WAY = {
    *("pack/options.py", "pack/run.py", "pack/repack.py"),
    *("cli/flags.py", "cli/commands.py", "cli/verbs/pack.py", "cli/verbs/repack.py"),
}


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
        for name in named(ast.parse(path.read_text(encoding="utf-8"))):
            found[name].add(path.relative_to(PACKAGE).as_posix())
    return found


def names() -> list[str]:
    fields = [name for table in OF_PACK.values() for name in options_of(table)]
    return sorted({*PackOptions.names(), *RunOptions.__dataclass_fields__, *fields} - {"source", "dest", "progress"})


@pytest.mark.parametrize("name", names())
def test_an_option_is_named_in_few_files(name: str, files: dict[str, set[str]]) -> None:
    where = files[name] & WAY if name in WORDS else files[name]
    assert len(where) <= MOST, sorted(where)


def test_flat_names_are_gone_where_they_were_replaced(files: dict[str, set[str]]) -> None:
    renamed = {said.was for table in OF_PACK.values() for name, said in options_of(table).items() if said.was != name}
    left = {name: sorted(files[name] & WAY) for name in renamed - {"bins"}}
    assert {name: where for name, where in left.items() if where} == {}


def test_words_of_other_things_are_those() -> None:
    assert set(names()) >= WORDS
