"""The package as it is written: modules, what they import and define, which lines are code, what users reach."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = tuple[str, str]  # module and name
_IMPORTERS = ("import_module", "__import__")
_FIELD = "\0"  # in a string that names a module: a replacement field
_MODULE = re.compile(r"shardstream\.\w+(\.\w+)*(\.\0)?$")
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    path: Path  # from the root on
    text: str

    @cached_property
    def name(self) -> str:
        """Dotted; an ``__init__`` is the package itself."""
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Everything that is written in it, the module first."""
        return list(ast.walk(ast.parse(self.text)))

    @cached_property
    def code(self) -> set[int]:
        """Lines that hold more than a comment or a string that stands for itself."""
        lines = set[int]()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in _LAYOUT:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in self.nodes:
            match node:
                case ast.Expr(value=ast.Constant(value=str())):
                    lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
        return lines

    @cached_property
    def imports(self) -> list[tuple[str, str, str]]:
        """Of each import, wherever it stands: the module, what is taken from it, and what that is called here."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [(alias.name, "", alias.asname or alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found += [(node.module or "", alias.name, alias.asname or alias.name) for alias in node.names]
        return found

    @cached_property
    def strings(self) -> list[re.Pattern[str]]:
        """Patterns of the modules that strings name: for `import_module`, ``python -m`` or a map of lazy names.

        ``MODULE:NAME`` names the module. A replacement field of an f-string matches any one name. The name of the whole
        package, a relative name, and an f-string below the whole package count only if `import_module` gets them. Names
        of loggers don't count.
        """
        imported, passed = set[ast.AST](), set[ast.AST]()
        for node in self.nodes:
            if isinstance(node, ast.Call):
                if last(node.func) in _IMPORTERS:
                    imported.update(node.args[:1])
                elif last(node.func) == "getLogger":
                    passed.update(node.args)
            elif isinstance(node, ast.JoinedStr):
                passed.update(node.values)
        found = []
        for node in self.nodes:
            text = "" if node in passed else _text(node).partition(":")[0]
            if node in imported and text.startswith("."):
                package = self.name if self.path.stem == "__init__" else self.name.rpartition(".")[0]
                text = package + text
            if text and (node in imported or _MODULE.match(text)):
                found.append(re.compile(re.escape(text).replace(_FIELD, r"\w+")))
        return found


class House:
    """The package below a root."""

    def __init__(self, root: Path) -> None:
        files = sorted((root / "shardstream").rglob("*.py"))
        self.modules = [Module(path.relative_to(root), path.read_text()) for path in files]
        self._named = {module.name: module for module in self.modules}

    def functions(self) -> Iterator[tuple[Module, str, Function]]:
        """Every function with its qualified name, those of classes and inside of others too."""
        for module in self.modules:
            yield from ((module, name, node) for name, node in _functions(module.nodes[0]))

    def classes(self) -> Iterator[tuple[Module, ast.ClassDef]]:
        """Every class."""
        for module in self.modules:
            yield from ((module, node) for node in module.nodes if isinstance(node, ast.ClassDef))

    def imported(self, module: Module) -> set[str]:
        """Modules of the package that one imports or names in a string, and packages on the way that it is not in."""
        found = set[str]()
        for source, name, _ in module.imports:
            inner = f"{source}.{name}"
            target = inner if inner in self._named and not self._source(source, name) else source
            found |= {target, *(outer for outer in _outer(target) if outer not in (module.name, *_outer(module.name)))}
        for pattern in module.strings:
            found |= {name for name in self._named if pattern.fullmatch(name)}
        return found & set(self._named)

    @cached_property
    def public(self) -> set[Definition]:
        """Where it is defined what users reach as ``ss.NAME`` or, in a room that ``ss`` has, as ``ss.ROOM.NAME``."""
        found = {self._defined("shardstream", name) for name in self._exports("shardstream")}
        rooms = {".".join(definition) for definition in found} & set(self._named)
        return found | {self._defined(room, name) for room in rooms for name in self._exports(room)}

    def public_words(self) -> int:
        """Words in docstrings of what is public, and of the public methods that it has or inherits."""
        left, seen, words = [*self.public], set[Definition](), 0
        while left:
            module, name = one = left.pop()
            if one in seen or module not in self._named:
                continue
            seen.add(one)
            described: list[Function | ast.ClassDef] = []
            for node in ast.iter_child_nodes(self._named[module].nodes[0]):
                if isinstance(node, Function) and node.name == name:
                    described.append(node)
                elif isinstance(node, ast.ClassDef) and node.name == name:
                    members = [part for part in node.body if isinstance(part, Function)]
                    described += [node, *(part for part in members if not part.name.startswith("_"))]
                    left += [self._defined(module, last(base)) for base in node.bases]
            words += sum(len((ast.get_docstring(node) or "").split()) for node in described)
        return words

    def _exports(self, module: str) -> list[str]:
        for node in self._named[module].nodes if module in self._named else ():
            if isinstance(node, ast.Assign) and [last(target) for target in node.targets] == ["__all__"]:
                return [str(name) for name in ast.literal_eval(node.value)]
        return []

    def _defined(self, module: str, name: str) -> Definition:
        """Where a name of a module comes from, through those that only pass it on."""
        while (source := self._source(module, name)) is not None:
            module, name = source
        return module, name

    def _source(self, module: str, name: str) -> Definition | None:
        """What a module imports a name from; ``None`` where it is its own, or a module of it."""
        for source, original, here in self._named[module].imports if module in self._named else ():
            if here == name and original and source in self._named and source != module:
                return source, original
        return None


def last(node: ast.AST) -> str:
    """``c`` of ``a.b.c`` and of ``c``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.AST) -> str:
    """A string as it is written, with `_FIELD` for each replacement field; empty for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) or _FIELD for value in values)
    return ""


def _functions(node: ast.AST, outer: str = "") -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        inner = outer
        if isinstance(child, Function | ast.ClassDef):
            inner = f"{outer}{child.name}."
        if isinstance(child, Function):
            yield f"{outer}{child.name}", child
        yield from _functions(child, inner)


def _outer(name: str) -> list[str]:
    """The packages that a module stands in."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
