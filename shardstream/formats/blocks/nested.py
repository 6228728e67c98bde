"""Values of nested Arrow columns, such as lists of text, written down as JSON or msgpack: the codec ``nested``.

A block is what Arrow stores of a column in some rows of a batch: its buffers, which the setting describes. Inflated it
is `MARK`, the length of each value as ``uint32``, and the values; one that is not there has no bytes. All that the
setting says is compared with the stored bytes before anything is made of it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, NamedTuple, TypeAlias

import msgpack
import numpy as np
from numpy.typing import NDArray

from shardstream.errors import DecodeError, UnsupportedError
from shardstream.formats.blocks.json_values import json_bytes

MARK = b"\xff\xff\xff\xff\0\0\0\0"
"""What a block begins with: the end of an Arrow stream."""
Inflate: TypeAlias = Callable[[str, memoryview, int], memoryview]
"""What so many bytes are stored as in a codec, by its name."""
_HINT = "the object is damaged, or was replaced; fetch or write it again"
_PREFIX = 8  # bytes of a compressed buffer that say how much it inflates to
_INLINE = 12  # bytes of a value that stands in its view
_MOST_VIEWED = 32 << 20  # bytes of values that views may share, beyond 16 times those that are stored
_FEW, _MANY = 1 << 20, 1 << 26  # values that a block may hold however short it is, and however long
_TIGHTEST = 256  # bytes that one compressed byte stands for at most
_DIGITS = 100
_EXACT = Context(prec=_DIGITS)
_DAY = {"s": 86400, "ms": 86400 * 10**3, "us": 86400 * 10**6, "ns": 86400 * 10**9}


class NestedNode(NamedTuple):
    """A column in some rows, or what is nested in one.

    Attributes:
        kind: Arrow's name of its type; ``file`` for a struct of which only the bytes are taken.
        size: Elements of lists of one size, bytes of values of one size, digits behind the point of decimals.
        unit: Of times; a time zone follows a comma.
        rows: How many it has.
        nulls: How many of them have no value.
        buffers: Where each lies in the stored bytes, and how many it has.
        names: Of the fields of a struct.
        children: What is nested in it.
    """

    kind: str
    size: int
    unit: str
    rows: int
    nulls: int
    buffers: Sequence[Sequence[int]]
    names: Sequence[str]
    children: Sequence[NestedNode]


class NestedSetting(NamedTuple):
    """What is made of which rows.

    Attributes:
        form: ``json`` or ``msgpack``.
        codec: How each buffer is compressed; empty: not.
        begin: The first row.
        end: The row after the last.
        node: The column.
    """

    form: str
    codec: str
    begin: int
    end: int
    node: NestedNode

    def pack(self) -> bytes:
        """It as bytes."""
        return json.dumps(self, separators=(",", ":")).encode()


def convert(data: memoryview, setting: bytes, inflate: Inflate) -> bytes:
    """The inflated bytes of a block.

    Args:
        data: The stored bytes.
        setting: A `NestedSetting` that was packed.
        inflate: Inflates a buffer.

    Raises:
        DecodeError: The stored bytes do not hold what the setting says.
        MissingExtraError: A package is not installed that inflates the buffers.
    """
    try:
        form, codec, begin, end, node = json.loads(setting)
        column = _Column(data, codec, inflate, _node(node))
        values = column.values(begin, end)
        pack = _PACKERS[form]
        encoded = [b"" if one is None else pack(one) for one in values]
    except DecodeError:
        raise
    except MemoryError as error:
        hint = "use fewer workers, or pack the data set"
        raise DecodeError("the values of a nested column do not fit into memory", hint=hint) from error
    except UnicodeDecodeError as error:
        hint = "write text in UTF-8, or leave the column out: --field NAME=COLUMN (fields=) chooses others"
        raise UnsupportedError(f"a text within lists, structs, or maps is not UTF-8: {error}", hint=hint) from error
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError, ArithmeticError) as error:
        raise DecodeError(f"a block holds no values of a nested column: {error}", hint=_HINT) from error
    return b"".join([MARK, np.array([len(one) for one in encoded], "<u4").tobytes(), *encoded])


def _node(found: Sequence[Any]) -> NestedNode:
    kind, size, unit, rows, nulls, buffers, names, children = found
    return NestedNode(kind, size, unit, rows, nulls, buffers, names, [_node(one) for one in children])


def _msgpack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=True)
    return packed


_PACKERS: Mapping[str, Callable[[Any], bytes]] = {"json": json_bytes, "msgpack": _msgpack}


@dataclass(frozen=True, slots=True)
class _Column:
    """Reads a node.

    Args:
        data: The stored bytes.
        codec: Of its buffers.
        inflate: Inflates one.
        node: The node.
    """

    data: memoryview
    codec: str
    inflate: Inflate
    node: NestedNode

    def values(self, begin: int, end: int) -> list[Any]:
        """The values of rows ``[begin, end)``, ``None`` where there is none."""
        most = max(_FEW, min(_MANY, 8 * len(self.data) * (_TIGHTEST if self.codec else 1)))
        if not 0 <= begin <= end <= self.node.rows or end - begin > most:
            raise ValueError(f"rows {begin} to {end} of {self.node.rows}")
        if begin == end:
            return []
        found = _READERS[self.node.kind](self, begin, end)
        if not self.node.nulls or not self.node.buffers or not self.node.buffers[0][1]:
            return found
        valid = self._bits(0, begin, end)
        return [one if there else None for one, there in zip(found, valid, strict=True)]

    def buffer(self, number: int) -> memoryview:
        """The bytes of a buffer, inflated."""
        offset, length = self.node.buffers[number]
        if not 0 <= offset <= offset + length <= len(self.data):
            raise ValueError(f"a buffer of {length} bytes at {offset} of {len(self.data)}")
        stored = self.data[offset : offset + length]
        if not self.codec or not length:
            return stored
        size = int.from_bytes(stored[:_PREFIX], "little", signed=True)
        stored = stored[_PREFIX:]
        return stored if size == -1 else self.inflate(self.codec, stored, size)

    def numbers(self, number: int, dtype: str, begin: int, end: int) -> NDArray[Any]:
        """Numbers of a buffer; ValueError where it has not as many."""
        kind = np.dtype(dtype)
        return np.frombuffer(self.buffer(number), kind, end - begin, begin * kind.itemsize)

    def _bits(self, number: int, begin: int, end: int) -> list[bool]:
        first = begin // 8
        bits = np.unpackbits(self.numbers(number, "|u1", first, -(-end // 8)), bitorder="little")
        found: list[bool] = bits[begin - 8 * first : end - 8 * first].astype(np.bool_).tolist()
        return found

    def child(self, number: int = 0) -> _Column:
        return _Column(self.data, self.codec, self.inflate, self.node.children[number])

    # ------------------------------------------------------------------------------------------------- kinds of values

    def nothing(self, begin: int, end: int) -> list[Any]:
        return [None] * (end - begin)

    def truths(self, begin: int, end: int) -> list[Any]:
        return [*self._bits(1, begin, end)]

    def scalars(self, begin: int, end: int) -> list[Any]:
        found = self.numbers(1, np.dtype(self.node.kind).newbyteorder("<").str, begin, end).tolist()
        if self.node.kind.startswith("float"):
            return [None if math.isnan(one) else one for one in found]
        return list(found)

    def binaries(self, begin: int, end: int) -> list[Any]:
        if self.node.kind == "fixed_size_binary":
            return [*self._of_one_size(self.node.size, begin, end)]
        offsets = self._offsets(begin, end)
        data = self.buffer(2)[offsets[0] : offsets[-1]]
        if len(data) != offsets[-1] - offsets[0]:
            raise ValueError("values are cut off")
        places = [one - offsets[0] for one in offsets]
        return [bytes(data[low:high]) for low, high in itertools.pairwise(places)]

    def _of_one_size(self, width: int, begin: int, end: int) -> list[bytes]:
        data = self.buffer(1)
        if width < 0 or end * width > len(data):
            raise ValueError("values of one size are cut off")
        return [bytes(data[i * width : (i + 1) * width]) for i in range(begin, end)]

    def viewed(self, begin: int, end: int) -> list[Any]:
        views = self.numbers(1, "<i4", 4 * begin, 4 * end).reshape(-1, 4).tolist()
        if sum(length for length, *_ in views) > _MOST_VIEWED + 16 * len(self.data):
            raise ValueError("views share more bytes than are stored")
        buffers = [*(self.buffer(number) for number in range(2, len(self.node.buffers))), self.buffer(1)]
        valid = self._bits(0, begin, end) if self.node.nulls and self.node.buffers[0][1] else [True] * (end - begin)
        found = []
        for row, (length, _, number, at), there in zip(range(begin, end), views, valid, strict=True):
            inline = length <= _INLINE
            number, at = (-1, 16 * row + 4) if inline else (number, at)
            if not there:
                found.append(b"")  # what stands there may be anything
            elif length < 0 or at < 0 or (number < 0 and not inline) or at + length > len(buffers[number]):
                raise ValueError("views of what is not there")
            else:
                found.append(bytes(buffers[number][at : at + length]))
        return found

    def texts(self, begin: int, end: int) -> list[Any]:
        read = self.viewed if self.node.kind.endswith("_view") else self.binaries
        return [one.decode("utf-8", "replace") for one in read(begin, end)]

    def _offsets(self, begin: int, end: int) -> list[int]:
        dtype = "<i8" if self.node.kind.startswith("large_") else "<i4"
        found = self.numbers(1, dtype, begin, end + 1)
        if found[0] < 0 or np.any(found[1:] < found[:-1]):
            raise ValueError("offsets do not rise")
        return [int(one) for one in found.tolist()]

    def lists(self, begin: int, end: int) -> list[Any]:
        if self.node.kind == "fixed_size_list":
            places = [row * self.node.size for row in range(begin, end + 1)]
        elif self.node.kind.endswith("_view"):
            return self._list_views(begin, end)
        else:
            places = self._offsets(begin, end)
        inner = self.child().values(places[0], places[-1])
        return [inner[low - places[0] : high - places[0]] for low, high in itertools.pairwise(places)]

    def _list_views(self, begin: int, end: int) -> list[Any]:
        dtype = "<i8" if self.node.kind.startswith("large_") else "<i4"
        starts = self.numbers(1, dtype, begin, end).tolist()
        sizes = self.numbers(2, dtype, begin, end).tolist()
        if min(sizes) < 0 or sum(sizes) > self.child().node.rows:
            raise ValueError("lists share their elements")
        child = self.child()
        return [child.values(at, at + size) for at, size in zip(starts, sizes, strict=True)]

    def structs(self, begin: int, end: int) -> list[Any]:
        columns = [self.child(number).values(begin, end) for number in range(len(self.node.children))]
        if not columns:
            return [{} for _ in range(begin, end)]
        return [dict(zip(self.node.names, row, strict=True)) for row in zip(*columns, strict=True)]

    def files(self, begin: int, end: int) -> list[Any]:
        return self.child().values(begin, end)

    def maps(self, begin: int, end: int) -> list[Any]:
        entries = self.child()
        places = self._offsets(begin, end)
        keys, values = (entries.child(number).values(places[0], places[-1]) for number in (0, 1))
        pairs = list(zip(keys, values, strict=True))
        found = [pairs[low - places[0] : high - places[0]] for low, high in itertools.pairwise(places)]
        text = entries.child().node.kind.endswith(("string", "string_view"))
        return [dict(one) if text else [list(pair) for pair in one] for one in found]

    def decimals(self, begin: int, end: int) -> list[Any]:
        width = int(self.node.kind.removeprefix("decimal") or 128) // 8
        if abs(self.node.size) > _DIGITS:
            raise ValueError(f"decimals of {self.node.size} digits")
        numbers = (int.from_bytes(one, "little", signed=True) for one in self._of_one_size(width, begin, end))
        return [f"{Decimal(one).scaleb(-self.node.size, _EXACT):f}" for one in numbers]

    def dates(self, begin: int, end: int) -> list[Any]:
        days = self.node.kind == "date32"
        found = self.numbers(1, "<i4" if days else "<i8", begin, end).astype(np.int64)
        found = found if days else found // _DAY["ms"]
        return list(np.datetime_as_string(found.astype("M8[D]")).tolist())

    def stamps(self, begin: int, end: int) -> list[Any]:
        unit, _, zone = self.node.unit.partition(",")
        found = np.datetime_as_string(self.numbers(1, "<i8", begin, end).astype(f"M8[{unit}]")).tolist()
        return [f"{one}Z" for one in found] if zone else list(found)

    def times(self, begin: int, end: int) -> list[Any]:
        found = self.numbers(1, "<i4" if self.node.kind == "time32" else "<i8", begin, end).astype(np.int64)
        text = np.datetime_as_string(found.astype(f"M8[{self.node.unit}]")).tolist()
        return [one.partition("T")[2] for one in text]

    def counts(self, begin: int, end: int) -> list[Any]:
        return list(self.numbers(1, "<i8", begin, end).tolist())


_READERS: Mapping[str, Callable[[_Column, int, int], list[Any]]] = {
    "null": _Column.nothing,
    "bool": _Column.truths,
    **dict.fromkeys([f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)], _Column.scalars),
    **dict.fromkeys(("float16", "float32", "float64"), _Column.scalars),
    **dict.fromkeys(("binary", "large_binary", "fixed_size_binary"), _Column.binaries),
    "binary_view": _Column.viewed,
    **dict.fromkeys(("string", "large_string", "string_view"), _Column.texts),
    **dict.fromkeys(("list", "large_list", "fixed_size_list", "list_view", "large_list_view"), _Column.lists),
    "struct": _Column.structs,
    "file": _Column.files,
    "map": _Column.maps,
    **dict.fromkeys(("decimal", "decimal32", "decimal64", "decimal128", "decimal256"), _Column.decimals),
    **dict.fromkeys(("date32", "date64"), _Column.dates),
    "timestamp": _Column.stamps,
    **dict.fromkeys(("time32", "time64"), _Column.times),
    "duration": _Column.counts,
}
