"""A value a field and number, as data sets of text recognition are written: ``image-%09d``, ``label-%09d``.

``num-samples`` says how many there are. Other names in the place of ``image`` and ``label`` are fields as well, such as
``image_hr`` and ``image_lr`` of TextZoom.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import zip_longest

from shardstream.formats.lmdb.files import column, kind_of, pieces_of
from shardstream.formats.lmdb.pages import Entries, Pages, Tree
from shardstream.formats.scans.rows import ScannedRows
from shardstream.shards.field_names import usable_field
from shardstream.shards.fields import FieldType

COUNT = b"num-samples"
_DIGITS = 9
_NUMBERED = re.compile(rb"(.+)-[0-9]{9}", re.DOTALL)
_MOST = 64  # names, and other keys between them


def scan_numbered(pages: Pages, tree: Tree, prefix: str) -> Iterator[ScannedRows]:
    """One sample a number, with a field a name. All names have the same numbers, as many as are announced."""
    data = pages.data
    names = _names(pages, tree)
    if b"image" not in names:
        raise data.damaged(
            f"it has {COUNT.decode()}, and no image-000000001 or other image", 0, hint="write the database again"
        )
    kinds = {name: _kind(pages, tree, name) for name in names}
    found = 0
    for some in zip_longest(*(pieces_of(_group(pages, tree, name)) for name in names)):
        numbers = _numbers(pages, names, some)
        columns = [
            column(field, FieldType.parse(kind), one.offsets, one.lengths)
            for (field, kind), one in zip(kinds.values(), some, strict=True)
        ]
        found += len(numbers)
        yield ScannedRows([prefix + number for number in numbers], tuple(sorted(columns, key=lambda one: one.name)))
    _check_count(pages, tree, found)


def _check_count(pages: Pages, tree: Tree, found: int) -> None:
    offset, length = pages.find(tree, COUNT) or (0, 0)
    text = bytes(pages.data.get(offset, min(length, 20)))
    if not text.isdigit() or int(text) != found:
        raise pages.data.damaged(f"{COUNT.decode()} says {text[:20]!r}, and there are {found} images", offset)


def _names(pages: Pages, tree: Tree) -> list[bytes]:
    """What stands before numbers, in order; each is found from the one before, without reading what lies between."""
    names: list[bytes] = []
    start = b"\0"
    for _ in range(_MOST):
        key = next((some.keys[0] for some in pages.entries(tree, start) if some.keys), None)
        if key is None:
            return names
        match = _NUMBERED.fullmatch(key)
        if match:
            names.append(match[1])
        start = match[1] + b"-:" if match else key + b"\0"  # ":" follows "9"
    raise pages.data.damaged(
        f"it has {COUNT.decode()}, and more than {_MOST} kinds of keys beside image-000000001 and its like", 0
    )


def _group(pages: Pages, tree: Tree, name: bytes) -> Iterator[Entries]:
    for some in pages.entries(tree, name + b"-"):
        end = bisect_left(some.keys, name + b"-:")
        if end:
            yield some.take(slice(0, end))
        if end < len(some):
            return


def _numbers(pages: Pages, names: list[bytes], some: tuple[Entries | None, ...]) -> list[str]:
    """The numbers of a piece, which are the same for all names."""
    first = some[0]
    for name, one in zip(names, some, strict=True):
        for key in one.keys if one is not None else ():
            if not key[len(name) + 1 :].isdigit() or len(key) != len(name) + 1 + _DIGITS:
                raise pages.data.damaged(f"{_text(key)} is not numbered as {_text(name)}-000000001 is", 0)
        if one is None:
            raise pages.data.damaged(f"{_text(name)}-000000001 and its like are fewer than others", 0)
    assert first is not None
    numbers = [key[-_DIGITS:] for key in first.keys]
    for name, one in zip(names[1:], some[1:], strict=True):
        assert one is not None
        for number, key in zip_longest(numbers, (key[-_DIGITS:] for key in one.keys)):
            if number != key:
                lacks, lacking = (names[0], key) if number is None or (key and key < number) else (name, number)
                raise pages.data.damaged(
                    f"there is no {_text(lacks)}-{_text(lacking or b'')}, and there is one of another name",
                    int(one.offsets[0]),
                    hint="write the database again: each number needs all of its values",
                )
    return [number.decode() for number in numbers]


def _kind(pages: Pages, tree: Tree, name: bytes) -> tuple[str, str]:
    """Name and type of a field."""
    found = kind_of(pages.data, next(_group(pages, tree, name)))
    if name == b"label" and found is None:
        return "txt", "str"
    if name == b"image":
        return found or ("bin", "bytes")
    return usable_field(_text(name)), found[1] if found else "bytes"


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")
