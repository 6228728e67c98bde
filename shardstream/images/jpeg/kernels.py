"""The inner loops over a scan's bits, compiled by numba. Import it only where that is installed.

Nothing is decoded but the lengths of codes and the DC differences: the bits of AC coefficients are copied as they are.
Source: ITU-T T.81, annexes C and F.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.compiled import compiled
from shardstream.images.jpeg.tables import FAST

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]

# What `index` found wrong; 0 for nothing.
NO_CODE, NO_MORE_BITS, TOO_MANY_COEFFICIENTS, DC_TOO_LARGE, PADDING = 1, 2, 3, 4, 5

_LARGEST_DC = 11  # bits of a DC difference in a baseline file


@compiled
def unstuff(data: Bytes, out: Bytes, restarts: Integers) -> tuple[int, int, int]:
    """Entropy-coded bytes without what was stuffed in, from the beginning of ``data`` to its first marker.

    Args:
        data: From the scan's first byte on.
        out: Takes the bytes; as long as ``data``.
        restarts: Takes the offsets in ``out`` at which restart markers stood.

    Returns:
        Bytes in ``out``; how many restart markers there were, -1 where one is out of turn or they are too many; and
        the offset of the marker that ends the scan, -1 where there is none.
    """
    size = len(data)
    at, filled, count = 0, 0, 0
    while at < size:
        byte = data[at]
        if byte != 0xFF:
            out[filled] = byte
            filled += 1
            at += 1
            continue
        if at + 1 >= size:
            break
        code = data[at + 1]
        if code == 0:
            out[filled] = 0xFF
            filled += 1
        elif 0xD0 <= code <= 0xD7:
            if code != 0xD0 + count % 8 or count >= len(restarts):
                return filled, -1, at
            restarts[count] = filled
            count += 1
        else:
            return filled, count, at
        at += 2
    return filled, count, -1


@compiled
def _peek(data: Bytes, bit: Any) -> Any:
    """The 16 bits from ``bit`` on."""
    at = bit >> 3
    word = (np.int64(data[at]) << 16) | (np.int64(data[at + 1]) << 8) | np.int64(data[at + 2])
    return (word >> (8 - (bit & 7))) & 0xFFFF


@compiled
def _code(data: Bytes, bit: Any, table: Any, fast: Any, most: Any, first: Any, values: Any) -> tuple[Any, Any]:
    """Length and value of the code at ``bit``; length 0 where there is none."""
    word = _peek(data, bit)
    entry = np.int64(fast[table, word >> (16 - FAST)])
    if entry:
        return entry >> 8, entry & 0xFF
    for length in range(FAST + 1, 17):
        code = word >> (16 - length)
        if code <= most[table, length]:
            return np.int64(length), np.int64(values[table, code + first[table, length]])
    return np.int64(0), np.int64(0)


@compiled
def index(
    data: Bytes,
    bits: Integers,
    mcus: int,
    interval: int,
    component_of: Integers,
    fast: Any,
    most: Any,
    first: Any,
    values: Any,
    dc_table: Integers,
    ac_table: Integers,
    dc: Any,
    begins: Integers,
    ends: Integers,
) -> tuple[int, int]:
    """Where the AC bits of each block lie, and its DC coefficient.

    Args:
        data: From `unstuff`, with at least 4 bytes to spare.
        bits: The first bit of each restart interval, and the end of the last one.
        mcus: Of the scan.
        interval: MCUs between two restarts.
        component_of: Component of each block of an MCU.
        fast: Tables by number, as ``tables.Lookup`` describes them.
        most: The same.
        first: The same.
        values: The same.
        dc_table: DC table of each component.
        ac_table: AC table of each component.
        dc: Takes the DC coefficients.
        begins: Takes the first bits of the AC coefficients.
        ends: Takes the bits after the last ones.

    Returns:
        What is wrong, and in which block.
    """
    blocks = len(component_of)
    last = np.zeros(4, np.int64)
    block = 0
    for number in range(len(bits) - 1):
        bit, stop = bits[number], bits[number + 1]
        last[:] = 0
        for _ in range(min(interval, mcus - number * interval)):
            for inside in range(blocks):
                component = component_of[inside]
                table = dc_table[component]
                length, size = _code(data, bit, table, fast, most, first, values)
                if not length:
                    return NO_CODE, block
                if size > _LARGEST_DC:
                    return DC_TOO_LARGE, block
                bit += length
                if size:
                    value = _peek(data, bit) >> (16 - size)
                    bit += size
                    if value < 1 << (size - 1):
                        value -= (1 << size) - 1
                    last[component] += value
                dc[block] = last[component]
                begins[block] = bit
                table = ac_table[component]
                place = 1
                while place < 64:
                    length, value = _code(data, bit, table, fast, most, first, values)
                    if not length:
                        return NO_CODE, block
                    size = value & 15
                    bit += length + size
                    if bit > stop:
                        return NO_MORE_BITS, block
                    if size:
                        place += (value >> 4) + 1
                    elif value == 0xF0:
                        place += 16
                    else:
                        break
                if place > 64:
                    return TOO_MANY_COEFFICIENTS, block
                if bit > stop:
                    return NO_MORE_BITS, block
                ends[block] = bit
                block += 1
        left = stop - bit
        if left >= 8 or (left and _peek(data, bit) >> (16 - left) != (1 << left) - 1):
            return PADDING, block
    return 0, block


@compiled
def count_dc(dc: Any, component_of: Integers, dc_table: Integers, interval: int, counts: Any) -> bool:
    """Count the sizes of DC differences by table, with a restart every ``interval`` MCUs; False if one is too large."""
    blocks = len(component_of)
    last = np.zeros(4, np.int64)
    for block in range(len(dc)):
        inside = block % blocks
        if not inside and not (block // blocks) % interval:
            last[:] = 0
        component = component_of[inside]
        difference = abs(dc[block] - last[component])
        last[component] = dc[block]
        size = 0
        while difference:
            difference >>= 1
            size += 1
        if size > _LARGEST_DC:
            return False
        counts[dc_table[component], size] += 1
    return True


@compiled
def _put(out: Bytes, filled: Any, byte: Any) -> Any:
    """Write a byte, stuffed; how many there are then."""
    out[filled] = byte
    if byte != 0xFF:
        return filled + 1
    out[filled + 1] = 0
    return filled + 2


@compiled
def _padded(word: Any, count: Any) -> Any:
    """The last ``count`` bits, and ones up to a byte."""
    return ((word << (8 - count)) | ((1 << (8 - count)) - 1)) & 0xFF


@compiled
def write(
    data: Bytes,
    dc: Any,
    begins: Integers,
    ends: Integers,
    component_of: Integers,
    dc_table: Integers,
    codes: Integers,
    lengths: Integers,
    interval: int,
    out: Bytes,
) -> int:
    """The scan with a restart every ``interval`` MCUs, stuffed.

    Args:
        data: What `index` went through.
        dc: From `index`.
        begins: The same.
        ends: The same.
        component_of: Component of each block of an MCU.
        dc_table: DC table of each component.
        codes: By DC table, the code of each size.
        lengths: Bits of these codes.
        interval: MCUs between two restarts.
        out: Takes the bytes; large enough for any of them to be stuffed.

    Returns:
        Bytes in ``out``.
    """
    blocks = len(component_of)
    last = np.zeros(4, np.int64)
    filled, count, restart = 0, 0, 0
    word = np.int64(0)
    for block in range(len(dc)):
        inside = block % blocks
        if not inside and block and not (block // blocks) % interval:
            if count:
                filled = _put(out, filled, _padded(word, count))
            out[filled] = 0xFF
            out[filled + 1] = 0xD0 + restart % 8
            filled += 2
            restart += 1
            word, count = np.int64(0), 0
            last[:] = 0
        component = component_of[inside]
        difference = dc[block] - last[component]
        last[component] = dc[block]
        size, rest = 0, abs(difference)
        while rest:
            rest >>= 1
            size += 1
        if difference < 0:
            difference += (1 << size) - 1
        table = dc_table[component]
        word = (word << (lengths[table, size] + size)) | (codes[table, size] << size) | difference
        count += lengths[table, size] + size
        bit, stop = begins[block], ends[block]
        while True:
            while count >= 8:
                count -= 8
                filled = _put(out, filled, (word >> count) & 0xFF)
            word &= (1 << count) - 1
            if bit >= stop:
                break
            taken = min(stop - bit, 32)
            at = bit >> 3
            piece = (
                (np.int64(data[at]) << 32)
                | (np.int64(data[at + 1]) << 24)
                | (np.int64(data[at + 2]) << 16)
                | (np.int64(data[at + 3]) << 8)
                | np.int64(data[at + 4])
            )
            piece = (piece >> (40 - (bit & 7) - taken)) & ((1 << taken) - 1)
            word = (word << taken) | piece
            count += taken
            bit += taken
    if count:
        filled = _put(out, filled, _padded(word, count))
    return filled
