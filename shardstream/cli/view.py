"""``shardstream view URL [SAMPLE]...``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from shardstream import diagnose
from shardstream.cli.flags import DatasetUrl, Json, Quiet, arguments_of, reads_dataset
from shardstream.cli.progress import drawing
from shardstream.cli.report import plural, print_found, reporting, size, stderr, stdout
from shardstream.cli.stores import format_url
from shardstream.errors import UsageError
from shardstream.storage import open_store
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
    html: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--html", metavar="FILE", help="Write a page with pictures, and what the fields hold."),
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve that page to this machine, at an address nobody can guess.")
    ] = False,
    port: Annotated[int, typer.Option("--port", help="Of --serve; 0 takes a free one.", min=0, max=65535)] = 0,
    samples: Annotated[
        int, typer.Option("--samples", metavar="N", help="Samples on the page, spread over all shards.", min=1)
    ] = 200,
    seed: Annotated[int, typer.Option("--seed", help="Of the choice of these samples.", min=0)] = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    **flags: Any,
) -> None:
    """Show single samples: keys, fields, sizes, images' dimensions; or a page of pictures (--html, --serve).

    Reads these samples and their indexes only.
    """
    with reporting(context):
        opening = arguments_of(flags)
        if html is not None or serve:
            if save is not None or as_json:
                raise UsageError("--save and --json do not go with a page", hint="leave --html and --serve out")
            with drawing("looking", quiet=quiet) as draw:
                how = {"samples": samples, "seed": seed, "progress": draw}
                made = _page(url, numbers or (), keys or (), opening | how)
            _show(made, html, port if serve else None)
            return
        chosen = list(numbers or ())
        if not chosen and not keys:
            chosen = list(range(min(_DEFAULT, diagnose.info(url, **opening).samples)))
        found = diagnose.view(url, chosen, keys=keys or (), save=save, **opening)
        print_found(found, _print, format_url(url), save, as_json=as_json)


def _page(url: str, numbers: Sequence[int], keys: Sequence[str], options: dict[str, Any]) -> tuple[str, str]:
    """The page, and what is on it."""
    from shardstream.diagnose.overview import overview  # with decoders, which text needs none of
    from shardstream.report.page import page

    found = overview(url, numbers, keys=keys, **options)
    return page(found), f"{plural(len(found.samples), 'sample')} of {found.total:,}"


def _show(made: tuple[str, str], html: Path | None, port: int | None) -> None:
    """Write the page, and serve it until somebody interrupts that."""
    out = stdout()
    page, what = made
    if html is not None:
        data = page.encode()
        open_store(html.absolute().parent).put(html.name, data)
        out.print(f"{in_one_line(html)}: {what}, {size(len(data))}")
        if port is None:
            out.print(f"next: open {in_one_line(html)} in a browser")
    if port is not None:
        from shardstream.report.serving import PageServer

        with PageServer(page, port) as server:
            out.print(f"{server.url}")
            stderr().print(f"serving {what} to this machine only; Ctrl-C ends it")
            server.serve_forever()


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
