"""Which codecs of a Zarr array may be opened: those that are known to make values of bytes, and no more.

Zarr opens whatever codec an array names, ``pickle`` among them, which runs what it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_BYTES = frozenset(
    ("blosc", "zlib", "gzip", "bz2", "lzma", "lz4", "zstd", "crc32", "crc32c", "adler32", "fletcher32", "shuffle")
)
_NUMBERS = frozenset(("delta", "fixedscaleoffset", "quantize", "bitround", "packbits", "astype"))
_OBJECTS = frozenset(("vlen-utf8", "vlen-bytes"))
_OF_V3 = frozenset(("bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "sharding_indexed", *_OBJECTS))
_PREFIX = "numcodecs."  # of those of version 2 in version 3
_DEEPEST = 4


def unknown_codec(meta: Mapping[str, Any]) -> str | None:
    """What the metadata of an array name that is not opened, as the end of "it is ..."; ``None`` if there is nothing.

    Raises:
        TypeError, KeyError, AttributeError: They are no metadata.
    """
    names = _names_v2(meta) if meta.get("zarr_format") == 2 else _names_v3(meta["codecs"], 0)
    for name in names:
        if name == "pickle":
            return "encoded by 'pickle', which could run any code"
        if name not in _BYTES | _NUMBERS | _OBJECTS | _OF_V3:
            return f"encoded by {name!r}, which is not known"
    if meta.get("storage_transformers"):
        return "stored by transformers, which are not known"
    if meta.get("zarr_format") == 2 and meta["dtype"] == "|O":
        filters = [one["id"] for one in meta.get("filters") or ()]
        if not _OBJECTS & {*filters}:
            return "of Python objects"
    return None


def _names_v2(meta: Mapping[str, Any]) -> Iterator[str]:
    if meta.get("compressor") is not None:
        yield str(meta["compressor"]["id"])
    for one in meta.get("filters") or ():
        yield str(one["id"])


def _names_v3(codecs: Sequence[Any], depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        yield "shards in shards in shards"
        return
    for one in codecs:
        name = one if isinstance(one, str) else str(one["name"])
        short = name.removeprefix(_PREFIX)
        yield name if short in _OBJECTS and short != name else short
        settings = {} if isinstance(one, str) else one.get("configuration") or {}
        for inner in ("codecs", "index_codecs"):
            yield from _names_v3(settings.get(inner) or (), depth + 1)
