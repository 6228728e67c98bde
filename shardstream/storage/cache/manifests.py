"""Manifests kept for starts without the store.

One file a data set, named after its URL, which holds no secret, and one for each of its old versions that was asked
for. A file is replaced as a whole and carries a checksum, so a copy that is found is one that was complete.
"""

from __future__ import annotations

import glob
import json
import os
import struct
from contextlib import suppress
from dataclasses import dataclass

import xxhash

from shardstream.errors import UsageError
from shardstream.storage.cache.spec import Cache
from shardstream.storage.cache.tier import Tier, write_file

_HEAD = struct.Struct("<8sIQ")  # magic, bytes of the description, XXH3-64 of all that follows
_MAGIC = b"SSMANIF\n"
_SUFFIX = ".manifest"


@dataclass(frozen=True, slots=True)
class KeptManifest:
    """A manifest as it was when the store was last reached.

    Attributes:
        url: The data set.
        etag: Version of ``dataset.json`` in the store; ``None`` if it has none.
        head: The bytes of ``dataset.json``.
        table: The bytes of the table of shards.
        kept: When, in seconds since 1970.
    """

    url: str
    etag: str | None
    head: bytes
    table: bytes
    kept: float


def keep_manifest(
    cache: Cache, url: str, etag: str | None, head: bytes, table: bytes, *, version: int | None = None
) -> bool:
    """Keep a manifest, in place of an earlier one of this URL.

    Args:
        cache: The cache.
        url: The data set, without secrets.
        etag: Version of ``dataset.json`` in the store.
        head: The bytes of ``dataset.json``.
        table: The bytes of the table of shards.
        version: Of an old version, its number.

    Returns:
        Whether that was possible: a cache that cannot be written keeps what it has.

    Raises:
        UsageError: The folder of the cache holds something else.
    """
    path = _file(cache, url, version)
    known = _read(path)
    if known is not None and (known.etag, known.head, known.table) == (etag, head, table):
        return True
    text = json.dumps({"url": url, "etag": etag, "head": len(head)}).encode()
    body = text + head + table
    tier = Tier(os.fspath(cache.path), None)
    try:
        tier.prepare()
        os.makedirs(_folder(cache), exist_ok=True)
        write_file(path, _HEAD.pack(_MAGIC, len(text), xxhash.xxh3_64_intdigest(body)) + body)
    except UsageError:
        raise
    except OSError:
        return False
    return True


def kept_manifest(cache: Cache, url: str, *, version: int | None = None) -> KeptManifest | None:
    """The manifest that was kept for a URL, the newest or an old one; ``None`` if there is none, or it is damaged."""
    found = _read(_file(cache, url, version))
    return found if found is not None and found.url == url else None


def kept_manifests(path: str) -> list[KeptManifest]:
    """All manifests that a cache keeps.

    Args:
        path: Folder of the cache.
    """
    with suppress(OSError):
        folder = os.path.join(path, "manifests")
        names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))
        found = [_read(os.path.join(folder, name)) for name in names]
        return [one for one in found if one is not None]
    return []


def _folder(cache: Cache) -> str:
    return os.path.join(os.fspath(cache.path), "manifests")


def _file(cache: Cache, url: str, version: int | None = None) -> str:
    which = "" if version is None else f"-v{version}"
    return os.path.join(_folder(cache), f"{xxhash.xxh3_128_hexdigest(url.encode())}{which}{_SUFFIX}")


def _read(path: str) -> KeptManifest | None:
    try:
        with open(path, "rb") as file:
            kept = os.fstat(file.fileno()).st_mtime
            data = file.read()
    except OSError:
        return None
    if len(data) < _HEAD.size:
        return None
    magic, length, check = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != _MAGIC or xxhash.xxh3_64_intdigest(body) != check:
        return None
    about = json.loads(body[:length])
    split = length + about["head"]
    return KeptManifest(about["url"], about["etag"], body[length:split], body[split:], kept)


def forget_manifest(cache: Cache, url: str) -> None:
    """Remove what is kept for a URL, old versions too, if anything is."""
    path = _file(cache, url)
    for one in (path, *glob.glob(f"{glob.escape(path.removesuffix(_SUFFIX))}-v*{_SUFFIX}")):
        with suppress(OSError):
            os.unlink(one)
