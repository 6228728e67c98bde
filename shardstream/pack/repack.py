"""``ss.repack``: a data set again, in another order, format or size of shards, or a part of it."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from shardstream.dataset.conditions import Where
from shardstream.dataset.keys.selection import rows_where
from shardstream.dataset.source import DatasetSource
from shardstream.dataset.view import ViewSpec
from shardstream.errors import UsageError
from shardstream.images.jpeg.transcode import DEFAULT_WIDTH
from shardstream.pack.bins.binning import Long, Packing
from shardstream.pack.bins.stored_documents import StoredDocuments
from shardstream.pack.encode.images import DEFAULT_MAX_PIXELS, Jpeg
from shardstream.pack.encode.sample import Transform
from shardstream.pack.options import PackOptions
from shardstream.pack.output.places import StorageArguments, take_options
from shardstream.pack.output.report import PackReport
from shardstream.pack.run import logged, run_pack
from shardstream.pack.sources.stored import StoredSource
from shardstream.progress import OnProgress
from shardstream.shards.framings import Format
from shardstream.shards.manifest import Manifest
from shardstream.storage import PathOrUrl, Transport
from shardstream.storage.cache import Cache


def repack(
    url: PathOrUrl,
    dest: PathOrUrl,
    *,
    # what is packed
    version: int | None = None,
    fields: Collection[str] | None = None,
    where: Where | None = None,
    take: int | None = None,
    key: str = "path",
    transform: Transform | None = None,
    meta: Mapping[str, Any] | None = None,
    # order and shards
    format: Format | None = None,
    shard_size: int | str = "256MB",
    shuffle: bool = False,
    seed: int = 0,
    overwrite: bool = False,
    max_rejects: int | str | None = None,
    # documents into bins
    bins: int | None = None,
    bin_min: int | None = None,
    packing: Packing = "fit",
    long: Long = "split",
    # images
    jpeg: Jpeg = "keep",
    max_side: int | None = None,
    quality: int | None = None,
    strip: bool = False,
    drop_damaged: bool = False,
    # distribution
    workers: int | None = None,
    executor: Executor | None = None,
    progress: OnProgress | None = None,
    # storage
    storage_options: Mapping[str, Any] | None = None,
    source_options: Mapping[str, Any] | None = None,
    dest_options: Mapping[str, Any] | None = None,
    transport: Transport = "auto",
    cache: str | os.PathLike[str] | Cache | None = None,
    replicas: Sequence[PathOrUrl] = (),
    # expert
    segment_width: int = DEFAULT_WIDTH,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    zstd: Collection[str] | None = None,
    checksums: bool = True,
    key_table: bool = True,
) -> Manifest:
    """Pack the samples of a data set again.

    Nothing is decoded unless it is asked for: stored values go from shards to shards, compared with their checksums on
    the way. Restarting, reports and what the destination may hold are as with `pack`.

    Args:
        url: The data set: folder, URL or store.
        dest: As of `pack`.
        version: Of a data set that grew. Default: the newest.
        fields: Fields to keep. Default: all.
        where: Only the samples that this asks for, as of `ShardDataset`: conditions on stored numbers, keys, rows of
            `find_rows`, or a list of these. Default: all.
        take: Only so many samples, the first in stored order, of those.
        key: ``"path"`` keeps keys (so does ``"auto"``, as they are unique), ``"stem"`` their last parts, ``"line"``
            numbers the samples.
        transform: As of `pack`; it filters, too.
        meta: Default: that of the data set.

    Order and shards:
        format: Default: that of the data set.
        shard_size: As of `pack`.
        shuffle: ``True`` shuffles; the default keeps the stored order, which has been shuffled once.
        seed: As of `pack`.
        overwrite: The same.
        max_rejects: As of `pack`; samples are rejected by ``drop_damaged`` and by what a ``transform`` raises.

    Documents into bins:
        bins: Pack the documents of a data set of bins anew, into bins of so many tokens, without tokenizing them: with
            ``shuffle=True`` and another ``seed``, others share a bin. ``take`` counts documents then, ``fields`` names
            what is kept beside their tokens, and ``transform`` gets documents. Default: bins stay as they are,
            also with ``take``, which then counts bins, and with ``fields`` that name all that lies beside the tokens.
        bin_min: As of `pack`.
        packing: The same.
        long: The same.

    Images:
        jpeg: ``"keep"`` leaves files as they are stored; ``"addressable"`` as of `pack`.
        max_side: As of `pack`.
        quality: The same.
        strip: The same.
        drop_damaged: Decode every picture, and leave out the samples of damaged ones, as ``verify(decode=True)``
            names them, and those of pictures that take a package which is not installed: all are listed in
            ``rejects.jsonl`` in ``dest``. The default stores them as they are.

    Distribution:
        workers: The same.
        executor: The same.
        progress: The same.

    Storage:
        storage_options: As of `pack`.
        source_options: Those of the data set and its replicas alone, in their stead.
        dest_options: Those of ``dest`` alone, in their stead.
        transport: As of `pack`.
        cache: Folder of a cache that what comes over a network is read through, or a `Cache`; see `ShardDataset`.
        replicas: Places that have its shards too, asked first. Where one is damaged, the next place is read.

    Expert:
        segment_width: As of `pack`.
        max_pixels: The same.
        zstd: Fields to compress. Default: those that are compressed, if the format stays ``record``.
        checksums: As of `pack`.
        key_table: The same.

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
    return logged(run_repack(**locals()), kept=not drop_damaged).manifest


def run_repack(url: PathOrUrl, dest: PathOrUrl, **given: Any) -> PackReport:
    """`repack`, with a report of what was done.

    Args:
        url: As of `repack`.
        dest: The same.
        given: All other arguments of `repack`.
    """
    storage = take_options(StorageArguments, given)
    opening = {name: given.pop(name) for name in ("version", "cache", "replicas")}
    (dataset,), target = storage.open([url], dest, **opening)
    chosen = {name: given.pop(name) for name in ("fields", "take")} | {"key": given["key"]}
    source: StoredSource | StoredDocuments
    where = given.pop("where", None)
    if given["bins"] is None:
        rows = None if where is None else rows_where(DatasetSource([dataset], ViewSpec(), verify=True), where)
        source = StoredSource(dataset, rows=rows, **chosen)
    else:
        if where is not None:
            hint = "repack twice: where= first, then bins="
            raise UsageError("where= chooses bins, and bins= packs their documents anew", hint=hint)
        source = StoredDocuments(dataset, **chosen)
        given |= source.inherited
    given["format"] = given["format"] or default_format(source)
    if given["meta"] is None:
        given["meta"] = source.manifest.meta
    if given["zstd"] is None:
        given["zstd"] = default_zstd(source, given["format"])
    given |= {"damaged": "reject", "check": "decode"} if given.pop("drop_damaged") else {"damaged": "keep"}
    options = take_options(PackOptions, given)
    return run_pack(source, target, options, **given)


def default_format(source: StoredSource | StoredDocuments) -> Format:
    """The format that the data set has."""
    return "tar" if source.manifest.framing == "tar" else "record"


def default_zstd(source: StoredSource | StoredDocuments, format: Format) -> Collection[str]:
    """The fields that are compressed, where they can stay so."""
    return [name for name in source.manifest.codecs if name in source.columns] if format == "record" else ()
