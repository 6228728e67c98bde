"""``NoRangesError``: a server that sends whole objects only, as Python's own web server does."""

from __future__ import annotations

from shardstream.errors import StorageError

RANGE_SERVER = "pip install rangehttpserver && python -m RangeHTTPServer 8000"
"""A server of the current directory that has ranges, in one line."""


class NoRangesError(StorageError):
    """The server ignores ``Range``: what it has is read through a cache, or not at all."""


def no_ranges() -> NoRangesError:
    """The error for an answer that is the whole object, where a part of it was asked for."""
    return NoRangesError(
        "the server does not send parts of a file (it ignores Range requests)",
        hint=f"serve the files with ranges: `{RANGE_SERVER}`, or nginx. Datasets are also read with cache=DIR, "
        "if it has room: then each file is fetched whole, once",
    )
