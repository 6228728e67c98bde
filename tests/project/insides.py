"""What the package uses of the insides of Python and of other packages, read from its source."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

PUBLIC = {"_asdict", "_fields", "_make", "_replace", "_exit"}  # of named tuples, and `os._exit`: documented
REACHING = {"ctypes", "gc"}  # modules of the standard library that reach into the interpreter or the C library
_PRIVATE = re.compile(r"_[A-Za-z0-9]\w*$")


def insides(root: Path) -> set[tuple[str, str]]:
    """Pairs of a module's path and a name: a private one that is not ours, or what reaches into the interpreter.

    A private name is ours if the module, one beside it, or one that it imports defines it.
    """
    defined = defaultdict[str, set[str]](set)  # by folder, and by module
    uses = {}
    for path in sorted(root.rglob("*.py")):
        nodes, name = [*ast.walk(ast.parse(path.read_text()))], path.relative_to(root.parent)
        module = name.parent if name.name == "__init__.py" else name.with_suffix("")
        for place in (f"{name.parent}/", str(module)):
            defined[place].update(_defined(nodes))
        imported = {one.replace(".", "/") for one in _modules(nodes) if one.partition(".")[0] == root.name}
        uses[name] = imported, {*_used(nodes, root.name)}, {*_inherited(nodes, root.name), *_asked(nodes)}
    found = set()
    for path, (imported, used, others) in uses.items():
        ours = set[str]().union(*(defined.get(place, ()) for place in (f"{path.parent}/", *imported)))
        found |= {(str(path), name) for name in others | (used & REACHING) | (used - ours)}
    return found


def _used(nodes: Iterable[ast.AST], ours: str) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names if one.name in REACHING)
            case ast.ImportFrom(module=str(source), names=names) if source.partition(".")[0] != ours:
                parts = [*source.split("."), *(one.name for one in names)]
                yield from (part for part in parts if _PRIVATE.match(part))
            case ast.Attribute(value=ast.Name("sys"), attr="modules"):
                yield "sys.modules"
            case ast.Attribute(attr=name) if _PRIVATE.match(name) and name not in PUBLIC:
                yield name
            case ast.Call(func=ast.Name("getattr" | "hasattr" | "setattr"), args=[_, name, *_]):
                if isinstance(name, ast.Constant) and _PRIVATE.match(str(name.value)) and name.value not in PUBLIC:
                    yield str(name.value)


def _asked(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names that `shardstream.extras.private` gets: they are others', whatever ours are called."""
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name("private"), args=[_, ast.Constant(str(name)), *_]):
                yield name


def _inherited(nodes: Iterable[ast.AST], ours: str) -> Iterator[str]:
    """Private names that classes use of bases of other packages: by ``super()``, or read and never set."""
    others = {name for name, source in _names(nodes) if source.partition(".")[0] != ours}
    for node in nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = {ast.unparse(base).partition("[")[0].partition(".")[0] for base in node.bases}
        own = {*_defined(ast.walk(node))}
        for part in ast.walk(node) if bases & others else ():
            if isinstance(part, ast.Attribute) and _PRIVATE.match(part.attr):
                owner = ast.unparse(part.value)
                if owner == "super()" or (owner == "self" and part.attr not in own):
                    yield part.attr


def _defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name("self" | "cls"), attr=name, ctx=ast.Store()):
                yield name


def _names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((one.asname or one.name.partition(".")[0], one.name) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((one.asname or one.name, node.module or "") for one in node.names)


def _modules(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{one.name}" for one in node.names)
