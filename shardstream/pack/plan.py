"""The plan: which sample goes where. A function of the source and the options, never of workers, time or place."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import overload

import numpy as np
import xxhash

from shardstream.errors import SourceError
from shardstream.pack.images import ImageOptions
from shardstream.pack.options import PackOptions
from shardstream.pack.permute import Permutation
from shardstream.pack.sample import Unreadable, load
from shardstream.pack.sources import File, Part, Reject, Source
from shardstream.pack.sources.base import printable
from shardstream.pack.task import ShardTask
from shardstream.shards.framings import framing_of
from shardstream.shards.layout import FORMAT_VERSION
from shardstream.storage import Location

PLAN_VERSION = 1
SAMPLED = 1000
_SHRUNK = 64  # samples whose images are made smaller for the estimate: a second or two, for 10 % of error
_SAMPLED_STREAM = 1  # the stream of the permutation that chooses the files whose sizes are looked at
# What a sample costs beside its bytes: a member's header and half a block of padding for file and label, or none.
_OVERHEAD = {"tar": 2 * (512 + 256), "record": 64}


@dataclass(frozen=True)
class PackPlan:
    """Samples cut into shards. Stored position p is sample π(p) of the source; shard s holds [s·per, (s+1)·per).

    Attributes:
        source: Where samples come from.
        options: What was asked for.
        per_shard: Samples a shard; the last may hold fewer, and rejected samples leave a shard shorter.
        fingerprint: Hash of all that changes a byte of the result, 32 hexadecimal digits.
    """

    source: Source
    options: PackOptions
    per_shard: int
    fingerprint: str

    @property
    def samples(self) -> int:
        """Number of samples, unreadable ones included."""
        return len(self.source)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.samples // self.per_shard)

    @property
    def stem(self) -> str:
        """What the names of the shards begin with: another plan's shards never bear the same name."""
        return f"shard-{self.fingerprint[:8]}"

    def tasks(self, dest: Location, pattern: str) -> Sequence[ShardTask]:
        """A task a shard, made when asked for.

        Args:
            dest: Place of the data set.
            pattern: Name of shard i is ``pattern.format(i)``.
        """
        return _Tasks(self, dest, pattern)


class _Tasks(Sequence[ShardTask]):
    def __init__(self, plan: PackPlan, dest: Location, pattern: str) -> None:
        self._plan = plan
        self._dest = dest
        self._pattern = pattern
        self._order = Permutation(plan.samples, seed=plan.options.seed) if plan.options.shuffle else None

    def __len__(self) -> int:
        return self._plan.shards

    @overload
    def __getitem__(self, index: int) -> ShardTask: ...
    @overload
    def __getitem__(self, index: slice) -> list[ShardTask]: ...
    def __getitem__(self, index: int | slice) -> ShardTask | list[ShardTask]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(f"shard {index} of {len(self)}")
        plan = self._plan
        start = index * plan.per_shard
        numbers = np.arange(start, min(start + plan.per_shard, plan.samples), dtype=np.int64)
        return ShardTask(
            number=index,
            name=self._pattern.format(index),
            dest=self._dest,
            part=plan.source.part(numbers if self._order is None else self._order(numbers)),
            format=plan.options.format,
            zstd=frozenset(plan.options.zstd),
            checksums=plan.options.checksums,
            images=plan.options.images,
        )


def suffix_of(format: str) -> str:
    """The suffix of shards of this format, with dot."""
    return framing_of(format).suffix


def make_plan(source: Source, options: PackOptions) -> PackPlan:
    """Cut a source into shards of about ``options.shard_size``, by the mean size of some 1,000 of its files.

    Where images are made smaller, some of them are, to see by how much.

    Raises:
        SourceError: None of those files can be read.
    """
    sizes = _sampled_sizes(source)
    cost = sum(sizes) / len(sizes) * _shrinkage(source, options.images) + _OVERHEAD[options.format]
    wanted = max(1, int(options.shard_bytes // cost))
    shards = -(-len(source) // wanted)
    per_shard = -(-len(source) // shards)
    identity = {
        "plan_version": PLAN_VERSION,
        "format_version": FORMAT_VERSION,
        "source": source.fingerprint,
        # Relative paths mean other files elsewhere: their sizes tell them apart, where their names do not.
        "sizes": xxhash.xxh3_64_hexdigest(np.array(sizes, "<u8").tobytes()),
        "per_shard": per_shard,
        **options.identity,
    }
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return PackPlan(source, options, per_shard, xxhash.xxh3_128_hexdigest(text.encode()))


def _sampled(source: Source, most: int) -> Part:
    """Up to ``most`` samples, chosen by a permutation of its own."""
    count = min(most, len(source))
    return source.part(Permutation(len(source), seed=0, stream=_SAMPLED_STREAM)(np.arange(count, dtype=np.int64)))


def _shrinkage(source: Source, images: ImageOptions) -> float:
    """The bytes that samples take where images are made smaller, as a share of those of their files."""
    if images.max_side is None:
        return 1.0
    before = after = 0
    for item in _sampled(source, _SHRUNK):
        if not isinstance(item, Reject):
            with suppress(Unreadable):
                loaded = load(item, images)
                before += loaded.size
                after += sum(len(value) for _, value in loaded.fields.values() if isinstance(value, bytes))
    return after / before if before else 1.0


def _sampled_sizes(source: Source) -> list[int]:
    """Sizes of up to `SAMPLED` samples that can be read."""
    count = min(SAMPLED, len(source))
    sizes, first = [], None
    for item in _sampled(source, SAMPLED):
        if isinstance(item, Reject):
            first = first or f"{printable(item.path)}: {item.reason}"
            continue
        size = sum(_size(value.path) for value in item.values.values() if isinstance(value, File))
        if size:
            sizes.append(size)
        elif first is None:
            first = f"{printable(item.path)}: missing, empty, or no file"
    if not sizes:
        whose = "no file of the list" if count == len(source) else f"none of {count} files sampled from the list"
        raise SourceError(
            f"{whose} can be read ({first})",
            url=source.url,
            hint="relative paths are taken from the folder of the list",
        )
    return sizes


def _size(path: str) -> int:
    try:
        return os.path.getsize(path) if os.path.isfile(path) else 0
    except (OSError, ValueError):
        return 0
