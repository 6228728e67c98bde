"""Zstandard, one frame a value (RFC 8878).

Written at level 3, the library's own default. Levels trade writing time only: frames of all of them are read alike.
"""

from __future__ import annotations

import threading
from typing import Any

from shardstream.errors import DecodeError
from shardstream.extras import require

_LEVEL = 3
_HINT = "the shard is damaged, or was written wrongly; write it again"
# A block of a frame takes at least 4 bytes and holds at most 128 KiB.
_LEAST_BLOCK, _LARGEST_BLOCK = 4, 128 << 10


class _Contexts(threading.local):
    """Compression contexts are costly to make, and none may be used by two threads at once."""

    compressor: Any = None
    decompressor: Any = None


_contexts = _Contexts()


def compress(data: bytes | bytearray | memoryview) -> bytes:
    """One frame with ``data``; it announces its size and carries no checksum, since the index has one.

    Raises:
        MissingExtraError: The package zstandard is not installed.
    """
    if _contexts.compressor is None:
        zstandard = require("zstandard", extra="zstd", purpose="to compress fields")
        _contexts.compressor = zstandard.ZstdCompressor(level=_LEVEL, write_content_size=True)
    frame: bytes = _contexts.compressor.compress(data)
    return frame


def decompress(data: memoryview, *, size: int) -> memoryview:
    """What one frame holds: exactly ``size`` bytes.

    Sizes are compared before anything is allocated, and no frame may announce more than frames of its length can hold.

    Raises:
        DecodeError: It is not a frame, or one of another size.
        MissingExtraError: The package zstandard is not installed.
    """
    zstandard = require("zstandard", extra="zstd", purpose="to read compressed fields")
    if _contexts.decompressor is None:
        _contexts.decompressor = zstandard.ZstdDecompressor()
    try:
        announced = zstandard.frame_content_size(data)
        if announced != size or size > (len(data) // _LEAST_BLOCK + 1) * _LARGEST_BLOCK:
            raise DecodeError(
                f"a compressed value of {size} bytes announces {announced} in {len(data)} bytes", hint=_HINT
            )
        raw = _contexts.decompressor.decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DecodeError(f"a value does not decompress: {error}", hint=_HINT) from error
    except MemoryError as error:
        hint = "use fewer workers or a smaller batch_size, or leave the field out"
        raise DecodeError(f"a value of {size} bytes does not fit into memory", hint=hint) from error
    if len(raw) != size:
        raise DecodeError(f"a value decompresses to {len(raw)} bytes, not {size}", hint=_HINT)
    return memoryview(raw)
