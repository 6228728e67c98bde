"""``shardstream bench decode``."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from shardstream import diagnose
from shardstream.cli.commands import command
from shardstream.cli.flags import Json, arguments_of
from shardstream.cli.progress import drawing
from shardstream.cli.report import plural, print_found, stdout


@command(
    diagnose.bench_decode,
    examples=("shardstream bench decode shards/", "shardstream bench decode a.jpg b.webp --crop 112"),
    panels={"Measuring": ("images", "crop", "seconds")},
)
def bench_decode(
    places: Annotated[
        Optional[list[str]],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Argument(metavar="[URL | FILE...]", help="A data set, or image files. (default: photographs of noise)"),
    ] = None,
    images: Annotated[int, typer.Option(help="How many images of the data set.", min=1, metavar="N")] = 64,
    crop: Annotated[int, typer.Option(help="Size of the random crops.", min=1)] = 224,
    seconds: Annotated[float, typer.Option(help="How long one measurement takes; there are two a backend.")] = 0.5,
    as_json: Json = False,
    quiet: bool = False,
    **flags: Any,
) -> None:
    """Decode images with every library that is installed, and say how fast each is in one thread."""
    with drawing("decoding", quiet=quiet) as draw:
        report = diagnose.bench_decode(
            *places or (), images=images, crop=crop, seconds=seconds, progress=draw, **arguments_of(flags)
        )
    print_found(report, _print, as_json=as_json)


def _print(report: diagnose.DecodeReport) -> None:
    out = stdout()
    kinds = list(report.images)
    out.print(f"{'images':<13}{report.source}")
    for kind in kinds:
        width, height = report.sizes[kind]
        count = plural(report.images[kind], f"{kind} image")
        out.print(f"{'':<13}{count}, {width} x {height} in the middle")
    heads = "".join(f"{kind:>10}{f'{kind} to {report.crop}':>14}  " for kind in kinds)
    out.print(f"{'backend':<13}{'library':<24}{heads}".rstrip())
    for one in report.backends:
        if one.library is None:
            out.print(f"{one.backend:<13}not installed: {one.missing}")
            continue
        cells = (
            f"{_rate(speed.full):>10}{_rate(speed.crop):>14}{' *' if speed.taken else '  '}" for speed in one.speeds
        )
        out.print(f"{one.backend:<13}{one.library:<24}{''.join(cells)}".rstrip())
    out.print("images a second, one thread; * is what auto takes, - what a backend leaves to auto")
    out.print('next: ShardDataset(url, backend="..."), or backend= of a decoder in its fields')


def _rate(speed: float | None) -> str:
    return "-" if speed is None else f"{speed:,.0f}"
