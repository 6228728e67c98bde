"""``ss.repack``: a data set again, in another order, format or size of shards, or a part of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from shardstream.dataset.conditions import Where
from shardstream.dataset.keys.selection import rows_where
from shardstream.dataset.source import DatasetSource
from shardstream.dataset.view import ViewSpec
from shardstream.errors import UsageError
from shardstream.options import SourceOptions, takes_flat
from shardstream.pack.bins.sequences import PackedSequences
from shardstream.pack.bins.stored_documents import StoredDocuments
from shardstream.pack.encode.images import ImageOptions
from shardstream.pack.encode.sample import Transform
from shardstream.pack.execution.engines import EngineName
from shardstream.pack.options import OF_PACK, PackOptions, ShardOptions
from shardstream.pack.output.places import StorageOptions
from shardstream.pack.output.report import PackReport
from shardstream.pack.run import logged, run_pack
from shardstream.pack.sources.stored import StoredSource
from shardstream.progress import OnProgress
from shardstream.shards.framings import Format
from shardstream.shards.manifest import Manifest
from shardstream.storage import PathOrUrl
from shardstream.storage.base.location import flat_transport


@takes_flat({"executor": "on", **flat_transport("url", "dest", "replicas")}, **OF_PACK)
def repack(
    url: PathOrUrl,
    dest: PathOrUrl,
    *,
    version: int | None = None,
    fields: Collection[str] | None = None,
    where: Where | None = None,
    take: int | None = None,
    key: str = "path",
    transform: Transform | None = None,
    drop_damaged: bool = False,
    meta: Mapping[str, Any] | None = None,
    format: Format | None = None,
    shard_size: int | str = "256MB",
    shuffle: bool = False,
    seed: int = 0,
    overwrite: bool = False,
    workers: int | None = None,
    on: EngineName | Executor | None = None,
    progress: OnProgress | None = None,
    reading: SourceOptions | None = None,
    bins: PackedSequences | int | None = None,
    images: ImageOptions | None = None,
    shards: ShardOptions | None = None,
    storage: StorageOptions | None = None,
) -> Manifest:
    """Pack the samples of a dataset again.

    Nothing is decoded unless it is asked for: stored values go from shards to shards, compared with their checksums on
    the way. Resuming, reports and what the destination may hold are as with `pack`.

    Args:
        url: The dataset: directory, URL or store.
        dest: As of `pack`.
        version: Of a dataset that grew. Default: the newest.
        fields: Fields to keep. Default: all.
        where: Only the samples that this asks for, as of `ShardDataset`: conditions on stored numbers, keys, rows of
            `find_rows`, or a list of these. Default: all.
        take: Only so many samples, the first in stored order, of those.
        key: ``"path"`` keeps keys (so does ``"auto"``, as they are unique), ``"stem"`` their last parts, ``"line"``
            numbers the samples.
        transform: As of `pack`; it filters, too.
        drop_damaged: Decode every picture, and leave out the samples of damaged ones, as ``verify(decode=True)``
            names them, and those of pictures that take a package which is not installed: all are listed in
            ``rejects.jsonl`` in ``dest``. The default stores them as they are.
        meta: Default: that of the dataset.
        format: Default: that of the dataset.
        shard_size: As of `pack`.
        shuffle: ``True`` shuffles; the default keeps the stored order, which has been shuffled once.
        seed: As of `pack`.
        overwrite: As of `pack`.
        workers: As of `pack`.
        on: As of `pack`.
        progress: As of `pack`.
        reading: How many samples may be rejected, by ``drop_damaged`` and by what a ``transform`` raises:
            ``SourceOptions(max_rejects=...)``.
        bins: Pack the documents of a dataset of bins anew, into bins of so many tokens, without tokenizing them: with
            ``shuffle=True`` and another ``seed``, others share a bin. ``take`` counts documents then, ``fields`` names
            what is kept beside their tokens, and ``transform`` gets documents. Default: bins stay as they are,
            also with ``take``, which then counts bins, and with ``fields`` that name all that lies beside the tokens.
        images: As of `pack`; JPEG files stay as they are unless ``ImageOptions(jpeg="addressable")`` says otherwise.
        shards: As of `pack`. What is compressed stays so, if the format stays ``record``.
        storage: As of `pack`, with a cache and replicas of the dataset.

    Returns:
        The manifest.

    Raises:
        NotFoundError: There is no dataset.
        ChecksumError: A stored value is damaged.
        UsageError, DestinationError, SourceError, DuplicateKeyError, StorageError: As `pack`.

    Example:
        >>> repack("out/", "small/", shard_size="64MB", shuffle=True, seed=1).samples
        200
    """
    given = locals()
    return logged(run_repack(**given), kept=not drop_damaged).manifest


def run_repack(url: PathOrUrl, dest: PathOrUrl, **given: Any) -> PackReport:
    """`repack`, with a report of what was done.

    Args:
        url: As of `repack`.
        dest: As of `repack`.
        given: All other arguments of `repack`.
    """
    storage = given.pop("storage", None) or StorageOptions()
    (dataset,), target = storage.open([url], dest, version=given.pop("version"))
    chosen = {name: given.pop(name) for name in ("fields", "take")} | {"key": given["key"]}
    images, shards = given["images"] or ImageOptions(), given["shards"] or ShardOptions()
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
        given["bins"] = replace(given["bins"], **source.inherited)
    given["format"] = given["format"] or default_format(source)
    if given["meta"] is None:
        given["meta"] = source.manifest.meta
    shards = shards.inheriting(default_zstd(source, given["format"]))
    images = replace(images, jpeg=images.jpeg or "keep")
    if given.pop("drop_damaged"):
        given["damaged"], images = "reject", replace(images, check="decode")
    else:
        given["damaged"] = "keep"
    options = PackOptions.take(given | {"images": images, "shards": shards})
    how = {name: value for name, value in given.items() if name not in PackOptions.names()}
    return run_pack(source, target, options, **how)


def default_format(source: StoredSource | StoredDocuments) -> Format:
    """The format that the data set has."""
    return "tar" if source.manifest.framing == "tar" else "record"


def default_zstd(source: StoredSource | StoredDocuments, format: Format) -> Collection[str]:
    """The fields that are compressed, where they can stay so."""
    return [name for name in source.manifest.codecs if name in source.columns] if format == "record" else ()
