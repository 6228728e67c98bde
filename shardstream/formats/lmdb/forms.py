"""Forms: what becomes of a value of an object that has to be read again for it, with the place of a part in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shardstream.formats.lmdb.packed import read_packed
from shardstream.formats.lmdb.pickled import read_pickle, settled
from shardstream.formats.lmdb.values import MAX_NESTING, Blob, Found, NotUnderstood, StoredArray
from shardstream.shards.arrays import npy_bytes


def pickled_array(stored: memoryview, text: str) -> bytes:
    """A form: the NPY file of an array in a pickle."""
    return _npy_of(_part(read_pickle(stored), text), stored)


def pickled_bytes(stored: memoryview, text: str) -> bytes:
    """A form: bytes that stand in a pickle as text, as protocol 2 has them; of an array, its elements."""
    found = _part(read_pickle(stored), text)
    if isinstance(found, StoredArray):
        found = found.raw
    if not isinstance(found, Blob):
        raise ValueError("it is not bytes")  # noqa: TRY004 - forms raise ValueError
    return found.read(stored)


def pickled_json(stored: memoryview, text: str) -> bytes:
    """A form: a list, tuple or dict of plain values as JSON."""
    return json.dumps(_Plain(stored).of(_part(read_pickle(stored), text), 0), ensure_ascii=False).encode()


class _Plain:
    """Lists and dicts of a pickle as JSON has them, of which no more comes out than went in, some times over."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._left = 4096 + 8 * len(data)

    def of(self, found: Any, depth: int) -> Any:
        found = settled(found)
        self._left -= 8 + (found.length if isinstance(found, Blob) else 0)
        if self._left < 0 or depth > MAX_NESTING:
            raise NotUnderstood("lists in lists, which come out far larger than they are stored", 0)
        if isinstance(found, Blob) and found.kind == "text":
            return found.read(self._data).decode()
        if isinstance(found, StoredArray) and found.dtype.kind in "biuf":
            return self.of(found.read(self._data).tolist(), depth)
        if isinstance(found, list | tuple):
            return [self.of(one, depth + 1) for one in found]
        if isinstance(found, Mapping):
            return {key: self.of(one, depth + 1) for key, one in found.items()}
        if found is None or isinstance(found, bool | int | float):
            return found
        raise NotUnderstood("bytes inside of a list, for which there is no field", 0)


def packed_array(stored: memoryview, text: str) -> bytes:
    """A form: the NPY file of an array in a msgpack object."""
    return _npy_of(_part(read_packed(stored), text), stored)


def _part(found: Found, text: str) -> Any:
    """What lies at a place of a value, as `Column.codec` names it: empty for all, else ``/`` and key or number.

    Raises:
        ValueError: Nothing does.
    """
    if not text:
        return found
    name = text[1:]
    if isinstance(found, Mapping) and name in found:
        return found[name]
    if isinstance(found, list | tuple) and name.isascii() and name.isdigit() and int(name[:9]) < len(found):
        return found[int(name[:9])]
    raise ValueError(f"it has no {name!r}")


def _npy_of(found: Any, data: memoryview) -> bytes:
    """The NPY file of an array in a value; ValueError where it is none."""
    if not isinstance(found, StoredArray):
        raise ValueError("it is not an array")  # noqa: TRY004 - forms raise ValueError
    return npy_bytes(found.read(data))
