"""A few samples of a data set, looked at closely."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Unpack

from shardstream.dataset.dataset_rows import DatasetRows
from shardstream.dataset.keys.finder import numbers_of
from shardstream.dataset.opening import Opening, open_dataset, takes_opening
from shardstream.errors import DataError, DecodeError, DestinationError, MissingExtraError
from shardstream.images.header import probe
from shardstream.shards.arrays import npy_bytes
from shardstream.shards.fields import FieldType, ValuesType, from_bytes
from shardstream.shards.index import escape_key
from shardstream.shards.manifest import Manifest
from shardstream.storage import PathOrUrl, Store, open_store
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


@takes_opening
def view(
    url: PathOrUrl,
    numbers: Iterable[int] = (),
    *,
    keys: Iterable[str] = (),
    save: str | os.PathLike[str] | None = None,
    **opening: Unpack[Opening],
) -> View:
    """Read single samples, compare their checksums, and say what is in them. Nothing else is read but their indexes.

    Args:
        url: Folder or URL of the data set.
        numbers: Samples by number in stored order, from 0; negative ones count from the end.
        keys: Samples by key; the first sample of each, found by the key table (`Reader.get`). The key of a document
            stands for the first bin that has a piece of it.
        save: A folder to write their values to, a file each, called as in a tar shard: ``KEY.FIELD``. Files as they
            were packed, numbers as text, rows of values and arrays of one size as NPY.
        version: Which version of a data set that grew. Default: the newest.
        cache: Folder of a cache for what comes over a network, or a `Cache`. Default: none.
        replicas: Places that have its shards too; asked first, in this order.
        storage_options: Credentials and settings by name, of all these places. Default: those of the environment.

    Raises:
        NotFoundError: There is no data set.
        UsageError: There is no such sample, no such version, or no place that takes these options.
        DestinationError: A file of that name is in ``save`` already.
        DataError: A value differs from what was written, at every place that has it, or is none of its type (``save``).
        StorageError: The store cannot be read.

    Example:
        >>> view("out/", [3]).samples[0].key
        'photo/3'
    """
    dataset = open_dataset(url, **opening)
    manifest, rows = dataset.manifest, DatasetRows(dataset)
    ids = [*numbers, *numbers_of(dataset, keys)]
    batch = rows.read_ids(ids, present=True)
    target = None if save is None else open_store(save)
    samples: list[ViewedSample] = []
    saved: list[str] = []
    for i, (number, key) in enumerate(zip(ids, batch.keys, strict=True)):
        values = sorted(batch.values(i).items())
        fields = tuple(look_at(name, manifest.fields[name], value, manifest) for name, value in values)
        samples.append(ViewedSample(number % manifest.samples, key, batch.shards[i], batch.rows[i], fields))
        if target is not None:
            saved += _save(target, key, [(name, manifest.fields[name], value) for name, value in values])
    return View(dataset.url, manifest.samples, tuple(samples), tuple(saved))


def look_at(name: str, kind: FieldType, value: Any, manifest: Manifest) -> ViewedField:
    """A stored value of a field in a few words."""
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
    except (DataError, MissingExtraError) as error:
        shape, text = None, f"does not decode: {error.what}"
    return ViewedField(name, str(kind), len(value), shape, text)


def _image(data: memoryview) -> tuple[tuple[int, ...], str]:
    found = probe(data)
    four = {"jpg": "CMYK", "tiff": "four channels"}.get(found.kind, "colour + alpha")
    colours = {1: "palette" if found.kind == "gif" else "grey", 2: "grey + alpha", 3: "colour", 4: four}
    parts = [f"{found.width} x {found.height}", found.kind, colours[found.channels]]
    if found.progressive:
        parts.append("progressive" if found.kind == "jpg" else "interlaced")
    if found.orientation != 1:
        parts.append(f"EXIF orientation {found.orientation}, which upright=True follows")
    return (found.height, found.width, found.channels), ", ".join(parts)


def _payload(kind: FieldType, data: memoryview) -> tuple[tuple[int, ...] | None, str]:
    if kind.name == "bytes":
        return None, _shortened(bytes(data[:_TEXT]).hex(" "))
    value = from_bytes(kind, data)
    if kind.name in ("array", "tensor") or isinstance(kind, ValuesType):
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


def _save(target: Store, key: str, values: Iterable[tuple[str, FieldType, Any]]) -> Iterator[str]:
    for name, kind, value in values:
        path = f"{escape_key(key)}.{name}"  # no dot of a key survives, so none leads out of the folder
        if target.exists(path):
            raise DestinationError(
                "there is such a file already", url=target.locate(path), hint="save to a new or empty folder"
            )
        try:
            target.put(path, _file(kind, value))
        except DecodeError as error:
            raise error.at(key=key, field=name) from error.__cause__
        yield path


def _file(kind: FieldType, value: Any) -> bytes | memoryview:
    if kind.kind == "payload":
        assert isinstance(value, memoryview)
        return npy_bytes(kind.decode(value)) if isinstance(kind, ValuesType) else value
    if kind.kind == "fixed":
        return npy_bytes(value)
    plain = value.item()
    return str(int(plain) if isinstance(plain, bool) else plain).encode()
