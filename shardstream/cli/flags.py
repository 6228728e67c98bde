"""Flags that several verbs have in common, each with its help; their defaults are those of the verbs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum, StrEnum
from functools import partial
from types import UnionType
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin, get_type_hints

import typer

from shardstream.cli.packing import load_function
from shardstream.cli.stores import parse_options
from shardstream.errors import UsageError
from shardstream.options import Option, options_of

# Choices of flags.
Format = StrEnum("Format", "TAR RECORD")
LogLevel = StrEnum("LogLevel", "DEBUG INFO WARNING ERROR")

DatasetUrl = Annotated[str, typer.Argument(metavar="URL", help="Folder or URL of the data set.")]
Workers = Annotated[
    Optional[int],  # noqa: UP045 - Typer reads this when it runs, also old ones
    typer.Option(help="Processes; 0 works without any. (default: one a core)", min=0, metavar="N"),
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
    """Flags that are not made of dataclasses of options, by the names of arguments."""

    version: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--version", metavar="N", help="Version of a data set that grew. (default: the newest)", min=1),
    ]
    meta: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="JSON object to keep with the data set.", metavar="JSON"),
    ]
    workers: Workers


_UNIONS = (Union, UnionType)


def flags_of(table: type, verb: str | None) -> dict[str, Any]:
    """The flags of a dataclass of options, as Typer reads them.

    Args:
        table: The dataclass.
        verb: The verb that they are for; ``None`` for all flags.

    Returns:
        Types, by the names of parameters.
    """
    hints = get_type_hints(table)
    return {
        said.was: _flag(hints[name], said)
        for name, said in options_of(table).items()
        if verb is None or said.taken_by(verb)
    }


def defaults_of(table: type) -> dict[str, Any]:
    """The defaults of its flags."""
    return {said.was: said.default for said in options_of(table).values()}


def _flag(kind: Any, said: Option) -> Any:
    given = [one for one in get_args(kind) if one is not type(None)] if get_origin(kind) in _UNIONS else [kind]
    choices = [one for one in given if get_origin(one) is Literal]
    value: Any = given[0] if len(given) == 1 else choices[0] if choices else str
    plain: Any = value if value in (bool, int, float) else str
    if get_origin(value) is Literal:
        plain = StrEnum(said.was, [one.upper() for one in get_args(value)])  # type: ignore[misc, no-redef] # made of it
    elif get_origin(value) in (Mapping, Collection, Sequence):
        plain = list[str]
    if plain == list[str] or type(None) in get_args(kind):
        plain = Optional[plain]  # noqa: UP045 - Typer reads this when it runs, also old ones
    return Annotated[plain, typer.Option(said.flag, help=said.help, metavar=said.metavar, min=said.least)]


def arguments_of(flags: Mapping[str, Any], verb: Callable[..., Any] | None = None) -> dict[str, Any]:
    """What a verb takes, of the flags that were given.

    Args:
        flags: By the names of their parameters.
        verb: The verb, where it takes options in objects.

    Raises:
        UsageError: One cannot be read.
    """
    plain = {name: value.value if isinstance(value, Enum) else value for name, value in flags.items()}
    given = plain | {name: _PARSERS[name](value) for name, value in plain.items() if name in _PARSERS}
    for argument, table in getattr(verb, "groups", {}).items():
        set_: dict[str, Any] = {}
        for name, said in options_of(table).items():
            value = given.pop(said.was, said.default)
            if value != said.default and value not in (None, []):
                set_[name] = value
        given[argument] = table(**set_) if set_ else None
    return given


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
