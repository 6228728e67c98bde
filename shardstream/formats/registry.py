"""The foreign formats by name, in the order in which they are asked, and their forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from shardstream.errors import DataError, FormatError, PlaceholderError, UsageError, did_you_mean
from shardstream.formats.arrow.format import Arrow
from shardstream.formats.beton import Beton
from shardstream.formats.chunks.litdata import LitData
from shardstream.formats.chunks.mds import Mds
from shardstream.formats.contract import ForeignFormat, Form, ObjectListing, Recognised, Remembered
from shardstream.formats.detection.coco import Coco
from shardstream.formats.detection.yolo import Yolo
from shardstream.formats.files.format import SingleFiles
from shardstream.formats.hdf5.format import Hdf5
from shardstream.formats.jsonl.format import JsonLines
from shardstream.formats.lmdb.format import LmdbFormat
from shardstream.formats.npy import Npy
from shardstream.formats.parquet.format import Parquet
from shardstream.formats.recordio.format import RecordIO
from shardstream.formats.scans.names import accompanies
from shardstream.formats.tar.tar_of_tars import TarOfTars
from shardstream.formats.tar.webdataset import WebDataset
from shardstream.formats.tfrecord.format import TFRecord
from shardstream.formats.tokens.megatron import Megatron
from shardstream.formats.tokens.nanogpt import NanoGpt
from shardstream.formats.zip.format import Zip

# One a line: those that are told by a file of theirs (index.json) before those that are told by names.
_ALL: tuple[ForeignFormat, ...] = (
    Mds(),
    LitData(),
    Arrow(),
    LmdbFormat(),
    TarOfTars(),
    WebDataset(),
    Zip(),
    RecordIO(),
    TFRecord(),
    Beton(),
    Megatron(),
    NanoGpt(),
    Npy(),
    Parquet(),
    Hdf5(),
    JsonLines(),
    Coco(),
    Yolo(),
    SingleFiles(),
)

_LOOKED_AT = 64  # files that may be placeholders, where no format takes a listing
FORMATS: dict[str, ForeignFormat] = {one.name: one for one in _ALL}
_SURE = [one for one in _ALL if not one.fallback]
_FALLBACK = [one for one in _ALL if one.fallback]


def format_named(name: str) -> ForeignFormat:
    """The format of this name; UsageError where there is none."""
    try:
        return FORMATS[name]
    except KeyError:
        hint = f"{did_you_mean(name, FORMATS)}formats are {', '.join(FORMATS)}"
        raise UsageError(f"there is no source format {name!r}", hint=hint) from None


def form_of(codec: str) -> tuple[Form, str]:
    """The form that a column's codec names, and the text that it is called with; UsageError where there is none."""
    name, _, text = codec.partition(":")
    source, _, form = name.partition(".")
    found = FORMATS[source].forms.get(form) if source in FORMATS else None
    if found is None:
        raise UsageError(f"there is no form {name!r}")
    return found, text


def recognise(
    listing: ObjectListing,
    name: str | None,
    options: Mapping[str, str],
    *,
    loose: bool = True,
    remembered: Remembered | None = None,
) -> tuple[ForeignFormat, Recognised] | None:
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
        raise FormatError(f"nothing of format {name!r} is here", url=listing.url, hint="leave source_format out")
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
) -> list[tuple[ForeignFormat, Recognised]]:
    ask = partial(_answers, listing, options, remembered)
    if name is not None:
        return ask([format_named(name)], named=True)
    if remembered is not None and remembered.first:
        found = ask([format_named(remembered.source)], named=remembered.named)
        if found:
            return found
    return ask(_SURE, named=False) or (ask(_FALLBACK, named=False) if loose else [])


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


def _which(found: Sequence[tuple[ForeignFormat, Recognised]], url: str) -> str:
    names = " or ".join(repr(one.name) for one, _ in found)
    first = found[0][0].name
    return f"source_format={names} says which; for all openings: shardstream index '{url}' --source-format {first}"


def _refuse_mixture(listing: ObjectListing, options: Mapping[str, str]) -> None:
    """Refuse files of a format among others, which may be meant as well; UsageError."""
    found = []
    for format in _SURE:
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


def _require(format: ForeignFormat, listing: ObjectListing, options: Mapping[str, str]) -> None:
    """Refuse a format that was named without the options that it takes; UsageError."""
    for option in format.required:
        if option not in options:
            raise UsageError(
                f"{format.title}: nothing says {option!r}",
                url=listing.url,
                hint=f"give format_options={{{option!r}: ...}} ({option}: {format.options[option]})",
            )


def _answers(
    listing: ObjectListing,
    options: Mapping[str, str],
    remembered: Remembered | None,
    asked: Iterable[ForeignFormat],
    *,
    named: bool,
) -> list[tuple[ForeignFormat, Recognised]]:
    found, chosen = [], listing.chosen
    for format in asked:
        if remembered is not None and remembered.source == format.name:
            answer = _ask(format, listing, remembered.options, remembered.chosen, named=named)
        else:
            answer = _ask(format, listing, options, chosen, named=named)
        if answer is not None:
            found.append((format, answer))
    listing.chosen = chosen
    return found


def _ask(
    format: ForeignFormat,
    listing: ObjectListing,
    options: Mapping[str, str],
    chosen: Mapping[str, str],
    *,
    named: bool,
) -> Recognised | None:
    known = options if named else {option: options[option] for option in format.options if option in options}
    seen = listing.as_tables if format.tables else listing
    listing.chosen = seen.chosen = dict(chosen)
    seen.sure = named
    found = format.recognise(seen, known)
    if found is None or not found.objects:
        return None
    return replace(found, notes=(*found.notes, *seen.strays.notes))
