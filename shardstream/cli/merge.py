"""``shardstream merge URL... DEST``."""

from __future__ import annotations

from typing import Annotated

import typer

from shardstream.cli.flags import Json, Overwrite, Quiet
from shardstream.cli.progress import drawing
from shardstream.cli.report import plural, print_json, reporting, size, stdout
from shardstream.cli.stores import (
    SourceOptions,
    StorageOptions,
    Transport,
    TransportOption,
    parse_options,
    place,
    shown,
)
from shardstream.pack import merge as merge_all


def merge(
    context: typer.Context,
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Folders or URLs of the data sets, in order.")],
    dest: Annotated[str, typer.Argument(metavar="DEST", help="Folder or URL of the result.")],
    source_options: SourceOptions = None,
    storage_options: StorageOptions = None,
    transport: TransportOption = Transport.AUTO,
    overwrite: Overwrite = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make one data set of several, by copying their shards byte for byte.

    They need one format, and equal types of equal fields; keys are unique in the result. A run that was interrupted
    goes on when the same command is given again.
    """
    with reporting(context):
        location = place(dest, storage_options, transport)
        with drawing("merging", quiet=quiet or as_json) as draw:
            manifest = merge_all(
                urls,
                location,
                source_options=parse_options(source_options, "--source-option"),
                transport=transport.value,
                overwrite=overwrite,
                progress=draw,
            )
        where = shown(dest, location)
        if as_json:
            print_json(
                {
                    "url": where,
                    "samples": manifest.samples,
                    "shards": manifest.shards,
                    "bytes": manifest.bytes,
                    "fingerprint": manifest.fingerprint,
                }
            )
            return
        stdout().print(
            f"{where}: {plural(manifest.samples, 'sample')} of {plural(len(urls), 'data set')} in "
            f"{plural(manifest.shards, 'shard')}, {size(manifest.bytes)}"
        )
