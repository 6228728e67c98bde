"""``shardstream pack SOURCE DEST``. Every flag is the argument of ``ss.pack`` of the same name."""

from __future__ import annotations

import json
import operator
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from shardstream.cli.progress import Update, progress
from shardstream.cli.report import duration, plural, print_json, reporting, size, stderr, stdout
from shardstream.cli.stores import (
    SourceOptions,
    StorageOptions,
    Transport,
    TransportOption,
    parse_options,
    place,
    shown,
)
from shardstream.errors import UsageError
from shardstream.pack import PackOptions, PackProgress, PackReport, run_pack
from shardstream.pack.sample import Transform

_DEFAULTS = PackOptions()
_JSON_EVERY_S = 10.0
_SHOWN_REASONS = 10


class Format(StrEnum):
    """Choices of ``--format``."""

    TAR = "tar"
    RECORD = "record"


class Jpeg(StrEnum):
    """Choices of ``--jpeg``."""

    ADDRESSABLE = "addressable"
    KEEP = "keep"


class Labels(StrEnum):
    """Choices of ``--labels``."""

    INT = "int"
    NAME = "name"


def pack(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A list (path<TAB>label a line, or csv), or a folder of class folders."),
    ],
    dest: Annotated[
        str,
        typer.Argument(metavar="DEST", help="Folder of the data set, made where missing, or URL: s3://bucket/name."),
    ],
    storage_options: StorageOptions = None,
    source_options: SourceOptions = None,
    transport: TransportOption = Transport.AUTO,
    format: Annotated[Format, typer.Option(help="Framing of the shards.")] = Format.TAR,
    shard_size: Annotated[str, typer.Option(help="Size to aim for: 256MB, 256MiB, or bytes.", metavar="SIZE")] = str(
        _DEFAULTS.shard_size
    ),
    seed: Annotated[int, typer.Option(help="Of the shuffle.", min=0)] = _DEFAULTS.seed,
    shuffle: Annotated[bool, typer.Option(help="Shuffle, or keep the order of the source.")] = _DEFAULTS.shuffle,
    jpeg: Annotated[
        Jpeg,
        typer.Option(help="addressable rewrites JPEG files, losslessly, so that crops decode alone; keep does not."),
    ] = Jpeg.ADDRESSABLE,
    segment_width: Annotated[
        int, typer.Option(help="Pixels across of what can be decoded alone.", metavar="PIXELS")
    ] = _DEFAULTS.segment_width,
    strip: Annotated[bool, typer.Option("--strip", help="Drop EXIF, profiles and comments of JPEG files.")] = False,
    max_side: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Make larger images smaller, to this longer side; they are encoded anew.", metavar="PIXELS"),
    ] = None,
    quality: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Of images made smaller, 1 to 100. (default: 90)", metavar="N"),
    ] = None,
    max_pixels: Annotated[
        int, typer.Option(help="Reject images of more pixels.", metavar="PIXELS")
    ] = _DEFAULTS.max_pixels,
    transform: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Function of a sample, by module and name; None drops it.", metavar="MODULE:NAME"),
    ] = None,
    key: Annotated[str, typer.Option(help="Keys: path, stem, line, or a column of the list's header.")] = _DEFAULTS.key,
    labels: Annotated[
        Optional[Labels],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Option(help="int, or name to number names in sorting order. (default: int; name for class folders)"),
    ] = None,
    classes: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File with the names of integer labels, one a line, label 0 first.", metavar="FILE"),
    ] = None,
    meta: Annotated[str, typer.Option(help="JSON object to keep with the data set.", metavar="JSON")] = "{}",
    zstd: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Field to compress; record only, may be repeated.", metavar="FIELD"),
    ] = None,
    checksums: Annotated[bool, typer.Option(help="Store a checksum of each value.")] = _DEFAULTS.checksums,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Processes; 0 packs without any. (default: one a core)", min=0, metavar="N"),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace another data set in DEST, once the new one is complete.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON every ten seconds, and the report as the last one.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Pack files into shards.

    A file becomes the field named by its extension, its label the field cls. Samples that cannot be read are listed in
    DEST/rejects.jsonl. A run that was interrupted or killed goes on when the same command is given again; once the data
    set is complete, it does nothing.
    """
    with reporting(context):
        options = PackOptions(
            format=format.value,
            shard_size=int(shard_size) if shard_size.isdecimal() else shard_size,
            seed=seed,
            shuffle=shuffle,
            jpeg=jpeg.value,
            segment_width=segment_width,
            strip=strip,
            max_side=max_side,
            quality=quality,
            max_pixels=max_pixels,
            transform=None if transform is None else _load_transform(transform),
            key=key,
            labels=None if labels is None else labels.value,
            classes=None if classes is None else _read_classes(classes),
            meta=_parse_meta(meta),
            zstd=zstd or (),
            checksums=checksums,
        )
        location = place(dest, storage_options, transport)
        with progress("packing", quiet=quiet or as_json) as update, _kept_when_interrupted():
            report = run_pack(
                source,
                location,
                options,
                source_options=parse_options(source_options, "--source-option"),
                transport=transport.value,
                workers=workers,
                overwrite=overwrite,
                progress=_json_teller() if as_json else _teller(update),
            )
        if as_json:
            print_json(_as_json(report))
        else:
            _print_report(report, shown(dest, location))


def _told(kinds: Mapping[str, int]) -> str:
    kept = [f"{count:,} {kind}" for kind, count in kinds.items() if kind != "addressable"]
    found = f"{kinds.get('addressable', 0):,} addressable"
    return f"{found}; kept as they are: {', '.join(kept)}" if kept else found


def _load_transform(name: str) -> Transform:
    module, colon, function = name.partition(":")
    if not colon:
        raise UsageError("--transform wants MODULE:NAME", hint="--transform my_module:shrink, for my_module.py here")
    sys.path.insert(0, os.getcwd())  # workers get the path too
    try:
        found: Any = operator.attrgetter(function)(import_module(module))
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"--transform: {error}", hint="modules are looked for here and where Python finds them"
        ) from error
    return found  # type: ignore[no-any-return] # what it is, PackOptions checks


@contextmanager
def _kept_when_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        stderr().print("finished shards are kept: the same command goes on from there")
        raise


def _read_classes(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"--classes: {path} cannot be read: {error}", hint="one name a line, UTF-8") from error


def _parse_meta(text: str) -> dict[str, Any]:
    try:
        meta = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--meta is no JSON: {error}", hint="""--meta '{"licence": "CC0"}'""") from error
    if not isinstance(meta, dict):
        raise UsageError("--meta must be a JSON object", hint="""--meta '{"licence": "CC0"}'""")
    return meta


def _teller(update: Update) -> Callable[[PackProgress], None]:
    started = 0.0

    def tell(now: PackProgress) -> None:
        nonlocal started
        if now.stage == "plan":
            update(0, 0, "reading the source")
            return
        started = started or time.monotonic()
        seconds = max(time.monotonic() - started, 1e-3)
        tally = now.tally
        beside = f"{(tally.done - now.kept) / seconds:,.0f}/s  {tally.bytes / seconds / 1e6:,.0f} MB/s"
        if tally.bottleneck is not None:
            beside += f"  {tally.bottleneck[0]}"
        if tally.rejects:
            beside += f"  {tally.rejects:,} rejected"
        update(tally.done, now.total, beside)

    return tell


def _json_teller() -> Callable[[PackProgress], None]:
    """A line for schedulers now and then."""
    started = told = time.monotonic()

    def tell(now: PackProgress) -> None:
        nonlocal told
        if time.monotonic() - told < _JSON_EVERY_S:
            return
        told = time.monotonic()
        seconds = told - started
        tally = now.tally
        done = tally.done - now.kept
        print_json(
            {
                "event": "progress",
                "stage": now.stage,
                "seconds": round(seconds, 3),
                "total": now.total,
                "kept": now.kept,
                "samples": tally.samples,
                "rejects": tally.rejects,
                "dropped": tally.dropped,
                "samples_per_second": round(done / seconds, 1),
                "megabytes_per_second": round(tally.bytes / seconds / 1e6, 1),
                "seconds_left": round((now.total - tally.done) * seconds / done, 1) if done else None,
                "bottleneck": tally.bottleneck and tally.bottleneck[0],
            }
        )
        sys.stdout.flush()

    return tell


def _as_json(report: PackReport) -> dict[str, Any]:
    manifest = report.manifest
    return {
        "event": "done",
        "url": manifest.url,
        "already_complete": report.complete,
        "samples": manifest.samples,
        "shards": manifest.shards,
        "bytes": manifest.bytes,
        "fields": {name: kind.name for name, kind in manifest.fields.items()},
        "classes": None if manifest.classes is None else len(manifest.classes),
        "kinds": {name: dict(kinds) for name, kinds in manifest.kinds.items()},
        "rejects": report.rejects,
        "rejects_url": report.rejects_url,
        "reject_reasons": dict(report.reasons),
        "dropped": report.tally.dropped,
        "kept_shards": report.kept,
        "read_bytes": report.tally.bytes,
        "notes": list(report.notes),
        "plan": manifest.plan,
        "fingerprint": manifest.fingerprint,
        "seconds": round(report.seconds, 3),
    }


def _spread(sizes: Mapping[int, int]) -> str:
    """The sizes of the samples between which most lie: a tenth of them are smaller, a tenth are larger."""
    total, low, high, seen = sum(sizes.values()), None, 0, 0
    for exponent, count in sorted(sizes.items()):
        seen += count
        if low is None and seen > total / 10:
            low = exponent
        if high == 0 and seen >= total * 9 / 10:
            high = exponent + 1
    return f"most are of {size(1 << (low or 0))} to {size(1 << high)}"


def _print_report(report: PackReport, dest: str) -> None:
    manifest, out = report.manifest, stdout()
    for note in report.notes:
        stderr().print(f"note: {note}")
    what = f"{plural(manifest.samples, 'sample')} in {plural(manifest.shards, 'shard')}, {size(manifest.bytes)}"
    if report.complete:
        out.print(f"{dest}: already complete, nothing was written: {what}")
    else:
        speed = f"{manifest.samples / report.seconds:,.0f} samples/s, {size(manifest.bytes / report.seconds)}/s"
        out.print(f"{dest}: {what} in {duration(report.seconds)} ({speed})")
    for name, kinds in manifest.kinds.items():
        out.print(f"{name}: {_told(kinds)}")
    if report.kept:
        out.print(f"{plural(report.kept, 'shard')} of an earlier run kept")
    if report.sizes:
        out.print(f"samples: {_spread(report.sizes)}")
    if report.tally.dropped:
        out.print(f"{plural(report.tally.dropped, 'sample')} left out by the transform")
    if report.rejects and report.first_reject:
        one = report.first_reject
        out.print(f"{plural(report.rejects, 'sample')} could not be read, see {report.rejects_url}")
        out.print(f"  such as line {one.line}, {one.path}: {one.reason}")
        if len(report.reasons) > 1:
            for reason, count in list(report.reasons.items())[:_SHOWN_REASONS]:
                out.print(f"  {count:>9,}  {reason}")
    out.print(f"next: shardstream info {dest}")
