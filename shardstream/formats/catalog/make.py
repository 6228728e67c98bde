"""From a listing to a catalogue. Objects that are as they were when they were scanned are not scanned again."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from shardstream.dataset.formats import Selection
from shardstream.errors import MissingExtraError, ShardStreamError, StorageError
from shardstream.formats.catalog.catalog import Reading
from shardstream.formats.catalog.journal import Journal, ObjectState
from shardstream.formats.catalog.kept import FoundCatalogue, KeptCatalogue, read_catalogue, roots
from shardstream.formats.catalog.plan import Making, Plan, plan_of
from shardstream.formats.catalog.scan import Piece, kind_of
from shardstream.formats.catalog.scanning import scan_all
from shardstream.formats.catalog.selected import digest, list_selected, tell_remembered
from shardstream.formats.catalog.whole_scans import scannable
from shardstream.formats.catalog.write import AbsentFieldError, write_catalogue
from shardstream.formats.contract import ObjectListing
from shardstream.formats.framing import is_form
from shardstream.formats.registry import format_names
from shardstream.shards.fields import IMAGE
from shardstream.shards.layout import parse_index
from shardstream.sizes import plural
from shardstream.storage import Location, Store, open_store
from shardstream.storage.cache import Cache
from shardstream.storage.cache.folder import Folder
from shardstream.text import in_one_line, printable

_logger = logging.getLogger(__name__)


def find_or_make(location: Location, selection: Selection, cache: Cache | None, making: Making) -> FoundCatalogue:
    """The catalogue of a foreign data set: beside the data, kept on this machine, or made now.

    Args:
        location: Where the data lie.
        selection: Which objects are meant.
        cache: In whose folder it is kept; default: the user's own.
        making: How it is made, if it is.

    Raises:
        NotFoundError: There are no such objects, or none of a format that is known.
        FormatError: They are damaged, or of a kind that cannot be read.
        UsageError: It would take longer than ``making.limit`` says; names the command to run. Or the objects are of
            several formats, or an option cannot work.
        FieldError: A field has two types.
        StorageError: They cannot be read, or the catalogue cannot be kept.
    """
    store = open_store(location)
    listing = list_selected(selection, store)
    listing.store = scannable(listing.store, listing.everything, cache)
    beside = None if selection.names else _read_beside(store, selection)
    if beside is not None:
        plan = plan_of(listing, selection, making, beside.catalogue)
        if plan.matches(beside.catalogue):
            return beside
    reasons = []
    for root in roots(cache):
        try:
            return _find_or_make_in(root(), listing, selection, making, beside)
        except ShardStreamError:  # some of which are OSErrors
            raise
        except OSError as error:
            reasons.append(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""))
            url = in_one_line(store.url)
            _logger.warning("the catalogue of %s cannot be kept in its best place (%s)", url, printable(reasons[-1]))
    raise StorageError(
        f"the catalogue of {store.url} cannot be kept on this machine ({'; '.join(reasons)})",
        hint="give a folder that can be written: cache=, XDG_CACHE_HOME or TMPDIR",
    )


def _read_beside(store: Store, selection: Selection) -> FoundCatalogue | None:
    """The catalog beside the data; ``None`` also if its plug-in is not installed, and a user names another format."""
    try:
        return read_catalogue(store, store.url)
    except MissingExtraError:
        if selection.source not in format_names():
            raise
        return None


def _find_or_make_in(
    root: Folder, listing: ObjectListing, selection: Selection, making: Making, beside: FoundCatalogue | None
) -> FoundCatalogue:
    """The catalogue of a folder, made if it is not there; OSError where nothing can be made in it."""
    url = listing.store.url
    shelf = KeptCatalogue(url, digest(selection, url), root)
    found = shelf.find()
    if shelf.absent is not None and beside is None and selection.source not in format_names():
        raise shelf.absent
    memory = beside or found
    plan = plan_of(listing, selection, making, None if memory is None else memory.catalogue)
    if not making.remembers and selection.asks and _differs(plan.reading, found):
        # What one opening asks for is nothing that others get, who ask for nothing.
        plan = replace(plan, reading=replace(plan.reading, checked=False), named=False)
        shelf = KeptCatalogue(url, digest(selection, url, plan.reading), root)
        found = shelf.find()
    _warn_forgotten(plan.forgotten, url)
    try:
        return _find_or_make_on(shelf, found, plan, making, beside)
    except AbsentFieldError:
        if memory is None or making.remembers or not tell_remembered(selection, memory.catalogue):
            raise
        plan = plan_of(listing, replace(selection, chosen=()), making, memory.catalogue)
        _warn_forgotten(f"fields={dict(memory.catalogue.reading.chosen)}", url)
        return _find_or_make_on(shelf, found, plan, making, beside)


def _differs(reading: Reading, found: FoundCatalogue | None) -> bool:
    """Whether this is another way of reading than that of the catalog which is found where nothing is asked."""
    if found is None:
        return bool(reading.chosen)
    there = found.catalogue.reading
    return (there.source, there.options, there.chosen) != (reading.source, reading.options, reading.chosen)


def _warn_forgotten(what: str, url: str) -> None:
    if what:
        _logger.warning(
            "%s: the files changed; %s of the catalog no longer fits and is left out", in_one_line(url), what
        )


def _find_or_make_on(
    shelf: KeptCatalogue, found: FoundCatalogue | None, plan: Plan, making: Making, beside: FoundCatalogue | None
) -> FoundCatalogue:
    if found is not None and plan.matches(found.catalogue):
        return found
    with shelf.making() as journal, shelf.writing():
        found = shelf.find()
        if found is not None and plan.matches(found.catalogue):
            return found
        return _make(plan, shelf, journal, found or beside, making)


def _make(
    plan: Plan, shelf: KeptCatalogue, journal: Journal, before: FoundCatalogue | None, making: Making
) -> FoundCatalogue:
    states = plan.states()
    known = {} if before is None else _known(before, plan, states)
    if before is not None:  # who left it out then is not asked again
        same = {state.path for state in states if state in known and state not in journal}
        making.lost.update({name: what for name, what in before.catalogue.lost.items() if name in same})
        making.remarks.update({name: what for name, what in before.catalogue.remarks.items() if name in same})
    todo = [number for number, state in enumerate(states) if state not in journal and state not in known]
    if todo:
        _logger.info("indexing %s of %s", plural(len(todo), "object"), in_one_line(plan.store.url))
    for number, pieces in scan_all(plan, todo, making):
        journal.add(states[number], pieces)
        making.scanned += 1

    def pieces_of(number: int) -> Iterable[Piece]:
        state = states[number]
        return journal.pieces(state) if state in journal else _old_pieces(before, known[state])

    found = write_catalogue(plan, states, pieces_of, shelf, making)
    shelf.forget_journal()
    return found


def _known(before: FoundCatalogue, plan: Plan, states: Sequence[ObjectState]) -> dict[ObjectState, int]:
    """Objects of an older catalogue by what they were; none where it was made in another way."""
    old = before.catalogue
    if old.reading != plan.reading or not states:
        return {}
    rows = zip(
        old.names,
        old.objects.sizes.tolist(),
        old.objects.versions.tolist(),
        old.objects.abouts.tolist(),
        itertools.repeat(states[0].wanted),
        strict=False,
    )
    return {ObjectState(*row): number for number, row in enumerate(rows)}


def _old_pieces(before: FoundCatalogue | None, number: int) -> Iterator[Piece]:
    assert before is not None
    old = before.catalogue
    found = old.objects.blocks_of(number)
    blocks, end = (None, int(old.objects.sizes[number])) if found is None else (found.pack(), found.size)
    first, last = np.searchsorted(old.objects.objects, [number, number + 1]).tolist()
    for shard in range(first, last):
        start, length = old.index_range(shard)
        data = before.store.get(old.indexes_name, start, length)
        framing = old.reading.framing.name
        index = parse_index(data, path=old.names[number], framing=framing, end=end, url=old.url, is_form=is_form)
        fields = {
            name: IMAGE if old.fields[name].is_image and column.type.name == "bytes" else kind_of(column, old.reading)
            for name, column in index.columns.items()
        }
        classes = old.classes if old.reading.format.loose else None
        yield Piece(index.samples, fields, bytes(data), 0, blocks=blocks, classes=classes)
