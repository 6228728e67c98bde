"""Options in objects: the fields of frozen dataclasses are the one table of the options of a verb.

A field says its default, its flag on the command line with help, and the name that it had as an argument of its own
("flat name"). `takes_flat` lets a verb take the objects, and accept flat names for one more version.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, wraps
from types import MappingProxyType, UnionType
from typing import Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from shardstream.errors import UsageError, did_you_mean

F = TypeVar("F", bound=Callable[..., Any])

Rewrite: TypeAlias = Callable[[dict[str, Any], Any], str]
"""Puts the value of a flat name into the arguments of a call, by name; returns how it is written now."""

Group: TypeAlias = Literal["file", "stem"]
Unknown: TypeAlias = Literal["error", "reject"]

_KEY = "option"


PACK = ("pack", "pack_plan")
"""What takes all that `pack` writes by."""
_IN_PLACE = (
    *("ShardDataset", "Reader", "open_dataset", "open_datasets"),
    *("info", "verify", "view", "overview", "index", "migrate", "bench", "sweep"),
)


@dataclass(frozen=True, slots=True)
class Option:
    """What a field of a dataclass of options says of itself.

    Attributes:
        help: Help of its flag.
        was: Its flat name.
        flag: Its flag, as ``"--strip"`` or ``"--rows/--no-rows"``.
        metavar: What its help calls the value.
        least: The least value that the flag takes, of a number.
        verbs: The verbs that take it; empty for all that take the dataclass.
        default: The default of the field.
    """

    help: str
    was: str
    flag: str
    metavar: str | None
    least: int | None
    verbs: tuple[str, ...]
    default: Any

    def taken_by(self, verb: str) -> bool:
        """Whether a verb that takes the dataclass takes it."""
        return not self.verbs or verb in self.verbs


def option(
    default: Any,
    help: str = "",
    *,
    was: str | None = None,
    flag: str | None = None,
    metavar: str | None = None,
    least: int | None = None,
    verbs: tuple[str, ...] = (),
) -> Any:
    """A field of a dataclass of options.

    Args:
        default: Its default.
        help: As of `Option`, like all others.
        was: Default: its name.
        flag: Default: made of the flat name.
        metavar: Default: a word for its type.
        least: Default: any.
        verbs: Default: all that take the dataclass.
    """
    return field(default=default, metadata={_KEY: (help, was, flag, metavar, least, verbs)})


def options_of(kind: type) -> dict[str, Option]:
    """The options of a dataclass, by the names of its fields."""
    found = {}
    for one in fields(kind):
        if _KEY not in one.metadata:
            continue
        help, was, flag, metavar, least, verbs = one.metadata[_KEY]
        was = was or one.name
        flag = flag or f"--{was.replace('_', '-')}"
        found[one.name] = Option(help, was, flag, metavar, least, verbs, one.default)
    return found


@lru_cache
def _choices(kind: type) -> dict[str, tuple[Any, ...]]:
    """What is allowed, of the fields of a dataclass of which that is a few values."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if all(part is type(None) or get_origin(part) is Literal for part in parts):
            found[name] = tuple(
                None if part is type(None) else one for part in parts for one in get_args(part) or [None]
            )
    return found


def check_choices(options: Any) -> None:
    """Refuse a value of an option that is none of the few that its type allows; UsageError."""
    for name, allowed in _choices(type(options)).items():  # type: ignore[arg-type] # a type can be hashed
        value = getattr(options, name)
        if value not in allowed:
            names = [one for one in allowed if one is not None]
            *few, last = map(repr, names)
            raise UsageError(
                f"{name} must be {', '.join(few)} or {last}, got {value!r}",
                hint=f"{did_you_mean(str(value), names)}{name}={names[0]!r} is usual",
            )


