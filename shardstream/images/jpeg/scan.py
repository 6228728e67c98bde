"""``Scan``: what a JPEG's header says of its one scan, if it is of a kind that can be addressed.

Source: ITU-T T.81, annex B.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from shardstream.errors import DecodeError
from shardstream.images.formats import Encoded
from shardstream.images.header import SEGMENTS
from shardstream.images.jpeg.tables import Table

SOF0, SOF1, DHT, EOI, SOS, DRI, APP9 = 0xC0, 0xC1, 0xC4, 0xD9, 0xDA, 0xDD, 0xE9
NAME = b"shardstream\0"
"""What a segment of ours (APP9) begins with."""
OURS = struct.Struct(">BBHBH")
"""What follows: version, whether there was a DRI segment, its interval, how many tables were replaced, and their bytes.
Then the tables, and the length of each segment of the scan (uint16, big-endian) where there is room for them."""
VERSION = 1

_OTHER_FRAMES = {
    **dict.fromkeys((0xC2, 0xC6), "progressive"),
    **dict.fromkeys((0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF), "arithmetic"),
    **dict.fromkeys((0xC3, 0xC5, 0xC7), "lossless or hierarchical"),
}
# Sampling of the first component, where all others have 1x1: what decoders know how to upsample.
_SAMPLINGS = frozenset(((1, 1), (2, 1), (1, 2), (2, 2), (4, 1)))


class Unaddressable(Exception):
    """A file that is kept as it is; the argument says what kind of file it is, in a word or two."""


class Segment(NamedTuple):
    """A marker segment: its marker, where it begins, and where the next one does."""

    code: int
    begin: int
    end: int


class Component(NamedTuple):
    """A component of the scan: blocks a MCU across and down, and the numbers of its Huffman tables."""

    across: int
    down: int
    dc: int
    ac: int


class Scan(NamedTuple):
    """The one scan of a baseline file.

    Attributes:
        width: Pixels a row.
        height: Rows.
        components: Those of the scan, in order.
        frame: Offset of the frame header (SOF).
        begin: Offset of the entropy-coded bytes.
        interval: MCUs between two restarts, 0 for none.
        segments: All segments before the scan's bytes, in order.
        dc: DC Huffman tables by number.
        ac: AC Huffman tables by number.
    """

    width: int
    height: int
    components: tuple[Component, ...]
    frame: int
    begin: int
    interval: int
    segments: tuple[Segment, ...]
    dc: dict[int, Table]
    ac: dict[int, Table]

    @property
    def mcu(self) -> tuple[int, int]:
        """Pixels of a MCU across and down."""
        return 8 * self.components[0].across, 8 * self.components[0].down

    @property
    def mcus(self) -> tuple[int, int]:
        """MCUs a row, and rows of them."""
        across, down = self.mcu
        return -(-self.width // across), -(-self.height // down)


def read_scan(data: Encoded) -> Scan:
    """The scan of a file.

    Raises:
        Unaddressable: It is not a baseline JPEG of one scan, or is damaged.
        DecodeError: It is not a JPEG at all.
    """
    if bytes(data[:2]) != b"\xff\xd8":
        raise DecodeError("not a JPEG: it does not begin with ff d8", hint="give the bytes of a JPEG file", offset=0)
    segments = tuple(read_segments(data))
    frames = [segment for segment in segments if segment.code in (SOF0, SOF1) or segment.code in _OTHER_FRAMES]
    if len(frames) != 1:
        raise Unaddressable("damaged")
    frame = frames[0]
    if frame.code in _OTHER_FRAMES:
        raise Unaddressable(_OTHER_FRAMES[frame.code])
    width, height, samplings = _frame(bytes(data[frame.begin + 4 : frame.end]))
    dc: dict[int, Table] = {}
    ac: dict[int, Table] = {}
    interval = 0
    for one in segments:
        if one.code == DHT:
            for kind, number, table in read_tables(bytes(data[one.begin + 4 : one.end])):
                (ac if kind else dc)[number] = table
        elif one.code == DRI:
            if one.end - one.begin != 6:
                raise Unaddressable("damaged")
            (interval,) = struct.unpack_from(">H", data, one.begin + 4)
    last = segments[-1]
    components = _scan(bytes(data[last.begin + 4 : last.end]), samplings)
    if any(one.dc not in dc or one.ac not in ac for one in components):
        raise Unaddressable("without Huffman tables")
    return Scan(width, height, components, frame.begin, last.end, interval, segments, dc, ac)


def read_segments(data: Encoded) -> list[Segment]:
    """The segments of a JPEG's header, up to that of its first scan (SOS).

    Raises:
        Unaddressable: They are not a plain chain, or cut short.
    """
    found: list[Segment] = []
    at, size = 2, len(data)
    while at + 4 <= size:
        code = data[at + 1]
        if data[at] != 0xFF or code not in SEGMENTS:
            raise Unaddressable("damaged")
        (length,) = struct.unpack_from(">H", data, at + 2)
        end = at + 2 + length
        if length < 2 or end > size:
            raise Unaddressable("damaged")
        found.append(Segment(code, at, end))
        if code == SOS:
            return found
        at = end
    raise Unaddressable("damaged")


def _frame(content: bytes) -> tuple[int, int, dict[int, tuple[int, int]]]:
    """Width, height, and the sampling factors by component."""
    if len(content) < 6 or len(content) != 6 + 3 * content[5]:
        raise Unaddressable("damaged")
    depth, height, width, count = struct.unpack_from(">BHHB", content)
    if depth != 8:
        raise Unaddressable(f"{depth}-bit")
    if not height or not width:
        raise Unaddressable("without a height")
    if count not in (1, 3):
        raise Unaddressable("CMYK" if count == 4 else "with an odd number of components")
    samplings = {content[6 + 3 * i]: (content[7 + 3 * i] >> 4, content[7 + 3 * i] & 15) for i in range(count)}
    if len(samplings) != count:
        raise Unaddressable("damaged")
    return width, height, samplings


def _scan(content: bytes, samplings: dict[int, tuple[int, int]]) -> tuple[Component, ...]:
    count = content[0] if content else 0
    if len(content) != 4 + 2 * count:
        raise Unaddressable("damaged")
    if count != len(samplings):
        raise Unaddressable("several scans")
    if tuple(content[1 + 2 * count :]) != (0, 63, 0):
        raise Unaddressable("damaged")
    names = [content[1 + 2 * i] for i in range(count)]
    if names != list(samplings):
        raise Unaddressable("damaged")
    factors = list(samplings.values())
    if count == 1:
        factors = [(1, 1)]  # a scan of one component is not interleaved: its MCU is a block
    elif factors[0] not in _SAMPLINGS or any(one != (1, 1) for one in factors[1:]):
        raise Unaddressable("with odd sampling")
    tables = [content[2 + 2 * i] for i in range(count)]
    return tuple(
        Component(across, down, table >> 4, table & 15) for (across, down), table in zip(factors, tables, strict=True)
    )


@lru_cache(maxsize=256)  # most files have the tables of the standard's annex K
def read_tables(content: bytes) -> tuple[tuple[int, int, Table], ...]:
    """Class (0 DC, 1 AC), number and content of the tables of a DHT segment.

    Raises:
        Unaddressable: It is damaged.
    """
    found, at = [], 0
    while at < len(content):
        counts = content[at + 1 : at + 17]
        values = content[at + 17 : at + 17 + sum(counts)]
        if len(counts) != 16 or len(values) != sum(counts) or content[at] >> 4 > 1 or content[at] & 15 > 3:
            raise Unaddressable("damaged")
        found.append((content[at] >> 4, content[at] & 15, Table(counts, values)))
        at += 17 + len(values)
    return tuple(found)


def write_tables(tables: Iterable[tuple[int, int, Table]]) -> bytes:
    """A DHT segment."""
    content = b"".join(bytes((kind << 4 | number,)) + table.counts + table.values for kind, number, table in tables)
    return struct.pack(">BBH", 0xFF, DHT, 2 + len(content)) + content
