"""``shardstream view URL [SAMPLE]...``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from shardstream import diagnose
from shardstream.cli.commands import command
from shardstream.cli.flags import DatasetUrl, Json, arguments_of
from shardstream.cli.report import plural, print_found, size, stdout
from shardstream.cli.stores import format_url
from shardstream.cli.verbs.view_page import PageContent, TrainingRun, made_page, show_page
from shardstream.dataset.opening import open_datasets
from shardstream.errors import UsageError
from shardstream.text import in_one_line

_DEFAULT = 5


@command(
    open_datasets,
    examples=(
        "shardstream view shards/ 17 --save here/    # one sample, its values as files",
        "shardstream view shards/ --html page.html   # pictures of 200 samples",
        "shardstream view shards/ --serve --draws 8  # and what training gets of them",
        "shardstream view shards/ --serve --epoch 3 --step 812 --rank 0/8",
    ),
    panels={
        "Samples": ("keys", "samples", "seed"),
        "Output": ("save", "html", "serve", "port"),
        "Training": ("draws", "crop", "epoch", "step", "rank", "batch_size", "workers"),
    },
)
def view(
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
        Optional[int],  # noqa: UP045
        typer.Option(
            "--samples",
            metavar="N",
            help="Samples on the page, spread over all shards. (default: 200; 8 with --draws; with --step the batch)",
            min=1,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", help="Of that choice; with --draws and --step, of training.", min=0)
    ] = 0,
    draws: Annotated[
        int,
        typer.Option("--draws", metavar="N", help="Also show random crops, as N epochs of training get them.", min=0),
    ] = 0,
    crop: Annotated[int, typer.Option("--crop", metavar="PIXELS", help="Side of these crops.", min=1)] = 224,
    epoch: Annotated[int, typer.Option("--epoch", metavar="E", help="The first of these epochs.", min=0)] = 0,
    step: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--step", metavar="S", help="Show what is in batch S of that epoch, counted from 0.", min=0),
    ] = None,
    rank: Annotated[str, typer.Option("--rank", metavar="R/W", help="Of which rank of how many.")] = "0/1",
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", help="Samples a batch of it.", min=1)] = 256,
    workers: Annotated[int, typer.Option("--workers", metavar="N", help="Of its loader.", min=0)] = 8,
    as_json: Json = False,
    quiet: bool = False,
    **flags: Any,
) -> None:
    """Show single samples: keys, fields, sizes, images' dimensions; or a page of pictures (--html, --serve).

    Reads these samples and their indexes only.
    """
    opening = arguments_of(flags, open_datasets)
    trained = draws > 0 or step is not None
    if html is not None or serve:
        if save is not None or as_json:
            raise UsageError("--save and --json do not go with a page", hint="leave --html and --serve out")
        run = TrainingRun(draws, crop, epoch, step, rank, batch_size, workers) if trained else None
        wanted = PageContent(url, tuple(numbers or ()), tuple(keys or ()), samples, seed, opening)
        show_page(*made_page(wanted, run, quiet=quiet), html, port if serve else None)
        return
    if trained:
        raise UsageError("--draws and --step make a page", hint="say where: --html FILE, or --serve")
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
