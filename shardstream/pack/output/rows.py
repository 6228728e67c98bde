"""``rows.parquet``: one row for every line of the source, and what became of it.

Tasks leave the numbers of the lines that they packed or left out beside their receipts; keys and offsets stand in the
indexes of the shards. So the file is put together shard by shard, in the memory of one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.extras import require
from shardstream.pack.output.receipts import FOLDER, ShardResult, rejects_of
from shardstream.pack.sources import Reject
from shardstream.shards.framings import framing_of
from shardstream.shards.index import ShardIndex
from shardstream.storage import ObjectWriter, Store

_PURPOSE = "to write a row for every line of the source"
_AT_ONCE = 1 << 16  # rejects of a row group
PACKED, REJECTED, DROPPED, DUPLICATE = "packed", "rejected", "dropped", "duplicate"


def lines_name(shard: str) -> str:
    """Object name of the numbers of the lines that a shard was made of."""
    return f"{FOLDER}/{shard}.lines"


def lines_bytes(packed: Sequence[int], dropped: Sequence[int]) -> bytes:
    """Numbers of lines, those of samples in stored order first."""
    return np.array([*packed, *dropped], "<i8").tobytes()


def check_rows() -> None:
    """Say early which package is missing; MissingExtraError."""
    require("pyarrow.parquet", extra="parquet", purpose=_PURPOSE)


def write_rows(
    store: Store,
    out: ObjectWriter,
    shards: Iterable[tuple[str, str, ShardResult]],
    *,
    format: str,
    rejects: Iterable[Reject],
    duplicates: bytes,
) -> None:
    """Write the file.

    Args:
        store: Where the shards lie.
        out: Takes it; the caller commits.
        shards: Of each shard the name that it was written under, the one it has, and what its receipt says.
        format: Of the shards.
        rejects: What was rejected before there were shards.
        duplicates: As ``duplicates.jsonl``.
    """
    arrow = require("pyarrow", extra="parquet", purpose=_PURPOSE)
    parquet = require("pyarrow.parquet", extra="parquet", purpose=_PURPOSE)
    text, number = arrow.string(), arrow.int64()
    status = arrow.dictionary(arrow.int8(), text)
    schema = arrow.schema(
        {"line": number, "status": status, "key": text, "shard": text, "offset": number, "path": text, "reason": text}
    )
    with io.BufferedWriter(_Raw(out)) as file, parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for columns in _tables(store, shards, format, rejects, duplicates):
            writer.write_table(arrow.table(columns, schema))


def _tables(
    store: Store,
    shards: Iterable[tuple[str, str, ShardResult]],
    format: str,
    rejects: Iterable[Reject],
    duplicates: bytes,
) -> Iterator[dict[str, Any]]:
    copies = [json.loads(line) for line in duplicates.splitlines()]
    if copies:
        reasons = [f"a copy of line {one['same_as']}" for one in copies]
        yield _columns([one["line"] for one in copies], DUPLICATE, reason=reasons)
    yield from _of_rejects(rejects)
    for written, name, result in shards:
        lines = np.frombuffer(store.get(lines_name(written)), "<i8")
        index = framing_of(format).scan(store, name, index_bytes=result.summary.index_bytes)
        packed, dropped = lines[: index.samples], lines[index.samples :]
        if len(packed):
            yield _columns(packed, PACKED, key=list(index.keys), shard=name, offset=_offsets(index))
        if len(dropped):
            yield _columns(dropped, DROPPED, shard=name)
        yield from _of_rejects(rejects_of(store, result, written), shard=name)


def _of_rejects(rejects: Iterable[Reject], *, shard: str = "") -> Iterator[dict[str, Any]]:
    left = iter(rejects)
    while some := list(islice(left, _AT_ONCE)):
        paths, reasons = [one.path for one in some], [one.reason for one in some]
        yield _columns([one.line for one in some], REJECTED, shard=shard, path=paths, reason=reasons)


def _columns(lines: Sequence[int] | NDArray[np.int64], status: str, *, shard: str = "", **given: Any) -> dict[str, Any]:
    count = len(lines)
    found: dict[str, Any] = dict.fromkeys(("key", "offset", "path", "reason"), [None] * count)
    found |= {"line": lines, "status": [status] * count, "shard": [shard or None] * count}
    return found | given


def _offsets(index: ShardIndex) -> list[int | None]:
    """Where the first value of each sample lies; ``None`` for samples that are in the index alone."""
    rows = np.arange(index.samples)
    first = np.full(index.samples, np.iinfo(np.int64).max)
    for column in index.columns.values():
        if column.type.kind != "scalar":
            valid = column.valid_rows(rows)
            offsets, _ = column.extents(rows)
            first = np.where(valid if valid is not None else True, np.minimum(first, offsets), first)
    return [None if one == np.iinfo(np.int64).max else one for one in first.tolist()]


class _Raw(io.RawIOBase):
    """An object that is being written, as a file."""

    def __init__(self, out: ObjectWriter) -> None:
        self._out = out

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._out.write(bytes(data))
        return len(data)

    def tell(self) -> int:
        return self._out.tell()
