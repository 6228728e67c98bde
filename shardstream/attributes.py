"""Attributes that a package does not have."""

from __future__ import annotations

from collections.abc import Iterable

from shardstream.errors import did_you_mean


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """The error for a name that a module does not have, with the nearest of its public ``names``."""
    near = did_you_mean(name, names)
    text = f"module {module!r} has no attribute {name!r}" + (f"; {near.rstrip()}" if near else "")
    return AttributeError(text, name=name, obj=None)  # the traceback would propose a name once more, of all there are
