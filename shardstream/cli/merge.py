"""``shardstream merge URL... DEST``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

import typer

from shardstream.cli.flags import Json, KeyTable, Overwrite, Quiet
from shardstream.cli.progress import Update, progress
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
from shardstream.pack import MergeProgress
from shardstream.pack import merge as merge_all


def merge(
    context: typer.Context,
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Folders or URLs of the data sets, in order.")],
    dest: Annotated[str, typer.Argument(metavar="DEST", help="Folder or URL of the result.")],
    source_options: SourceOptions = None,
    storage_options: StorageOptions = None,
    transport: TransportOption = Transport.AUTO,
    key_table: KeyTable = True,
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
        with progress("merging", quiet=quiet or as_json) as update:
            manifest = merge_all(
                urls,
                location,
                source_options=parse_options(source_options, "--source-option"),
                transport=transport.value,
                key_table=key_table,
                overwrite=overwrite,
                progress=_teller(update),
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


def _teller(update: Update) -> Callable[[MergeProgress], None]:
    started, stage = time.monotonic(), "keys"

    def tell(now: MergeProgress) -> None:
        nonlocal started, stage
        if now.stage != stage:
            started, stage = time.monotonic(), now.stage
        what = "comparing keys" if now.stage == "keys" else "copying"
        speed = "" if now.stage == "keys" else f"  {size(now.bytes / max(time.monotonic() - started, 1e-3))}/s"
        update(now.shards, now.total_shards, f"{what}: shard {now.shards:,} of {now.total_shards:,}{speed}")

    return tell
