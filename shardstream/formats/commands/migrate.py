"""``shardstream migrate URL``."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from shardstream.cli.commands import command
from shardstream.cli.flags import Json, arguments_of
from shardstream.cli.progress import drawing
from shardstream.cli.report import duration, plural, print_found, print_row, size, stdout
from shardstream.cli.stores import format_url
from shardstream.dataset.opening import open_datasets
from shardstream.formats import migrate as moving
from shardstream.text import in_one_line


@command(
    open_datasets,
    examples=("shardstream migrate 'data/train-{000..099}.tar'", "shardstream migrate mds/ --no-bench"),
    panels={"Measuring": ("bench", "seconds", "disk", "crop", "batch_size", "workers")},
)
def migrate(
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder, or files by braces or a glob; local or a URL.")],
    bench: Annotated[bool, typer.Option("--bench/--no-bench", help="Measure what packing would gain.")] = True,
    seconds: Annotated[float, typer.Option(help="How long that may take, about.")] = 30.0,
    disk: Annotated[str, typer.Option(help="How much it may write to a temporary folder.", metavar="SIZE")] = "256MB",
    crop: Annotated[int, typer.Option(help="Side of the random crops that pictures become.", min=1)] = 224,
    batch_size: Annotated[int, typer.Option(help="Samples a batch.", min=1, metavar="N")] = 64,
    workers: Annotated[
        Optional[int],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Option(help="Worker processes; 0 works in this process. (default: one a processor, at most 8)", min=0),
    ] = None,
    as_json: Json = False,
    quiet: bool = False,
    **flags: Any,
) -> None:
    """Say what it takes to train on data of another library with this one.

    Their format and fields, the code before and after, and what packing would gain, measured on a part of them.
    """
    with drawing("measuring", quiet=quiet or as_json) as draw:
        found = moving.migrate(
            url,
            seconds=seconds if bench else 0,
            disk=disk,
            crop=crop,
            batch_size=batch_size,
            workers=workers,
            progress=draw,
            **arguments_of(flags, open_datasets),
        )
    ratio = None if found.gain is None else found.gain.ratio
    print_found(found, _print, format_url(url), as_json=as_json, packed_is_faster_by=ratio)


def _print(found: moving.Migration, url: str) -> None:
    out = stdout()
    fields = ", ".join(f"{one.name} ({one.type})" for one in found.fields)
    held = "" if found.bytes is None else f", {size(found.bytes)}"
    rows = [
        ("data set", url),
        ("format", f"{found.title}, {plural(found.objects, 'file')}{held}"),
        ("samples", f"{found.samples:,}"),
        ("fields", fields),
    ]
    if found.classes is not None:
        rows.append(("classes", f"{found.classes:,}"))
    rows += [("note", in_one_line(note)) for note in found.notes]
    rows += _gain(found.gain) if found.gain else _not_measured(found.not_measured)
    for name, text in rows:
        print_row(name, text, 12)
    if found.before is not None:
        out.print(f"\n# ---- before, with {found.library}\n\n{found.before}")
    out.print(f"\n# ---- after\n\n{found.after}")
    out.print(f"next: {found.pack}")


def _not_measured(reason: str) -> list[tuple[str, str]]:
    """The reason, and the hint of an error in a line of its own."""
    what, *hints = reason.splitlines()
    return [("packing", f"not measured: {in_one_line(what)}"), *(("", in_one_line(hint.strip())) for hint in hints)]


def _gain(gain: moving.Gain) -> list[tuple[str, str]]:
    low, high = min(gain.ratios), max(gain.ratios)
    spread = f"{low:.2f} to {high:.2f} in {plural(len(gain.ratios), 'round')}"
    said = f"{gain.ratio:.2f} times as fast ({spread})"
    if not gain.sure:
        said = f"no difference that this machine shows: {said}"
    what = "samples as stored" if gain.crop is None else f"random crops of {gain.crop}"
    here, there = (sorted(one)[len(one) // 2] for one in (gain.in_place, gain.packed))
    return [
        ("packing", said),
        ("", f"{there:,.0f} samples/s packed, {here:,.0f} in place: {what}, {plural(gain.workers, 'worker')}"),
        (
            "",
            f"of {plural(gain.samples, 'sample')}, packed in {duration(gain.pack_seconds)} to {size(gain.bytes)}; "
            "all in memory, so the disk has no part in it",
        ),
    ]
