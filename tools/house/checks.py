"""The checks of one package: each yields its findings, one line each."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from house.package import Function, House, Module, last

MAX_MODULES = 20  # in a folder; those of the command line, a verb each, apart
MAX_FUNCTION = 60  # lines of code
MAX_PARAMETERS = 8
KNOWN_CIRCLES = {
    # The door, by design: other libraries' formats are loaded by name, where there is no dataset of ours.
    ("shardstream.extras", "shardstream.formats"),
    # A codec that decompresses Parquet's pages imports their reader, which imports the codecs.
    ("shardstream.formats.blocks.codecs", "shardstream.formats.blocks.parquet.block"),
}
"""Imports that close a circle, from one module to another. It only shrinks: one that closes none is a finding."""
_LOOPS = ("numba", "shardstream.compiled")  # who imports from these has loops for numba


def crowded_folders(house: House) -> Iterator[str]:
    """A folder is a list that somebody has to read. One finding for each module that is too many."""
    rooms: dict[Path, list[Path]] = defaultdict(list)
    for module in house.modules:
        if module.path.name != "__init__.py" and module.path.parent != Path("shardstream/cli"):
            rooms[module.path.parent].append(module.path)
    for paths in rooms.values():
        for number, path in enumerate(paths[MAX_MODULES:], MAX_MODULES + 1):
            yield f"{path}: module {number} of {len(paths)} in one folder, at most {MAX_MODULES}; make a room of some"


def long_functions(house: House) -> Iterator[str]:
    """Lines of code: without signature, docstring, comments and blank lines; with the functions inside."""
    for module, name, node in house.functions():
        body = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
        lines = len(module.code.intersection(body))
        if lines > MAX_FUNCTION:
            yield f"{module.path}:{node.lineno}: {name} has {lines} lines of code, more than {MAX_FUNCTION}"


def repeated_classes(house: House) -> Iterator[str]:
    """A name stands for one class, but for private names, and for those that are public in a room each."""
    named: dict[str, list[tuple[Module, ast.ClassDef]]] = defaultdict(list)
    for module, node in house.classes():
        named[node.name].append((module, node))
    for name, found in sorted(named.items()):
        apart = name.startswith("_") or all((module.name, name) in house.public for module, _ in found)
        if len(found) > 1 and not apart:
            places = ", ".join(f"{module.path}:{node.lineno}" for module, node in found)
            yield f"{places}: {len(found)} classes are called {name}"


def wide_signatures(house: House) -> Iterator[str]:
    """What goes together wants to be one object; users' verbs, loops for numba and the arithmetic of orders apart."""
    commands = {name for module in house.modules for name in _commands(module)}
    for module, name, node in house.functions():
        plain = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        count = sum(one is not None and one.arg not in ("self", "cls") for one in plain)
        apart = (
            (module.name, name.removesuffix(".__init__")) in house.public
            or (module.name.startswith(("shardstream.cli.", "shardstream.formats.commands.")) and name in commands)
            or (node.decorator_list and any(source in _LOOPS for source, *_ in module.imports))
            or module.name.startswith("shardstream.order.")
        )
        if count > MAX_PARAMETERS and not apart:
            yield f"{module.path}:{node.lineno}: {name} has {count} parameters, more than {MAX_PARAMETERS}"


def circles(house: House) -> Iterator[str]:
    """Imports go one way: those in functions, for types and by string too. One finding for each module in a circle."""
    edges = {module.name: house.imported(module) for module in house.modules}
    for source, target in sorted(KNOWN_CIRCLES):
        if target not in edges.get(source, ()) or source not in _reached(target, edges):
            yield f"tools/house/checks.py: {source} > {target} closes no circle; remove it from KNOWN_CIRCLES"
    edges = {name: targets - {b for a, b in KNOWN_CIRCLES if a == name} for name, targets in edges.items()}
    for module in house.modules:
        paths, seen = [[module.name]], set[str]()
        while paths:  # the shortest first
            path = paths.pop(0)
            if module.name in edges[path[-1]]:
                yield f"{module.path}: imports itself: {' > '.join([*path, module.name])}"
                break
            paths += [[*path, name] for name in sorted(edges[path[-1]] - seen)]
            seen |= edges[path[-1]]


def _reached(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    """The modules that one imports, by way of others too, and itself."""
    reached, left = {start}, [start]
    while left:
        more = edges[left.pop()] - reached
        reached |= more
        left += more
    return reached


def stores_told_apart(house: House) -> Iterator[str]:
    """What a store can do it says itself: nobody outside of storage asks for its class."""
    stores = {"Store"}
    bases = [(node.name, set(map(last, node.bases))) for _, node in house.classes()]
    while more := {name for name, parents in bases if parents & stores} - stores:
        stores |= more
    for module in house.modules:
        for node in module.nodes:
            if isinstance(node, ast.Call) and last(node.func) in ("isinstance", "issubclass"):
                asked = [part for argument in node.args[1:] for part in ast.walk(argument)]
            elif isinstance(node, ast.MatchClass):
                asked = [node.cls]
            else:
                continue
            for name in sorted(stores & set(map(last, asked))):
                if not module.name.startswith("shardstream.storage"):
                    yield f"{module.path}:{node.lineno}: asks for a store's class, {name}"


def _commands(module: Module) -> Iterator[str]:
    """Verbs of the command line: given to ``app.command(...)``, or decorated with it."""
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Call) and last(node.func.func) == "command":
            yield last(node.args[0])
        elif isinstance(node, Function):
            decorators = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
            yield from (node.name for one in decorators if last(one) == "command")


Check: TypeAlias = Callable[[House], Iterator[str]]
CHECKS: dict[str, Check] = {
    "crowded folders": crowded_folders,
    "long functions": long_functions,
    "repeated classes": repeated_classes,
    "wide signatures": wide_signatures,
    "circles": circles,
    "stores told apart": stores_told_apart,
}
