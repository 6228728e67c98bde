"""``Plan``: what a listing has, and how it is to be scanned."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, TypeAlias

import xxhash

from shardstream.dataset.formats import Selection
from shardstream.errors import DataError, FormatError, NotFoundError, UnsupportedError, UsageError
from shardstream.formats.catalog.catalog import Catalogue, Reading
from shardstream.formats.catalog.journal import ObjectState
from shardstream.formats.catalog.scan import about_digest
from shardstream.formats.catalog.selected import tell_remembered
from shardstream.formats.contract import ObjectListing, Recognized, Remembered
from shardstream.formats.packages.known import refuse_to_stream
from shardstream.formats.registry import recognize
from shardstream.formats.scans.rows import Loss, Remark
from shardstream.names.splits import several_splits
from shardstream.names.strays import find_stray
from shardstream.progress import OnProgress, ignore
from shardstream.shards.heads import MANIFEST_NAME, no_data_set, no_format
from shardstream.storage import Store
from shardstream.storage.base.store import ObjectMeta

Damaged: TypeAlias = Literal["error", "reject"]
LIMIT_S = 60.0
"""Seconds that opening a data set may take to index it; what takes longer is a command of its own."""
_SPLIT = re.compile(r"(train(ing)?|val(id(ation)?)?|test|dev|eval)(?![A-Za-z])", re.IGNORECASE)


@dataclass(slots=True)
class Making:
    """How a catalogue is made.

    Attributes:
        remembers: Whether later openings go by what is asked now; then nothing counts that was asked before.
        checked: As `Reading.checked`; ``None``: as in the catalogue that is there, else without.
        damaged: ``"error"`` refuses samples that cannot be read, ``"reject"`` leaves them out.
        workers: Processes that scan; 0: this one.
        loose: Whether folders of pictures and lists of files are meant, too, where nothing else is recognised.
        split_names: Whether names of splits are refused where there are several, and not taken for other names.
        limit: Seconds that it may take, as far as that can be told in advance; ``None`` for any.
        progress: Told of each object.
        lost: Samples left out by ``damaged="reject"``, by object.
        remarks: What a user should know of the values of which object.
        scanned: Objects that were scanned now.
    """

    remembers: bool = False
    checked: bool | None = None
    damaged: Damaged = "error"
    workers: int = 0
    loose: bool = True
    split_names: bool = True
    limit: float | None = LIMIT_S
    progress: OnProgress = ignore
    lost: dict[str, tuple[Loss, ...]] = field(default_factory=dict)
    remarks: dict[str, tuple[Remark, ...]] = field(default_factory=dict)
    scanned: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a listing has, and how it is to be scanned.

    Attributes:
        store: The root.
        recognised: The objects.
        metas: What the listing says of each.
        reading: How they are read.
        named: As `Catalogue.named`.
        listing: As `Catalogue.listing`.
        forgotten: What was remembered and does not fit what is there, as `tell_remembered` says it.
        command: What indexes the same by hand, for messages.
    """

    store: Store
    recognised: Recognized
    metas: Sequence[ObjectMeta]
    reading: Reading
    named: bool = False
    listing: str = ""
    forgotten: str = ""
    command: str = "shardstream index URL"

    def states(self) -> list[ObjectState]:
        """What each object is, for comparing."""
        wanted = xxhash.xxh3_64_intdigest(json.dumps(asdict(self.reading), sort_keys=True).encode())
        return [
            ObjectState(one.path, one.size, meta.version, about_digest(one), wanted)
            for one, meta in zip(self.recognised.objects, self.metas, strict=True)
        ]

    def matches(self, found: Catalogue) -> bool:
        """Whether a catalogue is of these very objects, read in this way."""
        if found.reading != self.reading or found.named != self.named:
            return False
        ours, objects, loose = self.recognised.objects, found.objects, self.reading.format.loose
        names = [one.path.encode() for one in ours]
        return (
            objects.sizes.tolist() == [one.size for one in ours]
            and objects.versions.tolist() == [meta.version for meta in self.metas]
            and objects.abouts.tolist() == [about_digest(one) for one in ours]
            and objects.name_ends.tolist() == list(itertools.accumulate(map(len, names)))
            and objects.names == b"".join(names)
            and (found.classes == self.recognised.classes or (loose and self.recognised.classes is None))
        )


def plan_of(listing: ObjectListing, selection: Selection, making: Making, kept: Catalogue | None) -> Plan:
    """How a listing is to be scanned: as ``selection`` says, else as the catalog that is kept, as far as that fits.

    Raises:
        NotFoundError: No format takes the listing for its own.
        FormatError, UsageError, StorageError: As `recognize`; or there are several splits.
    """
    if kept is None or (kept.reading.format.fallback and not making.loose):
        return _plan(listing, selection, making, None)
    if making.remembers:
        plan = _plan(listing, selection, making, None)
        checked = plan.reading.checked or (making.checked is None and kept.reading.checked)
        same = plan.reading.source == kept.reading.source
        return replace(plan, reading=replace(plan.reading, checked=checked)) if same else plan
    try:
        return _plan(listing, selection, making, kept)
    except (DataError, UsageError):
        if not (forgotten := tell_remembered(selection, kept)):
            raise
        with suppress(DataError, UsageError, NotFoundError):
            return replace(_plan(listing, selection, making, None), forgotten=forgotten)
        raise