def check_taken(options: Any, verb: str, *, by: str) -> None:
    """Refuse options that a verb does not take.

    Args:
        options: A dataclass of options; ``None`` for none.
        verb: Name of the verb.
        by: The argument that has them.

    Raises:
        UsageError: One is set; names it, and the verbs that take it.
    """
    known = {} if options is None else options_of(type(options))
    for name, said in known.items():
        if not said.taken_by(verb) and getattr(options, name) != said.default:
            raise UsageError(
                f"{verb} takes no {spelled(by, type(options), [name])}",
                hint=f"leave `{name}` out: it is an option of {' and '.join(said.verbs)}",
            )


def spelled(argument: str, kind: type, names: list[str]) -> str:
    """How options are written, as ``images=ImageOptions(max_side=..., strip=...)``."""
    return f"{argument}={kind.__name__}({', '.join(f'{name}=...' for name in names)})"


def warn_flat(verb: str, flat: Iterable[str], now: Iterable[str]) -> None:
    """Warn whoever calls this package that names are those of before.

    Args:
        verb: What was called.
        flat: The names.
        now: How what they say is written.
    """
    frame, level = inspect.currentframe(), 1
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "shardstream":
        frame, level = frame.f_back, level + 1
    was = ", ".join(f"{name}=" for name in flat)
    text = f"{verb}({was}) works for one more version: write {', '.join(now)}"
    warnings.warn(text, DeprecationWarning, stacklevel=level)


