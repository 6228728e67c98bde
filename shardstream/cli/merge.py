"""``shardstream merge URL... DEST``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shardstream.cli.flags import Json, Quiet, arguments_of, flags_of
from shardstream.cli.progress import drawing
from shardstream.cli.report import plural, print_json, reporting, size, stdout
from shardstream.cli.stores import format_url
from shardstream.pack import merge as merge_all


@flags_of(merge_all)
def merge(
    context: typer.Context,
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Folders or URLs of the data sets, in order.")],
    dest: Annotated[str, typer.Argument(metavar="DEST", help="Folder or URL of the result.")],
    as_json: Json = False,
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Make one data set of several, by copying their shards byte for byte.

    They need one format, and equal types of equal fields; keys are unique in the result. A run that was interrupted
    goes on when the same command is given again.
    """
    with reporting(context):
        with drawing("merging", quiet=quiet or as_json) as draw:
            manifest = merge_all(urls, dest, progress=draw, **arguments_of(flags))
        where = format_url(dest)
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
