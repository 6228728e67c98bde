"""``digest_of``: what tells functions and values apart, in other processes too: their code, and all that it refers to.

A function is its bytecode, constants, defaults, closure, and the globals that it names. Functions and classes of
installed packages are known by name. Values are taken apart as pickle does it, sets in an order of their own.
"""

from __future__ import annotations

import copyreg
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import xxhash

from shardstream.errors import UsageError

_PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, range, types.EllipsisType)


def digest_of(value: Any, *, what: str) -> str:
    """32 hexadecimal digits of a value.

    Args:
        value: The value: a function, in general.
        what: What it is to the user, for messages.

    Raises:
        UsageError: It refers to something that cannot be told from others, such as an open file.
    """
    try:
        return _Digest().of(value)
    except Exception as error:  # whatever an object of somebody else's raises
        raise UsageError(
            f"out= has to know {what} again, and it refers to what cannot be compared: {error}",
            hint="leave out= away and save the rows: rows.save(path); or let it refer to plain values only",
        ) from error


class _Digest:
    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no number in `_seen` is given to another object

    def of(self, value: Any) -> str:
        if isinstance(value, _PLAIN):
            return xxhash.xxh3_128_hexdigest(f"{type(value).__name__} {value!r}".encode("utf-8", "surrogatepass"))
        if id(value) in self._seen:  # also what is in a cycle
            return f"#{self._seen[id(value)]}"
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        hasher = xxhash.xxh3_128(f"{type(value).__module__}.{type(value).__qualname__}".encode())
        for part in self._parts(value):
            hasher.update(part if isinstance(part, bytes) else self.of(part).encode())
        return hasher.hexdigest()

    def _parts(self, value: Any) -> Iterator[Any]:
        """What it consists of: bytes as they are, all else by its own digest."""
        if isinstance(value, types.FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, types.CodeType):
            yield value.co_code
            yield from (value.co_consts, value.co_names, value.co_varnames, value.co_freevars, value.co_flags)
        elif isinstance(value, types.MethodType):
            yield from (value.__func__, value.__self__)
        elif isinstance(value, functools.partial):
            yield from (value.func, value.args, value.keywords)
        elif isinstance(value, types.ModuleType):
            yield value.__name__
        elif isinstance(value, types.BuiltinFunctionType) and (
            value.__self__ is None or isinstance(value.__self__, types.ModuleType)
        ):
            yield _name(value)
        elif isinstance(value, type):
            yield _name(value)
            if _is_users(value.__module__):
                yield {name: one for name, one in vars(value).items() if isinstance(one, types.FunctionType)}
        elif type(value) in (list, tuple):
            yield from value
        elif type(value) is dict:
            yield from (one for entry in value.items() for one in entry)
        elif type(value) in (set, frozenset):
            yield sorted(_Digest().of(one) for one in value)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            yield from (value.dtype.str, value.shape, value.tobytes())
        else:
            yield from self._of_object(value)

    def _of_function(self, function: types.FunctionType) -> Iterator[Any]:
        if not _is_users(function.__module__):
            yield _name(function)
            return
        yield from (function.__code__, function.__defaults__, function.__kwdefaults__)
        yield [cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell)]
        for name in sorted(_names(function.__code__) & function.__globals__.keys()):
            yield from (name, function.__globals__[name])

    def _of_object(self, value: Any) -> Iterator[Any]:
        yield type(value)
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
        if isinstance(reduced, str):  # the name of a global
            yield reduced
            return
        function, arguments, state, items, entries = (*reduced, None, None, None, None)[:5]
        yield from (_name(function), arguments, state)
        yield [list(one) if one is not None else None for one in (items, entries)]


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _is_users(module: str | None) -> bool:
    """Whether a module is a user's own, whose code may change from run to run."""
    root = (module or "").partition(".")[0]
    if root == "shardstream" or (root in sys.stdlib_module_names and root != "__main__"):
        return False
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" not in file and "dist-packages" not in file


def _names(code: types.CodeType) -> set[str]:
    """All names that code uses, that of functions inside it too."""
    inner = (_names(one) for one in code.co_consts if isinstance(one, types.CodeType))
    return set(code.co_names).union(*inner)


def _is_empty(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False
