"""What the package uses of the insides of Python and of other packages, read from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PUBLIC = {"_asdict", "_fields", "_make", "_replace", "_exit"}  # of named tuples, and `os._exit`: documented
REACHING = {"ctypes", "gc"}  # modules of the standard library that reach into the interpreter or the C library
_PRIVATE = re.compile(r"_[A-Za-z0-9]\w*$")


def insides(root: Path) -> set[tuple[str, str]]:
    """Pairs of a module's path and a name: a private one that is not ours, or what reaches into the interpreter.

    A private name is ours if the module, one beside it, or one that it imports defines it.
    """
    trees = {path.relative_to(root.parent): ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}
    defined = {path: {*_defined(tree)} for path, tree in trees.items()}
    found = set()
    for path, tree in trees.items():
        imported = {name.replace(".", "/") for name in _modules(tree) if name.partition(".")[0] == root.name}
        near = [one for one in trees if one.parent == path.parent or str(one.with_suffix("")) in imported]
        near += [one for one in trees if one.name == "__init__.py" and str(one.parent) in imported]
        ours = set[str]().union(*(defined[one] for one in near))
        found |= {(str(path), name) for name in _used(tree, root.name) if name in REACHING or name not in ours}
        found |= {(str(path), name) for name in (*_inherited(tree, root.name), *_asked(tree))}
    return found


def _used(tree: ast.Module, ours: str) -> Iterator[str]:
    for node in ast.walk(tree):
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


def _asked(tree: ast.Module) -> Iterator[str]:
    """Names that `shardstream.extras.private` gets: they are others', whatever ours are called."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("private"), args=[_, ast.Constant(str(name)), *_]):
                yield name


def _inherited(tree: ast.Module, ours: str) -> Iterator[str]:
    """Private names that classes use of bases of other packages: by ``super()``, or read and never set."""
    others = {name for name, source in _names(tree) if source.partition(".")[0] != ours}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        bases = {ast.unparse(base).partition("[")[0].partition(".")[0] for base in node.bases}
        own = {*_defined(node)}
        for part in ast.walk(node) if bases & others else ():
            if isinstance(part, ast.Attribute) and _PRIVATE.match(part.attr):
                owner = ast.unparse(part.value)
                if owner == "super()" or (owner == "self" and part.attr not in own):
                    yield part.attr


def _defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name("self" | "cls"), attr=name, ctx=ast.Store()):
                yield name


def _names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((one.asname or one.name.partition(".")[0], one.name) for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((one.asname or one.name, node.module or "") for one in node.names)


def _modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{one.name}" for one in node.names)
