"""A rectangle of an addressable JPEG as a small JPEG of its own, by moving bytes.

Between two restart markers lies a segment that depends on no other. So those that a rectangle touches, with a header
that says how large they are together and markers numbered anew, are a file that any decoder reads.

Decoders smooth chroma across neighbours, so pixels at the edge of the small file differ from those of a full decode. A
margin of two pixels, before rounding out to segments, keeps such pixels out of the rectangle. And libjpeg smooths only
where there are more than two columns of chroma, so a part of a wider image has five columns at least.

Source: ITU-T T.81, B.2 and F.1.1.5.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.images.formats import Encoded
from shardstream.images.geometry import Box
from shardstream.images.jpeg.scan import APP9, DRI, EOI, NAME, OURS, SOF0, SOF1, SOS, VERSION

MARGIN = 2
"""Pixels around a rectangle that upsampling of chroma looks at."""

_KEPT = frozenset((0xDB, 0xC4, DRI, SOF0, SOF1, SOS, 0xE0, 0xEE))  # tables, frame, scan; JFIF and Adobe say the colours
_MARKERS = bytes((*range(0xD0, 0xD8), EOI))  # RSTn and EOI


class CutJpeg(NamedTuple):
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

    def __init__(
        self,
        data: Encoded,
        header: bytes,
        frame: int,
        begin: int,
        segment: tuple[int, int],
        lengths: NDArray[np.integer[Any]],
    ) -> None:
        self._data = memoryview(data)
        self._header = header
        self._frame = frame
        self._begin = begin
        self.height, self.width = struct.unpack_from(">HH", header, frame + 5)
        self.segment = segment
        self._columns = -(-self.width // segment[0])
        count = self._columns * -(-self.height // segment[1])
        bounds = self._bounds_by(lengths) if len(lengths) == count else self._bounds_found(count)
        if bounds is None:
            raise _changed(f"its scan is not of {count} segments", begin)
        # Where segments begin, one after another, with the marker behind each; at last, where the last marker ends.
        self._bounds = bounds

    def _bounds_by(self, lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64] | None:
        """The bounds that these lengths give, if the scan ends with them; `cut` looks at the markers before."""
        bounds = np.empty(len(lengths) + 1, np.int64)
        bounds[0], bounds[1:] = self._begin, lengths
        bounds[1:] += 2
        np.add.accumulate(bounds, out=bounds)
        end = int(bounds[-1])
        return bounds if bytes(self._data[end - 2 : end]) == b"\xff\xd9" else None

    def _bounds_found(self, count: int) -> NDArray[np.int64] | None:
        ends = find_ends(np.frombuffer(self._data, np.uint8, offset=self._begin), count)
        return None if ends is None else np.concatenate(([self._begin], ends + (self._begin + 2)))

    def cut(self, box: Box, *, margin: int = MARGIN) -> CutJpeg:
        """The smallest part of the image that can be decoded alone and holds a rectangle.

        Args:
            box: The rectangle; it lies in the image.
            margin: Pixels around it that are wanted too, as far as the image goes.

        Raises:
            DecodeError: The scan was changed.
        """
        wide, high = self.segment
        first, last = max(0, box.left - margin), min(self.width, box.left + box.width + margin)
        least = min(self.width, 2 * margin + 1)
        last = max(last, min(self.width, first + least))
        first = min(first, last - least)
        left, right, top = first // wide, -(-last // wide), max(0, box.top - margin) // high
        bottom = -(-min(self.height, box.top + box.height + margin) // high)
        width, height = min(self.width, right * wide) - left * wide, min(self.height, bottom * high) - top * high
        row = self._columns  # segments of one
        starts = self._bounds[top * row + left : bottom * row : row]
        stops = self._bounds[top * row + right : bottom * row + 1 : row]
        # Rows of segments with the markers behind them, which then are numbered anew.
        data, header, frame = self._data, self._header, self._frame
        parts: list[bytes | memoryview] = [header[: frame + 5], struct.pack(">HH", height, width), header[frame + 9 :]]
        parts += [data[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        out = bytearray().join(parts)
        moved = np.add.accumulate(stops - starts) - stops
        moved += len(header) - 1
        ends = self._bounds[1:].reshape(-1, row)[top:bottom, left:right]
        codes = (ends + moved[:, None]).reshape(-1)
        made = np.frombuffer(out, np.uint8)
        if made.take(codes - 1).tobytes().strip(b"\xff") or made.take(codes).tobytes().strip(_MARKERS):
            raise _changed("its segments are not where it says", self._begin)
        made[codes] = _restarts(codes.size)
        out[-1] = EOI
        return CutJpeg(out, Box(top * high, left * wide, height, width))


def find_ends(scan: NDArray[np.uint8], count: int) -> NDArray[np.int64] | None:
    """Where the markers behind the segments of a scan lie, by looking for them.

    Args:
        scan: Its bytes, and whatever follows.
        count: How many segments there are.

    Returns:
        Offsets (count,); ``None`` if it is not of so many segments.
    """
    marks = np.flatnonzero(scan[:-1] == 0xFF)
    codes = scan[marks + 1]
    is_marker = codes != 0
    ends: NDArray[np.int64] = marks[is_marker][:count]
    codes = codes[is_marker][:count]
    if len(ends) != count or codes[-1] != EOI or ((codes[:-1] & 0xF8) != 0xD0).any():
        return None
    return ends


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
    lengths: NDArray[np.integer[Any]] | None = None  # those of our segment, which says that there is one
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
                if length != 4:
                    break
                interval = data[at + 4] << 8 | data[at + 5]
            header += data[at:end]
            if code == SOS:
                if lengths is None:
                    return None
                segment = _segment(header, frame, interval)
                return Addressable(data, bytes(header), frame, end, segment, lengths)
        elif code == APP9 and data[at + 4 : at + 4 + len(NAME)] == NAME:
            lengths = _lengths(data, at + 4 + len(NAME), end)
            if lengths is None:
                return None
        at = end
    if lengths is not None:
        raise _changed("its header is damaged", at)
    return None


def _lengths(data: Encoded, at: int, end: int) -> NDArray[np.integer[Any]] | None:
    """The lengths of segments that ours holds, none where there was no room; ``None``: it is of a later version."""
    if end - at < OURS.size:
        raise _changed("its header is damaged", at)
    version, _, _, _, size = OURS.unpack_from(data, at)
    if version != VERSION:
        return None
    count = max(0, end - at - OURS.size - size) // 2
    return np.frombuffer(data, ">u2", count, end - 2 * count)


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
