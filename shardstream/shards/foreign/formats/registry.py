"""The foreign formats by name, in the order in which they are asked."""

from __future__ import annotations

from shardstream.errors import UsageError
from shardstream.shards.foreign.contract import ForeignFormat
from shardstream.shards.foreign.formats.recordio import RecordIO
from shardstream.shards.foreign.formats.tfrecord import TFRecord

# One a line: those that are told by a file of theirs (index.json) before those that are told by names.
_ALL: tuple[ForeignFormat, ...] = (
    RecordIO(),
    TFRecord(),
)

FORMATS: dict[str, ForeignFormat] = {one.name: one for one in _ALL}


def format_named(name: str) -> ForeignFormat:
    """The format of this name; UsageError where there is none."""
    try:
        return FORMATS[name]
    except KeyError:
        raise UsageError(f"unknown source format {name!r}", hint=f"formats are {', '.join(FORMATS)}") from None
