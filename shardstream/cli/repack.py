"""``shardstream repack URL DEST``. Every flag is the argument of ``ss.repack`` of the same name."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from shardstream.cli.flags import (
    Checksums,
    Format,
    Jpeg,
    JsonLines,
    KeyTable,
    MaxPixels,
    MaxSide,
    Overwrite,
    Quality,
    Quiet,
    Seed,
    SegmentWidth,
    ShardSize,
    Strip,
    TransformName,
    Workers,
)
from shardstream.cli.packing import kept_when_interrupted, load_transform, print_report, teller
from shardstream.cli.progress import progress
from shardstream.cli.report import reporting
from shardstream.cli.stores import (
    SourceOptions,
    StorageOptions,
    Transport,
    TransportOption,
    parse_options,
    place,
    shown,
)
from shardstream.pack.options import PackOptions
from shardstream.pack.repack import default_format, default_zstd
from shardstream.pack.run import run_pack
from shardstream.pack.sources.stored import StoredSource
from shardstream.storage import locate

_DEFAULTS = PackOptions()


def repack(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="The data set.")],
    dest: Annotated[str, typer.Argument(metavar="DEST", help="Folder or URL of the new one.")],
    storage_options: StorageOptions = None,
    source_options: SourceOptions = None,
    transport: TransportOption = Transport.AUTO,
    fields: Annotated[
        Optional[list[str]],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Option("--field", help="Field to keep; may be repeated. (default: all)", metavar="FIELD"),
    ] = None,
    take: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Only so many samples, the first in stored order.", metavar="N"),
    ] = None,
    format: Annotated[
        Optional[Format],  # noqa: UP045
        typer.Option(help="Framing of the shards. (default: as it is)"),
    ] = None,
    shard_size: ShardSize = str(_DEFAULTS.shard_size),
    seed: Seed = _DEFAULTS.seed,
    shuffle: Annotated[bool, typer.Option(help="Shuffle, or keep the stored order.")] = False,
    jpeg: Annotated[
        Jpeg, typer.Option(help="keep leaves JPEG files as they are; addressable makes crops decode alone.")
    ] = Jpeg.KEEP,
    segment_width: SegmentWidth = _DEFAULTS.segment_width,
    strip: Strip = False,
    max_side: MaxSide = None,
    quality: Quality = None,
    max_pixels: MaxPixels = _DEFAULTS.max_pixels,
    transform: TransformName = None,
    key: Annotated[str, typer.Option(help="Keys: path keeps them, stem their last parts, line numbers.")] = "path",
    zstd: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Field to compress; record only, may be repeated. (default: as it is)", metavar="FIELD"),
    ] = None,
    checksums: Checksums = _DEFAULTS.checksums,
    key_table: KeyTable = _DEFAULTS.key_table,
    workers: Workers = None,
    overwrite: Overwrite = False,
    as_json: JsonLines = False,
    quiet: Quiet = False,
) -> None:
    """Pack a data set again: other order, format, size of shards, or a part of it.

    Stored values go from shards to shards as they are; class names and metadata stay. A run that was interrupted goes
    on when the same command is given again.
    """
    with reporting(context):
        origin = locate(
            url, storage_options=parse_options(source_options, "--source-option"), transport=transport.value
        )
        source = StoredSource(origin, key=key, fields=fields or None, take=take)
        framing = default_format(source) if format is None else format.framing
        options = PackOptions(
            format=framing,
            shard_size=shard_size,
            seed=seed,
            shuffle=shuffle,
            jpeg=jpeg.value,
            segment_width=segment_width,
            strip=strip,
            max_side=max_side,
            quality=quality,
            max_pixels=max_pixels,
            transform=None if transform is None else load_transform(transform),
            key=key,
            meta=source.manifest.meta,
            zstd=zstd or default_zstd(source, framing),
            checksums=checksums,
            key_table=key_table,
        )
        location = place(dest, storage_options, transport)
        with progress("packing", quiet=quiet or as_json) as update, kept_when_interrupted():
            report = run_pack(
                source,
                location,
                options,
                workers=workers,
                overwrite=overwrite,
                progress=teller(update, as_json=as_json),
            )
        print_report(report, shown(dest, location), as_json=as_json)
