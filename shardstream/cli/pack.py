"""``shardstream pack SOURCE DEST``. Every flag is the argument of ``ss.pack`` of the same name."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from shardstream.cli.flags import (
    Checksums,
    Format,
    Jpeg,
    JsonLines,
    KeyTable,
    MaxPixels,
    MaxSide,
    Overwrite,
    Quality,
    Quiet,
    Seed,
    SegmentWidth,
    ShardSize,
    Strip,
    TransformName,
    Workers,
)
from shardstream.cli.packing import kept_when_interrupted, load_transform, print_report, teller
from shardstream.cli.progress import progress
from shardstream.cli.report import reporting
from shardstream.cli.stores import (
    SourceOptions,
    StorageOptions,
    Transport,
    TransportOption,
    parse_options,
    place,
    shown,
)
from shardstream.errors import SourceError, UsageError
from shardstream.pack import PackOptions, run_pack
from shardstream.pack.sources.lists.list_file import open_local

_DEFAULTS = PackOptions()


class Group(StrEnum):
    """Choices of ``--group``."""

    FILE = "file"
    STEM = "stem"


class On(StrEnum):
    """Choices of ``--on``."""

    DASK = "dask"
    RAY = "ray"
    SPARK = "spark"


class Labels(StrEnum):
    """Choices of ``--labels``."""

    INT = "int"
    NAME = "name"


def pack(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A list (path<TAB>label, csv, JSON lines, Parquet...), folder, pattern or tar files; path or URL.",
        ),
    ],
    dest: Annotated[
        str,
        typer.Argument(metavar="DEST", help="Folder of the data set, made where missing, or URL: s3://bucket/name."),
    ],
    storage_options: StorageOptions = None,
    source_options: SourceOptions = None,
    transport: TransportOption = Transport.AUTO,
    format: Annotated[Format, typer.Option(help="Framing of the shards.")] = Format.TAR,
    shard_size: ShardSize = str(_DEFAULTS.shard_size),
    seed: Seed = _DEFAULTS.seed,
    shuffle: Annotated[bool, typer.Option(help="Shuffle, or keep the order of the source.")] = _DEFAULTS.shuffle,
    jpeg: Annotated[
        Jpeg,
        typer.Option(help="addressable rewrites JPEG files, losslessly, so that crops decode alone; keep does not."),
    ] = Jpeg.ADDRESSABLE,
    segment_width: SegmentWidth = _DEFAULTS.segment_width,
    strip: Strip = False,
    max_side: MaxSide = None,
    quality: Quality = None,
    max_pixels: MaxPixels = _DEFAULTS.max_pixels,
    dedup: Annotated[bool, typer.Option("--dedup", help="Leave out exact copies; reads everything twice.")] = False,
    rows: Annotated[
        bool, typer.Option("--rows", help="Leave DEST/rows.parquet: what became of every line of the source.")
    ] = False,
    transform: TransformName = None,
    key: Annotated[str, typer.Option(help="Keys: path, stem, line, or a column of the list's header.")] = _DEFAULTS.key,
    labels: Annotated[
        Optional[Labels],  # noqa: UP045 - Typer reads this when it runs, also old ones
        typer.Option(help="int, or name to number names in sorting order. (default: int; name for class folders)"),
    ] = None,
    fields: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--field",
            help="Field and the column it comes from; TYPE is file (content of a path or URL), int, str, json, ... "
            "May be repeated.",
            metavar="NAME=COLUMN[:TYPE]",
        ),
    ] = None,
    group: Annotated[
        Group, typer.Option(help="stem: files of a folder that share the name before its first dot are one sample.")
    ] = Group.FILE,
    allow_other_origins: Annotated[
        bool,
        typer.Option(
            "--allow-other-origins", help="Let a list that is not local name files beyond its own bucket or host."
        ),
    ] = False,
    classes: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="File with the names of integer labels, one a line, label 0 first.", metavar="FILE"),
    ] = None,
    meta: Annotated[str, typer.Option(help="JSON object to keep with the data set.", metavar="JSON")] = "{}",
    zstd: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Field to compress; record only, may be repeated.", metavar="FIELD"),
    ] = None,
    checksums: Checksums = _DEFAULTS.checksums,
    key_table: KeyTable = _DEFAULTS.key_table,
    workers: Workers = None,
    on: Annotated[
        Optional[On],  # noqa: UP045
        typer.Option(help="Pack on the cluster of Dask, Ray or Spark that is there, or on a local one."),
    ] = None,
    overwrite: Overwrite = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add to the data set in DEST, as new shards and its next version.")
    ] = False,
    as_json: JsonLines = False,
    quiet: Quiet = False,
) -> None:
    """Pack files into shards.

    A file becomes the field named by its extension, its label the field cls. Samples that cannot be read are listed in
    DEST/rejects.jsonl. A run that was interrupted or killed goes on when the same command is given again; once the data
    set is complete, it does nothing.
    """
    with reporting(context):
        options = PackOptions(
            format=format.value,
            shard_size=shard_size,
            seed=seed,
            shuffle=shuffle,
            jpeg=jpeg.value,
            segment_width=segment_width,
            strip=strip,
            max_side=max_side,
            quality=quality,
            max_pixels=max_pixels,
            transform=None if transform is None else load_transform(transform),
            dedup=dedup,
            rows=rows,
            key=key,
            labels=None if labels is None else labels.value,
            fields=_parse_fields(fields),
            group=group.value,
            allow_other_origins=allow_other_origins,
            classes=None if classes is None else _read_classes(classes),
            meta=_parse_meta(meta),
            zstd=zstd or (),
            checksums=checksums,
            key_table=key_table,
        )
        location = place(dest, storage_options, transport)
        with progress("packing", quiet=quiet or as_json) as update, kept_when_interrupted():
            report = run_pack(
                source,
                location,
                options,
                source_options=parse_options(source_options, "--source-option"),
                transport=transport.value,
                workers=workers,
                on=None if on is None else on.value,
                overwrite=overwrite,
                append=append,
                progress=teller(update, as_json=as_json),
            )
        print_report(report, shown(dest, location), as_json=as_json)


def _read_classes(path: Path) -> list[str]:
    try:
        file = open_local(str(path), "file of --classes")
        return file.read(0, file.size).decode("utf-8-sig").splitlines()
    except SourceError as error:
        raise UsageError(error.what, hint=error.hint, **error.place) from error
    except ValueError as error:
        raise UsageError(f"--classes: {path} is no UTF-8: {error}", hint="one name a line, UTF-8") from error


def _parse_fields(texts: list[str] | None) -> dict[str, str] | None:
    if not texts:
        return None
    fields: dict[str, str] = {}
    for text in texts:
        name, equals, column = text.partition("=")
        if not equals or name in fields:
            what = "is given twice" if equals else "is no NAME=COLUMN"
            raise UsageError(f"--field {text} {what}", hint="--field jpg=image_path --field cls=label:int")
        fields[name] = column
    return fields


def _parse_meta(text: str) -> dict[str, Any]:
    try:
        meta = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--meta is no JSON: {error}", hint="""--meta '{"licence": "CC0"}'""") from error
    if not isinstance(meta, dict):
        raise UsageError("--meta must be a JSON object", hint="""--meta '{"licence": "CC0"}'""")
    return meta
