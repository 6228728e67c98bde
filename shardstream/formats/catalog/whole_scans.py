"""Objects of web servers that send no ranges, scanned out of the cache that they are then read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

import xxhash

from shardstream.storage import Store
from shardstream.storage.base.no_ranges import NoRangesError
from shardstream.storage.base.store import ObjectMeta
from shardstream.storage.base.wrapper import WrapperStore
from shardstream.storage.cache import Cache, CachedStore, Identity

T = TypeVar("T")


def is_web(url: str) -> bool:
    """Whether a URL is that of a web server, which may send whole objects only."""
    return url.startswith(("http://", "https://"))


def web_lineage(url: str) -> str:
    """What a cache calls the datasets below a URL of a web server: known before their objects are scanned."""
    return xxhash.xxh3_128_hexdigest(f"web {url}".encode())


def identity_of(size: int, version: int, url: str) -> Identity:
    """What an object has to be for what a cache holds of it to be right: only its place, size, and version tell."""
    return Identity(size, 0, xxhash.xxh3_128_hexdigest(f"{version} {url}".encode()))


def scannable(store: Store, metas: Iterable[ObjectMeta], cache: Cache | None) -> Store:
    """A store to scan objects of: one that fetches them whole into a cache, if the server turns out to need it."""
    if cache is None or not is_web(store.url):
        return store
    return _ScannedStore(store, {meta.path: meta for meta in metas}, cache)


class _ScannedStore(WrapperStore):
    """Reads ranges of a web server until it refuses one, from then on through the cache."""

    def __init__(self, inner: Store, metas: Mapping[str, ObjectMeta], cache: Cache) -> None:
        super().__init__(inner)
        identify = partial(_identify, metas, inner.url)
        self._cached = CachedStore(inner, cache, fingerprint=web_lineage(inner.url), identify=identify)
        self._whole_only = False

    def _try(self, read: Callable[[Store], T]) -> T:
        if not self._whole_only:
            try:
                return read(self.inner)
            except NoRangesError:
                self._whole_only = True
        return read(self._cached)

    def get(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        return self._try(lambda store: store.get(path, offset, length))

    def get_tail(self, path: str, length: int) -> tuple[memoryview, int]:
        return self._try(lambda store: store.get_tail(path, length))

    async def read(self, path: str, offset: int, length: int | None, *, size: int | None = None) -> list[memoryview]:
        if not self._whole_only:
            try:
                return await self.inner.read(path, offset, length, size=size)
            except NoRangesError:
                self._whole_only = True
        return await self._cached.read(path, offset, length, size=size)

    pieces = Store.pieces


def _identify(metas: Mapping[str, ObjectMeta], url: str, path: str) -> Identity | None:
    meta = metas.get(path)
    return None if meta is None else identity_of(meta.size, meta.version, url)
