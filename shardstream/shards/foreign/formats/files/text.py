"""The records of a list, a piece at a time, also of one that is compressed; nothing of it stays in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from shardstream.errors import FormatError
from shardstream.shards.foreign.decompression import codec_of, pieces
from shardstream.shards.foreign.object_bytes import ObjectBytes

_WINDOW = 4 << 20
_LONGEST = 1 << 20  # of a record
_FIRST, _FIRST_WINDOW = 100, 64 << 10
_BOM = b"\xef\xbb\xbf"


def records(data: ObjectBytes, *, quoted: bool, window: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The records of a list with their lines, from 1; blank ones are left out.

    Args:
        data: The list.
        quoted: Whether line ends between double quotes belong to the record, as in csv.
        window: Bytes that are read at once.

    Raises:
        FormatError: It is not text, a record is too long, or what it is compressed with is damaged.
    """
    held, begun = b"", 0
    for number, line in enumerate(_lines(data, window or _WINDOW), 1):
        if held:
            held += b"\n" + line
        elif line.rstrip(b"\r"):
            held, begun = line, number
        else:
            continue
        if quoted and held.count(b'"') & 1:
            if len(held) > _LONGEST:
                raise _too_long(data, begun)
            continue
        yield begun, held
        held = b""
    if held:
        yield begun, held


def first_records(data: ObjectBytes, *, quoted: bool) -> list[tuple[int, bytes]]:
    """The first ones."""
    return list(islice(records(data, quoted=quoted, window=_FIRST_WINDOW), _FIRST))


def _lines(data: ObjectBytes, window: int) -> Iterator[bytes]:
    """Its lines, without their ends."""
    rest, number = b"", 0
    for place, piece in enumerate(_plain(data, window)):
        part = piece
        if not place:
            if b"\0" in part[:4096]:
                raise FormatError("this is not text", url=data.url, hint="give a list of files")
            part = part.removeprefix(_BOM)
        lines = (rest + part).split(b"\n")
        rest = lines.pop()
        number += len(lines)
        if len(rest) > _LONGEST:
            raise _too_long(data, number + 1)
        yield from lines
    if rest:
        yield rest


def _too_long(data: ObjectBytes, line: int) -> FormatError:
    return FormatError(f"a line has more than {_LONGEST:,} bytes", url=data.url, line=line, hint="give a list of files")


def _plain(data: ObjectBytes, window: int) -> Iterator[bytes]:
    codec = codec_of(data.copy(0, min(16, data.size)), data.path)
    if codec is None:
        for at in range(0, data.size, window):
            yield bytes(data.get(at, min(window, data.size - at)))
        return
    for _, piece in pieces(lambda begin, end: bytes(data.get(begin, end - begin)), data.size, codec, data.url):
        yield piece
