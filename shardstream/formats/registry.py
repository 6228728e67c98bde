"""The formats by name, in the order in which they are asked, and their forms.

A format is imported when it is asked for: a process that reads values imports the one that wrote the catalog.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

from shardstream.errors import (
    DataError,
    FormatError,
    MissingExtraError,
    PlaceholderError,
    ShardStreamError,
    UsageError,
    did_you_mean,
)
from shardstream.formats import plugins
from shardstream.formats.contract import Form, ObjectListing, Recognized, Remembered, SourceFormat
from shardstream.formats.plugins import Plugin
from shardstream.formats.scans.names import accompanies

# One a line: those that are told by a file of theirs (index.json) before those that are told by names.
_OURS = {
    "mds": "shardstream.formats.chunks.mds:Mds",
    "litdata": "shardstream.formats.chunks.litdata:LitData",
    "arrow": "shardstream.formats.arrow.format:Arrow",
    "lmdb": "shardstream.formats.lmdb.format:LmdbFormat",
    "tar-of-tars": "shardstream.formats.tar.tar_of_tars:TarOfTars",
    "webdataset": "shardstream.formats.tar.webdataset:WebDataset",
    "zip": "shardstream.formats.zip.format:Zip",
    "recordio": "shardstream.formats.recordio.format:RecordIO",
    "tfrecord": "shardstream.formats.tfrecord.format:TFRecord",
    "beton": "shardstream.formats.beton:Beton",
    "megatron": "shardstream.formats.tokens.megatron:Megatron",
    "nanogpt": "shardstream.formats.tokens.nanogpt:NanoGpt",
    "npy": "shardstream.formats.npy:Npy",
    "memmap": "shardstream.formats.npy:Memmap",
    "parquet": "shardstream.formats.parquet.format:Parquet",
    "hdf5": "shardstream.formats.hdf5.format:Hdf5",
    "jsonl": "shardstream.formats.jsonl.format:JsonLines",
    "coco": "shardstream.formats.detection.coco:Coco",
    "yolo": "shardstream.formats.detection.yolo:Yolo",
    "files": "shardstream.formats.files.format:SingleFiles",
}
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")  # in a codec, "." and ":" follow it
_PATH = re.compile(r"[\w.]+:[\w.]+")
_PACKAGE = re.compile(r"[A-Za-z0-9._-]*")
_LOOKED_AT = 64  # files that may be placeholders, where no format takes a listing
_registered: dict[str, Plugin] = {}


def register(format: type[SourceFormat]) -> type[SourceFormat]:
    """Add a format to this process, for programs whose formats are no installed plug-in; also as a decorator.

    Worker processes find it by its module and name, so it must be a class at the top of a module.

    Raises:
        UsageError: It is no such class, or a built-in format has its name.
    """
    plugin = Plugin(str(getattr(format, "name", "")), f"{format.__module__}:{format.__qualname__}")
    if why := _wrong_class(format, plugin.name) or _wrong_name(plugin.name):
        raise UsageError(f"{plugin.path} cannot be registered: {why}", hint="docs/plugins.md has an example")
    if "<" in format.__qualname__:
        what = f"{plugin.path} cannot be registered: other processes cannot find a class that is inside of a function"
        raise UsageError(what, hint="move the class to the top of a module")
    _registered[plugin.name] = plugin
    _imported.cache_clear()
    return format


def unregister(name: str) -> None:
    """Remove a format that `register` added; KeyError if it added none of this name."""
    del _registered[name]
    _imported.cache_clear()


def plugin_of(name: str) -> Plugin | None:
    """The plug-in that brings a format; ``None`` for a built-in one, and where nothing does."""
    if name in _OURS:
        return None
    return _registered.get(name) or _installed().get(name)


def restore(plugin: Plugin | None) -> None:
    """Make the format of another process known in this one: pickles of what reads values bring it along."""
    if plugin is not None:
        _registered[plugin.name] = plugin


def _installed() -> dict[str, Plugin]:
    """The formats of other distributions by name."""
    return _by_name(plugins.plugins("formats"))


@cache
def _by_name(brought: tuple[Plugin, ...]) -> dict[str, Plugin]:
    """The same of these plug-ins; a name that is taken is one warning."""
    found: dict[str, Plugin] = {}
    for plugin in brought:
        if why := _wrong_name(plugin.name):
            plugins.refuse(plugin, why)
        elif plugin.name in found:
            plugins.refuse(plugin, f"{found[plugin.name]} has the same name")
        else:
            found[plugin.name] = plugin
    return found


def _wrong_name(name: str) -> str:
    if name in _OURS:
        return f"a built-in format is called {name!r}; give it another name"
    return "" if _NAME.fullmatch(name) else f"{name!r} is no name: use lower-case letters, digits, '-' and '_'"


def _wrong_class(format: object, name: str) -> str:
    if not (isinstance(format, type) and issubclass(format, SourceFormat)):
        return "it is no subclass of shardstream.formats.contract.SourceFormat"
    if inspect.isabstract(format):
        return f"it lacks {', '.join(sorted(format.__abstractmethods__))}"
    if not getattr(format, "title", ""):
        return "its title is missing: what messages call it"
    return "" if getattr(format, "name", None) == name else f"its name is {getattr(format, 'name', None)!r}"


@cache
def _built_in(name: str) -> SourceFormat:
    format: SourceFormat = Plugin(name, _OURS[name]).load()()
    return format


@cache
def _imported(plugin: Plugin) -> SourceFormat | Exception:
    """The format of a plug-in, or why there is none, which is one warning for an installed one."""
    try:
        format = plugin.load()
        if why := _wrong_class(format, plugin.name):
            raise TypeError(why)
        made: SourceFormat = format()
    except Exception as error:  # whatever code of somebody else raises
        if plugin.name not in _registered:
            plugins.refuse(plugin, error)
        return error
    return made


def _all() -> list[SourceFormat]:
    """All formats that can be imported, the built-in ones first."""
    others = [_imported(one) for one in (_installed() | _registered).values()]
    return [*map(_built_in, _OURS), *(one for one in others if isinstance(one, SourceFormat))]


def format_names() -> list[str]:
    """Names of all formats, the built-in ones first."""
    return [*_OURS, *(_installed() | _registered)]


def format_named(name: str) -> SourceFormat:
    """The format of this name.

    Raises:
        UsageError: There is none.
        MissingExtraError: A plug-in that cannot be imported brings it.
    """
    if name in _OURS:
        return _built_in(name)
    plugin = plugin_of(name)
    if plugin is None:
        names = format_names()
        hint = f"{did_you_mean(name, names)}formats are {', '.join(names)}"
        raise UsageError(f"there is no source format {name!r}", hint=hint)
    format = _imported(plugin)
    if isinstance(format, Exception):
        raise plugin.missing(format) from format
    return format


def check_known(name: str, brought: Mapping[str, str], *, url: str) -> None:
    """Refuse a catalog of a format that is not known here.

    Args:
        name: The format.
        brought: What the catalog says of its plug-in. Only the error tells it: nothing that a file names is imported.
        url: Where the catalog is.

    Raises:
        MissingExtraError: A plug-in brings the format, and isn't installed.
        UsageError: There is no such format.
        ValueError: The catalog names a plug-in that cannot be one.
    """
    if name in _OURS or plugin_of(name) is not None:
        return
    if not brought:
        format_named(name)
    path, package = brought["format"], brought["package"]
    if not (_PATH.fullmatch(path) and _PACKAGE.fullmatch(package)):
        raise ValueError(f"no plug-in: {path!r} of {package!r}")
    of = f", of the package {package!r}," if package else ""
    raise MissingExtraError(
        f"the data are indexed in the format {name!r}, and its plug-in {path}{of} is not installed",
        url=url,
        hint=f"pip install {package}" if package else f"call register({path.rpartition(':')[2]}) first, as then",
    )


def brought_by(name: str) -> dict[str, str]:
    """What a catalog says of the plug-in that brings a format; empty for a built-in one."""
    plugin = plugin_of(name)
    return {} if plugin is None else {"format": plugin.path, "package": plugin.distribution}


def form_of(codec: str) -> tuple[Form, str]:
    """The form that a column's codec names, and the text that it is called with; UsageError where there is none."""
    name, _, text = codec.partition(":")
    source, _, form = name.partition(".")
    found = None
    if form and (source in _OURS or plugin_of(source) is not None):
        found = format_named(source).forms.get(form)
    if found is None:
        raise UsageError(f"there is no form {name!r}")
    return found, text


