"""A foreign folder through its format, without the rest of the package: what tests of formats compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from shardstream.formats.contract import ObjectListing, Recognized, SourceFormat, shown
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.formats.scans.rows import ScannedRows
from shardstream.storage import Store
from shardstream.storage.local.store import LocalStore
from shardstream.testing import MemoryStore


def listing_of(place: Path | Store, *names: str) -> ObjectListing:
    """All objects of a folder or store, or those of these names."""
    store = place if isinstance(place, Store) else LocalStore(place)
    return ObjectListing(store, [one for one in store.list() if not names or one.path in names])


def in_memory(folder: Path) -> MemoryStore:
    """The same folder in a store that is not mapped."""
    store = MemoryStore()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store.put(path.relative_to(folder).as_posix(), path.read_bytes())
    return store


def recognised(format: SourceFormat, listing: ObjectListing, options: Mapping[str, str] | None = None) -> Recognized:
    found = format.recognize(listing, options or {})
    assert found is not None, f"{format.name} does not recognize {listing.url}"
    return found


def scanned(
    format: SourceFormat, place: Path | Store, options: Mapping[str, str] | None = None, *, window: int = 4096
) -> Iterator[tuple[str, ScannedRows]]:
    """Name of the object and rows, of all objects."""
    for data, _, rows in _scanned(format, place, options, window):
        yield data.path, rows


def _scanned(
    format: SourceFormat, place: Path | Store, options: Mapping[str, str] | None, window: int
) -> Iterator[tuple[ObjectBytes, Store, ScannedRows]]:
    listing = listing_of(place)
    for one in recognised(format, listing, options).objects:
        store, inflated, _ = shown(format, listing.store, one)
        data = inflated if format.loose else ObjectBytes(store, one.path, inflated.size, window=window)
        for rows in format.scan(data, one.about):
            yield data, store, rows


def samples(
    format: SourceFormat, place: Path | Store, options: Mapping[str, str] | None = None
) -> list[tuple[str, dict[str, Any]]]:
    """Key and decoded values of every sample; checks that the columns are what an index takes."""
    out = []
    for data, store, rows in _scanned(format, place, options, 4096):
        assert rows.damage is None, rows.damage
        out += list(decoded(format, store, data.path, rows))
    return out


def decoded(format: SourceFormat, store: Store, path: str, rows: ScannedRows) -> Iterator[tuple[str, dict[str, Any]]]:
    for row, key in enumerate(rows.keys):
        values: dict[str, Any] = {}
        for column in rows.columns:
            if not column.has(row):
                continue
            if column.type.kind == "scalar":
                assert column.values is not None
                values[column.name] = column.values[row].item()
                continue
            if column.names is not None:
                (values[column.name],) = column.object_names(np.array([row]))
                continue
            if column.held is not None:
                (stored,) = column.held_values(np.array([row]))
                values[column.name] = column.type.decode(stored)
                continue
            offsets, lengths = column.extents(np.array([row]))
            stored: Any = store.get(path, int(offsets[0]), int(lengths[0])) if lengths[0] else memoryview(b"")
            if column.type.kind == "fixed":
                values[column.name] = np.frombuffer(stored, column.type.dtype).reshape(column.type.shape or ())
                continue
            if column.codec not in ("none", "zstd"):
                name, _, text = column.codec.removeprefix(f"{format.name}.").partition(":")
                stored = memoryview(format.forms[name](stored, text))
            values[column.name] = column.type.decode(stored)
        yield key, values
