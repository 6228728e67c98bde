"""Flags that several verbs have in common, each with its help; their defaults are those of the verbs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from copy import copy
from enum import Enum, StrEnum
from functools import partial
from typing import Annotated, Any, Optional, TypeVar, get_args, get_type_hints

import typer

from shardstream.cli.packing import load_transform
from shardstream.cli.stores import DestOptions, SourceOptions, StorageOptions, TransportOption, parse_options
from shardstream.dataset.opening import open_datasets
from shardstream.errors import UsageError

C = TypeVar("C", bound=Callable[..., None])

_NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD


# Choices of flags.
Format = StrEnum("Format", "TAR RECORD")
Jpeg = StrEnum("Jpeg", "ADDRESSABLE KEEP")
Group = StrEnum("Group", "FILE STEM")
On = StrEnum("On", "DASK RAY SPARK")
Labels = StrEnum("Labels", "INT NAME")
Unknown = StrEnum("Unknown", "ERROR REJECT")
Damaged = StrEnum("Damaged", "REJECT KEEP")
Check = StrEnum("Check", "HEADER DECODE")

DatasetUrl = Annotated[str, typer.Argument(metavar="URL", help="Folder or URL of the data set.")]
Workers = Annotated[
    Optional[int],  # noqa: UP045 - Typer reads this when it runs, also old ones
    typer.Option(help="Processes; 0 works without any. (default: one a core)", min=0, metavar="N"),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace another data set in DEST, once the new one is complete.")
]
Json = Annotated[bool, typer.Option("--json", help="Report as one line of JSON.")]
JsonLines = Annotated[
    bool, typer.Option("--json", help="A line of JSON every ten seconds, and the report as the last one.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


class Flags:
    """The flags of all verbs, by the names of their arguments; those of `pack` in the order of its groups."""

    version: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--version", metavar="N", help="Version of a data set that grew. (default: the newest)", min=1),
    ]
    key: Annotated[
        str, typer.Option(help="Keys: path, auto (path, equal ones numbered), stem, line, or a column of the list.")
    ]
    labels: Annotated[
        Optional[Labels],  # noqa: UP045
        typer.Option(
            help="int, or name to number names: as --classes says, else in sorting order. (default: name for class "
            "folders; in lists int, with --classes as the first label is)"
        ),
    ]
    fields: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--field",
            help="Field and the column it comes from; TYPE is file (content of a path or URL), int, str, json, "
            "array:uint16:2048, values:uint16, ... 'x=f*:float32' makes one array of many columns. NAME=TYPE alone "
            "declares the type of a field of any source. May be repeated.",
            metavar="NAME=COLUMN[:TYPE]",
        ),
    ]
    group: Annotated[
        Group, typer.Option(help="stem: files of a folder that share the name before its first dot are one sample.")
    ]
    classes: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Names of the classes, label 0 first: a file (one a line, or JSON), or a packed data set, as train/.",
            metavar="FILE|URL",
        ),
    ]
    unknown: Annotated[
        Unknown, typer.Option(help="Names that are not in --classes: error ends the run, reject leaves samples out.")
    ]
    source_format: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Format of data of another library: webdataset, mds, ... (default: as recognised)", metavar="FORMAT"
        ),
    ]
    format_options: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--format-option",
            help="Option of reading that format, as group=key; may be repeated.",
            metavar="NAME=VALUE",
        ),
    ]
    transform: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Function of a sample, by module and name; None drops it.", metavar="MODULE:NAME"),
    ]
    dedup: Annotated[bool, typer.Option("--dedup", help="Leave out exact copies; reads everything twice.")]
    meta: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="JSON object to keep with the data set.", metavar="JSON"),
    ]
    format: Annotated[Format, typer.Option(help="Framing of the shards.")]
    shard_size: Annotated[str, typer.Option(help="Size to aim for: 256MB, 256MiB, or bytes.", metavar="SIZE")]
    shuffle: Annotated[bool, typer.Option(help="Shuffle, or keep the order of the source.")]
    seed: Annotated[int, typer.Option(help="Of the shuffle.", min=0)]
    overwrite: Overwrite
    append: Annotated[
        bool, typer.Option("--append", help="Add to the data set in DEST, as new shards and its next version.")
    ]
    jpeg: Annotated[
        Jpeg,
        typer.Option(help="addressable rewrites JPEG files, losslessly, so that crops decode alone; keep does not."),
    ]
    max_side: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Make larger images smaller, to this longer side; they are encoded anew.", metavar="PIXELS"),
    ]
    quality: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Of images made smaller, 1 to 100. (default: 90)", metavar="N"),
    ]
    strip: Annotated[bool, typer.Option("--strip", help="Drop EXIF, profiles and comments of JPEG files.")]
    damaged: Annotated[
        Damaged, typer.Option(help="Damaged pictures: reject leaves them out, keep stores them as they are.")
    ]
    check: Annotated[
        Check,
        typer.Option(help="How damage is found: header sees files that are cut short, decode decodes every picture."),
    ]
    workers: Workers
    on: Annotated[
        Optional[On],  # noqa: UP045
        typer.Option(help="Pack on the cluster of Dask, Ray or Spark that is there, or on a local one."),
    ]
    storage_options: StorageOptions
    source_options: SourceOptions
    dest_options: DestOptions
    transport: TransportOption
    cache: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--cache", metavar="DIR", help="Keep what is read over a network in this folder."),
    ]
    replicas: Annotated[
        list[str],
        typer.Option(
            "--replica", metavar="URL", help="Another place that has its shards, read first; may be repeated."
        ),
    ]
    segment_width: Annotated[int, typer.Option(help="Pixels across of what can be decoded alone.", metavar="PIXELS")]
    max_pixels: Annotated[int, typer.Option(help="Reject images of more pixels.", metavar="PIXELS")]
    zstd: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="Field to compress; record only, may be repeated.", metavar="FIELD"),
    ]
    checksums: Annotated[bool, typer.Option(help="Store a checksum of each value.")]
    key_table: Annotated[bool, typer.Option(help="Write a table of the keys, which finds samples by key at once.")]
    rows: Annotated[
        bool, typer.Option("--rows", help="Leave DEST/rows.parquet: what became of every line of the source.")
    ]
    allow_other_origins: Annotated[
        bool,
        typer.Option(
            "--allow-other-origins", help="Let a list that is not local name files beyond its own bucket or host."
        ),
    ]


_PANELS = {  # by the first argument of each: the groups of `pack`
    "version": "What is packed",
    "format": "Order and shards",
    "jpeg": "Images",
    "workers": "Distribution",
    "storage_options": "Storage",
    "segment_width": "Expert",
}


def flags_of(
    verb: Callable[..., Any], own: type | None = None, *, panels: bool = True, **defaults: Any
) -> Callable[[C], C]:
    """Give a command, in place of its ``**flags``, a flag for each argument of a verb that is in `Flags`.

    Args:
        verb: `pack`, or one that has some of its arguments; their defaults are those of the flags.
        own: Flags in the place of those of `Flags`, or beside them.
        panels: Show the flags in the groups of `pack`; not worth it where they are few.
        defaults: Defaults of flags that are written in another form than those of the verb.
    """
    arguments = inspect.signature(verb).parameters

    def extend(command: C) -> C:
        written = inspect.signature(command)
        hints = get_type_hints(command, include_extras=True)
        plain = [one.replace(annotation=hints[name]) for name, one in written.parameters.items() if name != "flags"]
        flags = [
            inspect.Parameter(name, _NAMED, default=defaults.get(name, arguments[name].default), annotation=kind)
            for name, kind in (_in_panels(own) if panels else _kinds(Flags)).items()
            if name in arguments and name not in written.parameters
        ]
        needed = [one for one in plain if one.default is one.empty]
        parameters = [*needed, *flags, *(one for one in plain if one.default is not one.empty)]
        command.__signature__ = written.replace(parameters=parameters)  # type: ignore[attr-defined] # of a function
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return extend


reads_dataset = flags_of(open_datasets, panels=False)
"""Give a command, in place of its ``**flags``, those of every verb that reads a data set."""


def _kinds(flags: type) -> dict[str, Any]:
    """The types of these flags, with what Typer is to know of each."""
    return get_type_hints(flags, include_extras=True)


def _in_panels(own: type | None) -> dict[str, Any]:
    """The types of all flags, each in the panel of its group."""
    changed = {} if own is None else _kinds(own)
    found, panel = dict[str, Any](), ""
    for name, kind in _kinds(Flags).items():
        panel = _PANELS.get(name, panel)
        found[name] = _in_panel(changed.pop(name, kind), panel)
    return {name: _in_panel(kind, _PANELS["version"]) for name, kind in changed.items()} | found


def _in_panel(kind: Any, panel: str) -> Any:
    plain, option = get_args(kind)
    option = copy(option)
    option.rich_help_panel = panel
    return Annotated[plain, option]


def arguments_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """What a verb takes, of the flags that were given.

    Raises:
        UsageError: One cannot be read.
    """
    plain = {name: value.value if isinstance(value, Enum) else value for name, value in flags.items()}
    return plain | {name: _PARSERS[name](value) for name, value in plain.items() if name in _PARSERS}


def parse_fields(texts: list[str] | None) -> dict[str, str] | None:
    """``NAME=COLUMN`` each; ``None`` if none; UsageError."""
    fields: dict[str, str] = {}
    for text in texts or ():
        name, equals, column = text.partition("=")
        if not equals or name in fields:
            what = "is given twice" if equals else "must be NAME=COLUMN"
            raise UsageError(f"--field {text} {what}", hint="--field jpg=image_path --field cls=label:int")
        fields[name] = column
    return fields or None


def _parse_meta(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    hint = """--meta '{"licence": "CC0"}'"""
    try:
        meta = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--meta must be JSON: {error}", hint=hint) from error
    if not isinstance(meta, dict):
        raise UsageError("--meta must be a JSON object", hint=hint)
    return meta


def parse_format_options(texts: list[str] | None) -> dict[str, str] | None:
    """``NAME=VALUE`` each; ``None`` if none; UsageError."""
    options = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--format-option {text} must be NAME=VALUE", hint="--format-option group=key")
        options[name] = value
    return options or None


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "meta": _parse_meta,
    "transform": lambda name: None if name is None else load_transform(name),
    "storage_options": parse_options,
    "format_options": parse_format_options,
    "source_options": partial(parse_options, flag="--source-option"),
    "dest_options": partial(parse_options, flag="--dest-option"),
}