def takes_flat(
    renamed: Mapping[str, str | Rewrite] = MappingProxyType({}), more: Iterable[str] | None = (), /, **groups: type
) -> Callable[[F], F]:
    """Let a verb, or a constructor, take options in objects, and for one more version by the names of before.

    Arguments that take objects get one, or ``None``: other values are refused, and so are options that the verb does
    not take. Each call that uses flat names warns once. They are not in the signature, so that type checkers find them
    and misspelt names.

    Args:
        renamed: Arguments that have another name now, by the old one; or what writes them in another way.
        more: Names of arguments that are passed on beside those of the signature; ``None`` for all, to another verb.
        groups: Classes of options, by the argument that takes them. The argument may also be given as a shorthand,
            which ``of`` of the class makes options of; flat names may stand beside it.
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters.values()
        known = [*(one.name for one in parameters if one.kind is not one.VAR_KEYWORD), *(more or ())]
        starred = next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")
        now = FlatNames(function.__qualname__.removesuffix(".__init__"), known, renamed, groups, passes=more is None)

        @wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            if now.names(given):  # some of which say anew what stands in the others
                named = {starred: args} if starred else dict(zip(known, args, strict=False))
                args, given = (), {**named, **given}
            given = now.grouped(given)
            return function(*given.pop(starred, args), **given)

        call.groups = groups  # type: ignore[attr-defined] # of which flags are made
        call.flat = now  # type: ignore[attr-defined] # for `written`
        return call  # type: ignore[return-value] # of the same signature, but for names that only run

    return decorate


def _checked(options: Any, kind: Any, verb: str, by: str, *, shorthand: bool) -> Any:
    """What a user gave as options; a shorthand stays one if flat names may stand beside it."""
    if not isinstance(options, kind):
        if not hasattr(kind, "of"):
            raise UsageError(
                f"{by} must be {kind.__name__}, got {options!r}", hint=f"{by}=ss.{kind.__name__}({_example(kind)}=...)"
            )
        if shorthand:
            return options
        options = kind.of(options)
    check_taken(options, verb, by=by)
    return options


def _example(kind: type) -> str:
    return fields(kind)[0].name


def written(verb: Callable[..., Any], name: str) -> str | None:
    """How an argument of a verb, or an option by its flat name, is written; ``None`` if there is none of that name."""
    flat: FlatNames | None = getattr(verb, "flat", None)
    if flat is None or name in inspect.signature(verb).parameters:
        return f"{name}=..." if name in inspect.signature(verb).parameters else None
    argument, of = flat.places().get(name, ("", ""))
    return spelled(argument, flat.groups[argument], [of]) if argument else None


@dataclass(frozen=True, slots=True)
class FlatNames:
    """The arguments of a verb, with the flat names that it also takes.

    Attributes:
        verb: Its name; of a method, with that of the class.
        known: Its parameters.
        renamed: New names of parameters by old ones, or what writes them in another way.
        groups: Classes of options by parameter.
        passes: Whether other names are passed on, to another verb.
    """

    verb: str
    known: Collection[str]
    renamed: Mapping[str, str | Rewrite]
    groups: Mapping[str, type]
    passes: bool = False

    def names(self, given: Iterable[str]) -> list[str]:
        """Those of these names that are no parameters: flat, or unknown."""
        places = self.places() if self.passes else {}
        return [
            name
            for name in given
            if name not in self.known and (not self.passes or name in self.renamed or name in places)
        ]

    def grouped(self, given: Mapping[str, Any], now: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """Arguments with options in objects; warns once if some have flat names.

        Args:
            given: What a user gave.
            now: Options that flat names change, by argument. Default: the defaults.

        Raises:
            UsageError: A name that is unknown; both forms at once; options that are none, or not taken.
        """
        flat, new = self.names(given), dict(given)
        for name, kind in self.groups.items():
            if new.get(name) is not None:
                new[name] = _checked(new[name], kind, self._taker, name, shorthand=bool(flat))
        if not flat:
            return new
        new, spellings = self._without(flat, new, now)
        warn_flat(self.verb, flat, spellings)
        return new

    @property
    def _taker(self) -> str:
        return self.verb.partition(".")[0]

    def _without(
        self, flat: list[str], given: dict[str, Any], now: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[str]]:
        """The arguments without flat names, and how those that replace them are written."""
        places = self.places()
        rewrites = [(name, how) for name in flat if not isinstance(how := self.renamed.get(name, ""), str)]
        spellings = [how(given, given.pop(name)) for name, how in rewrites]
        flat = [name for name in flat if name in given]
        new = {name: value for name, value in given.items() if name not in flat}
        found: dict[str, dict[str, Any]] = {}
        for name in flat:
            other = self.renamed.get(name)
            if isinstance(other, str):
                if other in new:
                    raise self._both(name, f"{other}=")
                new[other] = given[name]
                spellings.append(f"{other}=...")
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
            options = now.get(argument) if options is None else kind.of(options)
            new[argument] = kind(**values) if options is None else replace(options, **values)
            spellings.append(spelled(argument, kind, list(values)))
        return new, list(dict.fromkeys(spellings))

    def places(self) -> dict[str, tuple[str, str]]:
        """The argument and the field that each flat name stands for."""
        return {
            of.was: (argument, name)
            for argument, kind in self.groups.items()
            for name, of in options_of(kind).items()
            if of.taken_by(self._taker)
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

    Raises:
        UsageError: A value that is not allowed.

    Example:
        >>> reading = ss.SourceOptions(max_rejects="1%")
    """

    format: str | None = option(
        None,
        "Format of data of another library: webdataset, mds, ... (default: as recognised)",
        was="source_format",
        metavar="FORMAT",
        verbs=(*PACK, *_IN_PLACE),
    )
    options: Mapping[str, str] | None = option(
        None,
        "Option of reading that format, as group=key; may be repeated.",
        flag="--format-option",
        was="format_options",
        metavar="NAME=VALUE",
        verbs=(*PACK, *_IN_PLACE),
    )
    group: Group = option(
        "file", "stem: files of a folder that share the name before its first dot are one sample.", verbs=PACK
    )
    unknown: Unknown = option(
        "error", "Names that are not in --classes: error ends the run, reject leaves samples out.", verbs=PACK
    )
    allow_other_origins: bool = option(
        False, "Let a list that is not local name files beyond its own bucket or host.", verbs=PACK
    )
    max_rejects: int | str | None = option(
        None,
        "End with an error once more samples than this are rejected: a number, or a percentage of those read. "
        "(default: no limit)",
        metavar="N|P%",
        verbs=(*PACK, "repack"),
    )
    split_names: bool = option(
        True,
        "Refuse directories train, val, ... side by side, or take them for classes.",
        flag="--split-names/--no-split-names",
        verbs=PACK,
    )

    def __post_init__(self) -> None:
        check_choices(self)