def recognize(
    listing: ObjectListing,
    name: str | None,
    options: Mapping[str, str],
    *,
    loose: bool = True,
    remembered: Remembered | None = None,
) -> tuple[SourceFormat, Recognized] | None:
    """The format of a listing; ``None`` where no format takes it for its own.

    Args:
        listing: What there is.
        name: The format that a user named; ``None`` to ask all.
        options: Of reading; those that a format does not know are refused.
        loose: Whether folders of pictures and lists of files are meant as well, where no other format answers.
        remembered: How the objects were read before; a format that a user named doesn't ask others.

    Raises:
        FormatError: It is of the format, in a kind that cannot be read; or not of the format that was named.
        UsageError: There is no such format or option, or several formats take the listing for theirs.
        StorageError: It cannot be read.
    """
    try:
        found = _ask_all(listing, name, options, remembered, loose=loose)
    except FormatError as error:
        refuse_placeholders(listing, error)
        raise
    if not found:
        refuse_placeholders(listing)
    if not found and name is not None:
        _require(format_named(name), listing, options)
    if len(found) > 1:
        names = " and ".join(one.title for one, _ in found)
        raise UsageError(f"{names} are found here", url=listing.url, hint=_which(found, listing.url))
    if not found and name is None and loose:
        _refuse_mixture(listing, options)
    if not found and name is not None:
        raise FormatError(
            f"nothing of format {name!r} is here", url=listing.url, hint="leave format= (--source-format) out"
        )
    if not found:
        return None
    unknown = [option for option in options if option not in found[0][0].options]
    if unknown:
        there = ", ".join(found[0][0].options) or "none"
        what = f"{found[0][0].title} has no option {unknown[0]!r}"
        raise UsageError(what, url=listing.url, hint=f"{did_you_mean(unknown[0], found[0][0].options)}it has {there}")
    return found[0]


