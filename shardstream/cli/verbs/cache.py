"""``shardstream cache status|warm|verify|clear``."""

from __future__ import annotations

import time
from typing import Annotated, Any, Optional

import typer

from shardstream.cli.commands import command
from shardstream.cli.flags import Json, arguments_of
from shardstream.cli.help import VerbCommand, VerbGroup
from shardstream.cli.progress import drawing
from shardstream.cli.report import Exit, duration, plural, print_first, print_found, size, stdout
from shardstream.cli.stores import format_url
from shardstream.diagnose import cache as caches
from shardstream.errors import UsageError
from shardstream.storage.cache import Cache
from shardstream.storage.cache.maintenance import Damage

app = typer.Typer(
    name="cache",
    cls=VerbGroup,
    add_completion=False,
    rich_markup_mode=None,
    help="Look at the cache of this machine, fill it ahead of training, check it, clear it.",
    no_args_is_help=True,
)

_PANELS = {"Cache": ("only", "memory", "shared")}

Folder = Annotated[str, typer.Argument(metavar="CACHE", help="Folder of the cache, as training is given it.")]
Memory = Annotated[
    Optional[str],  # noqa: UP045 - Typer reads this when it runs
    typer.Option("--memory", metavar="DIR", help="Its memory, such as /dev/shm, if training uses that too."),
]
Shared = Annotated[bool, typer.Option("--shared", help="Its folder's group shares it, as in ss.Cache(shared=True).")]


@app.command("status", cls=VerbCommand)
@command(examples=("shardstream cache status cache/",), panels=_PANELS)
def status(cache: Folder, memory: Memory = None, shared: Shared = False, as_json: Json = False) -> None:
    """Say what is in a cache: data sets, how much of them is there, and who uses them."""
    print_found(caches.status(Cache(cache, memory=memory, shared=shared)), _print_status, as_json=as_json)


def _print_status(found: caches.CacheStatus) -> None:
    out = stdout()
    totals = {one.fingerprint: one for one in sorted(found.known, key=lambda one: one.shards)}  # the newest version
    for tier in found.tiers:
        limit = "" if tier.limit is None else f" of {size(tier.limit)}"
        where = "memory" if tier.memory else "disk"
        out.print(f"{tier.path} ({where}): {size(tier.used)}{limit} used, {size(tier.free)} free")
        for one in tier.sets:
            known = totals.get(one.fingerprint)
            objects = f"{one.objects:,} of {known.shards:,} shards" if known else plural(one.objects, "shard")
            used = "in use" if one.in_use else f"last used {duration(max(0.0, time.time() - one.last_used))} ago"
            there = size(one.present) + (f" of {size(known.bytes)}" if known else "")
            out.print(f"  {one.url}: {there} in {objects}, {used} [{one.fingerprint[:12]}]")
    for known in found.known:
        if known.offline:
            out.print(f"{known.url}: complete, trains without the store")


@app.command("warm", cls=VerbCommand)
@command(
    caches.warm,
    examples=(
        "shardstream cache warm s3://bucket/set cache/ --size 800GB",
        "shardstream cache warm s3://bucket/set cache/ --node 0/4 --seed 7",
    ),
    panels={"Cache": ("limit", "memory", "memory_size", "shared"), "Training": ("node", "seed")},
)
def warm(
    url: Annotated[str, typer.Argument(metavar="URL", help="The data set.")],
    cache: Folder,
    limit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--size", metavar="SIZE", help="Bytes the cache may hold, such as 800GB; as for training."),
    ] = None,
    memory: Memory = None,
    memory_size: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--memory-size", metavar="SIZE", help="Bytes its memory may hold."),
    ] = None,
    node: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--node", metavar="I/N", help="Only what node I of N will read, counted from 0."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the training, on which a node's share depends.")] = 0,
    shared: Shared = False,
    as_json: Json = False,
    quiet: bool = False,
    **flags: Any,
) -> None:
    """Bring a data set into the cache ahead of training. Exit code 1 if the cache had no room for all of it."""
    spec = Cache(cache, size=limit, memory=memory, memory_size=memory_size, shared=shared)
    with drawing("warming", quiet=quiet) as draw:
        report = caches.warm(url, spec, node=_node(node), seed=seed, progress=draw, **arguments_of(flags))
    print_found(report, _print_warm, format_url(url), cache, shared, as_json=as_json)
    if report.full:
        raise typer.Exit(Exit.PROBLEMS)


def _node(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, slash, nodes = text.partition("/")
    if not (slash and number.isdecimal() and nodes.isdecimal()):
        raise UsageError(f"--node must be I/N, got {text!r}", hint="for the first of four nodes: --node 0/4")
    return int(number), int(nodes)


def _print_warm(report: caches.WarmReport, url: str, cache: str, shared: bool) -> None:
    out = stdout()
    out.print(
        f"{url}: {report.shards:,} of {plural(report.total_shards, 'shard')}, {size(report.bytes)} in the cache, "
        f"{size(report.fetched)} fetched in {duration(report.seconds)}"
    )
    if report.full:
        out.print("the cache has no room for the rest, which will be read from the store each time")
    out.print(f"next: shardstream cache status {cache}{' --shared' if shared else ''}")


@app.command("verify", cls=VerbCommand)
@command(examples=("shardstream cache verify cache/",), panels=_PANELS)
def verify(
    cache: Folder,
    memory: Memory = None,
    shared: Shared = False,
    as_json: Json = False,
    quiet: bool = False,
) -> None:
    """Compare all that is in a cache with its checksums. What fails is cleared, to be fetched again; exit code 1."""
    with drawing("verifying", quiet=quiet) as draw:
        report = caches.verify_cache(Cache(cache, memory=memory, shared=shared), progress=draw)
    print_found(report, _print_verified, cache, as_json=as_json, ok=report.ok)
    if not report.ok:
        raise typer.Exit(Exit.PROBLEMS)


def _print_verified(report: caches.VerifyCacheReport, cache: str) -> None:
    print_first([_line(damage) for damage in report.damages])
    verdict = "sound" if report.ok else f"{plural(len(report.damages), 'damage')}, to be fetched again"
    stdout().print(f"{cache}: {verdict} ({size(report.bytes)} in {duration(report.seconds)})")


def _line(damage: Damage) -> str:
    position = "" if damage.offset is None else f" [offset {damage.offset}]"
    return f"{damage.path or damage.file}: {damage.what}{position}"


@app.command("clear", cls=VerbCommand)
@command(examples=("shardstream cache clear cache/ --only s3://bucket/set",), panels=_PANELS)
def clear(
    cache: Folder,
    only: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--only", metavar="URL", help="Only this data set, by its URL or fingerprint."),
    ] = None,
    memory: Memory = None,
    shared: Shared = False,
    as_json: Json = False,
) -> None:
    """Remove data sets from a cache. Those that are in use stay: exit code 1. Only files of caches are removed."""
    report = caches.clear(Cache(cache, memory=memory, shared=shared), only=only)
    print_found(report, _print_cleared, cache, as_json=as_json)
    if report.in_use:
        raise typer.Exit(Exit.PROBLEMS)


def _print_cleared(report: caches.ClearReport, cache: str) -> None:
    out = stdout()
    for one in report.cleared:
        out.print(f"{one.url}: {size(one.bytes)} freed")
    for one in report.in_use:
        out.print(f"{one.url}: in use, {size(one.bytes)} stay")
    if not report.cleared and not report.in_use:
        out.print(f"{cache}: nothing to clear")
