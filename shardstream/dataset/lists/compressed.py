"""Lists that are compressed: decompressed once, in order; a line that does not end is refused before it fills disks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from shardstream.dataset.lists import decompression
from shardstream.dataset.lists.decompression import Codec, pieces, plain_name
from shardstream.errors import FormatError, SourceError

LONGEST = 64 << 20
"""Bytes of the longest record that a list may have."""
LIST_SUFFIXES = frozenset((".csv", ".tsv", ".jsonl", ".ndjson", ".txt", ".lst"))
_PEEK = 4096


def is_archive(name: str) -> bool:
    """Whether a file is called like one that is compressed, but not like a list."""
    plain = plain_name(name)
    return plain != name and os.path.splitext(plain)[1].lower() not in LIST_SUFFIXES


def codec_of(head: bytes, url: str) -> Codec | None:
    """As `decompression.codec_of`; SourceError where a list is called like a compressed file, and is none."""
    try:
        return decompression.codec_of(head, url)
    except FormatError as error:
        raise SourceError(error.what, hint=error.hint, **error.place) from error


def decompressed(read: Callable[[int, int], bytes], size: int, codec: Codec, url: str) -> Iterator[bytes]:
    """What a compressed list holds, a piece at a time.

    Args:
        read: Gives the bytes of the file between two places.
        size: Bytes of the file.
        codec: What it is compressed with.
        url: What it is.

    Raises:
        SourceError: It is damaged or cut off, or holds no text; ``offset`` says where in the file.
        MissingExtraError: What it is compressed with needs a package that is not installed.
    """
    line = 0  # bytes since the last line end
    first = True
    for at, piece in _pieces(read, size, codec, url):
        if first:
            refuse_binary(piece[:_PEEK], url)
            first = False
        end = piece.rfind(b"\n") + 1
        line = len(piece) - end + (0 if end else line)
        if line > LONGEST:
            raise too_long(url, offset=at)
        yield piece


def _pieces(read: Callable[[int, int], bytes], size: int, codec: Codec, url: str) -> Iterator[tuple[int, bytes]]:
    try:
        yield from pieces(read, size, codec, url)
    except FormatError as error:
        raise SourceError(error.what, hint=error.hint, **error.place) from error


def refuse_binary(head: bytes, url: str) -> None:
    """Refuse what is not text, by its first bytes; SourceError."""
    if b"\0" in head:
        raise SourceError(
            "this is not a text list: it holds zero bytes",
            url=url,
            hint="save the list as UTF-8 (not UTF-16), one file a line: path<TAB>label",
        )


def too_long(url: str, **place: int) -> SourceError:
    """What to say of a record that no list has."""
    return SourceError(
        f"a line of the list has more than {LONGEST >> 20} MiB",
        url=url,
        hint="this is not a list of samples, or its lines have no ends",
        **place,
    )
