"""Plug-ins: classes of other distributions, which their entry points name."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from shardstream.errors import MissingExtraError, ShardStreamError
from shardstream.text import in_one_line

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plugin:
    """A class of another distribution, not imported yet.

    Attributes:
        name: The name of the entry point.
        path: Its place: ``"package.module:NAME"``.
        distribution: The distribution that brings it; "" if a program registered it.
        version: Version of the distribution.
    """

    name: str
    path: str
    distribution: str = ""
    version: str = ""

    def __str__(self) -> str:
        package = f" of {self.distribution} {self.version}".rstrip() if self.distribution else ""
        return f"{self.name!r}{package} ({self.path})"

    def load(self) -> Any:
        """The class; raises whatever importing its module raises."""
        module, _, name = self.path.partition(":")
        found = import_module(module)
        for part in name.split(".") if name else ():
            found = getattr(found, part)
        return found

    def missing(self, error: Exception) -> MissingExtraError:
        """The error for a class that cannot be imported here, with what was raised instead."""
        module = self.path.partition(".")[0].partition(":")[0]
        brings = f"pip install {self.distribution}" if self.distribution else f"put the module {module!r} on sys.path"
        return MissingExtraError(
            f"the plug-in {self} cannot be imported here: {described(error)}",
            hint=f"{brings}; worker processes on other machines need it too",
        )


@cache
def plugins(kind: Literal["formats", "sources"]) -> tuple[Plugin, ...]:
    """All plug-ins of a kind, sorted by name and distribution; entry points are read once per process.

    Args:
        kind: ``"formats"`` for subclasses of `SourceFormat`, ``"sources"`` for `recognizers`.
    """
    try:
        found = list(entry_points(group=f"shardstream.{kind}"))
    except Exception as error:
        # One damaged distribution hides all others, and has nothing to do with the data at hand.
        _logger.warning("plug-ins are not looked for, because entry points cannot be read: %s", described(error))
        return ()
    return tuple(sorted(map(_plugin, found), key=lambda one: (one.name, one.distribution, one.path)))


def _plugin(entry: EntryPoint) -> Plugin:
    distribution = entry.dist
    try:
        name, version = ("", "") if distribution is None else (distribution.name, distribution.version)
    except Exception:  # of metadata that are gone, or damaged
        name, version = "", ""
    return Plugin(entry.name, entry.value, name or "", version or "")


def refuse(plugin: Plugin, why: str | Exception) -> None:
    """Warn that a plug-in is left out."""
    reason = why if isinstance(why, str) else f"it cannot be imported: {described(why)}"
    _logger.warning("the plug-in %s is left out: %s", in_one_line(str(plugin)), in_one_line(reason))


@lru_cache
def warn_failed(plugin: Plugin, told: str) -> None:
    """Warn once that a plug-in raised ``told`` when it was asked whether it knows a source."""
    _logger.warning(
        "the plug-in %s failed to recognize a source, and the next is asked: %s",
        in_one_line(str(plugin)),
        in_one_line(told),
    )


@dataclass(frozen=True, slots=True)
class PluginRecognizer:
    """A recognizer that a plug-in brings, whose failures don't stop the others from being asked."""

    plugin: Plugin
    inner: Any

    def recognize(self, place: Any, wanted: Any) -> Any:
        """The source; ``None`` if it is of another kind, or the plug-in fails, which is one warning."""
        try:
            return self.inner.recognize(place, wanted)
        except ShardStreamError:
            raise
        except Exception as error:  # whatever code of somebody else raises
            warn_failed(self.plugin, described(error))
            return None


@cache
def recognizers() -> tuple[PluginRecognizer, ...]:
    """The recognizers that plug-ins bring: an instance of each class of the kind ``"sources"``, sorted by name.

    A plug-in that cannot be imported, or has no method ``recognize``, is one warning and left out.
    """
    made = []
    for plugin in plugins("sources"):
        try:
            one = plugin.load()()
        except Exception as error:  # whatever code of somebody else raises
            refuse(plugin, error)
            continue
        if callable(getattr(one, "recognize", None)):
            made.append(PluginRecognizer(plugin, one))
        else:
            refuse(plugin, "it has no method recognize(place, wanted)")
    return tuple(made)


def described(error: Exception) -> str:
    """The class and the text of an exception."""
    return f"{type(error).__name__}: {error}"
