"""What a run did: for the caller, and as ``report.json`` in the destination.

The file says nothing of time or place, so that it is the same after any number of interruptions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardstream.faults import FAULT_KINDS, FaultKind, told_kinds
from shardstream.pack.output.receipts import ShardResult
from shardstream.pack.output.rejects import RejectSummary, most_frequent
from shardstream.pack.output.stats import PackStats
from shardstream.pack.sources import Reject
from shardstream.shards.bins import Bins
from shardstream.shards.manifest import Manifest
from shardstream.sizes import plural
from shardstream.text import json_text, printable


@dataclass(frozen=True, slots=True)
class PackReport:
    """What a run did.

    Attributes:
        manifest: The data set.
        complete: Whether the same plan was complete already, so that nothing was written.
        rejects: Number of samples that could not be packed; at least so many if ``uncounted_files``.
        rejects_url: The list of them; ``None`` if there are none.
        first_reject: One of them, as an example.
        notes: What the user should know about how the source was understood.
        seconds: Time from the call to the end.
        reasons: Rejects by reason, with what is particular to a sample left out; most frequent first.
        sizes: How many samples have a size whose binary logarithm rounds down to the key.
        tally: Sums over all shards, those of earlier runs included.
        kept: Shards that an earlier run had written.
        duplicates: Exact copies that were left out.
        binned: Whether its samples were documents that went into bins.
        lost_files: Files that were lost, wholly or from some sample on.
        uncounted_files: Those of them whose number of lost samples is unknown; each counts as one reject.
        fault_kinds: Rejects by what is at fault, ``"damaged"``, ``"unsupported"``, ``"missing"`` or ``"invalid"``; most
            frequent first.
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
    tally: PackStats = field(default_factory=PackStats)
    kept: int = 0
    duplicates: int = 0
    binned: bool = False
    lost_files: int = 0
    uncounted_files: int = 0
    fault_kinds: Mapping[FaultKind, int] = field(default_factory=dict)

    @property
    def damaged(self) -> int:
        """Images that are stored although they are damaged."""
        return self.stored_faults.get("damaged", 0)

    @property
    def stored_faults(self) -> dict[FaultKind, int]:
        """Images that are stored although they would have been rejected, by what is at fault; most frequent first."""
        kinds = self.manifest.kinds.values()
        counts = {fault: sum(found.get(fault, 0) for found in kinds) for fault in FAULT_KINDS}
        return most_frequent({fault: count for fault, count in counts.items() if count})

    def told_rejects(self, unit: str) -> str:
        """How many samples could not be packed, in words: ``"at least 3 samples"``."""
        return f"{'at least ' if self.uncounted_files else ''}{plural(self.rejects, unit)}"

    @property
    def told_kinds(self) -> str:
        """How many rejects are of each kind, in words: ``"2 damaged, 1 missing"``."""
        return told_kinds(self.fault_kinds)

    @property
    def told_files(self) -> str:
        """How many files were lost, in words."""
        files, uncounted = plural(self.lost_files, "file"), self.uncounted_files
        unknown = f", {uncounted:,} of them with an unknown number of samples" if uncounted else ""
        return f"{files} lost, wholly or in part{unknown}"

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))  # they name columns, folders and classes


def kinds_of(results: Iterable[ShardResult]) -> dict[str, dict[str, int]]:
    """What became of JPEG files, all shards together: by field, most frequent first."""
    found: dict[str, Counter[str]] = {}
    for result in results:
        for name, counts in result.kinds.items():
            found.setdefault(name, Counter()).update(counts)
    return {name: most_frequent(counts) for name, counts in sorted(found.items())}


def counted(bins: Bins, results: Sequence[ShardResult]) -> Bins:
    """What a manifest says of the bins of all shards together."""
    found = [one.bins for one in results if one.bins is not None]
    counts = {name: sum(getattr(one, name) for one in found) for name in ("documents", "pieces", "tokens")}
    return replace(bins, **counts)


def _bins_entry(results: Iterable[ShardResult]) -> dict[str, Any]:
    found = [one.bins for one in results if one.bins is not None]
    cut: Counter[int] = Counter()
    for one in found:
        cut.update(one.cut)
    names = ("bins", "documents", "pieces", "tokens", "truncated")
    entry: dict[str, Any] = {name: sum(getattr(one, name) for one in found) for name in names}
    return entry | {"cut": [{"length": length, "documents": cut[length]} for length in sorted(cut, reverse=True)]}


def sizes_of(results: Iterable[ShardResult]) -> dict[int, int]:
    """The histogram of sizes of all shards together."""
    found: Counter[int] = Counter()
    for result in results:
        found.update(result.sizes)
    return dict(sorted(found.items()))


def report_bytes(manifest: Manifest, results: Sequence[ShardResult], rejects: RejectSummary, *, copies: int) -> bytes:
    """The content of ``report.json``.

    Args:
        manifest: The data set.
        results: Its shards.
        rejects: What could not be packed.
        copies: Exact copies that were left out.
    """
    tally = sum_of(results)
    entry: dict[str, Any] = {
        "plan": manifest.plan,
        "version": manifest.version,
        "samples": tally.samples,
        "shards": len(results),
        "bytes": sum(one.summary.bytes for one in results),
        "read_bytes": tally.bytes,
        "rejects": rejects.count,
        "lost_files": rejects.files,
        "uncounted_files": rejects.uncounted,
        "reject_kinds": dict(rejects.kinds),
        "reject_reasons": dict(rejects.reasons),
        "duplicates": copies,
        "dropped": tally.dropped,
        "kinds": kinds_of(results),
        "sample_sizes": [
            {"from": 1 << size, "below": 2 << size, "samples": count} for size, count in sizes_of(results).items()
        ],
    }
    if manifest.bins is not None:
        entry["bins"] = _bins_entry(results)
    return json_text(entry, indent=2).encode() + b"\n"


def sum_of(results: Iterable[ShardResult]) -> PackStats:
    """All that was done, in this run and in those before it."""
    total = PackStats()
    for result in results:
        total = total.plus(result.tally)
    return total