def _ask_all(
    listing: ObjectListing,
    name: str | None,
    options: Mapping[str, str],
    remembered: Remembered | None,
    *,
    loose: bool,
) -> list[tuple[SourceFormat, Recognized]]:
    ask = partial(_answers, listing, options, remembered)
    if name is not None:
        return ask([format_named(name)], named=True, alone=True)
    if remembered is not None and remembered.first:
        found = ask([format_named(remembered.source)], named=remembered.named)
        if found:
            return found
    formats = _all()
    found = ask([one for one in formats if not one.fallback], named=False)
    return found or (ask([one for one in formats if one.fallback], named=False) if loose else [])


def refuse_placeholders(listing: ObjectListing, error: FormatError | None = None) -> None:
    """Refuse a listing that is of no format because some of its files are placeholders.

    Args:
        listing: The files. Only the first ones are looked at.
        error: What a format said of it.

    Raises:
        PlaceholderError: One of them is; says which, and how many of those that were looked at are.
    """
    said = None if error is None else error.place.get("url")
    named = [one for one in listing.objects[_LOOKED_AT:] if listing.store.locate(one.path) == said]
    looked = [*named, *listing.objects[:_LOOKED_AT]]
    found = [error for one in looked if (error := listing.placeholder(one.path)) is not None]
    if found:
        others = f" ({len(found)} of the first {len(looked)} files are such)" if len(found) > 1 else ""
        raise PlaceholderError(found[0].what + others, hint=found[0].hint, **found[0].place) from error


def _which(found: Sequence[tuple[SourceFormat, Recognized]], url: str) -> str:
    names = " or ".join(repr(one.name) for one, _ in found)
    first = found[0][0].name
    return (
        f"reading=SourceOptions(format={names}) says which; for all openings: "
        f"shardstream index '{url}' --source-format {first}"
    )


def _refuse_mixture(listing: ObjectListing, options: Mapping[str, str]) -> None:
    """Refuse files of a format among others, which may be meant as well; UsageError."""
    found = []
    for format in (one for one in _all() if not one.fallback):
        with suppress(DataError, UsageError):
            found += _answers(listing, options, None, [format], named=True)
    if not found:
        return
    titles = " and ".join(one.title for one, _ in found)
    taken = {one.path for _, answer in found for one in answer.objects}
    others = [one.path for one in listing.objects if one.path not in taken and not accompanies(one.path)]
    beside = f", beside other files: {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}" if others else ""
    what = f"{titles} {'are' if len(found) > 1 else 'is'} found here{beside}"
    raise UsageError(what, url=listing.url, hint=_which(found, listing.url))


def _require(format: SourceFormat, listing: ObjectListing, options: Mapping[str, str]) -> None:
    """Refuse a format that was named without the options that it takes; UsageError."""
    for option in format.required:
        if option not in options:
            raise UsageError(
                f"{format.title}: nothing says {option!r}",
                url=listing.url,
                hint=f"give SourceOptions(options={{{option!r}: ...}}) ({option}: {format.options[option]})",
            )


def _answers(
    listing: ObjectListing,
    options: Mapping[str, str],
    remembered: Remembered | None,
    asked: Iterable[SourceFormat],
    *,
    named: bool,
    alone: bool = False,
) -> list[tuple[SourceFormat, Recognized]]:
    """What these formats take for theirs; one of a plug-in that fails takes nothing, unless it is asked alone."""
    found, chosen = [], listing.chosen
    of: Mapping[str, str]
    files: Mapping[str, str]
    for format in asked:
        of, files = options, chosen
        if remembered is not None and remembered.source == format.name:
            of, files = remembered.options, remembered.chosen
        try:
            answer = _ask(format, listing, of, files, named=named)
        except ShardStreamError:
            raise
        except Exception as error:  # whatever code of somebody else raises
            plugin = plugin_of(format.name)
            if plugin is None or alone:
                raise
            plugins.warn_failed(plugin, plugins.described(error))
            continue
        if answer is not None:
            found.append((format, answer))
    listing.chosen = chosen
    return found


def _ask(
    format: SourceFormat,
    listing: ObjectListing,
    options: Mapping[str, str],
    chosen: Mapping[str, str],
    *,
    named: bool,
) -> Recognized | None:
    known = options if named else {option: options[option] for option in format.options if option in options}
    seen = listing.as_tables if format.tables else listing
    listing.chosen = seen.chosen = dict(chosen)
    seen.sure = named
    found = format.recognize(seen, known)
    if found is None or not found.objects:
        return None
    return replace(found, notes=(*found.notes, *seen.strays.notes))
