"""Every public name says what it is; a method that fulfils a contract may leave that to the contract."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import FunctionType, ModuleType

import shardstream


def modules() -> Iterator[ModuleType]:
    yield shardstream
    for found in pkgutil.walk_packages(shardstream.__path__, "shardstream."):
        yield importlib.import_module(found.name)


def methods(kind: type) -> Iterator[tuple[str, FunctionType]]:
    for name, value in vars(kind).items():
        function = getattr(value, "__func__", getattr(value, "fget", value))
        if isinstance(function, FunctionType) and not name.startswith("_"):
            yield name, function


def test_every_module_has_a_docstring() -> None:
    silent = [module.__name__ for module in modules() if not module.__doc__]
    assert not silent


def test_public_methods_are_documented_here_or_by_their_contract() -> None:
    silent = []
    for module in modules():
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ != module.__name__ or name.startswith("_"):
                continue
            for method, function in methods(kind):
                if not function.__doc__ and not any(hasattr(base, method) for base in kind.__mro__[1:]):
                    silent.append(f"{module.__name__}.{name}.{method}")
    assert not silent
