"""Shards for tests, by the public writing code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shardstream.errors import StorageError
from shardstream.shards.fields import FieldType
from shardstream.shards.framings import framing_of, writer_of
from shardstream.shards.index import ShardIndex
from shardstream.shards.writing import ShardSummary, encode_value
from shardstream.storage import MappedBuffers, ObjectMeta, ObjectWriter, Store
from shardstream.storage.local.store import LocalStore
from shardstream.testing.framing import TYPES, KeyedValues
from shardstream.testing.framing import samples_of as samples_of

FRAMINGS = ("tar", "record")


def write_shard(
    store: Store,
    path: str,
    framing: str,
    samples: list[KeyedValues],
    types: dict[str, FieldType] = TYPES,
    **options: Any,
) -> ShardSummary:
    """One shard, committed."""
    with store.create(path) as out:
        shard = writer_of(framing)(out, **options)
        for key, values in samples:
            shard.write(key, {name: (types[name], encode_value(name, types[name], v)) for name, v in values.items()})
        return shard.finish()


class OneObject(Store):
    """A store of one object, in memory."""

    mapped = True

    def __init__(self, data: bytes) -> None:
        self.url = "memory"
        self._data = memoryview(data)

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        end = len(self._data) if length is None else offset + length
        if not 0 <= offset <= end <= len(self._data):
            raise StorageError("out of range", offset=offset)
        return self._data[offset:end]

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        return self._data[max(0, len(self._data) - length) :], len(self._data)

    def size(self, path: str) -> int:
        return len(self._data)

    def exists(self, path: str) -> bool:
        return True

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        raise NotImplementedError

    def create(self, path: str) -> ObjectWriter:
        raise NotImplementedError

    def delete(self, path: str) -> None:
        raise NotImplementedError

    def move(self, path: str, target: str) -> None:
        raise NotImplementedError

    def sweep(self) -> None:
        raise NotImplementedError


def shard_bytes(folder: Path, framing: str, samples: list[KeyedValues], **options: Any) -> bytes:
    """The bytes of a shard."""
    write_shard(LocalStore(folder), "made", framing, samples, **options)
    return (folder / "made").read_bytes()


def scan_bytes(framing: str, data: bytes, *, verify: bool = True) -> tuple[ShardIndex, MappedBuffers]:
    """The index of a shard of these bytes, and its bytes as buffers."""
    store = OneObject(data)
    return framing_of(framing).scan(store, "damaged", verify=verify), MappedBuffers(store)


def extract_all(
    framing: str, index: ShardIndex, buffers: MappedBuffers, *, verify: bool = True
) -> dict[str, list[Any]]:
    """Every value of every field, payloads as bytes, ``None`` where there is none."""
    rows = np.arange(index.samples)
    out = {}
    for name, values in framing_of(framing).extract(index, buffers, rows, list(index.columns), verify=verify).items():
        valid = np.ones(len(rows), bool) if values.valid is None else values.valid
        out[name] = [
            None if not has else bytes(value) if isinstance(value, memoryview) else value
            for value, has in zip(values.data, valid.tolist(), strict=True)
        ]
    return out
