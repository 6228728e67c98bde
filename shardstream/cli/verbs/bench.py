"""``shardstream bench [stream] URL``, and the group that ``bench decode`` is in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from shardstream import diagnose
from shardstream.cli.commands import command
from shardstream.cli.flags import DatasetUrl, Json, arguments_of
from shardstream.cli.help import VerbCommand, VerbGroup
from shardstream.cli.progress import drawing
from shardstream.cli.report import duration, plural, print_found, print_row, size, stdout
from shardstream.cli.stores import format_url
from shardstream.cli.verbs.bench_decode import bench_decode
from shardstream.cli.verbs.bench_sweep import plot_sweep, print_sweep
from shardstream.dataset.opening import open_datasets
from shardstream.diagnose.bench import CROP
from shardstream.errors import UsageError
from shardstream.storage.cache import Cache
from shardstream.storage.local.output_files import check_regular


class _StreamUnlessNamed(VerbGroup):
    """``bench URL`` is ``bench stream URL``, and so is its help."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        stream = self.commands["stream"]
        stream.format_help(type(ctx)(stream, info_name=ctx.info_name, parent=ctx.parent), formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["stream", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="bench",
    cls=_StreamUnlessNamed,
    add_completion=False,
    rich_markup_mode=None,
    help="Measure how fast a data set streams (`bench URL`), or how fast images decode (`bench decode URL`).",
    no_args_is_help=True,
)
app.command("decode", cls=VerbCommand)(bench_decode)


@app.command("stream", cls=VerbCommand)
@command(
    open_datasets,
    examples=(
        "shardstream bench shards/             # how fast it streams, and its limit",
        "shardstream bench shards/ --sweep     # which setting is the fastest",
        "shardstream bench s3://bucket/set --cache cache/ --workers 4",
        "shardstream bench decode shards/      # how fast images decode",
    ),
    panels={
        "Measuring": ("seconds", "batches", "step", "sweep", "plot"),
        "Loader": ("fields", "crop", "batch_size", "workers", "shuffle", "device"),
        "Store": ("shared",),
    },
)
def bench(
    url: DatasetUrl,
    shared: Annotated[
        bool, typer.Option("--shared", help="The folder's group shares the cache, as in ss.Cache(shared=True).")
    ] = False,
    seconds: Annotated[
        float, typer.Option(help="How long to measure, from the first batch on; with --sweep, ten settings.")
    ] = 10.0,
    batches: Annotated[
        Optional[int],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Option(help="How many batches to measure instead.", min=1, metavar="N"),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Samples a batch.", min=1, metavar="N")] = 128,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Worker processes; 0 works in this process. (default: as ss.Loader chooses)", min=0),
    ] = None,
    fields: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--field", metavar="FIELD", help="Field to read; may be repeated. (default: all)"),
    ] = None,
    crop: Annotated[
        int, typer.Option(help="Decode images to random crops of this size; 0: bytes as they are stored.", min=0)
    ] = CROP,
    shuffle: Annotated[bool, typer.Option(help="Shuffle, or read in stored order.")] = True,
    step: Annotated[float, typer.Option(help="Seconds to sleep after each batch, as a training step does.")] = 0.0,
    device: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Bring batches to this device, as DevicePrefetcher does: cuda, cpu.", metavar="DEVICE"),
    ] = None,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep", help="Measure each stage alone, then workers, batches and prefetching, and what would gain."
        ),
    ] = False,
    plot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Draw what --sweep finds as an SVG file.", metavar="FILE"),
    ] = None,
    as_json: Json = False,
    quiet: bool = False,
    **flags: Any,
) -> None:
    """Stream a data set through the loader, and say how fast it comes and what it waits for.

    How fast image decoders are is measured by `bench decode URL`, see `bench decode --help`.
    """
    opening = arguments_of(flags, open_datasets)
    if shared and opening["cache"] is None:
        raise UsageError("--shared needs a cache", hint="give --cache DIR too")
    if shared:
        opening["cache"] = Cache(opening["cache"], shared=True)
    if plot is not None and not sweep:
        raise UsageError("--plot draws what --sweep finds", hint="give --sweep too")
    if plot is not None:
        check_regular(plot)
    if sweep and (workers is not None or batches is not None or step or device is not None):
        hint = "leave --workers, --batches, --step and --device out"
        raise UsageError("--sweep chooses the settings of the loader by itself", hint=hint)
    stream = {"fields": fields, "batch_size": batch_size, "shuffle": shuffle} | opening
    if sweep:
        with drawing("measuring", quiet=quiet) as draw:
            found = diagnose.sweep(url, crop=crop or None, seconds=seconds / 10, progress=draw, **stream)
        if plot is not None:
            plot_sweep(found, plot)
        print_found(found, print_sweep, format_url(url), as_json=as_json)
        return
    with drawing("streaming", quiet=quiet) as draw:
        report = diagnose.bench(
            url,
            seconds=seconds,
            batches=batches,
            workers=workers,
            crop=crop or None,
            step=step,
            ahead=None if device is None else {"device": device},
            progress=draw,
            **stream,
        )
    rates = {"samples_per_second": report.samples_per_second, "bytes_per_second": report.bytes_per_second}
    print_found(report, _print, format_url(url), as_json=as_json, **rates)


def _print(report: diagnose.BenchReport, url: str) -> None:
    out = stdout()
    workers = "in this process" if not report.workers else f"through {plural(report.workers, 'worker')}"
    rows = [
        ("data set", url),
        ("speed", f"{report.samples_per_second:,.0f} samples/s, {size(report.bytes_per_second)}/s of stored bytes"),
        ("measured", f"{plural(report.samples, 'sample')} ({report.epochs:.2f} epochs) in {duration(report.seconds)}"),
        ("", f"in batches of {report.samples / report.batches:,.0f}, {workers}"),
        ("images", _images(report)),
        ("first batch", f"after {duration(report.first_batch)}"),
        ("waited", f"{report.wait_share:.0%} of the time for data"),
        ("processors", _processors(report)),
    ]
    if report.workers:
        rows.append(("workers", f"at work {report.worker_load:.0%} of the time"))
    transfers = sorted((name, value) for name, value in report.transfers.items() if value)
    rows += [(name, size(value) if name.endswith("bytes") else f"{value:,}") for name, value in transfers]
    for name, text in (*((name, text) for name, text in rows if text), ("limit", report.advice)):
        print_row(name, text, 22)
    if report.limit != "loop" and report.processors.idle >= 1:
        out.print(f"next: shardstream bench {url} --workers {report.workers + max(1, int(report.processors.idle))}")
    else:
        out.print(f"next: shardstream view {url}")


def _processors(report: diagnose.BenchReport) -> str:
    found = report.processors
    told = f"{found.cores - found.idle:.1f} of {found.cores} busy, {found.ours:.1f} of them here"
    return told + (f"; {found.disk:.1f} waited for a disk" if found.disk >= 0.05 else "")


def _images(report: diagnose.BenchReport) -> str:
    if report.crop is None:
        return ""
    return f"decoded to random crops of {report.crop} (--crop 0: bytes as stored)"
