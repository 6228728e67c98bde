"""``shardstream index URL``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Optional

import typer

from shardstream.cli.commands import command
from shardstream.cli.flags import Json, arguments_of, parse_fields
from shardstream.cli.progress import drawing
from shardstream.cli.report import duration, plural, print_found, size, stdout
from shardstream.cli.stores import format_url
from shardstream.formats.catalog.indexing import IndexReport
from shardstream.formats.catalog.indexing import index as index_all
from shardstream.progress import ProgressEvent
from shardstream.text import in_one_line

Damaged = StrEnum("Damaged", "ERROR REJECT")


class IndexFlags:
    """The flags of `index` that are not those of other verbs."""

    fields: Annotated[
        Optional[list[str]],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Option(
            "--field",
            help="Take this field, under this name; may be repeated. (default: all)",
            metavar="NAME=COLUMN[:TYPE]",
        ),
    ]
    checksums: Annotated[bool, typer.Option("--checksums", help="Read everything, and store a checksum of each value.")]
    damaged: Annotated[
        Damaged, typer.Option(help="Damaged files: error refuses them, reject leaves out what is lost of them.")
    ]
    beside: Annotated[bool, typer.Option("--beside", help="Put the catalogue beside the data, for all who read them.")]


@command(
    index_all,
    IndexFlags,
    examples=(
        "shardstream index 'data/train-{000..099}.tar'",
        "shardstream index s3://bucket/mds/ --beside --checksums",
    ),
    panels={"Output": ("checksums", "beside", "catalogue")},
)
def index(
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder, or files by braces or a glob; local or a URL.")],
    as_json: Json = False,
    quiet: bool = False,
    **flags: Any,
) -> None:
    """Find every sample of data of another library once, so that they are streamed where they lie.

    WebDataset, MDS, LitData, TFRecord, LMDB, RecordIO, zip and others: docs/foreign.md. A run that was interrupted goes
    on when the same command is given again, and what did not change is not read again.
    """
    given = arguments_of(flags, index_all)
    given["fields"] = parse_fields(given["fields"])
    with drawing("indexing", quiet=quiet or as_json, announce=_to_read) as draw:
        report = index_all(url, progress=draw, **given)
    print_found(report, _print, format_url(url), as_json=as_json)


def _to_read(event: ProgressEvent) -> str:
    if not event.total_objects:
        return ""
    return f"{plural(event.total_objects, 'file')} of {size(event.total_bytes)} to look through"


def _print(report: IndexReport, url: str) -> None:
    out = stdout()
    known = report.objects - report.scanned
    out.print(
        f"{url}: {report.title}, {plural(report.samples, 'sample')} in {plural(report.objects, 'file')}, "
        f"{size(report.bytes)}" + (f"; {known:,} known from before" if known else "")
    )
    out.print("fields: " + ", ".join(f"{name} ({kind})" for name, kind in report.fields.items()))
    for note in report.notes:
        out.print(f"note: {in_one_line(note)}")
    out.print(f"catalogue: {in_one_line(report.place)}, {size(report.index_bytes)}, {duration(report.seconds)}")
    out.print(f"next: shardstream info {url}")
