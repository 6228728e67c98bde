"""From a listing to a catalogue. Objects that are as they were when they were scanned are not scanned again."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
import xxhash

from shardstream.dataset.foreign.journal import Journal, ObjectState
from shardstream.dataset.foreign.kept import FoundCatalogue, Shelf, read_catalogue
from shardstream.dataset.foreign.scan import Piece, Wanted, about_digest, scan_object
from shardstream.dataset.foreign.spec import ForeignSpec
from shardstream.errors import (
    FieldError,
    FormatError,
    NotFoundError,
    StorageError,
    UsageError,
    WorkerError,
)
from shardstream.progress import OnProgress, ProgressEvent, ignore
from shardstream.shards.catalogue import Catalogue, ObjectTable
from shardstream.shards.fields import IMAGE, FieldType
from shardstream.shards.foreign.contract import ForeignFormat, ForeignObject, Listing, Recognised
from shardstream.shards.foreign.formats.registry import format_named, recognise
from shardstream.shards.foreign.framing import NAME, is_form
from shardstream.shards.heads import no_data_set
from shardstream.shards.layout import pack_index, parse_index
from shardstream.sizes import plural, size
from shardstream.storage import Location, Store, open_store
from shardstream.storage.base.store import ObjectMeta
from shardstream.storage.cache import Cache
from shardstream.text import in_one_line
from shardstream.threads import each

_logger = logging.getLogger(__name__)

Damaged: TypeAlias = Literal["error", "reject"]
LIMIT_S = 60.0
"""Seconds that opening a data set may take to index it; what takes longer is a command of its own."""
_PROBE_S = 3.0
_AT_ONCE = 8  # objects of a store that are scanned side by side
_IMAGES = frozenset(("jpg", "png", "webp", IMAGE))


@dataclass(slots=True)
class Making:
    """How a catalogue is made.

    Attributes:
        chosen: As `Catalogue.chosen`; ``None``: as in the catalogue that is there, else all fields.
        checked: As `Catalogue.checked`; ``None``: as in the catalogue that is there, else without.
        damaged: What becomes of objects that are damaged: ``"error"``, or ``"reject"`` for what cannot be read of them.
        workers: Processes that scan; 0: this one.
        limit: Seconds that it may take, as far as that can be told in advance; ``None`` for any.
        progress: Told of each object.
        rejected: What was left out, a sentence each, with ``damaged="reject"``.
        scanned: Objects that were scanned now.
        probing: When the first object was begun, by ``time.monotonic``.
    """

    chosen: Mapping[str, str] | None = None
    checked: bool | None = None
    damaged: Damaged = "error"
    workers: int = 0
    limit: float | None = LIMIT_S
    progress: OnProgress = ignore
    rejected: list[str] = field(default_factory=list)
    scanned: int = 0


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a listing has, and how it is to be scanned."""

    store: Store
    format: ForeignFormat
    recognised: Recognised
    metas: Sequence[ObjectMeta]
    wanted: Wanted
    options: Mapping[str, str]

    def states(self) -> list[ObjectState]:
        """What each object is, for comparing."""
        how = [self.format.name, dict(self.options), dict(self.wanted.chosen), self.wanted.checked]
        wanted = xxhash.xxh3_64_intdigest(json.dumps(how, sort_keys=True).encode())
        return [
            ObjectState(one.path, one.size, meta.version, about_digest(one), wanted)
            for one, meta in zip(self.recognised.objects, self.metas, strict=True)
        ]

    def matches(self, found: Catalogue) -> bool:
        """Whether a catalogue is of these very objects, read in this way."""
        how = (found.source, found.options, found.chosen, found.checked)
        if how != (self.format.name, self.options, self.wanted.chosen, self.wanted.checked):
            return False
        states, objects = self.states(), found.objects
        return (
            list(found.names) == [one.path for one in states]
            and objects.sizes.tolist() == [one.size for one in states]
            and objects.versions.tolist() == [one.version for one in states]
            and objects.abouts.tolist() == [one.about for one in states]
            and found.classes == self.recognised.classes
        )


