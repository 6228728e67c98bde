"""A rectangle of an addressable JPEG as a small JPEG of its own, by moving bytes.

Between two restart markers lies a segment that depends on no other. So those that a rectangle touches, with a header
that says how large they are together and markers numbered anew, are a file that any decoder reads.

Decoders smooth chroma across neighbours, so pixels at the edge of the small file differ from those of a full decode. A
margin of two pixels, before rounding out to segments, keeps such pixels out of the rectangle.

Source: ITU-T T.81, B.2 and F.1.1.5.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.images.geometry import Box
from shardstream.images.header import Encoded
from shardstream.images.jpeg.scan import APP9, DRI, EOI, NAME, SOF0, SOF1, SOS

MARGIN = 2
"""Pixels around a rectangle that upsampling of chroma looks at."""

_KEPT = frozenset((0xDB, 0xC4, DRI, SOF0, SOF1, SOS, 0xE0, 0xEE))  # tables, frame, scan; JFIF and Adobe say the colours


class Cut(NamedTuple):
    """A part of an image.

    Attributes:
        data: A JPEG file.
        box: The pixels of the image that it holds.
    """

    data: bytearray
    box: Box


class Addressable:
    """An addressable file with the table of its segments, for as many cuts as are wanted; `read` makes one.

    Attributes:
        height: Rows of the image.
        width: Pixels of a row.
        segment: Pixels of a segment across and down.
    """

    def __init__(self, data: Encoded, header: bytes, frame: int, begin: int, segment: tuple[int, int]) -> None:
        self._data = memoryview(data)
        self._header = header
        self._frame = frame
        self.height, self.width = struct.unpack_from(">HH", header, frame + 5)
        self.segment = segment
        self._across, self._down = -(-self.width // segment[0]), -(-self.height // segment[1])
        self._starts, self._ends = self._segments(begin)

    def _segments(self, begin: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the segments of each row begin, and where the markers behind them lie: (down, across) each."""
        scan = np.frombuffer(self._data, np.uint8, offset=begin)
        marks = np.flatnonzero(scan[:-1] == 0xFF)
        codes = scan[marks + 1]
        is_marker = codes != 0
        count = self._across * self._down
        ends, codes = marks[is_marker][:count], codes[is_marker][:count]
        if len(ends) != count or codes[-1] != EOI or ((codes[:-1] & 0xF8) != 0xD0).any():
            raise _changed(f"its scan is not of {count} segments", begin)
        ends += begin
        starts = np.empty_like(ends)
        starts[0] = begin
        np.add(ends[:-1], 2, out=starts[1:])
        return starts.reshape(self._down, self._across), ends.reshape(self._down, self._across)

    def cut(self, box: Box, *, margin: int = MARGIN) -> Cut:
        """The smallest part of the image that can be decoded alone and holds a rectangle.

        Args:
            box: The rectangle; it lies in the image.
            margin: Pixels around it that are wanted too, as far as the image goes.
        """
        wide, high = self.segment
        left, top = max(0, box.left - margin) // wide, max(0, box.top - margin) // high
        right = -(-min(self.width, box.left + box.width + margin) // wide)
        bottom = -(-min(self.height, box.top + box.height + margin) // high)
        width, height = min(self.width, right * wide) - left * wide, min(self.height, bottom * high) - top * high
        begins = self._starts[top:bottom, left]
        stops = self._ends[top:bottom, right - 1] + 2
        # Rows of segments with the markers behind them, which then are numbered anew.
        data, frame = self._data, self._frame
        size = struct.pack(">HH", height, width)
        parts: list[bytes | memoryview] = [self._header[: frame + 5], size, self._header[frame + 9 :]]
        parts += [data[begin:stop] for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True)]
        out = bytearray().join(parts)
        shifts = np.cumsum(stops - begins) + (len(self._header) - stops)
        markers = self._ends[top:bottom, left:right] + (shifts + 1)[:, None]
        np.frombuffer(out, np.uint8)[markers.reshape(-1)] = _restarts(markers.size)
        out[-1] = EOI
        return Cut(out, Box(top * high, left * wide, height, width))


@lru_cache(maxsize=16)
def _restarts_of(size: int) -> NDArray[np.uint8]:
    return (0xD0 + np.arange(size) % 8).astype(np.uint8)


def _restarts(count: int) -> NDArray[np.uint8]:
    """The codes of ``count`` restart markers in turn."""
    return _restarts_of(1 << count.bit_length())[:count]


def read(data: Encoded) -> Addressable | None:
    """An addressable file, ready to be cut; ``None`` for any other file.

    Args:
        data: The file.

    Raises:
        DecodeError: It was addressable, and was changed since.

    Example:
        >>> read(jpeg_bytes) is None  # it was not packed
        True
    """
    header = bytearray(b"\xff\xd8")
    interval = frame = 0
    ours = False
    at, size = 2, len(data)
    if data[:2] != header:
        return None
    while at + 4 <= size and data[at] == 0xFF:
        code, length = data[at + 1], data[at + 2] << 8 | data[at + 3]
        end = at + 2 + length
        if length < 2 or end > size:
            break
        if code in _KEPT:
            if code in (SOF0, SOF1):
                frame = len(header)
            elif code == DRI:
                interval = data[at + 4] << 8 | data[at + 5]
            header += data[at:end]
            if code == SOS:
                if not ours:
                    return None
                segment = _segment(header, frame, interval)
                return Addressable(data, bytes(header), frame, end, segment)
        elif code == APP9 and data[at + 4 : at + 4 + len(NAME)] == NAME:
            ours = True
        at = end
    if ours:
        raise _changed("its header is damaged", at)
    return None


def _segment(header: bytearray, frame: int, interval: int) -> tuple[int, int]:
    """Pixels of a segment across and down."""
    if not frame or not interval:
        raise _changed("it has no segments", 0)
    height, width, count = struct.unpack_from(">HHB", header, frame + 5)
    factors = header[frame + 11] if count > 1 else 0x11
    segment = 8 * (factors >> 4) * interval, 8 * (factors & 15)
    if not height or not width or not segment[0] or not segment[1]:
        raise _changed("its header is damaged", frame)
    return segment


def is_addressable(data: Encoded) -> bool:
    """Whether `make_addressable` has made it so, by its header alone.

    Args:
        data: The file, or enough of its beginning.
    """
    at, size = 2, len(data)
    if bytes(data[:2]) != b"\xff\xd8":
        return False
    while at + 4 <= size and data[at] == 0xFF and data[at + 1] != SOS:
        if data[at + 1] == APP9 and bytes(data[at + 4 : at + 4 + len(NAME)]) == NAME:
            return True
        at += 2 + max(2, data[at + 2] << 8 | data[at + 3])
    return False


def _changed(what: str, offset: int) -> DecodeError:
    return DecodeError(
        f"an addressable JPEG that was changed: {what}", hint="take the file from its source", offset=offset
    )
