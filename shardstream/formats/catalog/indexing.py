"""``index``: make the catalogue of data of another library now, or bring it up to date."""

from __future__ import annotations

import multiprocessing.process
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardstream.dataset.formats import Selection
from shardstream.dataset.opening import find_places
from shardstream.errors import DataError, FormatError, NotFoundError, UsageError, VersionError
from shardstream.formats.catalog import CATALOGUE_NAME
from shardstream.formats.catalog.catalog import Reading
from shardstream.formats.catalog.kept import FoundCatalogue, read_catalogue
from shardstream.formats.catalog.make import find_or_make
from shardstream.formats.catalog.object_table import RESTORE
from shardstream.formats.catalog.places import rooted, with_files
from shardstream.formats.catalog.plan import Damaged, Making
from shardstream.options import SourceOptions, takes_flat
from shardstream.progress import OnProgress, ignore
from shardstream.storage import PathOrUrl, Store, locate, open_store
from shardstream.storage.base.location import flat_transport
from shardstream.storage.cache import Cache
from shardstream.threads import cores


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What `index` made.

    Attributes:
        url: Where the data lie.
        format: Name of their format.
        title: What people call it.
        samples: Samples.
        objects: Objects that hold them.
        scanned: Objects that were scanned now; the others were known.
        bytes: Bytes of the objects.
        index_bytes: Bytes of the catalogue's indexes.
        fields: Types by name.
        classes: Names of the classes, if anything says them.
        notes: What was left out or decided, a sentence each.
        place: Where the catalogue lies.
        fingerprint: Identity of the data.
        seconds: Time taken.
    """

    url: str
    format: str
    title: str
    samples: int
    objects: int
    scanned: int
    bytes: int
    index_bytes: int
    fields: Mapping[str, str]
    classes: tuple[str, ...] | None
    notes: tuple[str, ...]
    place: str
    fingerprint: str
    seconds: float


@takes_flat(flat_transport("url"), reading=SourceOptions)
def index(
    url: PathOrUrl,
    *,
    reading: SourceOptions | None = None,
    fields: Mapping[str, str] | None = None,
    checksums: bool = False,
    damaged: Damaged = "error",
    beside: bool = False,
    cache: str | os.PathLike[str] | Cache | None = None,
    workers: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: OnProgress | None = None,
) -> IndexReport:
    """Find every sample of a data set of another library once, so that it can be streamed where it lies.

    What is written is a catalogue: some 20 to 60 bytes a sample that say where its values are. Opening such a data set
    makes one by itself, unless they have 256 MB or more and it takes longer than a minute. A run that was interrupted
    goes on when the same command is given again; of a data set that was indexed before, only what changed is read.

    Args:
        url: A folder, a file, or files by braces or a glob, local or in a store.
        reading: Format of the data, and options of reading it, see `SourceOptions`. Default: it is recognized, and read
            without options. Openings that don't say otherwise go by this and ``fields``, as the last `index` of the
            same place got them.
        fields: Which fields to take, and what they are called then: ``{"label": "cls", "text": "caption:str"}``.
            Default: all, under their names.
        checksums: Read everything and store a checksum of each value, which every read is then compared with. Default:
            only what it takes to find the values is read.
        damaged: ``"error"`` (default) refuses objects that are damaged; ``"reject"`` leaves out what is lost of them.
        beside: Put the catalogue beside the data, for all who read them. Default: in ``cache``, or a folder of the user
            on this machine.
        cache: A cache in whose folder the catalogue is kept; give the same to `ShardDataset`.
        workers: Processes; 0 or 1 works in this one. Default: one a core.
        storage_options: Credentials and settings of the store by name.
        progress: Called with a `ProgressEvent` after each object.

    Raises:
        NotFoundError: There is nothing of a format that is known.
        FormatError: It is damaged, or of a kind that cannot be read; says which.
        FieldError: A field is of several types, or there is none of a name.
        UsageError: An argument cannot work.
        StorageError: It cannot be read, or the catalogue cannot be written.

    Example:
        >>> _ = ss.export("out/", "tars/", to="webdataset")
        >>> ss.index("tars/", workers=1).samples
        200
    """
    started = time.monotonic()
    if getattr(multiprocessing.process.current_process(), "_inheriting", False):
        raise UsageError(
            "a process that indexes has begun to run the program from its first line, and would index again",
            hint="put what the program does below `if __name__ == '__main__':`, or give workers=1",
        )
    (place, names), *others = find_places(url)
    if others:
        raise UsageError("one data set is indexed at a time", url=str(others[0][0]), hint="index them one by one")
    if beside and names:
        raise UsageError(
            "a catalogue beside the data is for all of a folder",
            url=str(place),
            hint="index the folder, or leave beside out",
        )
    reading = reading or SourceOptions()
    place, names, options = rooted(place, names, reading.options)
    location, selection = with_files(
        locate(place, storage_options=storage_options), Selection.of(names, reading.format, options, fields)
    )
    names, store = selection.names, open_store(location)
    there = None if beside or names else read_catalogue(store, store.url)
    if there is not None:
        _refuse_shadowed(there.catalogue.reading, selection, checksums, store.url)
    making = Making(
        remembers=there is None,
        checked=checksums or None,
        damaged=damaged,
        workers=cores() if workers is None else workers,
        limit=None,
        progress=progress or ignore,
    )
    spec_cache = None if cache is None else Cache.of(cache)
    if beside:
        _remove_damaged(store)
    found = find_or_make(location, selection, spec_cache, making)
    if not making.scanned and found.store.mapped and not found.sound:
        if found.store.url == store.url and not beside:
            raise FormatError("the catalogue beside the data is damaged", url=store.url, hint=RESTORE)
        found.forget()
        found = find_or_make(location, selection, spec_cache, making)
    if beside and found.store.url != store.url:
        found = found.copy_to(store)
    return _report(found, making.scanned, time.monotonic() - started)


def _remove_damaged(store: Store) -> None:
    """Have a catalogue beside the data that is damaged made anew."""
    try:
        read_catalogue(store, store.url)
    except VersionError:
        raise
    except (DataError, NotFoundError):
        store.delete(CATALOGUE_NAME)


def _refuse_shadowed(there: Reading, selection: Selection, checksums: bool, url: str) -> None:
    """Refuse to make another catalogue than the one beside the data, which would be found first."""
    pairs = (
        (selection.source, there.source, "another format"),
        (selection.options and dict(selection.options), there.options, "other options"),
        (selection.chosen and dict(selection.chosen), there.chosen, "other fields"),
        (checksums or None, there.checked, "no checksums"),
    )
    other = next((what for asked, is_there, what in pairs if asked is not None and asked != is_there), None)
    if other is not None:
        raise UsageError(
            f"a catalog beside the data has {other}, and that catalog is found first",
            url=url,
            hint="--beside (beside=True) replaces it, for all who read the data",
        )


def _report(found: FoundCatalogue, scanned: int, seconds: float) -> IndexReport:
    catalogue = found.catalogue
    return IndexReport(
        catalogue.url,
        catalogue.reading.source,
        catalogue.title,
        catalogue.samples,
        len(catalogue.objects.sizes),
        scanned,
        catalogue.bytes,
        catalogue.indexes_bytes,
        {name: str(kind) for name, kind in catalogue.fields.items()},
        catalogue.classes,
        catalogue.told,
        found.store.url,
        catalogue.fingerprint,
        seconds,
    )
