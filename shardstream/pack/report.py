"""What a run did: for the caller, and as ``report.json`` in the destination.

The file says nothing of time or place, so that it is the same after any number of interruptions.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from shardstream.errors import StorageError
from shardstream.pack.destination import REJECTS_NAME
from shardstream.pack.receipts import ShardResult
from shardstream.pack.sources import Reject
from shardstream.pack.tally import Tally
from shardstream.shards.manifest import Manifest
from shardstream.storage import Store
from shardstream.text import json_text, printable

_REASONS = 50  # most frequent ones that the report lists
_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
_MAX_EXAMPLE = 200


@dataclass(frozen=True, slots=True)
class PackReport:
    """What a run did.

    Attributes:
        manifest: The data set.
        complete: Whether the same plan was complete already, so that nothing was written.
        rejects: Number of samples that could not be packed.
        rejects_url: The list of them; ``None`` if there are none.
        first_reject: One of them, as an example.
        notes: What the user should know about how the source was understood.
        seconds: Time from the call to the end.
        reasons: Rejects by reason, with what is particular to a sample left out; most frequent first.
        sizes: How many samples have a size whose binary logarithm rounds down to the key.
        tally: Sums over all shards, those of earlier runs included.
        kept: Shards that an earlier run had written.
        duplicates: Exact copies that were left out.
    """

    manifest: Manifest
    complete: bool
    rejects: int
    rejects_url: str | None
    first_reject: Reject | None
    notes: tuple[str, ...]
    seconds: float
    reasons: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[int, int] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    kept: int = 0
    duplicates: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))  # they name columns, folders and classes


def kinds_of(results: Iterable[ShardResult]) -> dict[str, dict[str, int]]:
    """What became of JPEG files, all shards together: by field, most frequent first."""
    found: dict[str, Counter[str]] = {}
    for result in results:
        for name, counts in result.kinds.items():
            found.setdefault(name, Counter()).update(counts)
    return {name: _most_frequent(counts) for name, counts in sorted(found.items())}


def sizes_of(results: Iterable[ShardResult]) -> dict[int, int]:
    """The histogram of sizes of all shards together."""
    found: Counter[int] = Counter()
    for result in results:
        found.update(result.sizes)
    return dict(sorted(found.items()))


def reasons_of(rejects: Iterable[Reject]) -> dict[str, int]:
    """Rejects by reason; numbers and what stands in quotes are left out, so that equal faults count as one."""
    return _most_frequent(
        Counter(printable(_PARTICULAR.sub("…", one.reason))[:_MAX_EXAMPLE] for one in rejects), _REASONS
    )


def _most_frequent(counts: Mapping[str, int], most: int | None = None) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:most])


def report_bytes(
    manifest: Manifest, results: Sequence[ShardResult], rejects: Sequence[Reject] = (), *, copies: int = 0
) -> bytes:
    """The content of ``report.json``; ``rejects`` and ``copies`` are those that were found while planning."""
    tally = sum_of(results)
    entry: dict[str, Any] = {
        "plan": manifest.plan,
        "version": manifest.version,
        "samples": tally.samples,
        "shards": len(results),
        "bytes": sum(one.summary.bytes for one in results),
        "read_bytes": tally.bytes,
        "rejects": tally.rejects + len(rejects),
        "reject_reasons": reasons_of([*rejects, *(reject for result in results for reject in result.rejects)]),
        "duplicates": copies,
        "dropped": tally.dropped,
        "kinds": kinds_of(results),
        "sample_sizes": [
            {"from": 1 << size, "below": 2 << size, "samples": count} for size, count in sizes_of(results).items()
        ],
    }
    return json_text(entry, indent=2).encode() + b"\n"


def sum_of(results: Iterable[ShardResult]) -> Tally:
    """All that was done, in this run and in those before it."""
    total = Tally()
    for result in results:
        total = total.plus(result.tally)
    return total


def rejects_bytes(rejects: Iterable[Reject]) -> bytes:
    """The content of ``rejects.jsonl``."""
    lines = [json_text({"path": one.path, "line": one.line, "reason": one.reason}) for one in rejects]
    return "".join(f"{line}\n" for line in lines).encode()


def read_rejects(store: Store) -> list[Reject]:
    """The rejects of a complete data set.

    Raises:
        StorageError: The list is damaged.
    """
    if not store.exists(REJECTS_NAME):
        return []
    try:
        entries = [json.loads(line) for line in bytes(store.get(REJECTS_NAME)).splitlines()]
        return [Reject(entry["line"], entry["path"], entry["reason"]) for entry in entries]
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            "the list of rejects is damaged", url=store.locate(REJECTS_NAME), hint="pack again with --overwrite"
        ) from error
