"""Objects, and stores over them."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xxhash

from shardstream.storage.cache import Cache, CachedStore, Identity
from shardstream.storage.cache.manifests import keep_manifest

from .counted import CountedStore

MIB = 1 << 20
URL = "s3://bucket/remote"
STRANGER = 54_321

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root makes files of others")


class Identities:
    """What a manifest says of its objects."""

    def __init__(self, found: dict[str, Identity]) -> None:
        self.found = found

    def __call__(self, path: str) -> Identity | None:
        return self.found.get(path)


def noise(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes()


class World:
    """A remote folder with objects in it, and a folder for caches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: dict[str, bytes] = {}
        self.cache = folder / "cache"
        self.origin = self.remote()

    def remote(self, name: str = "remote", delay: float = 0.0) -> CountedStore:
        (self.folder / name).mkdir(exist_ok=True)
        return CountedStore(self.folder / name, self.folder / f"{name}.log", delay)

    def put(self, path: str, data: bytes) -> bytes:
        self.objects[path] = data
        target = self.folder / "remote" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return data

    def identities(self) -> Identities:
        return Identities(
            {path: Identity(len(data), xxhash.xxh3_64_intdigest(data)) for path, data in self.objects.items()}
        )

    def store(self, cache: Cache | None = None, *, fingerprint: str = "0" * 32, delay: float = 0.0) -> CachedStore:
        origin = self.origin if not delay else self.remote(delay=delay)
        return CachedStore(origin, cache or Cache(self.cache), fingerprint=fingerprint, identify=self.identities())

    def files(self) -> list[Path]:
        """The cached objects' files."""
        return sorted(self.cache.rglob("*.blocks"))


def in_child(work: Callable[[], None]) -> None:
    """Run in a forked process; fails if that fails, or dies by a signal."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def flip(path: Path, offset: int) -> None:
    """Flip a bit of a byte."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 16]))


def names_in(world: World, cache: Cache) -> list[Path]:
    """Every name that a cache uses, from one that was used."""
    keep_manifest(cache, URL, "e", b"head", b"table")
    store = world.store(cache)
    for path in world.objects:
        store.get(path)
    names = sorted(path.relative_to(world.cache) for path in world.cache.rglob("*"))
    assert len(names) == 10
    return names
