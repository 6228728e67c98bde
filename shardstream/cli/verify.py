"""``shardstream verify URL``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from shardstream import diagnose
from shardstream.cli.flags import Quiet
from shardstream.cli.opened import CacheFolder, Replicas, Version, opening
from shardstream.cli.progress import drawing
from shardstream.cli.report import Exit, duration, plural, print_json, reporting, size, stdout
from shardstream.cli.stores import StorageOptions, Transport, TransportOption, format_url, place
from shardstream.text import in_one_line

_SHOWN = 20


def verify(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder or URL of the data set.")],
    storage_options: StorageOptions = None,
    transport: TransportOption = Transport.AUTO,
    version: Version = None,
    cache: CacheFolder = None,
    replicas: Replicas = None,
    as_json: Annotated[bool, typer.Option("--json", help="Report as one line of JSON, with all problems.")] = False,
    reseal: Annotated[
        bool,
        typer.Option(
            "--reseal", help="First write the checksum of dataset.json anew: class names or meta were edited by hand."
        ),
    ] = False,
    max_value: Annotated[
        str, typer.Option(help="Largest value that is no problem, as it is delivered.", metavar="SIZE")
    ] = "1GiB",
    quiet: Quiet = False,
) -> None:
    """Read a data set whole and compare every byte with what was written. Exit code 1 if anything is wrong."""
    with reporting(context):
        options = opening(version, cache, replicas, storage_options, transport)
        location = place(url, storage_options, transport)
        resealed = diagnose.reseal(location) if reseal else ()
        with drawing("verifying", quiet=quiet) as draw:
            report = diagnose.verify(url, max_value=max_value, progress=draw, **options)
        if as_json:
            print_json({"ok": report.ok, "resealed": resealed, **asdict(report)})
        else:
            for name in resealed:
                stdout().print(f"{name}: checksum written anew")
            _print(report, format_url(url, location))
        if not report.ok:
            raise typer.Exit(Exit.PROBLEMS)


def _print(report: diagnose.VerifyReport, url: str) -> None:
    out = stdout()
    for problem in report.problems[:_SHOWN]:
        place = [
            f"{name} {in_one_line(value)}"
            for name in ("sample", "key", "field", "offset")
            if (value := getattr(problem, name)) is not None
        ]
        out.print(f"{problem.shard}: {problem.what}" + (f" [{', '.join(place)}]" if place else ""))
    copies = {one.shard: one.sound_copy for one in report.problems if one.sound_copy is not None}
    for shard, copy in list(copies.items())[:_SHOWN]:
        out.print(f"{shard}: a sound copy is in {in_one_line(copy)}")
    hidden = len(report.problems) - _SHOWN
    if hidden > 0:
        out.print(f"... and {hidden:,} more; --json lists all")
    looked_at = (
        f"{plural(report.shards, 'shard')}, {plural(report.samples, 'sample')}, {plural(report.values, 'value')}, "
        f"{size(report.bytes)} in {duration(report.seconds)}"
    )
    verdict = "sound" if report.ok else plural(len(report.problems), "problem")
    out.print(f"{url}: {verdict} ({looked_at})")
    if not report.ok:
        out.print("next: restore the shards named above from their source, or pack again with --overwrite")
