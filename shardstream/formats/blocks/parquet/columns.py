"""The values of several pages of a column chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardstream.errors import UnsupportedError
from shardstream.formats.blocks.parquet.encodings import AS_JSON, unsupported, wrong
from shardstream.formats.blocks.parquet.pages import Get, Levels, Page, inflated, levels
from shardstream.formats.blocks.parquet.values import BYTES, FIXED, LeafShape, byte_values, fixed_values


class OpenPage(NamedTuple):
    """A page without compression.

    Attributes:
        page: Its header.
        body: Its bytes.
        levels: What stands before its values.
        there: How many values it has.
    """

    page: Page
    body: memoryview
    levels: Levels
    there: int

    @property
    def values(self) -> memoryview:
        """The bytes of its values."""
        return self.body[self.levels.begin :]


def opened(get: Get, page: Page, compression: str, leaf: LeafShape) -> OpenPage:
    """A page of values, inflated, with its levels.

    Raises:
        DecodeError: It is damaged.
        MissingExtraError: A package is not installed that it takes.
    """
    body = inflated(page, compression, get(page.body, page.stored))
    found = levels(page, body, leaf.repetition, leaf.definition)
    count = page.values if found.definition is None else int((found.definition == leaf.definition).sum())
    return OpenPage(page, body, found, count)


class Dictionary:
    """The dictionary of a column chunk, as far as it is needed.

    Args:
        get: Reads bytes.
        page: Its page; ``None`` where there is none.
        compression: Of the column chunk.
        leaf: How its values are stored.
    """

    def __init__(self, get: Get, page: Page | None, compression: str, leaf: LeafShape) -> None:
        self._leaf = leaf
        self._page = page
        self._body = None if page is None else inflated(page, compression, get(page.body, page.stored))

    def numbers(self) -> NDArray[Any] | None:
        """Its entries, where they are not `BYTES`."""
        if self._page is None or self._body is None:
            return None
        return fixed_values(self._leaf, 0, self._body, self._page.values)

    def bytes(self) -> list[bytes] | None:
        """The same of `BYTES`."""
        if self._page is None or self._body is None:
            return None
        return byte_values(0, self._body, self._page.values, len(self._body))


def split_dictionary(found: Sequence[Page]) -> tuple[Page | None, Sequence[Page]]:
    """The dictionary of a column chunk, which comes first, and its other pages.

    Raises:
        DecodeError: There is another one.
    """
    first = found[0] if found and found[0].dictionary else None
    rest = found[1:] if first is not None else found
    if any(page.dictionary for page in rest):
        raise wrong("a dictionary among the pages of values")
    return first, rest


def numbers(
    get: Get, found: Sequence[Page], compression: str, leaf: LeafShape
) -> Iterator[tuple[OpenPage, NDArray[Any]]]:
    """The pages of a column chunk, which may begin with its dictionary, and their values; not of `BYTES`.

    Raises:
        DecodeError: One is damaged.
        MissingExtraError: A package is not installed that it takes.
    """
    first, rest = split_dictionary(found)
    dictionary = Dictionary(get, first, compression, leaf).numbers()
    for page in rest:
        one = opened(get, page, compression, leaf)
        yield one, fixed_values(leaf, page.encoding, one.values, one.there, dictionary)


def texts(
    get: Get, found: Sequence[Page], compression: str, leaf: LeafShape, most: int
) -> Iterator[tuple[OpenPage, list[bytes]]]:
    """The same of `BYTES` and `FIXED`, as bytes of their own.

    Args:
        get: Reads bytes.
        found: The pages.
        compression: Of the column chunk.
        leaf: How values are stored.
        most: Bytes that all may have.

    Raises:
        DecodeError: One is damaged, or they have more.
        MissingExtraError: A package is not installed that it takes.
    """
    if leaf.physical == FIXED:
        yield from ((one, [bytes(value) for value in values]) for one, values in numbers(get, found, compression, leaf))
        return
    assert leaf.physical == BYTES
    first, rest = split_dictionary(found)
    dictionary = Dictionary(get, first, compression, leaf).bytes()
    for page in rest:
        one = opened(get, page, compression, leaf)
        values = byte_values(page.encoding, one.values, one.there, most, dictionary)
        most -= sum(map(len, values))
        if most < 0:
            raise unsupported("its values have more bytes than any that are read")
        yield one, values


def count_elements(one: OpenPage, leaf: LeafShape, dtype: np.dtype[Any]) -> int:
    """How many elements the lists of a page have; those of floats may be missing themselves.

    Raises:
        UnsupportedError: One is missing, and no float.
    """
    there = one.levels.definition
    if not leaf.repetition or there is None:
        return one.there
    count = int((there >= leaf.element).sum())
    if count != one.there and dtype.kind != "f":
        raise UnsupportedError("an element of a list of integers is missing", hint=AS_JSON)
    return count


def elements(get: Get, found: Sequence[Page], compression: str, leaf: LeafShape, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The elements of all lists of some pages, as another dtype; those of floats that are missing are NaN.

    Args:
        get: Reads bytes.
        found: The pages, the dictionary first if there is one.
        compression: Of the column chunk.
        leaf: How values are stored.
        dtype: Of the elements.

    Raises:
        DecodeError: A page is damaged, or an element is missing, and no float.
        MissingExtraError: A package is not installed that it takes.
    """
    out = []
    for one, values in numbers(get, found, compression, leaf):
        values = values.view(dtype) if values.dtype.kind == "V" else values.astype(dtype, copy=False)
        there, count = one.levels.definition, count_elements(one, leaf, dtype)
        if there is not None and count != one.there:
            some, values = values, np.full(count, np.nan, dtype)
            values[there[there >= leaf.element] == leaf.definition] = some
        out.append(values)
    return out[0] if len(out) == 1 else np.concatenate([np.zeros(0, dtype), *out])
