"""A few samples of a data set, looked at closely."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardstream.errors import DataError, DestinationError, UsageError
from shardstream.images.geometry import TURNS
from shardstream.images.header import probe
from shardstream.shards.arrays import npy_bytes
from shardstream.shards.fields import FieldType, from_bytes
from shardstream.shards.framing import FieldValues
from shardstream.shards.index import ShardIndex, escape_key
from shardstream.shards.manifest import Manifest
from shardstream.storage import Location, Store, Transport, fetch, open_store
from shardstream.text import in_one_line

_TEXT = 60


@dataclass(frozen=True, slots=True)
class ViewedField:
    """One value.

    Attributes:
        name: The field.
        type: Its type.
        bytes: Bytes of the value, decompressed.
        shape: Of an image (height, width, channels) as it decodes, of an array its shape; ``None`` for others, and for
            what does not decode.
        text: The value in a few words.
    """

    name: str
    type: str
    bytes: int
    shape: tuple[int, ...] | None
    text: str


@dataclass(frozen=True, slots=True)
class ViewedSample:
    """One sample.

    Attributes:
        number: In stored order, from 0.
        key: Its key.
        shard: The object that holds it.
        row: Its number in there.
        fields: The values that it has, by name of field.
    """

    number: int
    key: str
    shard: str
    row: int
    fields: tuple[ViewedField, ...]


@dataclass(frozen=True, slots=True)
class View:
    """What `view` looked at.

    Attributes:
        url: The data set.
        total: Its number of samples.
        samples: Those that were asked for, in that order.
        saved: Files that were written, relative to the folder.
    """

    url: str
    total: int
    samples: tuple[ViewedSample, ...]
    saved: tuple[str, ...]


def view(
    url: str | os.PathLike[str] | Location,
    numbers: Iterable[int] = (),
    *,
    keys: Iterable[str] = (),
    save: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    transport: Transport = "auto",
) -> View:
    """Read single samples, compare their checksums, and say what is in them. Nothing else is read but their indexes.

    Args:
        url: Folder or URL of the data set.
        numbers: Samples by number in stored order, from 0; negative ones count from the end.
        keys: Samples by key; found by looking through the indexes, one shard after another.
        save: A folder to write their values to, a file each, called as in a tar shard: ``KEY.FIELD``. Files as they
            were packed, numbers as text, arrays of one size as NPY.
        storage_options: Credentials and settings of the store by name. Default: those of the environment.
        transport: The library that speaks to the store: ``"auto"``, ``"obstore"`` or ``"fsspec"``.

    Raises:
        NotFoundError: There is no data set.
        UsageError: There is no such sample.
        DestinationError: A file of that name is in ``save`` already.
        DataError: A value differs from what was written.
        StorageError: The store cannot be read.

    Example:
        >>> view("out/", [3]).samples[0].key
        'photo/3'
    """
    store = open_store(url, storage_options=storage_options, transport=transport)
    manifest = Manifest.read(store)
    shards = _Shards(store, manifest)
    places = [shards.place(number) for number in numbers]
    places += shards.find(list(keys))
    target = None if save is None else open_store(save)
    samples: list[ViewedSample] = []
    saved: list[str] = []
    for number, shard, row in places:
        index = shards.index(shard)
        values = shards.values(index, row)
        samples.append(_look(manifest, index, number, row, values))
        if target is not None:
            saved += _save(target, index.keys[row], values)
    return View(manifest.url, manifest.samples, tuple(samples), tuple(saved))


class _Shards:
    """Shards of a data set; the index of the one at hand is kept."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        self._store = store
        self._manifest = manifest
        self._ends = np.cumsum(manifest.table.samples, dtype=np.int64)
        self._last: tuple[int, ShardIndex] | None = None

    def place(self, number: int) -> tuple[int, int, int]:
        """A sample's number from 0, its shard and its row there."""
        total = self._manifest.samples
        if not -total <= number < total:
            raise UsageError(
                f"there is no sample {number}",
                url=self._manifest.url,
                hint=f"the data set has {total:,} samples, numbered from 0",
            )
        number %= total
        shard = int(np.searchsorted(self._ends, number, side="right"))
        return number, shard, number - self._begin(shard)

    def find(self, keys: Sequence[str]) -> list[tuple[int, int, int]]:
        """The places of keys, in their order; the first sample of each."""
        found: dict[str, tuple[int, int, int]] = {}
        wanted = set(keys)
        for shard in range(self._manifest.shards):
            if not wanted:
                break
            for row, key in enumerate(self.index(shard).keys):
                if key in wanted:
                    wanted.discard(key)
                    found[key] = (self._begin(shard) + row, shard, row)
        if wanted:
            raise UsageError(
                "no sample has this key",
                url=self._manifest.url,
                key=min(wanted),
                hint="keys are paths without extension, unless packed with another `key`: look at some by number",
            )
        return [found[key] for key in keys]

    def _begin(self, shard: int) -> int:
        return int(self._ends[shard - 1]) if shard else 0

    def index(self, shard: int) -> ShardIndex:
        """The index of a shard."""
        if self._last is None or self._last[0] != shard:
            manifest = self._manifest
            name = manifest.shard_name(shard)
            self._last = shard, manifest.reader.scan(self._store, name, index_bytes=manifest.index_bytes or None)
        return self._last[1]

    def values(self, index: ShardIndex, row: int) -> Mapping[str, FieldValues]:
        """All values of a sample; fields that it lacks are left out."""
        rows = np.array([row])
        names = [name for name, column in sorted(index.columns.items()) if _has(column.valid_rows(rows))]
        reader = self._manifest.reader
        buffers = fetch(self._store, lambda: reader.plan(index, rows, names))
        return reader.extract(index, buffers, rows, names)


