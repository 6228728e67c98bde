"""``shardstream pack SOURCE DEST``. Every flag is the argument of ``ss.pack`` of the same name."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from shardstream.cli.commands import command
from shardstream.cli.flags import JsonLines, arguments_of, parse_fields
from shardstream.cli.packing import json_lines, kept_when_interrupted, print_dry_run, print_report
from shardstream.cli.progress import drawing
from shardstream.cli.report import print_found
from shardstream.cli.stores import format_url
from shardstream.pack.dry_run import dry_run as look
from shardstream.pack.options import PackOptions
from shardstream.pack.output.places import StorageOptions
from shardstream.pack.run import pack as pack_source
from shardstream.pack.run import run_pack


@command(
    pack_source,
    examples=(
        "shardstream pack photos/ shards/                    # folders of classes",
        "shardstream pack list.tsv shards/ --labels name     # lines of path<TAB>label",
        "shardstream pack rows.parquet s3://bucket/set --field jpg=url --field y=y:int",
        "shardstream pack photos/ shards/ --dry-run          # what it would do",
        "shardstream pack 'wds/{000..099}.tar' shards/ --max-side 512",
    ),
)
def pack(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A list (path<TAB>label, csv, JSON lines, Parquet...), folder, pattern, or data of another library.",
        ),
    ],
    dest: Annotated[
        str,
        typer.Argument(metavar="DEST", help="Folder of the data set, made where missing, or URL: s3://bucket/name."),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, from the plan and 100 samples; write nothing.")
    ] = False,
    as_json: JsonLines = False,
    quiet: bool = False,
    **flags: Any,
) -> None:
    """Pack files into shards.

    A file becomes the field named by its extension, its label the field cls. Samples that cannot be read are listed in
    DEST/rejects.jsonl. A run that was interrupted or killed goes on when the same command is given again; once the data
    set is complete, it does nothing.
    """
    given = arguments_of(flags, pack_source)
    given |= {"fields": parse_fields(given["fields"])}
    options = PackOptions.take(given)
    if dry_run:
        storage = given["storage"] or StorageOptions()
        with drawing("looking", quiet=quiet or as_json) as draw:
            found = look(source, dest, options, storage=storage, workers=given["workers"], progress=draw)
        print_found(found, print_dry_run, format_url(source), format_url(dest), as_json=as_json)
        return
    with kept_when_interrupted(), drawing("packing", quiet=quiet or as_json) as draw:
        report = run_pack(source, dest, options, **given, progress=json_lines() if as_json else draw)
    print_report(report, format_url(dest), as_json=as_json)
