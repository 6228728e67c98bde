"""``command``: makes a command of a function, with flags, groups of ``--help``, errors and exit codes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from enum import Enum, StrEnum
from functools import partial, wraps
from types import MappingProxyType
from typing import Annotated, Any, TypeVar, cast, get_args, get_type_hints

import typer
from typer.models import ArgumentInfo

from shardstream.cli.flags import Flags, Json, LogLevel, RunFlags, defaults_of, flags_of
from shardstream.cli.logs import logged
from shardstream.cli.report import reporting
from shardstream.options import SourceOptions
from shardstream.pack.output.places import StorageOptions
from shardstream.storage.base.location import with_transport

C = TypeVar("C", bound=Callable[..., None])

_NAMED = inspect.Parameter.POSITIONAL_OR_KEYWORD
_RUN: dict[str, Any] = {"as_json": False, "quiet": False, "verbose": 0, "log_level": None}
_LEVELS = ("warning", "info", "debug")  # by how often -v is given

# Which group of ``--help`` an option stands in, whatever verb has it; a verb can say otherwise.
PANELS = {
    "Source": ("version", "source_format", "format_options", "group", "allow_other_origins"),
    "Samples": ("key", "fields", "labels", "classes", "unknown", "split_names", "transform", "dedup", "take"),
    "Documents into bins": ("bins", "bin_field", "bin_min", "packing", "long", "pad", "token_dtype"),
    "Text into tokens": (
        "tokenize", "text_field", "messages", "template_seconds", "bos", "eos", "allow_special", "tokenizer_id",
    ),
    "Images": (
        "jpeg", "max_side", "quality", "strip", "damaged", "drop_damaged", "check", "max_pixels", "segment_width",
    ),
    "Output": (
        "to", "format", "shard_size", "shuffle", "seed", "meta", "overwrite", "append", "max_rejects", "compression",
        "zstd", "checksums", "key_table", "rows",
    ),
    "Run": ("dry_run", "workers", "on", "as_json", "quiet", "verbose", "log_level"),
    "Store": ("cache", "replicas", "transport", "storage_options", "source_options", "dest_options"),
}  # fmt: skip
_TRANSPORT = StrEnum("_TRANSPORT", "AUTO OBSTORE FSSPEC")
_TRANSPORT_FLAG = Annotated[_TRANSPORT, typer.Option("--transport", help="Library that speaks to the store.")]
_PLACES = frozenset(("url", "urls", "source", "dest", "places", "replicas"))
_METAVARS: dict[type, str] = {int: "N", float: "SECONDS", str: "TEXT"}


def command(
    verb: Callable[..., Any] | None = None,
    own: type | None = None,
    *,
    examples: Sequence[str],
    panels: Mapping[str, Sequence[str]] = MappingProxyType({}),
    **defaults: Any,
) -> Callable[[C], C]:
    """Make a command of a function: in place of its ``**flags`` it has those of a verb, and those of `RunFlags`.

    Errors of the package end it with their exit code. It is handed ``as_json``, and ``quiet`` where it has that.

    Args:
        verb: `pack`, or one that has some of its arguments; their defaults are those of the flags.
        own: Flags in the place of those of `Flags`, or beside them.
        examples: Lines to type, for its help.
        panels: Groups of its help, by heading, where they are not those of `PANELS`.
        defaults: Defaults of flags that are written in another form than those of the verb.
    """
    groups = getattr(verb, "groups", {})
    arguments = {} if verb is None else inspect.signature(verb).parameters
    taken = {name: one.default for name, one in arguments.items() if name not in groups}
    for table in groups.values():
        taken |= defaults_of(table)
    if "storage_options" in taken:
        taken["transport"] = _TRANSPORT.AUTO
    tables = [*_plain_tables(), *groups.values()] if "storage" in groups else [SourceOptions, StorageOptions]
    grouped = {name: panel for panel, names in (*PANELS.items(), *panels.items()) for name in names}

    def extend(function: C) -> C:
        written = inspect.signature(function).parameters
        hints = get_type_hints(function, include_extras=True)
        common = _kinds(RunFlags) | {name: hints[name] for name in ("as_json",) if hints[name] is not Json}
        plain = [
            one.replace(annotation=hints[name])
            for name, one in written.items()
            if name not in common and one.kind is not one.VAR_KEYWORD
        ]
        known = _kinds(Flags)
        for table in tables:
            known |= flags_of(
                table, verb.__name__ if verb and (table in groups.values() or "storage" in groups) else None
            )
        known["transport"] = _TRANSPORT_FLAG
        known |= {} if own is None else _kinds(own)
        flags = [
            inspect.Parameter(name, _NAMED, default=defaults.get(name, taken[name]), annotation=kind)
            for name, kind in known.items()
            if name in taken and name not in written
        ]
        run = [inspect.Parameter(name, _NAMED, default=_RUN[name], annotation=kind) for name, kind in common.items()]
        needed = [one for one in plain if one.default is one.empty]
        given = [*needed, *flags, *(one for one in plain if one.default is not one.empty), *run]
        parameters = [
            inspect.Parameter("context", _NAMED, annotation=typer.Context),
            *(one.replace(annotation=_described(one.annotation, grouped.get(one.name))) for one in given),
        ]

        @wraps(function)
        def run_command(context: typer.Context, verbose: int, log_level: LogLevel | None, **given: Any) -> None:
            level = log_level.value if log_level else _LEVELS[min(verbose, len(_LEVELS) - 1)]
            passed = {name: value for name, value in given.items() if name != "quiet" or name in written}
            transport = passed.pop("transport", _TRANSPORT.AUTO)
            with reporting(debug=bool(context.obj), spell=partial(_with_flags, context)), logged(level):
                for name in _PLACES.intersection(passed):
                    passed[name] = with_transport(passed[name], transport.value)
                function(**passed)

        made: Any = run_command
        made.__signature__ = inspect.Signature(parameters)
        made.__annotations__ = {one.name: one.annotation for one in parameters}
        made.examples = tuple(examples)
        return cast(C, made)

    return extend


def _with_flags(context: typer.Context, text: str) -> str:
    """A text of an error with the flags of this command in the place of options that are written in Python."""
    from shardstream.cli.spelling import Spelling

    return Spelling(context).in_flags(text)


def _plain_tables() -> list[type]:
    """Options of which verbs that write data sets take some one by one."""
    from shardstream.pack.options import PackOptions
    from shardstream.pack.run import RunOptions

    return [PackOptions, RunOptions]


def _kinds(flags: type) -> dict[str, Any]:
    """The types of these flags, with what Typer is to know of each."""
    return get_type_hints(flags, include_extras=True)


def _described(kind: Any, panel: str | None) -> Any:
    """The same flag with its panel, and a word for its value."""
    plain, option = get_args(kind)
    if isinstance(option, ArgumentInfo):
        return kind
    option = copy(option)
    option.rich_help_panel = panel or option.rich_help_panel
    value = next((one for one in get_args(plain) if one is not type(None)), plain)
    value = next(iter(get_args(value)), value)
    if option.metavar is None and value is not bool:
        choices = isinstance(value, type) and issubclass(value, Enum)
        option.metavar = "|".join(one.value for one in value) if choices else _METAVARS[value]
    return Annotated[plain, option]
