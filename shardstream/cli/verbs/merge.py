"""``shardstream merge URL... DEST``."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from shardstream.cli.commands import command
from shardstream.cli.flags import Json, arguments_of
from shardstream.cli.progress import drawing
from shardstream.cli.report import plural, print_json, size, stdout
from shardstream.cli.stores import format_url
from shardstream.errors import UsageError
from shardstream.pack.merge import merge as merge_all


class MergeFlags:
    """The flags of `merge` that are not those of other verbs."""

    version: Annotated[
        Optional[list[str]],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Option(
            "--version", metavar="N", help="Version of a data set: one for each URL, in order; newest for the newest."
        ),
    ]


@command(
    merge_all,
    MergeFlags,
    examples=("shardstream merge day1/ day2/ all/", "shardstream merge s3://a/set s3://b/set s3://c/set"),
)
def merge(
    urls: Annotated[list[str], typer.Argument(metavar="URL...", help="Folders or URLs of the data sets, in order.")],
    dest: Annotated[str, typer.Argument(metavar="DEST", help="Folder or URL of the result.")],
    as_json: Json = False,
    quiet: bool = False,
    **flags: Any,
) -> None:
    """Make one data set of several, by copying their shards byte for byte.

    They need one format, and equal types of equal fields; keys are unique in the result. A run that was interrupted
    goes on when the same command is given again.
    """
    given = arguments_of(flags, merge_all)
    given["version"] = [_parse_version(text) for text in given["version"]] if given["version"] else None
    with drawing("merging", quiet=quiet or as_json) as draw:
        manifest = merge_all(urls, dest, progress=draw, **given)
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


def _parse_version(text: str) -> int | None:
    if text == "newest":
        return None
    try:
        return int(text)
    except ValueError as error:
        raise UsageError(
            f"--version must be a number or newest, got {text}", hint="--version 1 --version newest"
        ) from error
