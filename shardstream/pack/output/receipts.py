"""Receipts: what a finished task leaves beside its shard, so that nothing is done twice.

A receipt is written once its shard is whole and visible. A run that was killed, on this machine or another, finds the
receipts of all shards that are finished, compares the shards with them, and makes only the others. Together they hold
what the manifest and the report are made of, so that tasks may run anywhere and need not bring anything back. The last
step of a run, after ``dataset.json``, removes them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shardstream.errors import DataError, NotFoundError, StorageError
from shardstream.pack.bins.counts import BinCounts
from shardstream.pack.output.rejects import pieces_of
from shardstream.pack.output.stats import PackStats
from shardstream.pack.sources import Reject
from shardstream.shards.fields import FieldType
from shardstream.shards.framings import framing_of
from shardstream.shards.layout import checksum
from shardstream.shards.writing import ShardSummary
from shardstream.storage import Store

FOLDER = ".pack"
"""Where receipts lie in the destination, below the names of their plans."""

_REJECTS = '"rejects":['  # nothing else in a receipt reads so: quotes inside of texts are escaped
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class ShardResult:
    """A shard that was written. The samples that it lacks, which may be many, stay in its receipt: `rejects_of`.

    Attributes:
        number: Which.
        summary: What the manifest keeps of it.
        kinds: By JPEG field, how many files were made addressable, and of each kind that was kept.
        tally: What was done.
        sizes: How many samples have a size whose binary logarithm rounds down to the key; the size is that of all
            fields as they are stored.
        kept: Whether an earlier run had written it.
        bins: What became of documents, where they were packed into bins; of bins that are stored as they are, what is
            in them.
    """

    number: int
    summary: ShardSummary
    kinds: dict[str, dict[str, int]]
    tally: PackStats
    sizes: dict[int, int]
    kept: bool = False
    bins: BinCounts | None = None


def receipt_name(shard: str) -> str:
    """Object name of the receipt of a shard."""
    return f"{FOLDER}/{shard}.json"


def reject_entry(reject: Reject) -> bytes:
    """A reject, as it stands in a receipt."""
    return _encode(list(reject)).encode()


def to_bytes(result: ShardResult, rejects: bytes | bytearray = b"") -> bytes:
    """A receipt.

    Args:
        result: What was done.
        rejects: The samples that the shard lacks, each a `reject_entry`, with commas between them.
    """
    summary = result.summary
    entry = {
        "number": result.number,
        "samples": summary.samples,
        "bytes": summary.bytes,
        "checksum": f"{summary.checksum:016x}",
        "index_bytes": summary.index_bytes,
        "fields": {name: str(kind) for name, kind in summary.fields.items()},
        "kinds": result.kinds,
        "tally": result.tally._asdict(),
        "sizes": list(result.sizes.items()),
        "bins": result.bins and result.bins._asdict() | {"cut": list(result.bins.cut.items())},
    }
    return b"%s,%s%s]}" % (_encode(entry)[:-1].encode(), _REJECTS.encode(), rejects)


def from_bytes(data: bytes) -> ShardResult:
    """The result that a receipt tells of.

    Raises:
        ValueError, KeyError, TypeError, IndexError: It is damaged.
    """
    text = data.decode()
    begin = text.index(_REJECTS) + len(_REJECTS)
    end = begin
    for _, stop in _rejects(text, begin):
        end = stop
    entry: dict[str, Any] = json.loads(text[:begin] + text[end:])
    summary = ShardSummary(
        entry["samples"],
        entry["bytes"],
        int(entry["checksum"], 16),
        entry["index_bytes"],
        {name: FieldType.parse(kind) for name, kind in entry["fields"].items()},
    )
    bins = entry.get("bins")
    return ShardResult(
        entry["number"],
        summary,
        entry["kinds"],
        PackStats(**entry["tally"]),
        {int(size): count for size, count in entry["sizes"]},
        kept=True,
        bins=bins and BinCounts(**bins | {"cut": dict(bins["cut"])}),
    )


def _rejects(text: str, at: int) -> Iterator[tuple[Reject, int]]:
    """The rejects from this place on, each with the place where it ends."""
    while text[at] != "]":
        if text[at] == ",":
            at += 1
        entry, at = _decode(text, at)
        yield Reject(*entry), at


def rejects_of(store: Store, result: ShardResult, shard: str) -> Iterator[Reject]:
    """The samples that a shard lacks, from its receipt.

    Args:
        store: Where it lies.
        result: What the receipt says of it.
        shard: The name that it was written under.

    Raises:
        StorageError: The receipt is gone, or damaged.
    """
    if not result.tally.rejects:
        return
    try:
        text = b"".join(pieces_of(store, receipt_name(shard))).decode()
        for reject, _ in _rejects(text, text.index(_REJECTS) + len(_REJECTS)):
            yield reject
    except (ValueError, TypeError, IndexError) as error:
        raise StorageError(
            "the receipt of a shard is gone, or damaged",
            url=store.url,
            shard=shard,
            hint="does another run write into this folder? pack again: shards that are whole are kept",
        ) from error


def read_receipt(store: Store, shard: str) -> ShardResult | None:
    """The receipt of a shard; ``None`` if there is none, or none that can be read."""
    try:
        return from_bytes(b"".join(pieces_of(store, receipt_name(shard))))
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def finished(store: Store, shard: str, framing: str) -> ShardResult | None:
    """What an earlier run wrote, if all of it is there and right; else ``None``.

    Where an object is at hand, all its bytes are compared with the checksum. Behind a network, where objects appear
    whole or not at all and reading them back would cost as much as making them, its size and its index are.

    Raises:
        StorageError: The store cannot be read.
    """
    result = read_receipt(store, shard)
    if result is None:
        return None
    try:
        if store.mapped:
            right = checksum(store.get(shard)) == result.summary.checksum
        else:
            right = store.size(shard) == result.summary.bytes
            index = framing_of(framing).scan(store, shard, index_bytes=result.summary.index_bytes)
            right = right and index.samples == result.summary.samples
    except (NotFoundError, DataError):
        return None
    return result if right else None
