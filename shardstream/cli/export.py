"""``shardstream export URL DEST``."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

from shardstream.cli.flags import Json, Quiet, Workers
from shardstream.cli.progress import drawing
from shardstream.cli.report import duration, plural, print_json, reporting, size, stdout
from shardstream.cli.stores import (
    SourceOptions,
    StorageOptions,
    Transport,
    TransportOption,
    parse_options,
    place,
    shown,
)
from shardstream.pack.export import export as export_all


class To(StrEnum):
    """Choices of ``--to``."""

    FILES = "files"
    WEBDATASET = "webdataset"
    PARQUET = "parquet"


class ExportJpeg(StrEnum):
    """Choices of ``--jpeg``."""

    ORIGINAL = "original"
    KEEP = "keep"


def export(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder or URL of the data set.")],
    dest: Annotated[str, typer.Argument(metavar="DEST", help="Folder or URL for the output: new, or empty.")],
    to: Annotated[To, typer.Option("--to", help="What to write: single files, tar shards, or tables.")],
    jpeg: Annotated[
        ExportJpeg,
        typer.Option("--jpeg", help="JPEG files as they were before they were packed, or as they are stored."),
    ] = ExportJpeg.ORIGINAL,
    workers: Workers = None,
    source_options: SourceOptions = None,
    storage_options: StorageOptions = None,
    transport: TransportOption = Transport.AUTO,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a data set in a form that others read: files with a list, WebDataset, or Parquet as Hugging Face has it.

    A run that was interrupted goes on when the same command is given again.
    """
    with reporting(context):
        location = place(dest, storage_options, transport)
        with drawing("exporting", quiet=quiet or as_json) as draw:
            report = export_all(
                url,
                location,
                to=to.value,
                jpeg=jpeg.value,
                workers=workers,
                source_options=parse_options(source_options, "--source-option"),
                transport=transport.value,
                progress=draw,
            )
        if as_json:
            print_json(asdict(report))
            return
        kept = f", {report.kept:,} of them by an earlier run" if report.kept else ""
        stdout().print(
            f"{shown(dest, location)}: {plural(report.samples, 'sample')} as {to.value}{kept} "
            f"({size(report.bytes)} in {duration(report.seconds)})"
        )
