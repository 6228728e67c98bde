"""``shardstream info URL``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

from shardstream import diagnose
from shardstream.cli.commands import command
from shardstream.cli.flags import DatasetUrl, Json, arguments_of
from shardstream.cli.report import plural, print_found, size, stdout
from shardstream.cli.stores import format_url
from shardstream.dataset.opening import open_datasets
from shardstream.faults import FAULT_KINDS, told_kinds
from shardstream.names.globs import split_glob
from shardstream.names.splits import SplitsError
from shardstream.text import in_one_line, json_text

_SHOWN_CLASSES = 8


@command(open_datasets, examples=("shardstream info shards/", "shardstream info s3://bucket/set --version 3 --json"))
def info(url: DatasetUrl, as_json: Json = False, **flags: Any) -> None:
    """Say what a data set holds. Reads its manifest and at most 16 indexes.

    If a directory has several splits, it says what each of them holds.
    """
    opening = arguments_of(flags, open_datasets)
    try:
        found = diagnose.info(url, **opening)
    except SplitsError as error:
        above = (split_glob(url) or (url,))[0].rstrip("/")
        places = {name: f"{above}/{place}" for name, place in error.places.items()}
        splits = {name: diagnose.info(place, **opening) for name, place in places.items()}
        first = format_url(next(iter(places.values())))
        print_found(SplitsInfo(format_url(url), splits), _print_splits, first, as_json=as_json)
        return
    print_found(found, _print, format_url(url), as_json=as_json)


@dataclass(frozen=True, slots=True)
class SplitsInfo:
    """What the splits of one directory hold, by name."""

    url: str
    splits: dict[str, diagnose.Info]


def _print_splits(found: SplitsInfo, first: str) -> None:
    out = stdout()
    out.print(f"{'data set':<12}{found.url}: {plural(len(found.splits), 'split')}")
    for name, one in found.splits.items():
        shards = f"{plural(one.shards, 'shard')} ({_container(one)})"
        classes = "" if one.classes is None else f", {plural(len(one.classes), 'class', 'classes')}"
        out.print(f"{in_one_line(name):<12}{plural(one.samples, 'sample')} in {shards}, {size(one.bytes)}{classes}")
    out.print(f"next: shardstream info {first}")


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
            "?" if field.present is None else _share(field.present),
        )
    out.print(table, soft_wrap=False)
    if found.counted < found.samples:
        shards = f"{found.counted_shards:,} of {plural(found.shards, 'shard')}"
        out.print(f"bytes and shares are of {shards}, with {found.counted:,} of {plural(found.samples, 'sample')}")
    out.print(f"next: shardstream verify {url}")


def _share(present: float) -> str:
    """A share as text: ``all`` and ``none`` only if it is exactly that."""
    if present in (0, 1):
        return "all" if present else "none"
    return f"{min(max(present, 0.001), 0.999):.1%}"


def _stored(field: diagnose.FieldInfo) -> str:
    stored = "zstd" if field.codec == "zstd" else "plain"
    faults = {fault: field.kinds[fault] for fault in FAULT_KINDS if fault in field.kinds}
    files = sum(field.kinds.values())
    if files > sum(faults.values()):  # JPEG files were made addressable, as far as they can be
        share = field.kinds.get("addressable", 0) / files
        stored = f"{share:.1%} addressable" if share < 1 else "addressable"
    return f"{stored}, {told_kinds(faults)}" if faults else stored


def _container(found: diagnose.Info) -> str:
    files = None if found.loose else found.objects
    return found.format if files is None else f"{found.format}, {plural(files, 'file')}"


def _rows(found: diagnose.Info) -> list[tuple[str, str]]:
    per, each = found.samples_per_shard, found.shard_bytes
    rows = [
        ("data set", found.url),
        ("samples", f"{found.samples:,}"),
        ("shards", f"{found.shards:,} ({_container(found)}), {size(found.bytes)}"),
        ("a shard", f"{per.least:,} to {per.most:,} samples (mean {per.mean:,.0f})"),
        ("", f"{size(each.least)} to {size(each.most)} (mean {size(each.mean)})"),
    ]
    if found.bins is not None:
        rows.append(("bins", in_one_line(found.bins)))
    if found.classes is not None:
        shown = ", ".join(map(in_one_line, found.classes[:_SHOWN_CLASSES])) + (
            ", ..." if len(found.classes) > _SHOWN_CLASSES else ""
        )
        rows.append(("classes", f"{len(found.classes):,}: {shown}"))
        rows.append(("", "all of them: ds.classes, or `classes` in dataset.json"))
    if found.rejects:
        rows.append(("rejected", f"{found.rejects:,} (rejects.jsonl)"))
    rows.extend(("note", in_one_line(note)) for note in found.notes)
    if found.meta:
        rows.append(("meta", json_text(dict(found.meta))))
    shuffled = "as they came" if found.seed is None else f"shuffled with seed {found.seed}"
    makes = "`shardstream pack`" if found.loose else "`shardstream index URL --checksums`"
    fewer = "of whole shards only" if found.objects is None else f"none: {makes} makes them"
    checksums = {True: "of every value", False: fewer, None: "?"}[found.checksums]
    older = f" (older ones too: {', '.join(map(str, found.old_versions))})" if found.old_versions else ""
    return [
        *rows,
        ("order", shuffled),
        ("checksums", checksums),
        ("version", f"{found.version}{older}"),
        ("fingerprint", found.fingerprint),
    ]