def _has(valid: Any) -> bool:
    return valid is None or bool(valid[0])


def _look(
    manifest: Manifest, index: ShardIndex, number: int, row: int, values: Mapping[str, FieldValues]
) -> ViewedSample:
    fields = tuple(_look_at(name, found.type, found.data[0], manifest) for name, found in values.items())
    return ViewedSample(number, index.keys[row], index.path, row, fields)


def _look_at(name: str, kind: FieldType, value: Any, manifest: Manifest) -> ViewedField:
    if kind.kind == "scalar":
        text = repr(value.item())
        classes = manifest.classes
        if name == "cls" and classes is not None and kind.dtype is not None and kind.dtype.kind in "iu":
            text += f" ({in_one_line(classes[int(value)])})" if 0 <= int(value) < len(classes) else " (no such class)"
        return ViewedField(name, kind.name, kind.width, None, text)
    if kind.kind == "fixed":
        return ViewedField(name, kind.name, kind.width, kind.shape, _array_text(value))
    try:
        shape, text = _image(value) if kind.is_image else _payload(kind, value)
    except DataError as error:
        shape, text = None, f"does not decode: {error.what}"
    return ViewedField(name, kind.name, len(value), shape, text)


def _image(data: memoryview) -> tuple[tuple[int, ...], str]:
    found = probe(data)
    height, width = TURNS[found.orientation].size((found.height, found.width))
    colours = {1: "grey", 2: "grey + alpha", 3: "colour", 4: "CMYK" if found.kind == "jpg" else "colour + alpha"}
    parts = [f"{width} x {height}", found.kind, colours[found.channels]]
    if found.progressive:
        parts.append("progressive" if found.kind == "jpg" else "interlaced")
    if found.orientation != 1:
        parts.append(f"EXIF orientation {found.orientation}")
    return (height, width, found.channels), ", ".join(parts)


def _payload(kind: FieldType, data: memoryview) -> tuple[tuple[int, ...] | None, str]:
    if kind.name == "bytes":
        return None, _shortened(bytes(data[:_TEXT]).hex(" "))
    value = from_bytes(kind, data)
    if kind.name in ("array", "tensor"):
        return tuple(value.shape), _array_text(value)
    return None, _shortened(repr(value))


def _array_text(array: Any) -> str:
    """Of a numpy array or a tensor."""
    shape = " x ".join(map(str, array.shape)) or "scalar"
    return _shortened(
        f"{str(array.dtype).removeprefix('torch.')} {shape}: "
        + " ".join(str(one) for one in array.reshape(-1)[:8].tolist())
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."


def _save(target: Store, key: str, values: Mapping[str, FieldValues]) -> Iterator[str]:
    for name, found in values.items():
        path = f"{escape_key(key)}.{name}"  # no dot of a key survives, so none leads out of the folder
        if target.exists(path):
            raise DestinationError(
                "there is such a file already", url=target.locate(path), hint="save to a new or empty folder"
            )
        target.put(path, _file(found.type, found.data[0]))
        yield path


def _file(kind: FieldType, value: Any) -> bytes | memoryview:
    if kind.kind == "payload":
        assert isinstance(value, memoryview)
        return value
    if kind.kind == "fixed":
        return npy_bytes(value)
    plain = value.item()
    return str(int(plain) if isinstance(plain, bool) else plain).encode()
