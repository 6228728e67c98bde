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
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError
from shardstream.extras import require
from shardstream.images.formats import Encoded
from shardstream.images.jpeg.cutting import is_addressable
from shardstream.images.jpeg.scan import (
    APP9,
    DHT,
    DRI,
    EOI,
    NAME,
    OURS,
    VERSION,
    Component,
    Scan,
    Segment,
    Unaddressable,
    read_scan,
    read_tables,
    write_tables,
)
from shardstream.images.jpeg.tables import Lookup, Table, encoding, lookup, optimal

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
        DecodeError: It is not a JPEG.
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
        coded = _recode(data, scan, interval)
        header = _addressable_header(data, scan, interval, coded)
        _check(header, bytes(data[: scan.begin]))
    except Unaddressable as kept:
        return Transcoded(bytes(data), str(kept))
    return Transcoded(b"".join((header, coded.content, bytes(data[coded.end :]))), ADDRESSABLE)


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
        coded = _recode(data, scan, interval, tables)
    except Unaddressable as problem:
        raise DecodeError(
            f"an addressable JPEG that was changed since ({problem})", hint="take the file from its source", offset=0
        ) from None
    return b"".join((header, coded.content, bytes(data[coded.end :])))


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


class _Coded(NamedTuple):
    """A scan that was written anew.

    Attributes:
        content: The entropy-coded bytes.
        sizes: Bytes of each segment between two markers.
        tables: The DC tables that replace the file's.
        end: Where the marker behind the scan lies in the file.
    """

    content: memoryview
    sizes: NDArray[np.int64]
    tables: dict[int, Table]
    end: int


class _Layout(NamedTuple):
    """How the blocks of an MCU are coded, as `kernels` takes it.

    Attributes:
        component_of: Component of each block.
        dc: Numbers of the DC tables that are used.
        dc_table: Which of them a component uses.
        ac_table: Which of all tables in ``find`` it uses for its AC coefficients.
        find: The DC tables, and the AC tables behind them.
    """

    component_of: NDArray[np.int64]
    dc: tuple[int, ...]
    dc_table: NDArray[np.int64]
    ac_table: NDArray[np.int64]
    find: Lookup


@lru_cache(maxsize=64)  # most files are of one encoder
def _layout(components: tuple[Component, ...], dc: tuple[Table, ...], ac: tuple[Table, ...]) -> _Layout:
    """Not to be written to.

    Args:
        components: Those of a scan.
        dc: The DC table of each.
        ac: Its AC table.

    Raises:
        ValueError: One is not a Huffman table.
    """
    first = {one.dc: table for one, table in zip(components, dc, strict=True)}
    others = {one.ac: table for one, table in zip(components, ac, strict=True)}
    numbers, behind = sorted(first), sorted(others)
    return _Layout(
        np.repeat(np.arange(len(components)), [one.across * one.down for one in components]),
        tuple(numbers),
        np.array([numbers.index(one.dc) for one in components]),
        np.array([len(numbers) + behind.index(one.ac) for one in components]),
        lookup((*(first[number] for number in numbers), *(others[number] for number in behind))),
    )


def _recode(data: Encoded, scan: Scan, interval: int, tables: dict[int, Table] | None = None) -> _Coded:
    """The scan with other restarts.

    Args:
        data: The file.
        scan: Its scan.
        interval: MCUs between two restarts, 0 for none.
        tables: DC tables to write with; default: those of the file, or better ones where these lack a code.

    Raises:
        Unaddressable: It is damaged, or not written as every encoder does, so that it could not be restored.
    """
    require("numba", extra="pack", purpose="to rewrite JPEG files")
    from shardstream.images.jpeg import kernels

    source = np.frombuffer(data, np.uint8)[scan.begin :]
    across, down = scan.mcus
    mcus = across * down
    blocks = mcus * sum(one.across * one.down for one in scan.components)
    if 2 * blocks > 8 * len(source):  # a block has a bit of each code at least; memory is taken by their number
        raise Unaddressable("damaged")
    bits = np.zeros(len(source) // 8 * 8 + 24, np.uint8)  # as numbers of 64 bits, and two more
    old, new = scan.interval or mcus, interval or mcus
    restarts = np.zeros(-(-mcus // old), np.int64)
    size, count, end = kernels.unstuff(source, bits, restarts)
    if end < 0 or source[end + 1] != EOI or count != len(restarts) - 1:
        raise Unaddressable("damaged")
    parts = scan.components
    try:
        layout = _layout(parts, tuple(scan.dc[one.dc] for one in parts), tuple(scan.ac[one.ac] for one in parts))
        used = [(tables or scan.dc).get(number, scan.dc[number]) for number in layout.dc]
        by = encoding(tuple(used), _SIZES)
    except ValueError:
        raise Unaddressable("damaged") from None
    component_of, dc_table = layout.component_of, layout.dc_table
    dc = np.empty(blocks, np.int32)
    begins, ends = np.empty(blocks, np.int64), np.empty(blocks, np.int64)
    bounds = 8 * np.array([0, *restarts[:count].tolist(), size], np.int64)
    problem, _ = kernels.index(
        bits.view(">u8").astype(np.uint64),
        bounds,
        mcus,
        old,
        component_of,
        *layout.find,
        dc_table,
        layout.ac_table,
        dc,
        begins,
        ends,
    )
    if problem:
        raise Unaddressable("padded unusually" if problem == kernels.PADDING else "damaged")
    counts = np.zeros((len(used), _SIZES), np.int64)
    if not kernels.count_dc(dc, component_of, dc_table, new, counts):
        raise Unaddressable("damaged")
    replaced: dict[int, Table] = {}
    for place in np.flatnonzero(((counts > 0) & (by.bits == 0)).any(1)).tolist():
        if tables is not None:
            raise Unaddressable("damaged")
        needed = {value: n for value, n in enumerate(counts[place].tolist()) if n}
        replaced[layout.dc[place]] = used[place] = optimal(needed)
    if replaced:
        by = encoding(tuple(used), _SIZES)
    out = np.empty(2 * (size + 4 * blocks) + 4 * (mcus // new + 1), np.uint8)
    sizes = np.empty(-(-mcus // new), np.int64)
    written = kernels.write(bits, dc, begins, ends, component_of, dc_table, *by, new, out, sizes)
    return _Coded(out[:written].data, sizes, replaced, scan.begin + end)


# ------------------------------------------------------------------------------------------------------------- headers


def _addressable_header(data: Encoded, scan: Scan, interval: int, coded: _Coded) -> bytes:
    """The header with the new interval and tables, what it takes to undo that, and the length of each segment.

    Where these have no room, whoever cuts the file looks for its markers.
    """
    tables = coded.tables
    had = [one for one in scan.segments if one.code == DRI]
    old = b"".join(bytes((number,)) + scan.dc[number].counts + scan.dc[number].values for number in sorted(tables))
    content = NAME + OURS.pack(VERSION, bool(had), scan.interval, len(tables), len(old)) + old
    if len(old) + 2 * len(coded.sizes) <= _ROOM and int(coded.sizes.max()) < 1 << 16:
        content += coded.sizes.astype(">u2").tobytes()
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
    changed = tuple(
        (kind, number, tables[number] if not kind and number in tables and table == scan.dc[number] else table)
        for kind, number, table in found
    )
    return whole if changed == found else write_tables(changed)


def _is_ours(data: Encoded, segment: Segment) -> bool:
    return segment.code == APP9 and bytes(data[segment.begin + 4 : segment.begin + 4 + len(NAME)]) == NAME
