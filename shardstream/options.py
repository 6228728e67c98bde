"""Options in objects: the fields of frozen dataclasses are the one table of the options of a verb.

A field says its default, its flag on the command line with help, and the name that it had as an argument of its own
("flat name"). `takes_flat` lets a verb accept flat names for one more version.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar

from shardstream.errors import UsageError, did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

Group: TypeAlias = Literal["file", "stem"]
Unknown: TypeAlias = Literal["error", "reject"]

_KEY = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """What a field of a dataclass of options says of itself.

    Attributes:
        help: Help of its flag.
        flag: Its flag, as ``"--strip"`` or ``"--rows/--no-rows"``; ``None`` where the command line doesn't have it.
        was: Its flat name; ``None`` where it had none.
        metavar: What its help calls the value.
        least: The least value that the flag takes, of a number.
        verbs: The verbs that take it; empty for all that take the dataclass.
    """

    help: str
    flag: str | None
    was: str | None
    metavar: str | None
    least: int | None
    verbs: tuple[str, ...]


def option(
    default: Any,
    help: str = "",
    *,
    flag: str | None = None,
    was: str | None = None,
    metavar: str | None = None,
    least: int | None = None,
    verbs: tuple[str, ...] = (),
) -> Any:
    """A field of a dataclass of options.

    Args:
        default: Its default.
        help: As of `Option`, like all others.
        flag: Default: none.
        was: Default: none.
        metavar: Default: a word for its type.
        least: Default: any.
        verbs: Default: all that take the dataclass.
    """
    return field(default=default, metadata={_KEY: Option(help, flag, was, metavar, least, verbs)})


def options_of(kind: type) -> dict[str, Option]:
    """The options of a dataclass, by the names of its fields."""
    return {one.name: one.metadata[_KEY] for one in fields(kind) if _KEY in one.metadata}


def check_taken(options: Any, verb: str, *, by: str) -> None:
    """Refuse options that a verb does not take.

    Args:
        options: A dataclass of options; ``None`` for none.
        verb: Name of the verb.
        by: The argument that has them.

    Raises:
        UsageError: One is set; names it, and the verbs that take it.
    """
    for one in () if options is None else fields(options):
        verbs = one.metadata[_KEY].verbs if _KEY in one.metadata else ()
        if verbs and verb not in verbs and getattr(options, one.name) != one.default:
            raise UsageError(
                f"{verb} takes no {spelled(by, type(options), [one.name])}",
                hint=f"leave `{one.name}` out: it is an option of {' and '.join(verbs)}",
            )


def spelled(argument: str, kind: type, names: list[str]) -> str:
    """How options are written, as ``images=ImageOptions(max_side=..., strip=...)``."""
    return f"{argument}={kind.__name__}({', '.join(f'{name}=...' for name in names)})"


def takes_flat(renamed: Mapping[str, str] = MappingProxyType({}), **groups: type) -> Callable[[F], F]:
    """Let a verb, or a constructor, take options by the names that they had before they were grouped.

    Its last parameter is ``**flat: Any``, for type checkers; it is always empty. Each call that uses flat names warns
    once.

    Args:
        renamed: Arguments that have another name now, by the old one.
        groups: Classes of options, by the argument that takes them. The argument may also be given as a shorthand,
            which ``of`` of the class makes options of; flat names may stand beside it.
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters.values()
        known = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
        verb = function.__qualname__.removesuffix(".__init__")

        @wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            flat = [name for name in given if name not in known]
            if flat:
                now = _Flat(verb, known, renamed, groups)
                given, spellings = now.grouped(given, flat)
                was = ", ".join(f"{name}=" for name in flat)
                warnings.warn(
                    f"{verb}({was}) works for one more version: write {', '.join(spellings)}",
                    DeprecationWarning,
                    stacklevel=2,
                )
            return function(*args, **given)

        return call  # type: ignore[return-value] # of the same signature, but for names that only run

    return decorate


