"""The records of a list, a piece at a time, also of one that is compressed; nothing of it stays in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from shardstream.dataset.lists.decompression import codec_of, pieces
from shardstream.encodings import FROM_UTF16, is_utf16
from shardstream.errors import UnsupportedError
from shardstream.formats.scans.object_bytes import ObjectBytes
from shardstream.pack.sources.lists.quotes import BOM, grouped
from shardstream.placeholders import find_placeholder

_WINDOW = 4 << 20
_LONGEST = 1 << 20  # of a line
_FIRST, _FIRST_WINDOW = 100, 64 << 10


def records(data: ObjectBytes, *, delimiter: bytes | None, window: int = _WINDOW) -> Iterator[tuple[int, bytes]]:
    """The records of a list with their lines, from 1; blank ones are left out.

    Args:
        data: The list.
        delimiter: Of csv, whose line ends between quotes belong to the record; ``None``: a line is a record.
        window: Bytes that are read at once.

    Raises:
        FormatError: It is not text, a line is too long, or what it is compressed with is damaged.
    """
    lines = _lines(data, window)
    if delimiter is None:
        yield from ((number, line) for number, line in enumerate(lines, 1) if line.rstrip(b"\r"))
        return
    number = 1
    for group in grouped(lines, delimiter):
        if len(group) > 1 or group[0].rstrip(b"\r"):
            yield number, b"\n".join(group)
        number += len(group)


def first_records(data: ObjectBytes, *, delimiter: bytes | None) -> list[tuple[int, bytes]]:
    """The first ones."""
    return list(islice(records(data, delimiter=delimiter, window=_FIRST_WINDOW), _FIRST))


def text_pieces(data: ObjectBytes) -> Iterator[bytes]:
    """The text of a list, inflated, a piece at a time; raises as `records`."""
    return _plain(data, _WINDOW)


def _lines(data: ObjectBytes, window: int) -> Iterator[bytes]:
    """Its lines, without their ends."""
    rest, number = b"", 0
    for place, piece in enumerate(_plain(data, window)):
        part = piece
        if not place:
            if (placeholder := find_placeholder(part, url=data.url)) is not None:
                raise placeholder
            if is_utf16(part):
                raise UnsupportedError("this is text in UTF-16", url=data.url, hint=FROM_UTF16)
            if b"\0" in part[:4096]:
                raise UnsupportedError("this is not text", url=data.url, hint="give a list of files")
            part = part.removeprefix(BOM)
        lines = (rest + part).split(b"\n")
        rest = lines.pop()
        number += len(lines)
        if len(rest) > _LONGEST:
            raise _too_long(data, number + 1)
        yield from lines
    if rest:
        yield rest


def _too_long(data: ObjectBytes, line: int) -> UnsupportedError:
    return UnsupportedError(
        f"a line has more than {_LONGEST:,} bytes", url=data.url, line=line, hint="give a list of files"
    )


def _plain(data: ObjectBytes, window: int) -> Iterator[bytes]:
    codec = codec_of(data.copy(0, min(16, data.size)), data.path)
    if codec is None:
        for at in range(0, data.size, window):
            yield bytes(data.get(at, min(window, data.size - at)))
        return
    for _, piece in pieces(lambda begin, end: bytes(data.get(begin, end - begin)), data.size, codec, data.url):
        yield piece
