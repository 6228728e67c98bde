"""Messages between a process and one that it started: their length, then msgpack; no code travels.

The host begins with a request. The child answers with any number of messages: ``ask`` to have something answered first,
``some`` for a part of what was asked, and at last ``end``, ``wrong`` (what was wrong, and at which byte), or ``lacks``
(what is not installed).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgpack

LENGTH = struct.Struct("<Q")
LARGEST = 1 << 31
"""Bytes of a message."""
ASK, SOME, END, WRONG, LACKS = "ask", "some", "end", "wrong", "lacks"


def packed(message: Any) -> bytes:
    """A message as it travels."""
    body = msgpack.packb(message, use_bin_type=True)
    return LENGTH.pack(len(body)) + bytes(body)


def received(read: Callable[[int], bytes | bytearray]) -> Any:
    """The next message.

    Args:
        read: Gives exactly so many bytes.

    Raises:
        ValueError: It is none.
    """
    (length,) = LENGTH.unpack(read(LENGTH.size))
    if length > LARGEST:
        raise ValueError(f"a message of {length} bytes")
    return msgpack.unpackb(read(length), raw=False, strict_map_key=False)
