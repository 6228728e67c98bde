"""The framings by name."""

from __future__ import annotations

from typing import Literal, TypeAlias

from shardstream.errors import UsageError
from shardstream.shards.framing import Framing
from shardstream.shards.record import RecordFraming, RecordShard
from shardstream.shards.tar import TarFraming, TarShard
from shardstream.shards.writing import OneShard

Format: TypeAlias = Literal["tar", "record"]

_FRAMINGS: dict[str, Framing] = {framing.name: framing for framing in (TarFraming(), RecordFraming())}
_WRITERS: dict[str, type[OneShard]] = {"tar": TarShard, "record": RecordShard}


def framing_of(name: str) -> Framing:
    """The framing of this name; UsageError where there is none."""
    try:
        return _FRAMINGS[name]
    except KeyError:
        raise UsageError(f"unknown format {name!r}", hint=f"formats are {', '.join(_FRAMINGS)}") from None


def writer_of(name: str) -> type[OneShard]:
    """The class that writes shards of this format; UsageError where there is none."""
    return _WRITERS[framing_of(name).name]
