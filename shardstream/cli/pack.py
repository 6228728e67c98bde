"""``shardstream pack SOURCE DEST``. Every flag is the argument of ``ss.pack`` of the same name."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from shardstream.cli.progress import Update, progress
from shardstream.cli.report import duration, plural, print_json, reporting, size, stderr, stdout
from shardstream.cli.stores import StorageOptions, Transport, TransportOption, place, shown
from shardstream.errors import UsageError
from shardstream.pack import PackOptions, PackProgress, PackReport, run_pack

_DEFAULTS = PackOptions()


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
    as_json: Annotated[bool, typer.Option("--json", help="Report as one line of JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Pack files into shards.

    A file becomes the field named by its extension, its label the field cls. Samples that cannot be read are listed in
    DEST/rejects.jsonl. The same command again finds the data set complete and does nothing.
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
            key=key,
            labels=None if labels is None else labels.value,
            classes=None if classes is None else _read_classes(classes),
            meta=_parse_meta(meta),
            zstd=zstd or (),
            checksums=checksums,
        )
        location = place(dest, storage_options, transport)
        with progress("packing", quiet=quiet) as update:
            report = run_pack(
                source,
                location,
                options,
                storage_options=None,
                transport="auto",
                workers=workers,
                executor=None,
                overwrite=overwrite,
                progress=_teller(update),
            )
        if as_json:
            print_json(_as_json(report))
        else:
            _print_report(report, shown(dest, location))


def _told(kinds: Mapping[str, int]) -> str:
    kept = [f"{count:,} {kind}" for kind, count in kinds.items() if kind != "addressable"]
    found = f"{kinds.get('addressable', 0):,} addressable"
    return f"{found}; kept as they are: {', '.join(kept)}" if kept else found


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
        done = now.samples + now.rejects
        beside = f"{now.samples / seconds:,.0f} samples/s  {now.bytes / seconds / 1e6:,.0f} MB/s"
        if now.rejects:
            beside += f"  {now.rejects:,} rejected"
        update(done, now.total, beside)

    return tell


def _as_json(report: PackReport) -> dict[str, Any]:
    manifest = report.manifest
    return {
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
        "notes": list(report.notes),
        "plan": manifest.plan,
        "fingerprint": manifest.fingerprint,
        "seconds": round(report.seconds, 3),
    }


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
    if report.rejects and report.first_reject:
        one = report.first_reject
        out.print(f"{plural(report.rejects, 'sample')} could not be read, see {report.rejects_url}")
        out.print(f"  such as line {one.line}, {one.path}: {one.reason}")
    out.print(f"next: shardstream info {dest}")
