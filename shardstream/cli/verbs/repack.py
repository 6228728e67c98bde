"""``shardstream repack URL DEST``. Every flag is the argument of ``ss.repack`` of the same name."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from shardstream.cli.commands import command
from shardstream.cli.flags import Format, JsonLines, arguments_of
from shardstream.cli.packing import json_lines, kept_when_interrupted, print_report
from shardstream.cli.progress import drawing
from shardstream.cli.stores import format_url
from shardstream.dataset.selected.rows import Rows
from shardstream.pack.repack import repack as repack_dataset
from shardstream.pack.repack import run_repack


class RepackFlags:
    """The flags of `repack` that are not those of `pack`."""

    fields: Annotated[
        Optional[list[str]],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Option("--field", help="Field to keep; may be repeated. (default: all)", metavar="FIELD"),
    ]
    where: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Only the samples in a file of rows of ss.find_rows. (default: all)", metavar="FILE"),
    ]
    take: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Only so many samples, the first in stored order.", metavar="N"),
    ]
    key: Annotated[str, typer.Option(help="Keys: path keeps them, stem their last parts, line numbers.")]
    format: Annotated[
        Optional[Format],  # noqa: UP045
        typer.Option(help="Framing of the shards. (default: as it is)"),
    ]
    shuffle: Annotated[bool, typer.Option(help="Shuffle, or keep the stored order.")]
    drop_damaged: Annotated[
        bool, typer.Option("--drop-damaged", help="Decode every picture, and leave out the samples of damaged ones.")
    ]


@command(
    repack_dataset,
    RepackFlags,
    examples=(
        "shardstream repack shards/ record/ --format record --zstd txt",
        "shardstream repack shards/ sample/ --take 1000 --field jpg --field cls",
    ),
)
def repack(
    url: Annotated[str, typer.Argument(metavar="URL", help="The data set.")],
    dest: Annotated[str, typer.Argument(metavar="DEST", help="Folder or URL of the new one.")],
    as_json: JsonLines = False,
    quiet: bool = False,
    **flags: Any,
) -> None:
    """Pack a data set again: other order, format, size of shards, or a part of it.

    Stored values go from shards to shards as they are; class names and metadata stay. A run that was interrupted goes
    on when the same command is given again.
    """
    given = arguments_of(flags, repack_dataset)
    given |= {"fields": given["fields"] or None}
    given |= {"where": None if given["where"] is None else Rows.load(given["where"])}
    with kept_when_interrupted(), drawing("packing", quiet=quiet or as_json) as draw:
        report = run_repack(url, dest, **given, progress=json_lines() if as_json else draw)
    print_report(report, format_url(dest), as_json=as_json)
