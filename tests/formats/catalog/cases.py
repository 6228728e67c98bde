"""A case: the files of a foreign data set, as they are or damaged. Reading one ends in values or errors of ours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import zstandard

import shardstream as ss
from shardstream.errors import FormatError, NotFoundError, ShardStreamError, StorageError, UsageError
from shardstream.formats.catalog.kept import read_catalogue
from shardstream.formats.contract import ObjectListing, shown
from shardstream.formats.framing import FRAMING, is_form
from shardstream.formats.loose import LOOSE
from shardstream.formats.registry import recognize
from shardstream.formats.scans.rows import PIECE, ScannedRows
from shardstream.shards.field_names import check_field_name
from shardstream.shards.framing import Framing
from shardstream.shards.index import ShardIndex, check_key
from shardstream.shards.layout import pack_index, parse_index
from shardstream.storage import FetchedBuffers, MappedBuffers, ObjectMeta, Store
from shardstream.storage.local.store import LocalStore

CATALOGUE = "catalogue"
"""In the place of a format: a data set with its catalogue beside it, in which the catalogue is damaged."""
_WRITTEN_NS = 10**18  # when every file was written: catalogues hold it


@dataclass(frozen=True)
class Case:
    """A data set.

    Attributes:
        format: Its format, or `CATALOGUE`.
        files: Their bytes by name.
        options: Of reading it.
        note: What came of it, when it was found.
    """

    format: str
    files: Mapping[str, bytes]
    options: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def pack(self) -> bytes:
        return zstandard.compress(msgpack.packb(vars(self)), 19)

    @classmethod
    def unpack(cls, data: bytes) -> Case:
        return cls(**msgpack.unpackb(zstandard.decompress(data)))

    @classmethod
    def of(cls, format: str, folder: Path, options: Mapping[str, str]) -> Case:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return cls(format, {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}, options)

    def write(self, folder: Path) -> None:
        """Into a folder of nothing else."""
        shutil.rmtree(folder, ignore_errors=True)
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.utime(path, ns=(_WRITTEN_NS, _WRITTEN_NS))


class InMemory(Store):
    """Files that are not mapped, without threads and requests."""

    url = "files:"

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        data = memoryview(self._file(path))
        end = len(data) if length is None else offset + length
        assert 0 <= offset <= end <= len(data), "a range that is not inside of the object was asked for"
        return data[offset:end]

    def size(self, path: str) -> int:
        return len(self._file(path))

    def _file(self, path: str) -> bytes:
        if path not in self._files:
            raise NotFoundError("there is no such file", url=path)
        return self._files[path]

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        return iter([ObjectMeta(path, len(data)) for path, data in sorted(self._files.items())])


def read(case: Case, folder: Path, *, whole: bool = True) -> int:
    """Read all of a case in every way: mapped and not, by its format and by none. Raises what is not an error of ours.

    Args:
        case: The data set.
        folder: Where it may be written.
        whole: Also through `ss.Reader`, with a catalogue.

    Returns:
        How many samples could be read.
    """
    case.write(folder)
    if case.format == CATALOGUE:
        return _read_by_catalogue(folder) + _read_by_reader(case, folder)
    count = 0
    for store in (LocalStore(folder), InMemory(case.files)):
        with suppress(ShardStreamError):
            count = _read_store(store, case)
    with suppress(ShardStreamError):
        recognize(ObjectListing(LocalStore(folder), list(LocalStore(folder).list())), None, {})
    return _read_by_reader(case, folder) if whole else count


def _read_store(store: Store, case: Case) -> int:
    listing = ObjectListing(store, list(store.list()))
    answer = recognize(listing, case.format, case.options)
    assert answer is not None
    format, recognised = answer
    count = 0
    for one in recognised.objects:
        assert format.loose or one.size == listing.size(one.path)  # else it may stand for a run of files
        try:
            inflated, data, _ = shown(format, store, one)
            size = one.size if format.loose else data.size
            for rows in format.scan(data, one.about):
                assert len(rows.keys) <= PIECE
                assert rows.damage is None or (rows.damage.hint and rows.damage.place), rows.damage
                if rows.keys:
                    framing = LOOSE if format.loose else FRAMING
                    count += _read_index(inflated, _index_of(rows, one.path, size, framing), framing)
        except (FormatError, StorageError) as error:  # of one object of several
            if not error.hint or not error.place:
                raise AssertionError("an error that says not where, or not what to do") from error
    return count


def _index_of(rows: ScannedRows, path: str, size: int, framing: Framing) -> ShardIndex:
    """The index as it is written and parsed: what lies outside of the object is refused."""
    try:
        for column in rows.columns:
            check_field_name(column.name)
        keys = [check_key(key).encode() for key in rows.keys]
    except UsageError as error:  # as in the product
        raise FormatError(error.what, url=path, hint="name it otherwise") from error
    ends = np.cumsum([len(key) for key in keys], dtype=np.uint64)
    try:
        data = memoryview(pack_index(framing.name, (ends, b"".join(keys)), rows.columns, end=size))
        return parse_index(data, path=path, framing=framing.name, end=size, is_form=is_form)
    except ShardStreamError as error:
        raise AssertionError("a scan gave what is no index") from error


def _read_index(store: Store, index: ShardIndex, framing: Framing) -> int:
    rows = np.arange(index.samples)
    assert len(list(index.keys)) == index.samples
    for name in index.columns:
        try:
            _read_rows(store, index, rows, name, framing)
        except ShardStreamError:
            for row in rows[:64]:  # each may be another error
                with suppress(ShardStreamError):
                    _read_rows(store, index, rows[row : row + 1], name, framing)
    return index.samples


def _read_rows(store: Store, index: ShardIndex, rows: Any, name: str, framing: Framing) -> None:
    plan = framing.plan(index, rows, [name])
    buffers = MappedBuffers(store) if store.mapped else FetchedBuffers((one, store.get(*one)) for one in plan)
    found = framing.extract(index, buffers, rows, [name])[name]
    for row in range(len(rows)):
        if found.type.kind == "payload" and (found.valid is None or found.valid[row]):
            found.type.decode(found.data[row])


def _read_by_catalogue(folder: Path) -> int:
    """By the catalogue that lies beside, whatever the data are."""
    count = 0
    store = LocalStore(folder)
    with suppress(ShardStreamError):
        found = read_catalogue(store, store.url)
        if found is None:
            return 0
        catalogue = found.catalogue
        for shard in range(catalogue.shards):
            with suppress(ShardStreamError):
                name = catalogue.shard_name(shard)
                tail = store.get(catalogue.indexes_name, *catalogue.index_range(shard)), store.size(name)
                framing = catalogue.reader
                count += _read_index(store, framing.scan(store, name, tail=tail), framing)
    return count


def _read_by_reader(case: Case, folder: Path) -> int:
    format = None if case.format == CATALOGUE else case.format
    with suppress(ShardStreamError):
        ds = ss.ShardDataset(folder, reading=ss.SourceOptions(format=format, options=case.options or None))
        raw = {name: "bytes" if kind.is_image else None for name, kind in ds.manifest.fields.items()}
        reader = ss.Reader(folder, fields=raw, reading=ss.SourceOptions(format=format, options=case.options or None))
        for number in {*range(min(len(reader), 64)), *range(max(0, len(reader) - 16), len(reader))}:
            with suppress(ShardStreamError):
                reader[number]
        return len(reader)
    return 0
