"""``shardstream view URL [SAMPLE]...``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from shardstream import diagnose
from shardstream.cli.flags import Json
from shardstream.cli.opened import CacheFolder, Replicas, Version, opening
from shardstream.cli.report import plural, print_json, reporting, size, stdout
from shardstream.cli.stores import StorageOptions, Transport, TransportOption, format_url, place
from shardstream.text import in_one_line

_DEFAULT = 5


def view(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder or URL of the data set.")],
    numbers: Annotated[
        Optional[list[int]],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Argument(metavar="[SAMPLE]...", help=f"Numbers in stored order, from 0. (default: the first {_DEFAULT})"),
    ] = None,
    storage_options: StorageOptions = None,
    transport: TransportOption = Transport.AUTO,
    version: Version = None,
    cache: CacheFolder = None,
    replicas: Replicas = None,
    keys: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--key", metavar="KEY", help="A sample by its key; may be repeated."),
    ] = None,
    save: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--save", metavar="DIR", help="Write the values to files DIR/KEY.FIELD."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show single samples: keys, fields, sizes, images' dimensions. Reads these samples and their indexes only."""
    with reporting(context):
        options = opening(version, cache, replicas, storage_options, transport)
        chosen = list(numbers or ())
        if not chosen and not keys:
            chosen = list(range(min(_DEFAULT, diagnose.info(url, **options).samples)))
        found = diagnose.view(url, chosen, keys=keys or (), save=save, **options)
        if as_json:
            print_json(asdict(found))
        else:
            _print(found, format_url(url, place(url, storage_options, transport)), save)


def _print(found: diagnose.View, url: str, save: Path | None) -> None:
    out = stdout()
    for sample in found.samples:
        out.print(
            f"sample {sample.number:,} of {found.total:,}: {in_one_line(sample.key)} [{sample.shard}, row {sample.row}]"
        )
        table = Table("field", "type", "bytes", "value", box=box.SIMPLE_HEAD, pad_edge=False)
        for field in sample.fields:
            table.add_row(field.name, field.type, size(field.bytes), Text(in_one_line(field.text)))
        out.print(table, soft_wrap=False)
    if save is not None:
        out.print(f"{plural(len(found.saved), 'file')} in {save}")
    else:
        out.print(f"next: shardstream view {url} {found.samples[0].number if found.samples else 0} --save DIR")
