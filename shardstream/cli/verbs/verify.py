"""``shardstream verify URL``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from shardstream import diagnose
from shardstream.cli.commands import command
from shardstream.cli.flags import DatasetUrl, arguments_of
from shardstream.cli.progress import drawing
from shardstream.cli.report import Exit, duration, plural, print_first, print_found, size, stdout
from shardstream.cli.stores import format_url
from shardstream.dataset.opening import open_datasets
from shardstream.faults import told_kinds
from shardstream.text import in_one_line


@command(
    open_datasets,
    examples=("shardstream verify shards/", "shardstream verify s3://bucket/set --decode --json"),
    panels={"Checks": ("reseal", "decode", "max_value")},
)
def verify(
    url: DatasetUrl,
    as_json: Annotated[bool, typer.Option("--json", help="Report as one line of JSON, with all problems.")] = False,
    reseal: Annotated[
        bool,
        typer.Option(
            "--reseal", help="First write the checksum of dataset.json anew: class names or meta were edited by hand."
        ),
    ] = False,
    decode: Annotated[
        bool,
        typer.Option("--decode", help="Decode every image as well, and name those that are damaged or unsupported."),
    ] = False,
    max_value: Annotated[
        str, typer.Option(help="Largest value, as it is delivered, that is not a problem.", metavar="SIZE")
    ] = "1GiB",
    quiet: bool = False,
    **flags: Any,
) -> None:
    """Read a data set whole and compare every byte with what was written. Exit code 1 if anything is wrong."""
    opening = arguments_of(flags, open_datasets)
    resealed = diagnose.reseal(url, storage_options=opening["storage_options"]) if reseal else ()
    with drawing("verifying", quiet=quiet) as draw:
        report = diagnose.verify(url, decode=decode, max_value=max_value, progress=draw, **opening)
    print_found(report, _print, format_url(url), resealed, as_json=as_json, ok=report.ok, resealed=resealed)
    if not report.ok:
        raise typer.Exit(Exit.PROBLEMS)


def _print(report: diagnose.VerifyReport, url: str, resealed: Sequence[str]) -> None:
    out = stdout()
    for name in resealed:
        out.print(f"{name}: checksum written anew")
    print_first([_line(problem) for problem in report.problems])
    copies = {one.shard: one.sound_copy for one in report.problems if one.sound_copy is not None}
    print_first([f"{shard}: a sound copy is in {in_one_line(copy)}" for shard, copy in copies.items()])
    looked_at = (
        f"{plural(report.shards, 'shard')}, {plural(report.samples, 'sample')}, {plural(report.values, 'value')}, "
        + (f"{plural(report.pictures, 'picture')} decoded, " if report.pictures else "")
        + f"{size(report.bytes)} in {duration(report.seconds)}"
    )
    sound = "sound" if report.compared else "all there, with no checksums to compare"
    if report.own:
        looked_at += f", {' and '.join(report.own)} compared"
    told = told_kinds(dict(Counter(one.kind for one in report.problems).most_common()))
    verdict = sound if report.ok else f"{plural(len(report.problems), 'problem')}: {told}"
    out.print(f"{url}: {verdict} ({looked_at})")
    if not report.compared:
        makes = f"pack {url} DEST" if report.loose else f"index {url} --checksums"
        out.print(f"next: shardstream {makes}, which reads everything and makes them")
    if any(problem.check != "picture" for problem in report.problems):
        out.print("next: restore the shards named above from their source, or pack again with --overwrite")
    elif not report.ok:
        out.print(f"next: shardstream repack {url} DEST --drop-damaged, which leaves these samples out")


def _line(problem: diagnose.Problem) -> str:
    position = [
        f"{name} {in_one_line(value)}"
        for name in ("sample", "key", "field", "offset")
        if (value := getattr(problem, name)) is not None
    ]
    return f"{problem.shard}: {problem.what}" + (f" [{', '.join(position)}]" if position else "")
