"""``Plan``: what a listing has, and how it is to be scanned."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Literal, TypeAlias

import xxhash

from shardstream.dataset.foreign.journal import ObjectState
from shardstream.dataset.foreign.scan import about_digest
from shardstream.dataset.foreign.spec import ForeignSpec
from shardstream.errors import FormatError, NotFoundError
from shardstream.progress import OnProgress, ignore
from shardstream.shards.catalogue import Catalogue, Reading
from shardstream.shards.foreign.contract import ObjectListing, Recognised
from shardstream.shards.foreign.formats.registry import recognise
from shardstream.shards.foreign.names import several_splits
from shardstream.shards.foreign.packages.known import refuse_to_stream
from shardstream.shards.foreign.rows import Loss, Remark
from shardstream.shards.foreign.strays import find_stray
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
        chosen: As `Reading.chosen`; ``None``: as in the catalogue that is there, else all fields.
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

    chosen: Mapping[str, str] | None = None
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
        command: What indexes the same by hand, for messages.
    """

    store: Store
    recognised: Recognised
    metas: Sequence[ObjectMeta]
    reading: Reading
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
        if found.reading != self.reading:
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


def plan_of(listing: ObjectListing, spec: ForeignSpec, making: Making, found: Catalogue | None) -> Plan:
    """How a listing is to be scanned: as ``spec`` and ``making`` say, else as the catalogue that was found, if any.

    Raises:
        NotFoundError: No format takes the listing for its own.
        FormatError, UsageError, StorageError: As `recognise`; or there are several splits.
    """
    if found is not None and found.reading.format.fallback and not making.loose:
        found = None
    source, options = spec.source, None if spec.options is None else dict(spec.options)
    if found is not None and source in (None, found.reading.source):
        source = found.reading.source
        options = dict(found.reading.options) if options is None else options
    chosen = making.chosen
    if chosen is None and spec.columns:
        chosen = {name: name for name in spec.columns}
    if chosen is None:
        chosen = found.reading.chosen if found is not None and source == found.reading.source else {}
    listing.chosen = dict(chosen)
    # Zarr tells of itself by hidden files.
    names = (one.path for one in listing.everything if find_stray(one.path.rpartition("/")[0]) is None)
    refuse_to_stream(listing.url, names, source)
    if [one.path for one in listing.objects] == [MANIFEST_NAME]:  # which reads like a list of anything
        raise no_format(listing.url, ours=listing.store.url)
    answer = recognise(listing, source, options or {}, loose=making.loose)
    if answer is None and spec.names:
        raise no_format(listing.url, ours=listing.store.url if listing.store.exists(MANIFEST_NAME) else None)
    if answer is None:
        raise no_data_set(listing.url, NotFoundError(""), notes=listing.as_tables.strays.notes)
    format, recognised = answer
    if not spec.names and making.split_names:
        _refuse_splits(listing.url, [one.path for one in recognised.objects])
    _refuse_names([one.path for one in recognised.objects], listing.store)
    metas = {meta.path: meta for meta in listing.everything}
    known = Reading(format.name, options or {}, {}, checked=False)
    if found is not None and found.reading.source == format.name:
        known = replace(found.reading, options=known.options)
    reading = replace(
        known,
        chosen=listing.chosen,
        checked=known.checked if making.checked is None else making.checked,
    )
    objects = [metas[one.path] for one in recognised.objects]
    return Plan(listing.store, recognised, objects, reading, _command(listing, spec))


def _command(listing: ObjectListing, spec: ForeignSpec) -> str:
    url = f"'{listing.url}'" if len(spec.names) < 2 else "URL (the same files, by braces or a glob)"
    given = [f"--source-format {spec.source}"] if spec.source else []
    given += [f"--format-option '{name}={value}'" for name, value in spec.options or ()]
    return " ".join(["shardstream index", url, *given])


def _refuse_names(paths: Sequence[str], store: Store) -> None:
    """Refuse names that a catalogue, whose text is UTF-8, cannot hold; FormatError."""
    for path in paths:
        if not path.isascii() and not path.isprintable():
            try:
                path.encode()
            except UnicodeEncodeError as error:
                raise FormatError(
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
