"""``ss.repack``: a data set again, in another order, format or size of shards, or a part of it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from typing import Any

from shardstream.images.jpeg.transcode import DEFAULT_WIDTH
from shardstream.pack.encode.images import DEFAULT_MAX_PIXELS, Jpeg
from shardstream.pack.encode.sample import Transform
from shardstream.pack.options import PackOptions
from shardstream.pack.run import OnProgress, run_pack
from shardstream.pack.sources.stored import StoredSource
from shardstream.shards.framings import Format
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, Transport, locate


def repack(
    url: str | os.PathLike[str] | Location,
    dest: str | os.PathLike[str] | Location,
    *,
    storage_options: Mapping[str, Any] | None = None,
    source_options: Mapping[str, Any] | None = None,
    transport: Transport = "auto",
    fields: Collection[str] | None = None,
    take: int | None = None,
    format: Format | None = None,
    shard_size: int | str = "256MB",
    seed: int = 0,
    shuffle: bool = False,
    jpeg: Jpeg = "keep",
    segment_width: int = DEFAULT_WIDTH,
    strip: bool = False,
    max_side: int | None = None,
    quality: int | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    transform: Transform | None = None,
    key: str = "path",
    meta: Mapping[str, Any] | None = None,
    zstd: Collection[str] | None = None,
    checksums: bool = True,
    key_table: bool = True,
    workers: int | None = None,
    executor: Executor | None = None,
    overwrite: bool = False,
    progress: OnProgress | None = None,
) -> Manifest:
    """Pack the samples of a data set again.

    Nothing is decoded unless it is asked for: stored values go from shards to shards, compared with their checksums on
    the way. Restarting, reports and what the destination may hold are as with `pack`.

    Args:
        url: The data set.
        dest: As of `pack`.
        storage_options: Of the destination, as of `pack`.
        source_options: The same of the data set.
        transport: As of `pack`.
        fields: Fields to keep. Default: all.
        take: Only so many samples, the first in stored order.
        format: Default: that of the data set.
        shard_size: As of `pack`.
        seed: The same.
        shuffle: ``True`` shuffles; the default keeps the stored order, which has been shuffled once.
        jpeg: ``"keep"`` leaves files as they are stored; ``"addressable"`` as of `pack`.
        segment_width: As of `pack`.
        strip: The same.
        max_side: The same.
        quality: The same.
        max_pixels: The same.
        transform: The same; it filters, too.
        key: ``"path"`` keeps keys, ``"stem"`` their last parts, ``"line"`` numbers the samples.
        meta: Default: that of the data set.
        zstd: Fields to compress. Default: those that are compressed, if the format stays ``record``.
        checksums: As of `pack`.
        key_table: The same.
        workers: The same.
        executor: The same.
        overwrite: The same.
        progress: The same.

    Returns:
        The manifest.

    Raises:
        NotFoundError: There is no data set.
        ChecksumError: A stored value is damaged.
        UsageError, DestinationError, SourceError, DuplicateKeyError, StorageError: As `pack`.

    Example:
        >>> repack("out/", "small/", shard_size="64MB", shuffle=True, seed=1).samples
        200
    """
    place = locate(url, storage_options=source_options, transport=transport)
    source = StoredSource(place, key=key, fields=fields, take=take)
    options = PackOptions(
        format=format or default_format(source),
        shard_size=shard_size,
        seed=seed,
        shuffle=shuffle,
        jpeg=jpeg,
        segment_width=segment_width,
        strip=strip,
        max_side=max_side,
        quality=quality,
        max_pixels=max_pixels,
        transform=transform,
        key=key,
        meta=source.manifest.meta if meta is None else meta,
        zstd=default_zstd(source, format) if zstd is None else zstd,
        checksums=checksums,
        key_table=key_table,
    )
    return run_pack(
        source,
        dest,
        options,
        storage_options=storage_options,
        transport=transport,
        workers=workers,
        executor=executor,
        overwrite=overwrite,
        progress=progress,
    ).manifest


def default_format(source: StoredSource) -> Format:
    """The format that the data set has."""
    return "tar" if source.manifest.framing == "tar" else "record"


def default_zstd(source: StoredSource, format: Format | None) -> Collection[str]:
    """The fields that are compressed, where they can stay so."""
    compressed = [name for name in source.manifest.codecs if name in source.types]
    return compressed if (format or default_format(source)) == "record" else ()
