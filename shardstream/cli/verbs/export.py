"""``shardstream export URL DEST``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Optional

import typer

from shardstream.cli.commands import command
from shardstream.cli.flags import DatasetUrl, Json, arguments_of
from shardstream.cli.progress import drawing
from shardstream.cli.report import duration, plural, print_found, size, stdout
from shardstream.cli.stores import format_url
from shardstream.pack.export.run import ExportReport
from shardstream.pack.export.run import export as export_all

# Choices of flags.
To = StrEnum("To", "FILES WEBDATASET PARQUET MDS")
ExportJpeg = StrEnum("ExportJpeg", "ORIGINAL KEEP")
ExportCompression = StrEnum("ExportCompression", "ZSTD")


class ExportFlags:
    """The flags of `export` that are not those of `pack`."""

    jpeg: Annotated[
        ExportJpeg,
        typer.Option("--jpeg", help="JPEG files as they were before they were packed, or as they are stored."),
    ]
    compression: Annotated[
        Optional[ExportCompression],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Option("--compression", help="Compress shards of MDS. (default: they are not)"),
    ]


@command(
    export_all,
    ExportFlags,
    examples=(
        "shardstream export shards/ photos/ --to files",
        "shardstream export s3://bucket/set wds/ --to webdataset --workers 4",
    ),
)
def export(
    url: DatasetUrl,
    dest: Annotated[str, typer.Argument(metavar="DEST", help="Folder or URL for the output: new, or empty.")],
    to: Annotated[
        To, typer.Option("--to", help="What to write: single files, tar shards, tables, or shards of MosaicML.")
    ],
    as_json: Json = False,
    quiet: bool = False,
    **flags: Any,
) -> None:
    """Write a data set in a form that others read: files with a list, WebDataset, MDS, or Parquet of Hugging Face.

    A run that was interrupted goes on when the same command is given again.
    """
    with drawing("exporting", quiet=quiet or as_json) as draw:
        report = export_all(url, dest, progress=draw, **arguments_of({"to": to} | flags, export_all))
    print_found(report, _print, format_url(dest), to.value, as_json=as_json)


def _print(report: ExportReport, dest: str, to: str) -> None:
    kept = f", {report.kept:,} of them by an earlier run" if report.kept else ""
    stdout().print(
        f"{dest}: {plural(report.samples, 'sample')} as {to}{kept} ({size(report.bytes)} in {duration(report.seconds)})"
    )
