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
Words = NDArray[np.uint64]
Integers = NDArray[np.int64]

# What `index` found wrong; 0 for nothing.
NO_CODE, NO_MORE_BITS, TOO_MANY_COEFFICIENTS, DC_TOO_LARGE, PADDING = 1, 2, 3, 4, 5

_LARGEST_DC = 11  # bits of a DC difference in a baseline file
_SIZE_OF = np.array([number.bit_length() for number in range(1 << _LARGEST_DC)], np.uint8)  # by DC difference
_MOST_TAKEN = 31  # bits of a code and of what follows it


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
def _window(words: Words, bit: Any) -> Any:
    """The 64 bits from ``bit`` on."""
    at, shift = bit >> 6, np.uint64(bit & 63)
    return (words[at] << shift) | ((words[at + 1] >> np.uint64(1)) >> (np.uint64(63) - shift))


@compiled
def _code(window: Any, table: Any, fast: Any, most: Any, first: Any, values: Any) -> tuple[Any, Any]:
    """The code that a window begins with: how many bits it takes with those that follow it, and its value.

    0 bits where there is no such code.
    """
    entry = np.int64(fast[table, window >> np.uint64(64 - FAST)])
    if entry:
        return entry >> 8, entry & 0xFF
    for length in range(FAST + 1, 17):
        code = np.int64(window >> np.uint64(64 - length))
        if code <= most[table, length]:
            value = np.int64(values[table, code + first[table, length]])
            return length + (value & 15), value
    return np.int64(0), np.int64(0)


@compiled
def index(
    words: Words,
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
        words: What `unstuff` gives, as big-endian numbers of 64 bits, and two more.
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
                window, held = _window(words, bit), 64
                taken, size = _code(window, table, fast, most, first, values)
                if not taken:
                    return NO_CODE, block
                if size > _LARGEST_DC:
                    return DC_TOO_LARGE, block
                if size:
                    value = np.int64(window >> np.uint64(64 - taken)) & ((1 << size) - 1)
                    if value < 1 << (size - 1):
                        value -= (1 << size) - 1
                    last[component] += value
                dc[block] = last[component]
                bit += taken
                begins[block] = bit
                window <<= np.uint64(taken)
                held -= taken
                table = ac_table[component]
                place = 1
                while place < 64:
                    if held < _MOST_TAKEN:
                        window, held = _window(words, bit), 64
                    taken, value = _code(window, table, fast, most, first, values)
                    if not taken:
                        return NO_CODE, block
                    bit += taken
                    if bit > stop:
                        return NO_MORE_BITS, block
                    window <<= np.uint64(taken)
                    held -= taken
                    if value & 15:
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
        if left >= 8 or (left and np.int64(_window(words, bit) >> np.uint64(64 - left)) != (1 << left) - 1):
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
        if difference >= len(_SIZE_OF):
            return False
        counts[dc_table[component], _SIZE_OF[difference]] += 1
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
    sizes: Integers,
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
        sizes: Takes the bytes of each segment between two markers.

    Returns:
        Bytes in ``out``.
    """
    blocks = len(component_of)
    last = np.zeros(4, np.int64)
    filled, count, restart, begun = 0, 0, 0, 0
    word = np.int64(0)
    for block in range(len(dc)):
        inside = block % blocks
        if not inside and block and not (block // blocks) % interval:
            if count:
                filled = _put(out, filled, _padded(word, count))
            sizes[restart] = filled - begun
            out[filled] = 0xFF
            out[filled + 1] = 0xD0 + restart % 8
            filled += 2
            begun = filled
            restart += 1
            word, count = np.int64(0), 0
            last[:] = 0
        component = component_of[inside]
        difference = dc[block] - last[component]
        last[component] = dc[block]
        size = np.int64(_SIZE_OF[abs(difference)])
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
    sizes[restart] = filled - begun
    return filled
