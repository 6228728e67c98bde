"""``shardstream view URL [SAMPLE]...``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from shardstream import diagnose
from shardstream.cli.flags import DatasetUrl, Json, arguments_of, reads_dataset
from shardstream.cli.report import plural, print_found, reporting, size, stdout
from shardstream.cli.stores import format_url
from shardstream.text import in_one_line

_DEFAULT = 5


@reads_dataset
def view(
    context: typer.Context,
    url: DatasetUrl,
    numbers: Annotated[
        Optional[list[int]],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Argument(metavar="[SAMPLE]...", help=f"Numbers in stored order, from 0. (default: the first {_DEFAULT})"),
    ] = None,
    keys: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--key", metavar="KEY", help="A sample by its key; may be repeated."),
    ] = None,
    save: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--save", metavar="DIR", help="Write the values to files DIR/KEY.FIELD."),
    ] = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Show single samples: keys, fields, sizes, images' dimensions. Reads these samples and their indexes only."""
    with reporting(context):
        opening = arguments_of(flags)
        chosen = list(numbers or ())
        if not chosen and not keys:
            chosen = list(range(min(_DEFAULT, diagnose.info(url, **opening).samples)))
        found = diagnose.view(url, chosen, keys=keys or (), save=save, **opening)
        print_found(found, _print, format_url(url), save, as_json=as_json)


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
