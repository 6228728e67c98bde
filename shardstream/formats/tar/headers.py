"""The headers of a tar: which members it has, and where their bytes lie. v7, ustar, GNU and PAX.

Headers are found as Python's ``tarfile`` finds them, which the webdataset package reads with; so the same members come
out, but that what GNU tar writes into the place of a ustar prefix (times) is not taken for a folder.
https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html,
https://www.gnu.org/software/tar/manual/html_node/Standard.html
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from shardstream.errors import FormatError
from shardstream.formats.scans.object_bytes import ObjectBytes

BLOCK = 512
START = 32
"""Bytes of a value that come with its header: they tell an image, and are all of a label."""
_LONGEST_HEADER = 1 << 20  # of a long name or PAX records
_LONGEST_NAME = 1 << 16  # sixteen times as long as Linux takes
_SHOWN = 120  # characters of a name in a message

_FILES = frozenset(b"0\x007")
_HARD_LINK = ord("1")
_WITHOUT_DATA = frozenset(b"23456")  # symbolic links, devices, folders
_SPARSE = ord("S")
_LONG_NAMES = {ord("L"): "path", ord("K"): "linkpath"}
_PAX = frozenset(b"xX")
_PAX_OF_ALL = ord("g")
_ADLER = 65521


class TarMember(NamedTuple):
    """A file in a tar.

    Attributes:
        name: Its name; what is not UTF-8 is decoded with ``surrogateescape``.
        offset: Where its bytes begin in the object.
        size: How many there are.
        header: Where its first header begins.
        start: Its first `START` bytes, or all of them.
        link: The name of the member whose bytes it has, of a hard link, which has none of its own; else ``None``.
    """

    name: str
    offset: int
    size: int
    header: int
    start: bytes
    link: str | None = None


class TarDamage(Exception):
    """A tar that ends too early, or has a header that is none.

    Attributes:
        what: What is wrong.
        offset: Where.
        lost: Where the first sample begins that may not be whole.
        name: The member that is cut off, where its name is known.
    """

    def __init__(self, what: str, offset: int, name: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.name = name
        self.offset = offset
        self.lost = offset


def shown(name: str) -> str:
    """A member's name for a message."""
    return repr(name if len(name) <= _SHOWN else f"{name[: _SHOWN // 2]}...{name[-_SHOWN // 2 :]}")