@dataclass(frozen=True, slots=True)
class _Flat:
    """The flat names of a verb.

    Attributes:
        verb: Its name.
        known: Its parameters.
        renamed: New names of parameters by old ones.
        groups: Classes of options by parameter.
    """

    verb: str
    known: list[str]
    renamed: Mapping[str, str]
    groups: Mapping[str, type]

    def grouped(self, given: dict[str, Any], flat: list[str]) -> tuple[dict[str, Any], list[str]]:
        """Arguments without flat names, and how those that replace them are written.

        Raises:
            UsageError: A name that is unknown; both forms at once.
        """
        places = self._places()
        new = {name: value for name, value in given.items() if name not in flat}
        found: dict[str, dict[str, Any]] = {}
        spellings = []
        for name in flat:
            if name in self.renamed:
                now = self.renamed[name]
                if now in new:
                    raise self._both(name, f"{now}=")
                new[now] = given[name]
                spellings.append(f"{now}=...")
            elif name in places:
                argument, of = places[name]
                found.setdefault(argument, {})[of] = given[name]
            else:
                raise self._unknown(name, places)
        for argument, values in found.items():
            kind: Any = self.groups[argument]
            options = new.get(argument)
            if isinstance(options, kind):
                of = next(iter(values))
                old = next(name for name in flat if places.get(name) == (argument, of))
                raise self._both(old, f"{argument}={kind.__name__}(...)")
            new[argument] = kind(**values) if options is None else replace(kind.of(options), **values)
            spellings.append(spelled(argument, kind, list(values)))
        return new, spellings

    def _places(self) -> dict[str, tuple[str, str]]:
        """The argument and the field that each flat name stands for."""
        return {
            of.was: (argument, name)
            for argument, kind in self.groups.items()
            for name, of in options_of(kind).items()
            if of.was is not None and (not of.verbs or self.verb in of.verbs)
        }

    def _both(self, flat: str, now: str) -> UsageError:
        return UsageError(f"{self.verb} got {flat}= and {now}", hint=f"{flat}= is the old form: write {now} alone")

    def _unknown(self, name: str, places: Mapping[str, tuple[str, str]]) -> UsageError:
        near = did_you_mean(name, [*(one for one in self.known if one != "self"), *self.renamed, *places])
        for old, (argument, of) in places.items():
            if near.startswith(f"did you mean {old!r}?"):
                near = f"did you mean {spelled(argument, self.groups[argument], [of])}? "
        return UsageError(f"{self.verb} takes no argument {name!r}", hint=f"{near}see help(ss.{self.verb})")


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """How a source is read, as ``reading=`` of `pack` and of `ShardDataset`.

    Attributes:
        format: Name of the format of data of another library (``docs/foreign.md``). Default: as it is recognized, by
            names and first bytes.
        options: Options of reading that format, text by name, such as ``{"group": "key"}``. Default: those that its
            catalog was made with.
        group: ``"stem"`` makes one sample of the files of a directory that share the part of their name before its
            first dot; the rest names the field: ``a.jpg``, ``a.mask.png``, ``a.json``. Default ``"file"``: each file
            is a sample. For `pack`, like all that follow.
        unknown: What becomes of directories and names that are not in ``classes``. ``"error"`` (default) ends the run,
            as far as possible before anything is written: such a name is mostly misspelt. ``"reject"`` leaves their
            samples out, as rejects.
        allow_other_origins: Let a list that is not local name files anywhere, local ones too. By default each has to
            lie in the list's own bucket or on its own web server, redirects included: whoever wrote the list would
            otherwise decide what is read with your rights, and from which networks.
        max_rejects: End the run with `TooManyRejectsError` as soon as more samples than this are rejected: a number, or
            ``"P%"`` of the samples read so far, compared from 1,000 on and at the end. Finished shards stay, and the
            next run reads the rejected samples again. A file of which an unknown number of samples is lost passes any
            limit. Default: no limit.
        split_names: Refuse a directory that has directories of several splits, such as ``train`` and ``val``, which are
            packed one by one. ``False`` takes these names for names of classes.

    Example:
        >>> reading = ss.SourceOptions(max_rejects="1%")
    """

    format: str | None = option(
        None,
        "Format of data of another library: webdataset, mds, ... (default: as recognised)",
        flag="--source-format",
        was="source_format",
        metavar="FORMAT",
    )
    options: Mapping[str, str] | None = option(
        None,
        "Option of reading that format, as group=key; may be repeated.",
        flag="--format-option",
        was="format_options",
        metavar="NAME=VALUE",
    )
    group: Group = option(
        "file",
        "stem: files of a folder that share the name before its first dot are one sample.",
        flag="--group",
        was="group",
        verbs=("pack",),
    )
    unknown: Unknown = option(
        "error",
        "Names that are not in --classes: error ends the run, reject leaves samples out.",
        flag="--unknown",
        was="unknown",
        verbs=("pack",),
    )
    allow_other_origins: bool = option(
        False,
        "Let a list that is not local name files beyond its own bucket or host.",
        flag="--allow-other-origins",
        was="allow_other_origins",
        verbs=("pack",),
    )
    max_rejects: int | str | None = option(
        None,
        "End with an error once more samples than this are rejected: a number, or a percentage of those read. "
        "(default: no limit)",
        flag="--max-rejects",
        was="max_rejects",
        metavar="N|P%",
        verbs=("pack", "repack"),
    )
    split_names: bool = option(
        True,
        "Refuse directories train, val, ... side by side, or take them for classes.",
        flag="--split-names/--no-split-names",
        was="split_names",
        verbs=("pack",),
    )
