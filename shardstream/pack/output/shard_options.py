"""``ShardOptions``: what shards hold."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from shardstream.options import PACK, option
from shardstream.shards.framings import Format, writer_of
from shardstream.shards.writing import OneShard
from shardstream.storage import ObjectWriter


@dataclass(frozen=True, kw_only=True)
class ShardOptions:
    """What shards hold, as ``shards=`` of `pack`, `repack`, `merge` and `ShardWriter`.

    Attributes:
        zstd: Fields to compress one by one; ``record`` only. Default: none; of `repack`, and of a `ShardWriter` that
            appends, those that are compressed.
        checksums: Store a checksum of each value, which readers verify. Default true.
        key_table: Write a table of the keys beside the shards, 12 bytes a sample, by which `Reader.get` and
            ``shardstream view --key`` find a sample at once. Default true. `merge` takes this one alone.
        rows: Leave ``rows.parquet`` in ``dest``: a row for every line of the source, with line, status, key, shard,
            offset in it, path and reason. Needs pyarrow. For `pack` alone.

    Example:
        >>> shards = ss.ShardOptions(zstd=["txt"])
    """

    zstd: Collection[str] | None = option(
        None,
        "Field to compress; record only, may be repeated. (default: none; repack: as it is)",
        metavar="FIELD",
        verbs=(*PACK, "repack", "ShardWriter"),
    )
    checksums: bool = option(
        True,
        "Store a checksum of each value.",
        flag="--checksums/--no-checksums",
        verbs=(*PACK, "repack", "ShardWriter"),
    )
    key_table: bool = option(
        True, "Write a table of the keys, which finds samples by key at once.", flag="--key-table/--no-key-table"
    )
    rows: bool = option(False, "Leave DEST/rows.parquet: what became of every line of the source.", verbs=PACK)

    @property
    def compressed(self) -> frozenset[str]:
        """The fields that are compressed."""
        return frozenset(self.zstd or ())

    def inheriting(self, compressed: Collection[str]) -> ShardOptions:
        """The same, compressing these fields unless it names others."""
        return self if self.zstd is not None else replace(self, zstd=compressed)

    def begin(self, format: Format, out: ObjectWriter) -> OneShard:
        """Begin a shard of this format."""
        return writer_of(format)(out, zstd=self.compressed, checksums=self.checksums)