class TarMembers:
    """The files of a tar in order, up to the first end mark.

    Args:
        data: The object.
        begin: Where the tar begins in it.
        end: Where it ends; ``None``: at the object's end.

    Attributes:
        marked: Whether the tar has an end mark; known after all members.
    """

    def __init__(self, data: ObjectBytes, begin: int = 0, end: int | None = None) -> None:
        self._data = data
        self._begin = begin
        self._end = data.size if end is None else end
        self._of_all: dict[str, str] = {}
        self.marked = False

    def __iter__(self) -> Iterator[TarMember]:
        """Files and hard links.

        Raises:
            TarDamage: It ends too early, or what should be a header is none.
            FormatError: A sparse file, which cannot be read.
        """
        copy, end = self._data.copy, self._end
        position = first = self._begin
        said: dict[str, str] = {}  # of the next member, by headers in front of its own
        while position + BLOCK <= end:
            block = copy(position, min(BLOCK + START, end - position))
            if not block[0] and block.count(0, 0, BLOCK) == BLOCK:
                self.marked = True
                break
            kind, size, offset = block[156], _checked_size(block), position + BLOCK
            if size is None:
                raise TarDamage("no header is where that of a member should be", position)
            if kind in _LONG_NAMES or kind in _PAX or kind == _PAX_OF_ALL:
                position = self._padded(offset, size, "a long header")
                self._read_ahead(kind, offset, size, said)
                continue
            name = said.get("path") or _name(block)
            if said or self._of_all:
                name, size = self._amended(name, size, said, first)
            if kind == _SPARSE:
                raise self._sparse(name, first)
            if kind in _FILES and not (kind == 0 and block[:100].partition(b"\0")[0].endswith(b"/")):
                start = block[BLOCK : BLOCK + size] if size < START else block[BLOCK:]
                if offset + size > end:
                    raise TarDamage(f"the tar is cut off in member {shown(name)}", first, name)
                yield TarMember(name, offset, size, first, start)
                position = self._padded(offset, size, f"member {shown(name)}")
            elif kind == _HARD_LINK:
                yield TarMember(name, 0, 0, first, b"", said.get("linkpath") or _text(block[157:257]))
                position = offset
            elif kind in _WITHOUT_DATA or kind == 0:  # in v7, a folder is a file whose name ends with a slash
                position = offset
            else:
                position = self._padded(offset, size, f"member {shown(name)}")
            first = position
            if said:
                said = {}
        self._check_end(position, bool(said))

    def _check_end(self, position: int, said: bool) -> None:
        left = self._end - position
        if self._begin == self._end:
            raise TarDamage("it is empty", position)
        if said:
            raise TarDamage("a header in front of a member is the last one", position)
        if 0 < left < BLOCK and any(self._data.get(position, left)):
            raise TarDamage("the tar is cut off in a header", position)

    def _padded(self, offset: int, size: int, what: str) -> int:
        """Where the next header begins."""
        position = offset + (size + BLOCK - 1) // BLOCK * BLOCK
        if position > self._end:
            raise TarDamage(f"the tar is cut off in {what}", offset - BLOCK)
        return position

    def _read_ahead(self, kind: int, offset: int, size: int, said: dict[str, str]) -> None:
        """What a header in front of another says. What was said first counts."""
        if size > _LONGEST_HEADER:
            raise TarDamage(f"a header of {size} bytes is too long", offset - BLOCK)
        text = bytes(self._data.get(offset, size))
        if kind in _LONG_NAMES:
            said.setdefault(_LONG_NAMES[kind], _text(text))
            return
        records = dict(_pax_records(text, offset))
        if kind == _PAX_OF_ALL:
            self._of_all.update(records)
            return
        for keyword, value in records.items():
            said.setdefault(keyword, value)

    def _amended(self, name: str, size: int, said: Mapping[str, str], first: int) -> tuple[str, int]:
        """Name and size of a member by the headers in front of it."""
        records = {**self._of_all, **said}
        name = records.get("path", name)
        if len(name) > _LONGEST_NAME:
            raise TarDamage(f"a name of {len(name)} characters is too long", first)
        if any(keyword.startswith("GNU.sparse.") for keyword in records):
            raise self._sparse(records.get("GNU.sparse.name", name), first)
        text = records.get("size")
        if text is None:
            return name, size
        if not (text.isascii() and text.isdigit() and len(text) <= 20):
            raise TarDamage(f"member {shown(name)} has a size that is not a number", first)
        return name, int(text)

    def _sparse(self, name: str, first: int) -> FormatError:
        return self._data.unsupported(
            f"member {shown(name)} is a sparse file, whose bytes do not lie in the tar as they are",
            first,
            hint="write the tar without --sparse",
        )


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _name(block: bytes) -> str:
    zero = block.find(0, 0, 100)
    name = block[:100] if zero < 0 else block[:zero]
    if block[345] and block[257:262] == b"ustar" and block[262:264] != b"  ":  # two blanks are GNU's, with times there
        name = block[345:500].partition(b"\0")[0] + b"/" + name
    return name.decode("utf-8", "surrogateescape")


def _checked_size(block: bytes) -> int | None:
    """The size in a header; ``None`` where it has none, or another sum than it says."""
    try:  # as nearly all writers put them: 11 digits and a sum of 6
        size, announced = int(block[124:135], 8), int(block[148:154], 8)
    except ValueError:
        size = announced = -1
    # The lower half of Adler-32 is 1 and the sum of all bytes, modulo 65521: much faster than sum(). The eight bytes
    # of the sum itself count as blanks.
    found = zlib.adler32(block[156:BLOCK], zlib.adler32(block[:148])) & 0xFFFF
    if found == (announced - 8 * 32 + 1) % _ADLER and size >= 0 and block[135] in b"\0 ":
        return size
    return _odd_size(block)


def _odd_size(block: bytes) -> int | None:
    """As `_checked_size`, of a header as some writers put it."""
    announced, field = _octal(block[148:156]), block[124:136]
    # In base 256 where octal digits do not hold it.
    size = int.from_bytes(field[1:], "big") if field[0] == 0x80 else _octal(field)
    if announced is None or size is None or size < 0:
        return None
    total = sum(block[:BLOCK]) - sum(block[148:156]) + 8 * ord(" ")
    signed = total - 256 * sum(one > 127 for one in block[:BLOCK])  # of old writers, that of signed bytes
    return size if announced in (total, signed) else None


def _octal(field: bytes) -> int | None:
    try:
        return int(field.partition(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        return None


def _pax_records(text: bytes, offset: int) -> Iterator[tuple[str, str]]:
    """Keywords and values of ``LENGTH KEYWORD=VALUE`` lines, whose length counts all of the line."""
    position = 0
    while position < len(text) and text[position]:
        space = text.find(b" ", position, position + 20)
        digits = text[position : max(space, position)]
        end = position + (int(digits) if digits.isdigit() else 0)
        keyword, equals, value = text[space + 1 : end - 1].partition(b"=")
        if not position < space < end <= len(text) or not equals or text[end - 1] != 0x0A:
            raise TarDamage("a PAX header has records that are none", offset + position)
        name = keyword.decode("utf-8", "surrogateescape")
        said = value.decode("utf-8", "surrogateescape")
        yield name, said.rstrip("/") if name == "path" else said
        position = end
