"""ArrayRecord: a record is a sample. Runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from shardstream.formats.packages.columns import MESSAGE, of_values

_STREAM = 64 << 20  # bytes of records that are read by one process, about
_SEEN = 16  # first records of which the beginning is told
_START = 12
_ROWS = 64  # records that are read at once, to begin with


def answer(request: Any, ask: Callable[[Any], Any]) -> Iterator[Any]:
    """``describe``: parts that can be read alone, and how records begin; ``read``: such a part."""
    from array_record.python.array_record_module import ArrayRecordReader

    with closing(ArrayRecordReader(request["path"])) as reader:
        count = reader.num_records()
        if request["do"] == "describe":
            first = reader.read(0, min(count, _SEEN)) if count else []
            rows = max(1, count * _STREAM // max(request["size"], _STREAM))
            yield {
                "fields": [["record", None]],
                "samples": count,
                "parts": [[begin, min(begin + rows, count)] for begin in range(0, count, rows)],
                "starts": [bytes(one[:_START]) for one in first],
            }
            return
        begin, end = request["part"]
        rows = _ROWS
        while begin < end:
            found = reader.read(begin, min(begin + rows, end))
            yield [len(found), {"record": of_values(found)}]
            begin += len(found)
            rows = max(1, min(1 << 14, MESSAGE * len(found) // max(sum(map(len, found)), 1)))
