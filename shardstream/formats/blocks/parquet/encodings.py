"""The encodings of Parquet, from bytes to numpy arrays: runs, bits, differences, split bytes, and lengths of values.

https://parquet.apache.org/docs/file-format/data-pages/encodings/
"""

from __future__ import annotations

import struct
from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError, UnsupportedError

Places = NDArray[np.int64]
_HINT = "fetch or write the file again"
AS_JSON = (
    "take the column as JSON: --format-option json=COLUMN (SourceOptions(options=...)), or --field NAME=COLUMN:json"
)
_LENGTH = struct.Struct("<I")
_WIDEST = 64  # bits of a number
_LARGEST_BLOCK = 1 << 20  # numbers of a block of differences


def unsupported(what: str) -> UnsupportedError:
    """The error for a page that is valid, and not read."""
    hint = "leave the column out, or write it again with smaller row groups and the default encodings of pyarrow"
    return UnsupportedError(f"a page is not read: {what}", hint=hint)


def wrong(what: str) -> DecodeError:
    """The error for bytes that are not what their page says."""
    return DecodeError(f"a page is damaged: {what}", hint=_HINT)


def _dtype(width: int) -> np.dtype[Any]:
    """The smallest unsigned one for numbers of so many bits."""
    return np.min_scalar_type((1 << width) - 1).newbyteorder("<")


