"""How a verb is told which data set it reads: ``--version``, ``--cache``, ``--replica``, and how to get there."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import typer

from shardstream.cli.stores import Transport, parse_options

Version = Annotated[
    Optional[int],  # noqa: UP045 - Typer reads this when it runs, also old ones
    typer.Option("--version", metavar="N", help="Version of a data set that grew. (default: the newest)", min=1),
]
CacheFolder = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--cache", metavar="DIR", help="Keep what is read over a network in this folder."),
]
Replicas = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--replica", metavar="URL", help="Another place that has its shards; may be repeated."),
]


def opening(
    version: int | None,
    cache: str | None,
    replicas: list[str] | None,
    storage_options: list[str] | None,
    transport: Transport,
) -> dict[str, Any]:
    """What `open_dataset`, and every verb that reads a data set, is given beside its URL.

    Raises:
        UsageError: An option cannot be read.
    """
    return {
        "version": version,
        "cache": cache,
        "replicas": replicas or (),
        "storage_options": parse_options(storage_options),
        "transport": transport.value,
    }