def find_or_make(location: Location, spec: ForeignSpec, cache: Cache | None, making: Making) -> FoundCatalogue:
    """The catalogue of a foreign data set: beside the data, kept on this machine, or made now.

    Args:
        location: Where the data lie.
        spec: Which objects are meant.
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
    listing = Listing(store, spec.objects(store))
    beside = None if spec.names else read_catalogue(store, store.url)
    if beside is not None:
        plan = _plan(listing, spec, making, beside.catalogue)
        if plan.matches(beside.catalogue):
            return beside
    try:
        shelf = Shelf(store.url, spec, cache)
        found = shelf.find()
        plan = _plan(listing, spec, making, None if found is None else found.catalogue)
        if found is not None and plan.matches(found.catalogue):
            return found
        with shelf.making() as journal:
            found = shelf.find()
            if found is not None and plan.matches(found.catalogue):
                return found
            return _make(plan, shelf, journal, found or beside, making)
    except OSError as error:
        raise StorageError(
            f"the catalogue of {store.url} cannot be kept on this machine ({error.strerror or error})",
            hint="give a folder that can be written: cache=, or XDG_CACHE_HOME",
        ) from error


def _plan(listing: Listing, spec: ForeignSpec, making: Making, found: Catalogue | None) -> _Plan:
    source, options = spec.source, None if spec.options is None else dict(spec.options)
    if found is not None and source in (None, found.source):
        source = found.source
        options = dict(found.options) if options is None else options
    answer = recognise(listing, source, options or {})
    if answer is None:
        raise no_data_set(listing.url, NotFoundError(""))
    format, recognised = answer
    metas = {meta.path: meta for meta in listing.objects}
    same = found is not None and found.source == format.name
    chosen = (dict(found.chosen) if same and found else {}) if making.chosen is None else making.chosen
    checked = (same and found is not None and found.checked) if making.checked is None else making.checked
    return _Plan(
        listing.store,
        format,
        recognised,
        [metas[one.path] for one in recognised.objects],
        Wanted(format, chosen, checked),
        options or {},
    )


# -------------------------------------------------------------------------------------------------------- scanning


def _make(plan: _Plan, shelf: Shelf, journal: Journal, before: FoundCatalogue | None, making: Making) -> FoundCatalogue:
    states = plan.states()
    known = {} if before is None else _known(before, plan)
    todo = [number for number, state in enumerate(states) if state not in journal and state not in known]
    if todo:
        _logger.info("indexing %s of %s", plural(len(todo), "object"), in_one_line(plan.store.url))
    for number, pieces in _scan(plan, todo, making):
        journal.add(states[number], pieces)
        making.scanned += 1

    def pieces_of(number: int) -> Iterable[Piece]:
        state = states[number]
        return journal.pieces(state) if state in journal else _old_pieces(before, known[state])

    found = _write(plan, states, pieces_of, shelf, making)
    shelf.forget_journal()
    return found


def _scan(plan: _Plan, todo: Sequence[int], making: Making) -> Iterator[tuple[int, list[Piece]]]:
    """The pieces of each of these objects, whatever the order in which they come."""
    total = sum(plan.metas[number].size for number in todo)
    watch = _Watch(plan, total, len(todo), making)
    left = iter(todo)
    for number in left:  # the first ones here, until it is known how long all take
        watch.begin()
        pieces = []
        for piece in scan_object(plan.store, plan.recognised.objects[number], plan.metas[number], plan.wanted):
            pieces.append(piece)
            watch.saw(piece.covered)
        watch.done(plan.metas[number].size)
        yield number, pieces
        if watch.knows:
            break
    rest = _in_processes(plan, left, making.workers) if making.workers > 1 else _in_threads(plan, left)
    for number, pieces in rest:
        watch.done(plan.metas[number].size)
        yield number, pieces


class _Watch:
    """How long scanning takes, and what is told of it."""

    def __init__(self, plan: _Plan, total: int, objects: int, making: Making) -> None:
        self._plan = plan
        self._total = total
        self._objects = objects
        self._making = making
        self._began = time.monotonic()
        self._bytes = self._here = self._done = 0

    @property
    def knows(self) -> bool:
        """Whether it was watched for long enough to tell."""
        return time.monotonic() - self._began > _PROBE_S

    def begin(self) -> None:
        self._here = 0

    def saw(self, covered: int) -> None:
        """Values of so many bytes were found in the object that is being scanned."""
        self._here += covered
        if self.knows:
            self._check(self._bytes + self._here)

    def done(self, bytes: int) -> None:
        """An object of so many bytes was scanned."""
        self._bytes, self._here, self._done = self._bytes + bytes, 0, self._done + 1
        if self.knows:
            self._check(self._bytes)
        detail = {"objects": self._done, "total_objects": self._objects}
        self._making.progress(ProgressEvent("index", self._bytes, self._total, "bytes", detail))

    def _check(self, bytes: int) -> None:
        limit = self._making.limit
        if limit is None or not bytes:
            return
        seconds = (time.monotonic() - self._began) * max(1.0, self._total / bytes)
        if seconds > limit:
            plan = self._plan
            raise UsageError(
                f"{plan.format.title}: {plural(len(plan.metas), 'object')} of {size(self._total)} have to be indexed "
                f"before they can be streamed, which takes about {_duration(seconds)} here",
                url=plan.store.url,
                hint=f"run `shardstream index {plan.store.url}` once; what was indexed now is kept",
            )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def _in_threads(plan: _Plan, numbers: Iterator[int]) -> Iterator[tuple[int, list[Piece]]]:
    def act(number: int) -> tuple[int, list[Piece]]:
        one, meta = plan.recognised.objects[number], plan.metas[number]
        return number, list(scan_object(plan.store, one, meta, plan.wanted))

    at_once = 1 if plan.store.mapped else _AT_ONCE
    yield from each(act, numbers, at_once=at_once, what=f"an object of {plan.store.url} to be indexed")


def _in_processes(plan: _Plan, numbers: Iterator[int], workers: int) -> Iterator[tuple[int, list[Piece]]]:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        running = {}
        try:
            for number in itertools.chain(numbers, [None] * (2 * workers)):
                if number is not None:
                    task = pool.submit(
                        _scan_apart,
                        plan.store,
                        plan.format.name,
                        plan.recognised.objects[number],
                        plan.metas[number],
                        dict(plan.wanted.chosen),
                        plan.wanted.checked,
                    )
                    running[task] = number
                while running and (number is None or len(running) >= 2 * workers):
                    done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                    for one in done:
                        yield running.pop(one), one.result()
        except BrokenProcessPool as error:
            raise WorkerError(
                "a process that indexed died", url=plan.store.url, hint="look at memory; what was indexed is kept"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _scan_apart(
    store: Store, source: str, one: ForeignObject, meta: ObjectMeta, chosen: Mapping[str, str], checked: bool
) -> list[Piece]:
    """In a process of its own."""
    return list(scan_object(store, one, meta, Wanted(format_named(source), chosen, checked)))


# ----------------------------------------------------------------------------------------- what an older one knows


def _known(before: FoundCatalogue, plan: _Plan) -> dict[ObjectState, int]:
    """Objects of an older catalogue by what they were; none where it was made in another way."""
    old = before.catalogue
    how = (old.source, old.options, old.chosen, old.checked)
    if how != (plan.format.name, plan.options, plan.wanted.chosen, plan.wanted.checked):
        return {}
    wanted = next((state.wanted for state in plan.states()), 0)
    rows = zip(
        old.names,
        old.objects.sizes.tolist(),
        old.objects.versions.tolist(),
        old.objects.abouts.tolist(),
        itertools.repeat(wanted),
        strict=False,
    )
    return {ObjectState(*row): number for number, row in enumerate(rows)}


def _old_pieces(before: FoundCatalogue | None, number: int) -> Iterator[Piece]:
    assert before is not None
    old = before.catalogue
    end = int(old.objects.sizes[number])
    for shard in np.flatnonzero(old.objects.objects == number).tolist():
        start, length = old.index_range(shard)
        data = before.store.get(old.indexes_name, start, length)
        index = parse_index(data, path=old.names[number], framing=NAME, end=end, url=old.url, is_form=is_form)
        fields = {
            name: IMAGE if old.fields[name].is_image and column.type.name == "bytes" else str(column.type)
            for name, column in index.columns.items()
        }
        yield Piece(index.samples, fields, bytes(data), 0)


# --------------------------------------------------------------------------------------------------------- writing


def _write(
    plan: _Plan, states: Sequence[ObjectState], pieces_of: object, shelf: Shelf, making: Making
) -> FoundCatalogue:
    assert callable(pieces_of)
    fields = _united(
        plan, (piece for number in range(len(states)) for piece in _whole(plan, number, pieces_of, making))
    )
    ends, sums, objects, samples = [], [], [], []
    at = 0

    def indexes() -> Iterator[bytes]:
        nonlocal at
        for number, state in enumerate(states):
            for piece in pieces_of(number):
                if not piece.samples:
                    continue
                data = _retyped(piece, fields, state)
                at += len(data)
                ends.append(at)
                sums.append(int.from_bytes(data[-8:], "little"))
                objects.append(number)
                samples.append(piece.samples)
                yield data

    names = [state.path.encode() for state in states]
    with shelf.folder.replacing("indexes.new") as descriptor:
        with open(descriptor, "wb", closefd=False) as file:
            file.writelines(indexes())
        table = ObjectTable(
            sizes=np.array([state.size for state in states], "<u8"),
            versions=np.array([state.version for state in states], "<u8"),
            checksums=np.zeros(len(states), "<u8"),
            abouts=np.array([state.about for state in states], "<u8"),
            name_ends=np.cumsum([len(name) for name in names], dtype=np.uint64).astype("<u8"),
            index_ends=np.array(ends, "<u8"),
            index_checksums=np.array(sums, "<u8"),
            objects=np.array(objects, "<u4"),
            samples=np.array(samples, "<u4"),
            names=memoryview(b"".join(names)),
        )
    catalogue = Catalogue.made(
        table,
        fields,
        source=plan.format.name,
        options=plan.options,
        chosen=plan.wanted.chosen,
        checked=plan.wanted.checked,
        classes=plan.recognised.classes,
        notes=[*plan.recognised.notes, *making.rejected],
        url=plan.store.url,
    )
    if not catalogue.samples:
        raise FormatError(
            f"{plan.format.title}: there is no sample in any object", url=plan.store.url, hint="look at it"
        )
    shelf.store.move("indexes.new", catalogue.indexes_name)
    catalogue.save(shelf.store)
    found = shelf.find()
    assert found is not None, "it was written a moment ago"
    return found


def _whole(plan: _Plan, number: int, pieces_of: object, making: Making) -> Iterator[Piece]:
    """The pieces of an object; what is damaged is an error, or told."""
    assert callable(pieces_of)
    for piece in pieces_of(number):
        if piece.damage is not None:
            if making.damaged == "error":
                raise FormatError(
                    f"an object is damaged: {piece.damage}",
                    hint=f"`shardstream index {plan.store.url} --damaged reject` leaves out what is lost",
                )
            making.rejected.append(piece.damage.replace("\n", " "))
        yield replace(piece, fields=dict(piece.fields))


def _united(plan: _Plan, pieces: Iterable[Piece]) -> dict[str, FieldType]:
    """The type of each field in all objects."""
    kinds: dict[str, Counter[str]] = {}
    for piece in pieces:
        for name, kind in piece.fields.items():
            kinds.setdefault(name, Counter())[kind] += piece.samples
    missing = [name for name in plan.wanted.chosen if name not in kinds]
    if missing:
        text = plan.wanted.chosen[missing[0]].partition(":")[0]
        raise FieldError(
            f"no object has a field {text!r}",
            url=plan.store.url,
            field=missing[0],
            hint="index it without fields to see all",
        )
    return {name: _common(name, found, plan.store.url) for name, found in kinds.items()}


def _common(name: str, found: Counter[str], url: str) -> FieldType:
    if len(found) == 1:
        return FieldType.parse(next(iter(found)))
    if set(found) <= _IMAGES:
        return FieldType.parse(IMAGE)
    if set(found) <= _IMAGES | {"bytes"}:
        return FieldType.parse("bytes")
    told = ", ".join(f"{kind} in {plural(count, 'sample')}" for kind, count in found.most_common())
    raise FieldError(
        f"the field is of several types: {told}", url=url, field=name, hint="leave it out: fields= names those to take"
    )


def _retyped(piece: Piece, fields: Mapping[str, FieldType], state: ObjectState) -> bytes:
    """The index of a piece, with the types that the data set has."""
    if all(FieldType.parse(kind).name == fields[name].name for name, kind in piece.fields.items()):
        return piece.index
    index = parse_index(memoryview(piece.index), path=state.path, framing=NAME, end=state.size, is_form=is_form)
    columns = [replace(column, type=fields[name]) for name, column in index.columns.items()]
    ends, blob = index.keys.parts
    return pack_index(NAME, (ends.astype(np.uint64), bytes(blob)), columns, end=state.size)
