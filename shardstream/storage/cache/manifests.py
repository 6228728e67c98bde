"""Manifests kept for starts without the store.

One file a data set, named after its URL, which holds no secret, and one for each of its old versions that was asked
for. A file is replaced as a whole and carries a checksum, so a copy that is found is one that was complete.
"""

from __future__ import annotations

import json
import logging
import struct
from contextlib import suppress
from dataclasses import dataclass

import xxhash

from shardstream.storage.cache.folder import Folder
from shardstream.storage.cache.spec import Cache
from shardstream.storage.cache.tier import MANIFESTS, Tier, tiers_of

_logger = logging.getLogger(__name__)

_HEAD = struct.Struct("<8sIQ")  # magic, bytes of the description, XXH3-64 of all that follows
_MAGIC = b"SSMANIF\n"
_SUFFIX = ".manifest"
_MOST_BYTES = 256 << 20
"""Of a file: the table of 13 million shards."""


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
    name = _name(url, version)
    known = kept_manifest(cache, url, version=version)
    if known is not None and (known.etag, known.head, known.table) == (etag, head, table):
        return True
    text = json.dumps({"url": url, "etag": etag, "head": len(head)}).encode()
    body = text + head + table
    if _HEAD.size + len(body) > _MOST_BYTES:
        _logger.warning("the manifest of %s is too long to be kept for starts without the store", url)
        return False
    tier = _tier(cache)
    try:
        tier.prepare()
    except OSError:  # who reads blocks says so
        return False
    try:
        folder = tier.folder.folder(MANIFESTS, make=True)
        folder.write(name, _HEAD.pack(_MAGIC, len(text), xxhash.xxh3_64_intdigest(body)) + body)
    except OSError as error:
        _logger.warning("the manifest of %s cannot be kept for starts without the store (%s)", url, error.strerror)
        return False
    return True


def kept_manifest(cache: Cache, url: str, *, version: int | None = None) -> KeptManifest | None:
    """The manifest that was kept for a URL, the newest or an old one; ``None`` if there is none, or it is damaged."""
    with suppress(OSError):
        found = _read(_folder(cache), _name(url, version))
        return found if found is not None and found.url == url else None
    return None


def kept_manifests(cache: Cache) -> list[KeptManifest]:
    """All manifests that a cache keeps."""
    with suppress(OSError):
        folder = _folder(cache)
        found = [_read(folder, name) for name in folder.names() if name.endswith(_SUFFIX)]
        return [one for one in found if one is not None]
    return []


def _tier(cache: Cache) -> Tier:
    return tiers_of(cache)[-1]  # on disk


def _folder(cache: Cache) -> Folder:
    return _tier(cache).folder.folder(MANIFESTS)


def _name(url: str, version: int | None = None) -> str:
    which = "" if version is None else f"-v{version}"
    return f"{xxhash.xxh3_128_hexdigest(url.encode())}{which}{_SUFFIX}"


def _read(folder: Folder, name: str) -> KeptManifest | None:
    try:
        data, info = folder.read(name, _MOST_BYTES)
    except OSError:
        return None
    if len(data) < _HEAD.size:
        return None
    magic, length, check = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != _MAGIC or xxhash.xxh3_64_intdigest(body) != check:
        return None
    try:  # the checksum is not of the length, and who forges a file makes a right one
        about = json.loads(body[:length])
        url, etag, split = about["url"], about["etag"], length + about["head"]
        return KeptManifest(url, etag, body[length:split], body[split:], info.st_mtime)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def forget_manifest(cache: Cache, url: str) -> None:
    """Remove what is kept for a URL, old versions too, if anything is."""
    name = _name(url)
    old = f"{name.removesuffix(_SUFFIX)}-v"
    with suppress(OSError):
        folder = _folder(cache)
        for one in folder.names():
            if one == name or (one.startswith(old) and one.endswith(_SUFFIX)):
                folder.unlink(one)