def unpacked(data: memoryview | bytes, width: int, count: int) -> NDArray[Any]:
    """``count`` numbers of ``width`` bits each, the lowest bits first: of the smallest unsigned dtype.

    Raises:
        DecodeError: There are fewer bytes.
    """
    dtype = _dtype(width)
    if not width or not count:
        return np.zeros(count, dtype)
    size = -(-width * count // 8)
    if len(data) < size:
        raise wrong(f"{count} numbers of {width} bits are not in {len(data)} bytes")
    if width == 8 * dtype.itemsize:
        return np.frombuffer(data, dtype, count)
    stored = np.frombuffer(data, np.uint8, size)
    if width == 1:
        return np.unpackbits(stored, count=count, bitorder="little")
    eights = -(-count // 8)  # eight numbers take as many bytes as one has bits
    rows = np.pad(stored, (0, eights * width - size)).reshape(eights, width)
    out = np.empty((eights, 8), dtype)
    for number in range(8):
        first, shift = divmod(number * width, 8)
        last = (number * width + width - 1) // 8
        found = rows[:, first].astype(dtype) >> shift
        for byte in range(first + 1, last + 1):
            found |= rows[:, byte].astype(dtype) << 8 * (byte - first) - shift
        np.bitwise_and(found, (1 << width) - 1, out=out[:, number])
    return out.reshape(-1)[:count]


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at a place, and where it ends; DecodeError where it is cut off or has more than 10 bytes."""
    value = 0
    for place in range(10):
        if at >= len(data):
            raise wrong("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value & (1 << 64) - 1, at
    raise wrong("a number has more than 10 bytes")


def hybrid(data: memoryview, width: int, count: int) -> NDArray[Any]:
    """``count`` numbers that are written as runs of equal ones, and of packed ones: of the smallest unsigned dtype.

    Raises:
        DecodeError: There are fewer, or they are damaged.
    """
    if not 0 <= width <= 32:
        raise wrong(f"numbers of {width} bits")
    out = np.empty(count, _dtype(width))
    packed: list[memoryview] = []  # writers begin a new run every 504 numbers: all are unpacked at once
    runs: list[tuple[int, int]] = []
    at, done, bytes_wide = 0, 0, -(-width // 8)
    while done < count:
        head, at = varint(data, at)
        if head & 1:
            groups = head >> 1
            taken = min(groups * 8, count - done)
            if not groups:
                raise wrong("a run of no numbers")
            packed.append(data[at : at + groups * width])
            runs.append((done, taken))
            at += groups * width
        else:
            taken = min(head >> 1, count - done)
            if not taken or at + bytes_wide > len(data):
                raise wrong("a run of no numbers, or one that is cut off")
            value = int.from_bytes(data[at : at + bytes_wide], "little")
            if value >> width:
                raise wrong(f"the number {value} in {width} bits")
            out[done : done + taken] = value
            at += bytes_wide
        done += taken
    total = sum(taken for _, taken in runs)
    numbers = unpacked(b"".join(packed) if len(packed) != 1 else packed[0], width, total)
    if total == count:
        return numbers
    begin = 0
    for place, taken in runs:
        out[place : place + taken] = numbers[begin : begin + taken]
        begin += taken
    return out


def dictionary_numbers(data: memoryview, count: int, entries: int) -> NDArray[Any]:
    """Which entries of a dictionary the values of a page are.

    Raises:
        DecodeError: They are damaged, or one is beyond the dictionary.
    """
    if not count:
        return np.zeros(0, np.uint8)
    if not len(data):
        raise wrong("no values where there should be some")
    found = hybrid(data[1:], data[0], count)
    if found.max() >= entries:
        raise wrong(f"entry {int(found.max())} of a dictionary of {entries}")
    return found


def differences(data: memoryview, count: int, bits: int = 64) -> tuple[NDArray[np.int64], int]:
    """``count`` integers that are written as differences (DELTA_BINARY_PACKED), and where they end.

    Args:
        data: The bytes.
        count: How many there have to be.
        bits: Of one of them; sums wrap around there.

    Raises:
        DecodeError: There are not as many, or they are damaged.
    """
    block, at = varint(data, 0)
    parts, at = varint(data, at)
    total, at = varint(data, at)
    first, at = varint(data, at)
    if total != count:
        raise wrong(f"{total} differences of {count} values")
    if not 0 < block <= _LARGEST_BLOCK or not parts or block % parts or (block // parts) % 8:
        raise wrong(f"blocks of {block} differences in {parts} parts")
    each = block // parts
    runs = -(-max(count - 1, 0) // each)
    leasts: list[int] = []
    of_width: dict[int, list[tuple[int, memoryview]]] = {}
    while len(leasts) < runs:
        least, at = varint(data, at)
        widths = data[at : at + parts]
        if len(widths) < parts:
            raise wrong("differences are cut off")
        at += parts
        for width in widths[: runs - len(leasts)]:  # what follows is not written
            if width > _WIDEST:
                raise wrong(f"differences of {width} bits")
            stored = data[at : at + each * width // 8]
            of_width.setdefault(width, []).append((len(leasts), stored))
            leasts.append(_unzigzag(least))
            at += len(stored)
    out: NDArray[np.uint64] = np.zeros(1 + runs * each, np.uint64)
    out[0] = _unzigzag(first)
    rows, left = out[1:].reshape(runs, each), 1 + runs * each - max(count, 1)
    for width, found in of_width.items():  # all runs of a width at once
        numbers = [number for number, _ in found]
        taken = len(found) * each - (left if numbers[-1] == runs - 1 else 0)
        values = unpacked(b"".join(stored for _, stored in found), width, taken)
        rows[numbers] = np.pad(values, (0, len(found) * each - taken)).reshape(-1, each)
    rows += np.array(leasts, np.uint64)[:, np.newaxis]
    with np.errstate(over="ignore"):
        sums = np.cumsum(out, dtype=np.uint64)[:count]
    return (sums.astype(np.uint32).view(np.int32).astype(np.int64) if bits == 32 else sums.view(np.int64)), at


def _unzigzag(value: int) -> int:
    """A signed number as the bits that it has in 64."""
    return ((value >> 1) ^ -(value & 1)) & (1 << 64) - 1


def joined_bytes(data: memoryview, count: int, width: int) -> NDArray[np.uint8]:
    """Values whose first bytes stand together, then the second ones (BYTE_STREAM_SPLIT): uint8 (count, width).

    Raises:
        DecodeError: There are fewer or more bytes.
    """
    if len(data) != count * width:
        raise wrong(f"{count} values of {width} bytes are not {len(data)} bytes")
    return np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(width, count).T)


def prefixed(data: memoryview, count: int) -> tuple[Places, Places]:
    """Where values begin that stand behind their lengths (PLAIN), and their lengths.

    Raises:
        DecodeError: There are fewer.
    """
    if 4 * count > len(data):
        raise wrong(f"{count} values are not in {len(data)} bytes")
    begins, at, take = array("q"), 0, _LENGTH.unpack_from
    add = begins.append
    try:
        for _ in range(count):
            at += 4 + take(data, at)[0]
            add(at)
    except struct.error:
        raise wrong(f"a value reaches past the end, of {count} in {len(data)} bytes") from None
    if at > len(data):
        raise wrong(f"a value reaches past the end, of {count} in {len(data)} bytes")
    ends = np.frombuffer(begins, np.int64) if count else np.zeros(0, np.int64)
    starts = np.empty_like(ends)
    starts[:1] = 4
    starts[1:] = ends[:-1] + 4
    return starts, ends - starts


def lengths_first(data: memoryview, count: int) -> tuple[Places, Places]:
    """The same of values whose lengths stand before all of them (DELTA_LENGTH_BYTE_ARRAY).

    Raises:
        DecodeError: They are damaged.
    """
    lengths, at = differences(data, count, 32)
    if count and (lengths.min() < 0 or int(lengths.sum()) > len(data) - at):
        raise wrong(f"{count} values are not in {len(data)} bytes")
    ends = np.cumsum(lengths)
    return ends - lengths + at, lengths


def with_prefixes(data: memoryview, count: int, most: int) -> list[bytes]:
    """Values of which only that is written in which they differ from the one before (DELTA_BYTE_ARRAY).

    Args:
        data: The bytes.
        count: How many.
        most: Bytes that all of them may have.

    Raises:
        DecodeError: They are damaged, or have more.
    """
    same, at = differences(data, count, 32)
    rest = data[at:]
    begins, lengths = lengths_first(rest, count)
    if count and same.min() < 0:
        raise wrong("values begin as others, for less than no bytes")
    if count and int(same.sum()) + int(lengths.sum()) > most:
        raise unsupported(f"{count} values that begin as others have more than {most} bytes")
    out: list[bytes] = []
    before = b""
    for shared, begin, length in zip(same.tolist(), begins.tolist(), lengths.tolist(), strict=True):
        if shared > len(before):
            raise wrong("a value shares more with the one before than that has")
        before = before[:shared] + bytes(rest[begin : begin + length])
        out.append(before)
    return out
