"""``shardstream info URL``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from shardstream import diagnose
from shardstream.cli.flags import Json
from shardstream.cli.opened import CacheFolder, Replicas, Version, opening
from shardstream.cli.report import print_json, reporting, size, stdout
from shardstream.cli.stores import StorageOptions, Transport, TransportOption, format_url, place
from shardstream.text import in_one_line, json_text

_SHOWN_CLASSES = 8


def info(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Folder or URL of the data set.")],
    storage_options: StorageOptions = None,
    transport: TransportOption = Transport.AUTO,
    version: Version = None,
    cache: CacheFolder = None,
    replicas: Replicas = None,
    as_json: Json = False,
) -> None:
    """Say what a data set holds. Reads its manifest and one index."""
    with reporting(context):
        found = diagnose.info(url, **opening(version, cache, replicas, storage_options, transport))
        if as_json:
            print_json(asdict(found))
        else:
            _print(found, format_url(url, place(url, storage_options, transport)))


def _print(found: diagnose.Info, url: str) -> None:
    out = stdout()
    for name, text in _rows(found):
        out.print(f"{name:<12}{text}")
    table = Table("field", "type", "stored", "bytes a value", "in samples", box=box.SIMPLE_HEAD, pad_edge=False)
    for field in found.fields:
        table.add_row(
            field.name,
            field.type,
            _stored(field),
            "?" if field.mean_bytes is None else size(field.mean_bytes),
            "?" if field.present is None else f"{field.present:.1%}" if field.present < 1 else "all",
        )
    out.print(table, soft_wrap=False)
    out.print(f"next: shardstream verify {url}")


def _stored(field: diagnose.FieldInfo) -> str:
    files = sum(field.kinds.values())
    if files:
        share = field.kinds.get("addressable", 0) / files
        return f"{share:.1%} addressable" if share < 1 else "addressable"
    return "zstd" if field.codec == "zstd" else "plain"


def _rows(found: diagnose.Info) -> list[tuple[str, str]]:
    per, each = found.samples_per_shard, found.shard_bytes
    rows = [
        ("data set", found.url),
        ("samples", f"{found.samples:,}"),
        ("shards", f"{found.shards:,} ({found.format}), {size(found.bytes)}"),
        ("a shard", f"{per.least:,} to {per.most:,} samples (mean {per.mean:,.0f})"),
        ("", f"{size(each.least)} to {size(each.most)} (mean {size(each.mean)})"),
    ]
    if found.classes is not None:
        shown = ", ".join(map(in_one_line, found.classes[:_SHOWN_CLASSES])) + (
            ", ..." if len(found.classes) > _SHOWN_CLASSES else ""
        )
        rows.append(("classes", f"{len(found.classes):,}: {shown}"))
    if found.rejects:
        rows.append(("rejected", f"{found.rejects:,} (rejects.jsonl)"))
    if found.meta:
        rows.append(("meta", json_text(dict(found.meta))))
    shuffled = "as they came" if found.seed is None else f"shuffled with seed {found.seed}"
    checksums = {True: "of every value", False: "of whole shards only", None: "?"}[found.checksums]
    older = f" (older ones too: {', '.join(map(str, found.old_versions))})" if found.old_versions else ""
    return [
        *rows,
        ("order", shuffled),
        ("checksums", checksums),
        ("version", f"{found.version}{older}"),
        ("fingerprint", found.fingerprint),
    ]