def _plan(listing: ObjectListing, selection: Selection, making: Making, kept: Catalogue | None) -> Plan:
    source, options = selection.source, dict(selection.options or ())
    listing.chosen = dict(selection.chosen or ())
    digest = xxhash.xxh3_64_hexdigest("\0".join(one.path for one in listing.everything).encode(errors="replace"))
    remembered = None if kept is None else _remembered(kept, selection, digest)
    # Zarr tells of itself by hidden files.
    names = (one.path for one in listing.everything if find_stray(one.path.rpartition("/")[0]) is None)
    refuse_to_stream(listing.url, names, kept.reading.source if kept is not None and kept.named else source)
    if [one.path for one in listing.objects] == [MANIFEST_NAME]:  # which reads like a list of anything
        raise no_format(listing.url, ours=listing.store.url)
    answer = recognize(listing, source, options, loose=making.loose, remembered=remembered)
    if answer is None and making.loose and kept is not None and kept.listing == digest:
        raise FormatError(
            f"the files were {kept.title} when they were indexed, and are of no format that is known now",
            url=listing.url,
            hint="fetch or write them again",
        )
    if answer is None and selection.names:
        raise no_format(listing.url, ours=listing.store.url if listing.store.exists(MANIFEST_NAME) else None)
    if answer is None:
        raise no_data_set(listing.url, NotFoundError(""), notes=listing.as_tables.strays.notes)
    format, recognised = answer
    if not selection.names and making.split_names:
        _refuse_splits(listing.url, [one.path for one in recognised.objects])
    _refuse_names([one.path for one in recognised.objects], listing.store)
    metas = {meta.path: meta for meta in listing.everything}
    reading = Reading(format.name, options, listing.chosen, checked=bool(making.checked))
    objects = [metas[one.path] for one in recognised.objects]
    plan = Plan(
        listing.store, recognised, objects, reading, source is not None, digest, "", _command(listing, selection)
    )
    if kept is None or remembered is None:
        return plan
    if remembered.source != format.name:
        return replace(plan, named=False, forgotten=tell_remembered(selection, kept))
    checked = kept.reading.checked if making.checked is None else making.checked
    reading = Reading(format.name, remembered.options, remembered.chosen, checked=checked)
    return replace(plan, named=kept.named, reading=reading)


def _remembered(kept: Catalogue, selection: Selection, listing: str) -> Remembered:
    """How a catalog says that objects are read, where ``selection`` says nothing else."""
    return Remembered(
        kept.reading.source,
        kept.reading.options if selection.options is None else dict(selection.options),
        kept.reading.chosen if selection.chosen is None else dict(selection.chosen),
        kept.named,
        # Where the same files are there, asking all formats again takes seconds in a million of them.
        first=kept.named or kept.listing == listing,
    )


def _command(listing: ObjectListing, selection: Selection) -> str:
    url = f"'{listing.url}'" if len(selection.names) < 2 else "URL (the same files, by braces or a glob)"
    given = [f"--source-format {selection.source}"] if selection.source else []
    given += [f"--format-option '{name}={value}'" for name, value in selection.options or ()]
    return " ".join(["shardstream index", url, *given])


def _refuse_names(paths: Sequence[str], store: Store) -> None:
    """Refuse names that a catalogue, whose text is UTF-8, cannot hold; UnsupportedError."""
    for path in paths:
        if not path.isascii() and not path.isprintable():
            try:
                path.encode()
            except UnicodeEncodeError as error:
                raise UnsupportedError(
                    "the name of the file is not UTF-8", url=store.locate(path), hint="rename the file"
                ) from error


def _refuse_splits(url: str, paths: Sequence[str]) -> None:
    """Refuse to mix what is for training with what is for testing; SplitsError.

    Args:
        url: The root.
        paths: The objects below it, by a folder or by the beginning of whose names splits are told.
    """
    found: dict[str, str] = {}
    for path in paths:
        first, slash, rest = path.partition("/")
        told = _SPLIT.match(first)
        if told is not None:
            end = first if slash else f"{told[0]}*{path[path.rfind('.') :] if '.' in path else ''}"
            found.setdefault(told[0].lower(), end)
        elif slash and (told := _SPLIT.match(rest.rpartition("/")[2])) is not None:
            found.setdefault(told[0].lower(), f"{path.rpartition('/')[0]}/{told[0]}*")
    if len(found) > 1:
        raise several_splits(url, found)
