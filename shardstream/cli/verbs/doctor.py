"""``shardstream doctor [URL]``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Optional

import typer
from rich.text import Text

from shardstream import diagnose
from shardstream.cli.commands import command
from shardstream.cli.flags import Json, arguments_of
from shardstream.cli.report import Exit, plural, print_json, print_row, stdout
from shardstream.cli.stores import format_url

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_INDENT = 20


@command(
    diagnose.doctor,
    examples=("shardstream doctor", "shardstream doctor s3://bucket/set --cache cache/"),
    panels={"Training": ("workers", "batch_bytes")},
)
def doctor(
    url: Annotated[
        Optional[str],  # noqa: UP045 - Typer reads this when it runs
        typer.Argument(metavar="URL", help="A data set, or the folder or bucket where it lies or will lie."),
    ] = None,
    cache: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--cache", metavar="DIR", help="Folder of a cache, as training is given it."),
    ] = None,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            "--workers", metavar="N", min=0, help="Workers of the loader. (default: as many as it takes by itself)"
        ),
    ] = None,
    batch_bytes: Annotated[
        str, typer.Option("--batch-bytes", metavar="SIZE", help="Size of a batch: 128 images of 224 x 224 take 20MB.")
    ] = "20MB",
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Look at this machine as training would find it, and say what to change. Exit code 1 if anything fails."""
    found = diagnose.doctor(url, cache=cache, num_workers=workers, batch_bytes=batch_bytes, **arguments_of(flags))
    ok = not any(one.level == "fail" for one in found)
    if as_json:
        print_json({"ok": ok, "findings": [asdict(one) for one in found]})
    else:
        _print(found, url)
    if not ok:
        raise typer.Exit(Exit.PROBLEMS)


def _print(found: Sequence[diagnose.Finding], url: str | None) -> None:
    out = stdout()
    for one in found:
        print_row(Text.assemble((f"{one.level:<6}", _STYLES[one.level]), one.check), one.fact, _INDENT)
        if one.fix:  # in one line, to be pasted
            out.print(f"{'':6}fix: {one.fix}")
    counts = Counter(one.level for one in found)
    out.print(f"{plural(counts['fail'], 'failure')}, {plural(counts['warn'], 'warning')}, {counts['ok']} ok")
    if counts["fail"]:
        out.print("next: the fixes above, then shardstream doctor again")
    else:
        out.print(f"next: shardstream {'bench ' + format_url(url) if url else 'doctor URL'}")
