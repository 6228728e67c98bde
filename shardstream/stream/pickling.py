"""``Pickled``: how data sets and mixtures are pickled and copied."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from multiprocessing.context import get_spawning_popen
from typing import Any, Self

from shardstream.errors import UsageError
from shardstream.stream.iteration.assignment import Assignment
from shardstream.stream.iteration.content import Content
from shardstream.stream.iteration.epoch_state import SharedEpochState
from shardstream.stream.iteration.settings import StreamOptions, as_plain, check_picklable, of_plain

_PICKLE_VERSION = 1  # of what a pickle holds that is not for a worker
_ATTRIBUTES = frozenset(
    ("_settings", "_shared", "_versioned", "_found_rank", "_assignment", "_checked", "_epochs", "_cursor", "_held")
)  # all others are of a subclass


class Pickled:
    """A `Stream` as others get it: a worker with the memory that they share, anyone else by names and arguments."""

    _settings: StreamOptions
    _shared: SharedEpochState
    _assignment: Assignment | None

    @property
    def _content(self) -> Content:
        raise NotImplementedError

    def _start(self, content: Content, settings: StreamOptions, shared: SharedEpochState | None = None) -> None:
        raise NotImplementedError

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Refuse what a pickle of another layout asks for: an object without arguments, to be filled with parts."""
        if not arguments and not named and cls.__init__.__module__.startswith("shardstream."):
            raise UsageError(
                f"{cls.__name__} needs data to read; a pickle that gives it none was written by an earlier version of "
                "shardstream, and cannot be read by this one",
                hint=f"make the data set anew, with the arguments of ss.{cls.__name__}, and pickle that",
            )
        return super().__new__(cls)

    def __reduce__(self) -> tuple[Any, ...]:
        """For a worker that is being started, what it shares with this process; else names, arguments, versions."""
        check_picklable(self._settings)
        for part in self._content.parts:
            check_picklable(part.options)
        if get_spawning_popen() is not None:
            return object.__new__, (type(self),), self.__getstate__()
        return self._unpickled, (_PICKLE_VERSION, self._plain())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """As of a pickle; but functions need not be importable."""
        return self._unpickled(_PICKLE_VERSION, deepcopy(self._plain(), memo))

    def _plain(self) -> dict[str, Any]:
        return {
            "content": self._content.as_plain(),
            "settings": as_plain(self._settings),
            "epoch": self._shared.as_plain(),
            "assignment": None if self._assignment is None else self._assignment.as_plain(),
            "own": {name: value for name, value in self.__dict__.items() if name not in _ATTRIBUTES},
        }

    @classmethod
    def _unpickled(cls, version: int, plain: Mapping[str, Any]) -> Self:
        if version != _PICKLE_VERSION:
            raise UsageError(
                f"the pickle of a {cls.__name__} is of version {version}, known here is {_PICKLE_VERSION}",
                hint="read it with the version of shardstream that wrote it, or make the data set anew",
            )
        made: Self = object.__new__(cls)
        shared = SharedEpochState.of_plain(*plain["epoch"])
        made._start(Content.of_plain(plain["content"]), of_plain(StreamOptions, plain["settings"]), shared)
        if plain["assignment"] is not None:
            samples, content = made._content.listed(made._settings), made._content
            made._assignment = Assignment.of_plain(plain["assignment"], samples=samples, content=content)
        made.__dict__.update(plain["own"])
        return made
