"""JPEG files whose parts can be decoded alone: ``make_addressable``, and back again, ``restore``.

A baseline scan is one stream of bits, of which nothing can be decoded without what comes before. Restart markers end
that: behind each, decoding begins afresh. Here they are put in, some 64 pixels apart. Only DC differences change, since
each segment begins from zero; the bits of all other coefficients are copied. So every pixel stays as it is, any decoder
reads the result, and the original can be had back to the byte.

What is needed for that travels in a segment of our own (APP9, "shardstream"), before the scan.

Source: ITU-T T.81; restart intervals are in B.2.4.4 and F.1.1.5.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from shardstream.errors import DecodeError
from shardstream.extras import require
from shardstream.images.formats import Encoded
from shardstream.images.jpeg.cutting import find_ends, is_addressable
from shardstream.images.jpeg.scan import (
    APP9,
    DHT,
    DRI,
    EOI,
    NAME,
    OURS,
    VERSION,
    Scan,
    Segment,
    Unaddressable,
    read_scan,
    read_tables,
    write_tables,
)
from shardstream.images.jpeg.tables import Table, lookup, optimal

DEFAULT_WIDTH = 64
"""Pixels of a segment across."""

ADDRESSABLE = "addressable"
SMALL = "too small"  # to be cut: one segment

_ROOM = 65_533 - len(NAME) - OURS.size  # for the content of a marker segment
_SIZES = 12  # of DC differences in a baseline file: 0 to 11 bits


class Transcoded(NamedTuple):
    """A file that was made addressable, or why it was not.

    Attributes:
        data: The file.
        kind: ``"addressable"``, or what kind of file was kept as it is.
    """

    data: bytes
    kind: str


def make_addressable(data: Encoded, *, width: int = DEFAULT_WIDTH) -> Transcoded:
    """Put restart markers between segments of a JPEG file, losslessly and reversibly.

    Segments divide a row of MCUs evenly, so they are as wide as the divisor that is nearest to ``width``; where none is
    near (rows of a prime number of MCUs), each row is one segment. Progressive, arithmetic-coded, 12-bit, CMYK and
    damaged files, files of several scans or odd sampling, of one segment alone, and those that could not be restored
    to the byte are kept as they are.

    Args:
        data: A JPEG file.
        width: Pixels of a segment across, about. Narrower ones cut a crop closer and take more bytes.

    Returns:
        The file, and its kind.

    Raises:
        DecodeError: It is no JPEG.
        MissingExtraError: numba is not installed.

        >>> make_addressable(jpeg_bytes).kind
        'addressable'
    """
    try:
        scan = read_scan(data)
        if is_addressable(data):
            return Transcoded(bytes(data), ADDRESSABLE)
        interval = segment_mcus(scan, width)
        if (interval, 1) == scan.mcus:
            return Transcoded(bytes(data), SMALL)
        content, tables, end = _recode(data, scan, interval)
        header = _addressable_header(data, scan, interval, tables, _lengths(content, scan, interval))
        _check(header, bytes(data[: scan.begin]))
    except Unaddressable as kept:
        return Transcoded(bytes(data), str(kept))
    return Transcoded(b"".join((header, content, bytes(data[end:]))), ADDRESSABLE)


def restore(data: Encoded) -> bytes:
    """The original of a file that `make_addressable` returned, to the byte; any other file as it is.

    Raises:
        DecodeError: It was changed since.
        MissingExtraError: numba is not installed.
    """
    if not is_addressable(data):
        return bytes(data)
    try:
        scan = read_scan(data)
        header, interval, tables = _original_header(data, scan)
        content, _, end = _recode(data, scan, interval, tables)
    except Unaddressable as problem:
        raise DecodeError(
            f"an addressable JPEG that was changed since ({problem})", hint="take the file from its source", offset=0
        ) from None
    return b"".join((header, content, bytes(data[end:])))


def segment_mcus(scan: Scan, width: int) -> int:
    """MCUs of a segment: the divisor of a row's that is nearest to ``width`` pixels, or all of a row.

    Where rows are 8 pixels high and not 16, segments are twice as wide, and so as large, or they would take too many
    bytes.
    """
    if scan.mcu[1] == 8:
        width *= 2
    across, wanted = scan.mcus[0], max(1.0, width / scan.mcu[0])
    near = [one for one in range(1, across + 1) if not across % one and wanted / 2 <= one <= 2 * wanted]
    return min(near, key=lambda one: abs(np.log(one / wanted)), default=across)


def _recode(
    data: Encoded, scan: Scan, interval: int, tables: dict[int, Table] | None = None
) -> tuple[bytes, dict[int, Table], int]:
    """The scan with other restarts.

    Args:
        data: The file.
        scan: Its scan.
        interval: MCUs between two restarts, 0 for none.
        tables: DC tables to write with; default: those of the file, or better ones where these lack a code.

    Returns:
        The entropy-coded bytes, the tables that replace the file's, and the offset of the marker behind the scan.

    Raises:
        Unaddressable: It is damaged, or not written as every encoder does, so that it could not be restored.
    """
    require("numba", extra="pack", purpose="to rewrite JPEG files")
    from shardstream.images.jpeg import kernels

    source = np.frombuffer(data, np.uint8)[scan.begin :]
    across, down = scan.mcus
    mcus = across * down
    bits = np.zeros(len(source) + 8, np.uint8)
    old = scan.interval or mcus
    restarts = np.zeros(-(-mcus // old), np.int64)
    size, count, end = kernels.unstuff(source, bits, restarts)
    if end < 0 or source[end + 1] != EOI or count != len(restarts) - 1:
        raise Unaddressable("damaged")
    component_of = np.repeat(np.arange(len(scan.components)), [one.across * one.down for one in scan.components])
    numbers = sorted({one.dc for one in scan.components}), sorted({one.ac for one in scan.components})
    dc_table = np.array([numbers[0].index(one.dc) for one in scan.components])
    ac_table = np.array([len(numbers[0]) + numbers[1].index(one.ac) for one in scan.components])
    try:
        find = lookup((*(scan.dc[number] for number in numbers[0]), *(scan.ac[number] for number in numbers[1])))
        codes = [scan.dc[number].codes() for number in numbers[0]]
        if tables is not None:
            codes = [tables.get(number, scan.dc[number]).codes() for number in numbers[0]]
    except ValueError:
        raise Unaddressable("damaged") from None
    blocks = mcus * len(component_of)
    dc = np.empty(blocks, np.int32)
    begins, ends = np.empty(blocks, np.int64), np.empty(blocks, np.int64)
    bounds = 8 * np.array([0, *restarts[:count].tolist(), size], np.int64)
    problem, _ = kernels.index(bits, bounds, mcus, old, component_of, *find, dc_table, ac_table, dc, begins, ends)
    if problem:
        raise Unaddressable("padded unusually" if problem == kernels.PADDING else "damaged")
    new = interval or mcus
    replaced: dict[int, Table] = {}
    counts = np.zeros((len(numbers[0]), _SIZES), np.int64)
    if not kernels.count_dc(dc, component_of, dc_table, new, counts):
        raise Unaddressable("damaged")
    for place, number in enumerate(numbers[0]):
        needed = {value: int(counts[place, value]) for value in np.flatnonzero(counts[place]).tolist()}
        if not needed.keys() <= codes[place].keys():
            if tables is not None:
                raise Unaddressable("damaged")
            replaced[number] = optimal(needed)
            codes[place] = replaced[number].codes()
    code_of, bits_of = np.zeros((len(codes), _SIZES), np.int64), np.zeros((len(codes), _SIZES), np.int64)
    for place, found in enumerate(codes):
        for value, (code, length) in found.items():
            if value < _SIZES:
                code_of[place, value], bits_of[place, value] = code, length
    out = np.empty(2 * (size + 4 * blocks) + 4 * (mcus // new + 1), np.uint8)
    written = kernels.write(bits, dc, begins, ends, component_of, dc_table, code_of, bits_of, new, out)
    return out[:written].tobytes(), replaced, scan.begin + end


# ------------------------------------------------------------------------------------------------------------- headers


def _lengths(content: bytes, scan: Scan, interval: int) -> bytes:
    """The length of each segment, so that nobody has to look for markers; nothing where these do not fit."""
    across, down = scan.mcus
    ends = find_ends(np.frombuffer(content + b"\xff\xd9", np.uint8), across // interval * down)
    if ends is None:
        raise Unaddressable("damaged")
    lengths = np.diff(ends, prepend=-2) - 2
    return lengths.astype(">u2").tobytes() if int(lengths.max()) < 1 << 16 else b""


def _addressable_header(data: Encoded, scan: Scan, interval: int, tables: dict[int, Table], lengths: bytes) -> bytes:
    """The header with the new interval and tables, and what it takes to undo that."""
    had = [one for one in scan.segments if one.code == DRI]
    old = b"".join(bytes((number,)) + scan.dc[number].counts + scan.dc[number].values for number in sorted(tables))
    content = NAME + OURS.pack(VERSION, bool(had), scan.interval, len(tables), len(old)) + old
    if len(old) + len(lengths) <= _ROOM:
        content += lengths
    ours = struct.pack(">BBH", 0xFF, APP9, 2 + len(content)) + content
    last = scan.segments[-1]
    replaced = {had[-1]: _restart(interval)} if had else {}
    added = ours if had else ours + _restart(interval)
    return _header(data, scan, tables, {**replaced, last: added + bytes(data[last.begin : last.end])})


def _check(header: bytes, original: bytes) -> None:
    """That the original header comes back: what is behind it does, by how it is written."""
    if _original_header(header, read_scan(header))[0] != original:
        raise Unaddressable("with an unusual header")


def _original_header(data: Encoded, scan: Scan) -> tuple[bytes, int, dict[int, Table]]:
    """The header as it was, its restart interval, and the DC tables that it had."""
    ours = next(one for one in scan.segments if _is_ours(data, one))
    content = bytes(data[ours.begin + 4 + len(NAME) : ours.end])
    if len(content) < OURS.size or content[0] != VERSION:
        raise Unaddressable("of an unknown version" if content[:1] > bytes((VERSION,)) else "damaged")
    _, had, interval, count, size = OURS.unpack_from(content)
    tables = {number: table for _, number, table in read_tables(content[OURS.size : OURS.size + size])}
    restarts = [one for one in scan.segments if one.code == DRI]
    if len(tables) != count or not restarts:
        raise Unaddressable("damaged")
    replaced = {restarts[-1]: _restart(interval) if had else b"", ours: b""}
    return _header(data, scan, tables, replaced), interval, tables


def _restart(interval: int) -> bytes:
    """A DRI segment."""
    return struct.pack(">BBHH", 0xFF, DRI, 4, interval)


def _header(data: Encoded, scan: Scan, tables: dict[int, Table], replaced: Mapping[Segment, bytes]) -> bytes:
    """The header with these DC tables, and with other bytes in place of some segments."""
    parts = (replaced[one] if one in replaced else _with_tables(data, scan, one, tables) for one in scan.segments)
    return b"".join((bytes(data[:2]), *parts))


def _with_tables(data: Encoded, scan: Scan, segment: Segment, tables: dict[int, Table]) -> bytes:
    """A segment; where it is the one that says what these DC tables are, with others in their place."""
    whole = bytes(data[segment.begin : segment.end])
    if segment.code != DHT or not tables:
        return whole
    found = read_tables(whole[4:])
    changed = [
        (kind, number, tables[number] if not kind and number in tables and table == scan.dc[number] else table)
        for kind, number, table in found
    ]
    return whole if changed == found else write_tables(changed)


def _is_ours(data: Encoded, segment: Segment) -> bool:
    return segment.code == APP9 and bytes(data[segment.begin + 4 : segment.begin + 4 + len(NAME)]) == NAME
