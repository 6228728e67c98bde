"""Attributes of packages: imported at first use, or missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from shardstream.errors import did_you_mean


def imported_attribute(module: str, name: str, places: Mapping[str, str], names: Iterable[str]) -> Any:
    """Import an attribute of a package at its first use.

    Args:
        module: The package.
        name: The attribute.
        places: The modules that have such attributes, by the names of these.
        names: Public names of the package, for `no_attribute`.

    Raises:
        AttributeError: There is no such attribute.
    """
    if name in places:
        return getattr(import_module(places[name]), name)
    raise no_attribute(module, name, names)


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """The error for a name that a module does not have, with the nearest of its public ``names``."""
    near = did_you_mean(name, names)
    text = f"module {module!r} has no attribute {name!r}" + (f"; {near.rstrip()}" if near else "")
    return AttributeError(text, name=name, obj=None)  # the traceback would propose a name once more, of all there are
