"""Options are written in their objects, as users write them: on every page, in examples, docstrings and hints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardstream as ss
from shardstream.options import options_of

from .test_hints import hints

ROOT = Path(__file__).resolve().parents[2]
TABLES: tuple[type, ...] = (
    *(ss.SourceOptions, ss.PackedSequences, ss.ImageOptions, ss.ShardOptions, ss.StorageOptions),
    *(ss.OrderOptions, ss.ReadOptions),
)
PLAIN = {  # these are arguments of other verbs or of decoders, too
    *("backend", "bins", "cache", "dest", "format", "length", "options", "replicas", "source", "storage_options"),
    *("jpeg", "quality", "tokenize", "world_size"),
}
NAMES = {
    *(name for table in TABLES for field, said in options_of(table).items() for name in (field, said.was)),
    *("rank", "world_size", "executor", "transport"),
} - PLAIN
VERBS = {"pack", "pack_plan", "repack", "merge", "ShardDataset", "Mixture", "Reader", "ShardWriter", "replace", ""}
CODE = re.compile(r"```\w*\n.*?```|``[^`]+``|`[^`]+`", re.DOTALL)
ARGUMENT = re.compile(rf"(?<![\w.{{-])({'|'.join(sorted(NAMES))})=(?=[\d\"'.`,\[\s)]|True|False|None|$)")


def flat(code: str) -> Iterator[str]:
    """The options there that are written as arguments of a verb, or alone."""
    for match in ARGUMENT.finditer(code):
        depth, place, called = 0, match.start(), ""
        while place and depth >= 0:
            place -= 1
            depth += {")": 1, "(": -1}.get(code[place], 0)
        if depth < 0:
            called = code[:place].rpartition(" ")[2].rpartition("(")[2].rpartition(".")[2]
        if called in VERBS:
            yield match[0]


def texts() -> Iterator[tuple[str, str]]:
    """(place, code) of all code that users read: of a text, what stands in backticks."""
    for path in sorted((ROOT / "README.md", *ROOT.glob("docs/**/*.md"))):
        text = path.read_text(encoding="utf-8")
        for match in CODE.finditer(text):
            yield f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}", match[0]
    for path in sorted((*ROOT.glob("shardstream/**/*.py"), *ROOT.glob("examples/**/*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                for match in CODE.finditer(ast.get_docstring(node) or ""):
                    yield f"{path.relative_to(ROOT)}: {getattr(node, 'name', '')}", match[0]
    yield from hints()


def test_options_are_written_in_their_objects() -> None:
    found = [f"{place}: {name} in {code}" for place, code in texts() for name in flat(code)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("`chunk=1`", ["chunk="]),
        ("`ss.ShardDataset(url, lanes=2, fields=[f(1)])`", ["lanes="]),
        ('`order=ss.OrderOptions(lanes=2, affinity="node")`', []),
        ('`ss.pack(a, images=ss.ImageOptions(jpeg="keep"), zstd=["txt"])`', ["zstd="]),
        ("`--format-option group=key`", []),
        ('`samples_total{rank="0"}`', []),
    ],
)
def test_flat_spellings_are_seen(code: str, names: list[str]) -> None:
    assert [*flat(code)] == names
