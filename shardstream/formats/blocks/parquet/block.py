"""The codec of blocks: runs of pages of a column chunk, laid out so that each value is in one piece."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardstream.errors import DecodeError
from shardstream.formats.blocks.parquet.columns import elements, texts
from shardstream.formats.blocks.parquet.encodings import wrong
from shardstream.formats.blocks.parquet.pages import COMPRESSIONS, Page, inflated, pages
from shardstream.formats.blocks.parquet.rows import LeafColumn, RowNode, rows
from shardstream.formats.blocks.parquet.values import BYTES, LeafShape

_DTYPES = frozenset(f"<{kind}{width}" for kind in "iuf" for width in (1, 2, 4, 8)) | {"|b1", "|i1", "|u1"}


def raw_setting(compression: str) -> bytes:
    """Of a block that shows its pages inflated, one after another."""
    return _setting(as_is=compression)


def values_setting(compression: str, leaf: LeafShape, dtype: str, skip: int) -> bytes:
    """Of a block of the values of its pages, one after another: of `BYTES` and `FIXED` as they are, else of a dtype.

    Args:
        compression: Of the column chunk.
        leaf: How values are stored.
        dtype: Of the elements; empty for bytes.
        skip: Bytes between the dictionary, which comes first, and the other pages.
    """
    return _setting(values=[compression, list(leaf), dtype, skip])


def rows_setting(node: RowNode, form: str, columns: Sequence[tuple[LeafShape, str, str, int, int]]) -> bytes:
    """Of a block of rows that several columns make up.

    Args:
        node: How they are put together.
        form: ``json`` or ``msgpack``.
        columns: How the values of each are stored, what they mean, its compression, and its first and last byte + 1.
    """
    return _setting(rows=[node.packed(), form, [[list(leaf), *rest] for leaf, *rest in columns]])


def _setting(**what: Any) -> bytes:
    return json.dumps(what, separators=(",", ":")).encode()


def inflated_block(data: memoryview, size: int, setting: bytes) -> memoryview:
    """What a block of pages shows: exactly ``size`` bytes.

    Args:
        data: The stored bytes.
        size: What comes of them.
        setting: What `raw_setting`, `values_setting` or `rows_setting` gave.

    Raises:
        DecodeError: They are damaged, or give more or less.
        MissingExtraError: A package is not installed that it takes.
    """
    try:
        ((kind, told),) = json.loads(setting).items()
        if kind == "as_is":
            return _as_is(data, size, _compression(told))
        if kind == "values":
            return _values(data, size, *told)
        node, form, columns = told
        found = [_column(data, *one) for one in columns]
        return rows(_reader(data), RowNode.unpacked(node), found, form, size)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, DecodeError):
            raise
        what = f"what the catalogue says of a block is not understood ({type(error).__name__}: {error})"
        raise DecodeError(what, hint="index the data again") from error


def _as_is(data: memoryview, size: int, compression: str) -> memoryview:
    get = _reader(data)
    found = list(pages(get, 0, len(data)))
    if sum(page.size for page in found) != size:
        raise wrong(f"its pages are not {size} bytes")
    if len(found) == 1:
        return inflated(found[0], compression, get(found[0].body, found[0].stored))
    out = np.empty(size, np.uint8)
    at = 0
    for page in found:
        body = inflated(page, compression, get(page.body, page.stored))
        out[at : at + page.size] = np.frombuffer(body, np.uint8)
        at += page.size
    return out.data.toreadonly()


def _values(data: memoryview, size: int, compression: str, leaf: Sequence[int], dtype: str, skip: int) -> memoryview:
    stored = LeafShape(*leaf)
    found = _pages(data, 0, len(data), skip)
    if not dtype and stored.physical == BYTES:
        parts = texts(_reader(data), found, _compression(compression), stored, size)
        return memoryview(b"".join(value for _, values in parts for value in values))
    if dtype and dtype not in _DTYPES:
        raise ValueError(dtype)
    kind = np.dtype(dtype) if dtype else stored.dtype
    if sum(page.values for page in found if not page.dictionary) * kind.itemsize < size:
        raise wrong(f"its values are less than {size} bytes")
    made = elements(_reader(data), found, _compression(compression), stored, kind)
    return made.view(np.uint8).data.toreadonly() if len(made) else memoryview(b"")


def _column(
    data: memoryview, leaf: Sequence[int], meaning: str, compression: str, begin: int, end: int, skip: int = 0
) -> LeafColumn:
    if not 0 <= begin <= end <= len(data):
        raise wrong("its columns are not in it")
    return LeafColumn(LeafShape(*leaf), meaning, _compression(compression), _pages(data, begin, end, skip))


def _pages(data: memoryview, begin: int, end: int, skip: int) -> list[Page]:
    """The pages between two places, and not those that follow the dictionary for so many bytes."""
    get = _reader(data)
    if not skip:
        return list(pages(get, begin, end))
    first = next(pages(get, begin, end))
    return [first, *pages(get, first.end + skip, end)]


def _compression(name: str) -> str:
    if name not in COMPRESSIONS.values():
        raise ValueError(name)
    return name


def _reader(data: memoryview) -> Any:
    return lambda at, length: data[at : at + length]
