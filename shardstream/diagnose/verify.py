"""Every byte of a data set compared with what was written."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, TypeAlias, Unpack

import numpy as np

from shardstream.dataset.keys.listings import listings_of
from shardstream.dataset.keys.tables import stored_tables
from shardstream.dataset.opened import OpenedDataset
from shardstream.dataset.opening import Opening, open_dataset, takes_opening
from shardstream.diagnose.members import differences
from shardstream.diagnose.whole import FetchedValues, LooseValues, ReadShard, TooLarge, read_pieces, read_shards
from shardstream.errors import (
    ChangedError,
    DataError,
    DecodeError,
    FormatError,
    MissingExtraError,
    NotFoundError,
    ShardStreamError,
    StorageError,
)
from shardstream.faults import FaultKind, fault_kind
from shardstream.pack.encode.images import ImageDecoding
from shardstream.pack.execution.isolated import end, finish, together
from shardstream.progress import OnProgress, ProgressEvent, ignore
from shardstream.shards.compression import decompress
from shardstream.shards.fields import ValuesType, agree
from shardstream.shards.framing import MAX_VALUE, oversized, too_large
from shardstream.shards.index import Column, ShardIndex
from shardstream.shards.key_table import key_table_name
from shardstream.shards.layout import checksum
from shardstream.shards.manifest import Manifest
from shardstream.sizes import parse_size
from shardstream.storage import PathOrUrl, Store
from shardstream.threads import cores, each

ProblemCheck: TypeAlias = Literal[
    "missing",
    "changed",
    "unreadable",
    "size",
    "checksum",
    "index",
    "samples",
    "fields",
    "value",
    "tar",
    "version",
    "keys",
    "picture",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        check: The check that found it. ``missing``: no such object. ``changed``: written again since it was indexed.
            ``unreadable``: the disk does not give it back. ``size``, ``checksum``: of the whole object. ``index``: it
            cannot be read. ``samples``: their number. ``fields``: a field that the manifest lacks, or of another type.
            ``value``: the checksum of one value, or its size. ``tar``: a member that is not what the index says.
            ``version``: the manifest of an old version, or its table. ``keys``: the table of keys, where there is one.
            ``picture``: as it was written, and not to be decoded; only where images are decoded.
        shard: Object name.
        what: In words.
        sample: Number in the shard, from 0.
        key: The sample's key.
        field: Field name.
        offset: Byte in the object.
        sound_copy: Where the whole shard is as it was written, to be restored from: the URL of the object in one of
            ``replicas``, or the folder of ``cache``; ``None`` where none is known.
        kind: What is at fault. ``damaged``: bytes are not what was written. ``unsupported``: a valid image of a kind
            that is not read. ``missing``: no such object, another one, or a placeholder such as a Git LFS pointer.
    """

    check: ProblemCheck
    shard: str
    what: str
    sample: int | None = None
    key: str | None = None
    field: str | None = None
    offset: int | None = None
    sound_copy: str | None = None
    kind: FaultKind = "damaged"


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What `verify` found.

    Attributes:
        url: The data set.
        problems: All of them, in order of shard; empty for a sound data set.
        shards: Shards that were looked at.
        samples: Samples of their indices.
        bytes: Bytes that were read and compared.
        values: Values whose own checksum was compared.
        seconds: Time taken.
        pictures: Pictures that were decoded.
        compared: Whether there are checksums to compare with. Data of another library have none of each value unless
            these were made when it was indexed. Else it is only known that all places are inside of the objects, and
            what ``own`` says.
        loose: Whether values are files of their own, which have no checksums before they are packed.
        own: Which checksums were compared that the format of another library keeps itself: ``("CRC-32 of members",)``.
    """

    url: str
    problems: tuple[Problem, ...]
    shards: int
    samples: int
    bytes: int
    values: int
    seconds: float
    pictures: int = 0
    compared: bool = True
    own: tuple[str, ...] = ()
    loose: bool = False

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@takes_opening
def verify(
    url: PathOrUrl,
    *,
    decode: bool = False,
    max_value: int | str = MAX_VALUE,
    progress: OnProgress | None = None,
    **opening: Unpack[Opening],
) -> VerifyReport:
    """Read a data set whole and compare: sizes and checksums of objects, indices, every value, tar members.

    Of old versions the manifests and tables: their shards are those of the newest.

    What is compared is what lies at ``url``, whatever a cache or a replica has: these are asked only where something is
    wrong, so that each problem says where a sound copy of its shard is.

    Problems are collected, not raised; a manifest that cannot be read is an error, and so is a store that cannot be
    reached. From a remote store a shard is read while the one before is compared, so memory holds two of them.

    Args:
        url: Folder or URL of the data set.
        decode: Decode every picture as well, in a thread a core, and name those that are damaged: those that readers
            refuse, or would fill up with grey. ``repack(drop_damaged=True)`` leaves them out.
        version: Which version of a data set that grew, with those before it. Default: the newest.
        cache: Folder of a cache, or a `Cache`. Where a shard is damaged, it is asked whether it holds all of it.
            Nothing else is read from it: what is compared is what the store has.
        replicas: Places that have the shards too. Where a shard is damaged, they are asked for a sound one.
        storage_options: Credentials and settings by name, of all these places. Default: those of the environment.
        max_value: Bytes that one value may have as it is delivered, see `ShardDataset`. A larger one is a problem: it
            will not be read.
        progress: Called with a `ProgressEvent` after each shard.

    Raises:
        NotFoundError: There is no data set.
        UsageError: ``max_value`` is not a size, there is no such version, or no place that takes these options.
        DataError: Its manifest is damaged.
        StorageError: The store cannot be read.
        MissingExtraError: A package is not installed that a picture, or a compressed value, takes to be decoded.

    Example:
        >>> verify("out/").ok
        True
    """
    started, largest = time.monotonic(), parse_size(max_value, name="max_value")
    dataset = open_dataset(url, **opening)
    store = dataset.store
    external = dataset.manifest.external
    if external is not None:
        manifest = dataset.manifest
        shards = read_pieces(replace(dataset.address, cache=None, replicas=()).open())
    else:
        manifest = Manifest.read(store, version=opening.get("version"))  # not as the cache has it
        shards = read_shards(store, manifest)
    problems, tell = list[Problem](), ignore if progress is None else progress
    samples = size = values = pictures = 0
    try:
        for number, found in enumerate(shards):
            shard = _Shard(manifest, number, found, largest)
            wrong = list(shard.problems())
            sound = _sound_copy(dataset, number) if wrong else None
            problems.extend(replace(one, sound_copy=sound) for one in wrong)
            if decode:
                problems.extend(shard.damaged_pictures())
            samples, size, values = samples + shard.samples, size + shard.bytes, values + shard.values
            pictures += shard.pictures
            detail = {"shards": number + 1, "total_shards": manifest.shards, "problems": len(problems)}
            tell(ProgressEvent("verify", size, manifest.bytes, "bytes", detail))
    finally:
        end()
    own = dataset.differences()
    problems.extend(_of_object(path, error) for path, error in own.mismatches)
    if external is None:
        problems.extend([*_old_versions(store, manifest), *_key_tables(store, manifest)])
    return VerifyReport(
        manifest.url,
        tuple(problems),
        manifest.shards,
        samples,
        size,
        values,
        time.monotonic() - started,
        pictures,
        own.complete,
        own.kinds,
        external is not None and external.loose,
    )


def _of_object(path: str, error: FormatError | NotFoundError) -> Problem:
    check: ProblemCheck = "missing" if isinstance(error, NotFoundError) else "checksum"
    offset = error.place.get("offset")
    at = offset if isinstance(offset, int) else None
    return Problem(check, path, error.what, offset=at, kind=fault_kind(error))


def _sound_copy(dataset: OpenedDataset, number: int) -> str | None:
    """Where else a shard is what was written."""
    for name, copy in dataset.copies(number):
        try:
            data = copy.store.get(copy.name)
        except (StorageError, DataError):
            continue
        if len(data) == copy.size and checksum(data) == int(dataset.manifest.table.checksums[number]):
            return name
    return None


def _old_versions(store: Store, manifest: Manifest) -> Iterator[Problem]:
    """Those of versions that can no longer be read; their shards are the first ones of the newest version."""
    for old in manifest.history:
        try:
            Manifest.parse(store.get(old.head), store.get, url=store.url, old=old)
        except (DataError, NotFoundError) as error:
            yield Problem("version", old.head, error.what, kind=fault_kind(error))


def _key_tables(store: Store, manifest: Manifest) -> Iterator[Problem]:
    for listing in listings_of(manifest):
        try:
            for table in stored_tables(store, manifest, listing):
                for _ in table.entries():  # each block is compared with its checksum
                    pass
        except NotFoundError:
            continue
        except DataError as error:
            yield Problem("keys", key_table_name(manifest.fingerprint, listing.name), error.what)


class _Shard:
    """The checks of one shard, and what they looked at."""

    def __init__(self, manifest: Manifest, number: int, found: ReadShard, max_value: int) -> None:
        self._manifest = manifest
        self._max_value = max_value
        self._number = number
        self._found = found
        self.name = manifest.shard_name(number)
        self.samples = self.bytes = self.values = self.pictures = 0
        self._wrong: set[tuple[str, int]] = set()  # values that differ from what was written, or are too large

    def problems(self) -> Iterator[Problem]:
        """All problems of this shard."""
        data, index = self._found.data, self._found.index
        if isinstance(data, StorageError):
            checks: dict[type[StorageError], ProblemCheck] = {
                NotFoundError: "missing",
                TooLarge: "size",
                ChangedError: "changed",
            }
            check = checks.get(type(data), "unreadable")
            yield Problem(check, self.name, data.what, kind="damaged" if check == "size" else fault_kind(data))
            return
        if isinstance(data, LooseValues):
            yield from self._loose(data, index)
            return
        if data is None:
            assert isinstance(index, ShardStreamError)
            yield self._from_error("index", index)
            return
        self.bytes = len(data)
        yield from self._object(data)
        if isinstance(index, ShardIndex) and index.framing == "foreign":
            self.bytes = sum(int(column.extents(np.arange(index.samples))[1].sum()) for column in _stored(index))
        if isinstance(index, ShardStreamError):
            yield self._from_error("index", index)
            return
        self.samples = index.samples
        yield from self._totals(index)
        for column in index.columns.values():
            yield from self._sizes(index, column)
            yield from self._halves(index, column)
            yield from self._values(data, index, column)
        if self._manifest.framing == "tar" and isinstance(data, memoryview):
            yield from self._members(data, index)

    def _loose(self, data: LooseValues, index: ShardIndex | ShardStreamError) -> Iterator[Problem]:
        """Values that are objects of their own: whether they are there, and as large as they were."""
        assert isinstance(index, ShardIndex)
        self.samples = index.samples
        yield from self._totals(index)
        for column in _stored(index):
            for row, path, found in data.each(column):
                if isinstance(found, StorageError):
                    self._wrong.add((column.name, row))
                    check: ProblemCheck = "missing" if isinstance(found, NotFoundError) else "changed"
                    kind = fault_kind(found)
                    yield Problem(check, path, found.what, row, index.keys[row], column.name, kind=kind)
                else:
                    self.values, self.bytes = self.values + 1, self.bytes + len(found)

    def _object(self, data: memoryview | FetchedValues) -> Iterator[Problem]:
        size = int(self._manifest.table.sizes[self._number])
        if len(data) != size:
            yield Problem("size", self.name, f"the object has {len(data)} bytes, not {size}")
            return  # its checksum cannot be right
        known = int(self._manifest.table.checksums[self._number])
        if isinstance(data, memoryview) and known and checksum(data) != known:
            yield Problem("checksum", self.name, "the object is not the one that was written")

    def _totals(self, index: ShardIndex) -> Iterator[Problem]:
        expected = int(self._manifest.table.samples[self._number])
        if index.samples != expected:
            yield Problem("samples", self.name, f"the shard has {index.samples} samples, not {expected}")
        for column in index.columns.values():
            kind = self._manifest.fields.get(column.name)
            if kind is None or not agree(kind, column.type):
                wanted = "no such field" if kind is None else f"the type {kind}"
                yield Problem(
                    "fields", self.name, f"the type is {column.type}; the manifest has {wanted}", field=column.name
                )

    def _sizes(self, index: ShardIndex, column: Column) -> Iterator[Problem]:
        found = too_large(column, np.arange(index.samples), self._max_value, plain=self._max_value != MAX_VALUE)
        for row, size in found[:1] if column.type.kind == "fixed" else found:  # all arrays of one size
            error = oversized(index, column.name, row, size, self._max_value)
            self._wrong.add((column.name, row))
            key = str(error.place.get("key", ""))
            yield Problem("value", self.name, error.what, row, key, column.name, kind=fault_kind(error))

    def _halves(self, index: ShardIndex, column: Column) -> Iterator[Problem]:
        """Rows of values that end in the middle of one."""
        kind = self._manifest.fields.get(column.name)
        sizes = column.sizes if column.raw_lengths is None else column.raw_lengths
        if not isinstance(kind, ValuesType) or sizes is None or column.codec not in ("none", "zstd"):
            return  # of a form, stored bytes are no values yet
        for row in np.flatnonzero(sizes % kind.elements.itemsize).tolist():
            what = f"the value has {sizes[row]} bytes, no multiple of the {kind.elements.itemsize} of {kind}"
            yield Problem("value", self.name, what, row, index.keys[row], column.name)

    def _values(self, data: memoryview | FetchedValues, index: ShardIndex, column: Column) -> Iterator[Problem]:
        if column.checksums is None:
            return
        rows = np.arange(index.samples)
        valid = column.valid_rows(rows)
        chosen = rows if valid is None else rows[valid]
        offsets, lengths = column.extents(chosen)
        expected = column.checksums[chosen]
        self.values += len(chosen)
        for row, offset, length, value in zip(
            chosen.tolist(), offsets.tolist(), lengths.tolist(), expected.tolist(), strict=True
        ):
            if checksum(data[offset : offset + length]) != value:
                self._wrong.add((column.name, row))
                yield Problem(
                    "value",
                    self.name,
                    "stored bytes differ from those that were written",
                    row,
                    index.keys[row],
                    column.name,
                    offset,
                )

    def _members(self, data: memoryview, index: ShardIndex) -> Iterator[Problem]:
        try:
            for sample, field, offset, what in differences(data, index):
                yield Problem(
                    "tar", self.name, what, sample, None if sample is None else index.keys[sample], field, offset
                )
        except DataError as error:
            yield self._from_error("tar", error)

    def damaged_pictures(self) -> Iterator[Problem]:
        """Those of this shard that are as they were written, and damaged; to be called after `problems`."""
        data, index = self._found.data, self._found.index
        if data is None or isinstance(data, StorageError) or isinstance(index, ShardStreamError):
            return
        for column in index.columns.values():
            kind = self._manifest.fields.get(column.name)
            if kind is None or not kind.is_image:
                continue
            if isinstance(data, LooseValues):
                yield from self._decoded_loose(data, index, column)
            else:
                yield from self._decoded(data, index, column)

    def _decoded_loose(self, data: LooseValues, index: ShardIndex, column: Column) -> Iterator[Problem]:
        there = ((row, path, one) for row, path, one in data.each(column) if not isinstance(one, StorageError))

        def look(batch: list[tuple[int, str, memoryview]]) -> list[tuple[int, str, DecodeError | None]]:
            damage = finish([_decoded(stored, index, column, row) for row, _, stored in batch], ImageDecoding())
            return [(row, path, error) for (row, path, _), error in zip(batch, damage, strict=True)]

        batches = together(there, lambda one: len(one[2]))
        for batch in each(look, batches, at_once=cores(), what=f"a picture of {self.name} to be decoded"):
            for row, path, error in batch:
                self.pictures += 1
                if error is not None:
                    kind = fault_kind(error)
                    yield Problem("picture", path, error.what, row, index.keys[row], column.name, kind=kind)

    def _decoded(self, data: memoryview | FetchedValues, index: ShardIndex, column: Column) -> Iterator[Problem]:
        rows = np.arange(index.samples)
        valid = column.valid_rows(rows)
        chosen = [
            row for row in (rows if valid is None else rows[valid]).tolist() if (column.name, row) not in self._wrong
        ]
        self.pictures += len(chosen)
        offsets, lengths = (extent.tolist() for extent in column.extents(np.array(chosen, np.int64)))
        places = list(zip(chosen, offsets, lengths, strict=True))

        def look(batch: list[tuple[int, int, int]]) -> list[DecodeError | None]:
            loads = [_decoded(data[at : at + size], index, column, row) for row, at, size in batch]
            return finish(loads, ImageDecoding())

        batches = together(places, lambda place: place[2])
        damage = each(look, batches, at_once=cores(), what=f"a picture of {self.name} to be decoded")
        for (row, at, _), error in zip(places, chain.from_iterable(damage), strict=True):
            if error is not None:
                key, kind = index.keys[row], fault_kind(error)
                yield Problem("picture", self.name, error.what, row, key, column.name, at, kind=kind)

    def _from_error(self, check: ProblemCheck, error: ShardStreamError) -> Problem:
        offset = error.place.get("offset")
        at = int(offset) if offset is not None else None
        return Problem(check, self.name, error.what, offset=at, kind=fault_kind(error))


def _stored(index: ShardIndex) -> list[Column]:
    """The columns whose values lie in the object."""
    return [column for column in index.columns.values() if column.type.kind != "scalar"]


def _decoded(
    stored: memoryview, index: ShardIndex, column: Column, row: int
) -> Generator[Any, None, DecodeError | None]:
    """Why a picture is damaged; ``None`` if it is not. A generator, see `finish`."""
    try:
        if column.raw_lengths is not None:
            stored = decompress(stored, size=int(column.raw_lengths[row]))
        yield stored
    except DecodeError as error:
        return error
    except MissingExtraError as error:
        place: dict[str, Any] = {"shard": index.path, "sample": row, "key": index.keys[row], "field": column.name}
        raise error.at(**place) from error.__cause__
    return None
