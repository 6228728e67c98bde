"""Flags that several verbs have in common, each with its help; their defaults are those of the verbs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from functools import partial
from typing import Annotated, Any, Optional

import typer

from shardstream.cli.packing import load_function
from shardstream.cli.stores import DestOptions, SourceOptions, StorageOptions, TransportOption, parse_options
from shardstream.errors import UsageError

# Choices of flags.
Format = StrEnum("Format", "TAR RECORD")
Jpeg = StrEnum("Jpeg", "ADDRESSABLE KEEP")
Group = StrEnum("Group", "FILE STEM")
On = StrEnum("On", "DASK RAY SPARK")
Labels = StrEnum("Labels", "INT NAME")
Unknown = StrEnum("Unknown", "ERROR REJECT")
Damaged = StrEnum("Damaged", "REJECT KEEP")
Check = StrEnum("Check", "HEADER DECODE")
Packing = StrEnum("Packing", "FIT CONCAT")
Long = StrEnum("Long", "SPLIT REJECT TRUNCATE")
TokenDtype = StrEnum("TokenDtype", "UINT16 UINT32")
LogLevel = StrEnum("LogLevel", "DEBUG INFO WARNING ERROR")

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


class RunFlags:
    """The flags that every verb has."""

    as_json: Json
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Print what is logged: -v info, -vv debug.")
    ]
    log_level: Annotated[
        Optional[LogLevel],  # noqa: UP045
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            help="Print what is logged from this level on: debug, info, warning, error. (default: warning)",
        ),
    ]


class Flags:
    """The flags of verbs by the names of their arguments, each in the order of its group."""

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
    split_names: Annotated[
        bool, typer.Option(help="Refuse directories train, val, ... side by side, or take them for classes.")
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
    bins: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Make samples rows of so many tokens, of several documents each.", metavar="TOKENS", min=1),
    ]
    bin_field: Annotated[str, typer.Option(help="The field that holds the tokens of a document.", metavar="FIELD")]
    bin_min: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            help="Shortest rows that bins are read as without cutting what fits. (default: a quarter of --bins)",
            metavar="TOKENS",
            min=1,
        ),
    ]
    packing: Annotated[
        Packing, typer.Option(help="fit: no document is cut that fits into a bin; concat: end to end, and cut.")
    ]
    long: Annotated[
        Long, typer.Option(help="Documents longer than a bin: full bins and a rest, left out, or their beginning.")
    ]
    pad: Annotated[str, typer.Option(help="The token that fills up a bin: its number, or its text.", metavar="TOKEN")]
    token_dtype: Annotated[
        Optional[TokenDtype],  # noqa: UP045
        typer.Option(
            help="uint16 or uint32, as tokens are stored. (default: uint16 if a tokenizer has few enough, else uint32)"
        ),
    ]
    tokenize: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="What makes tokens of texts: a tokenizer.json or its folder, tiktoken:NAME, or a function by module "
            "and name.",
            metavar="FILE|MODULE:NAME",
        ),
    ]
    text_field: Annotated[str, typer.Option(help="The field that holds the text of a document.", metavar="FIELD")]
    messages: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The field that holds a conversation, for --tokenize's chat template.", metavar="FIELD"),
    ]
    template_seconds: Annotated[
        float, typer.Option(help="Processor time that the chat template may take for one conversation.", min=0)
    ]
    bos: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Token to put before each document: its number, or its text.", metavar="TOKEN"),
    ]
    eos: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Token to put behind each document.", metavar="TOKEN"),
    ]
    allow_special: Annotated[bool, typer.Option("--allow-special", help="Let special tokens in texts become these.")]
    tokenizer_id: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="What a function, or the tokenizer of ready tokens, is known by.", metavar="NAME"),
    ]
    overwrite: Overwrite
    append: Annotated[
        bool, typer.Option("--append", help="Add to the data set in DEST, as new shards and its next version.")
    ]
    max_rejects: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="End with an error once more samples than this are rejected: a number, or a percentage of those read. "
            "(default: no limit)",
            metavar="N|P%",
        ),
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


def _parse_tokenizer(text: str | None) -> Any:
    """A function where its module is named; else what names a tokenizer."""
    if text is None or ":" not in text or text.startswith("tiktoken:") or os.path.exists(text):
        return text
    return load_function(text, "--tokenize")


def _parse_token(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdecimal() else text


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "meta": _parse_meta,
    "transform": lambda name: None if name is None else load_function(name),
    "tokenize": _parse_tokenizer,
    "pad": _parse_token,
    "bos": _parse_token,
    "eos": _parse_token,
    "storage_options": parse_options,
    "format_options": parse_format_options,
    "source_options": partial(parse_options, flag="--source-option"),
    "dest_options": partial(parse_options, flag="--dest-option"),
}
