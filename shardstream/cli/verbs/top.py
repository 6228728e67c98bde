"""``shardstream top PID``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.live import Live
from rich.text import Text

from shardstream import diagnose
from shardstream.cli.commands import command
from shardstream.cli.flags import Json
from shardstream.cli.report import duration, print_json, stdout
from shardstream.errors import UsageError
from shardstream.text import cut, in_one_line, text_table

_EVERY_S = 1.0
_SHARD, _KEY = 24, 22  # columns
_HEAD = ("worker", "process", "stage", "for", "shard", "sample", "key")


@command(examples=("shardstream top 4120", "shardstream top 4120 --once"), panels={"Output": ("once",)})
def top(
    process: Annotated[
        int, typer.Argument(metavar="PID", help="Number of the training process, or of torchrun.", min=1)
    ],
    once: Annotated[bool, typer.Option("--once", help="Print it once, as where the output is no terminal.")] = False,
    as_json: Json = False,
) -> None:
    """Show what each worker of a run of yours on this machine is at: stage, shard, sample, and what it waits for.

    The run is not asked and does not notice. Ctrl-C ends it, and so does the end of the run.
    """
    runs = diagnose.top(process)
    if as_json:
        print_json({"runs": [asdict(run) for run in runs]})
        return
    out = stdout()
    if once or not out.is_terminal:
        out.print(top_text(runs, 0))
        out.print("next: print(loader.stats.report()) in the run says what its steps wait for")
        return
    with Live(console=out, auto_refresh=False) as live:
        while True:
            live.update(Text(top_text(runs, out.width), no_wrap=True, overflow="crop"), refresh=True)
            time.sleep(_EVERY_S)
            try:
                runs = diagnose.top(process)
            except UsageError as error:
                live.update(Text(f"the run has ended: {error.what}"), refresh=True)
                return


def top_text(runs: Sequence[diagnose.RunSeen], width: int) -> str:
    """Runs as they are printed; with a width of 0 no line is cut."""
    if not runs:
        return "no worker has begun yet"
    return "\n\n".join(_run(run, width) for run in runs)


def _run(run: diagnose.RunSeen, width: int) -> str:
    of = f" of {run.world_size}" if run.world_size > 1 else ""
    urls = ", ".join(map(in_one_line, run.urls))
    lines = [f"rank {run.rank}{of}, process {run.process}: {urls}", text_table([_HEAD, *map(_row, run.workers)])]
    for one in run.workers:
        if one.request:
            more = f", and {one.requests - 1} more" if one.requests > 1 else ""
            said = f" (attempt {max(one.attempts, 1)}, for {duration(one.request_seconds)}{more})"
            begin = f"  worker {one.worker} waits for "
            room = max(20, width - len(begin) - len(said)) if width else 400
            lines.append(begin + cut(in_one_line(one.request), room, end=room // 2) + said)
    return "\n".join(lines)


def _row(one: diagnose.WorkerSeen) -> tuple[str, ...]:
    return (
        str(one.worker),
        str(one.process),
        one.stage,
        duration(one.seconds),
        cut(in_one_line(one.shard or ""), _SHARD, end=_SHARD // 2),
        "" if one.sample is None else str(one.sample),
        cut(in_one_line(one.key), _KEY, end=_KEY // 2),
    )
